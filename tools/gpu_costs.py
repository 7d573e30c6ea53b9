"""Cost of the presets for GPUs, computed and never measured: `python -m tools.gpu_costs`.

Prints a table of the preset one-gpu on a card of 24 GB, and the learner's memory with both presets,
by `coevolve.training.plan` and `coevolve.training.memory`.
"""

from collections import defaultdict

from coevolve.methods.registry import METHODS
from coevolve.training import config, memory, plan

SHOWN = ("mae", "sage", "spice", "comas", "conl", "ttrl", "ground_truth")
CARD = plan.CARDS[1]
ROW = "| {} | {:.1f} | {:,.0f} | {:,.0f} | {:.0f} | {:.1f} | {:.2f} |"
HEADER = "| method | GiB | completions a step | of which rewarded | s a step | hours | dollars |"


def row(method: str) -> str:
    """Return a method's line of the table."""
    run = config.build(method, "one-gpu", out=".", overrides={"world": "tiny"})
    need = memory.estimate(run, plan.known_config)
    replies = plan.count_replies(method, "one-gpu", {})
    seconds = plan.step_seconds(run, replies, need.largest_parameters, CARD)
    hours = run.steps * seconds / 3600
    sampled = replies.total * run.batch_size
    rewarded = replies.rewarded * run.batch_size
    dollars = CARD.dollars_per_hour * hours
    return ROW.format(
        method,
        need.needed,
        sampled,
        rewarded,
        seconds,
        hours,
        dollars,
    )


def memory_line(preset: str) -> str:
    """Return the rounded GiB of all methods with a preset, each with its methods."""
    methods_by_gib = defaultdict(list)
    for method in sorted(METHODS):
        run = config.build(method, preset, out=".", overrides={"world": "tiny"})
        need = memory.estimate(run, plan.known_config)
        methods_by_gib[round(need.learning)].append(f"`{method}`")
    groups = []
    for gib, names in sorted(methods_by_gib.items()):
        groups.append(f"{gib} ({', '.join(names)})")
    return f"GiB while learning with the preset {preset}: {', '.join(groups)}"


def main() -> None:
    """Print the table of preset one-gpu, and the memory with both GPU presets."""
    print(HEADER)
    print("|---|---|---|---|---|---|---|")
    for method in SHOWN:
        print(row(method), flush=True)
    for preset in ("one-gpu", "gpu"):
        print(f"\n{memory_line(preset)}")


if __name__ == "__main__":
    main()
