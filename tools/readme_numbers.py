"""Write the tables of README.md and docs/ from results/readme.csv and benchmarks/*.json: no number is typed.

`python -m tools.readme_numbers` rewrites the blocks between the marks and `--print` only shows them. With `--write` it
first takes results/readme.csv anew from results/standard, which another processor's `make reproduce` may have changed.
"""

import json
import random
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd

from tinyworld import tasks
from tools import reliability

ROOT = Path(__file__).resolve().parent.parent
MAIN = {  # paper: its claims against the untrained model and against the baseline that is best in print
    "mae": ("mae_half_over_base", "mae_zero_over_azr"),
    "sage": ("sage_over_base_3b", "sage_over_rival_3b"),
    "spice": ("spice_over_base", "spice_over_strong"),
    "comas": ("comas_over_base_vanilla", "comas_over_rival_vanilla"),
    "conl": ("conl_over_base", "conl_over_srt_m"),
}
NAMES = {"mae": "MAE", "sage": "SAGE", "spice": "SPICE", "comas": "CoMAS", "conl": "CoNL"}
VERDICTS = ("found", "opposite", "other size", "undecided", "idle", "one seed", "not run", "cannot be tested here")
SNAPSHOT = Path("results") / "readme.csv"


def gain(row: pd.Series) -> str:
    """A claim's effect here with its interval, the printed one, and the verdict."""
    limits = "" if pd.isna(row["low"]) else f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    printed = "" if pd.isna(row["paper_effect"]) else f", printed {row['paper_effect']:+.1f}"
    return f"{row['effect']:+.1f}{limits}{printed}: {row['verdict']}"


def take(root: Path = ROOT) -> pd.DataFrame:
    """A row per paper: its two main gains, and how many of its claims have which verdict."""
    ledger = pd.read_csv(root / "results/standard/claims/ledger.csv").set_index("claim")
    rows = []
    for paper, (base, rival) in MAIN.items():
        counts = ledger[ledger["paper"] == paper]["verdict"].value_counts()
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if verdict in counts)
        rows.append((NAMES[paper], gain(ledger.loc[base]), gain(ledger.loc[rival]), verdicts))
    return pd.DataFrame(
        rows, columns=["paper", "over the untrained model", "over the baseline best in print", "all its claims"]
    )


def numbers(root: Path = ROOT) -> str:
    """The papers' main gains and verdicts as they were taken last."""
    frame = pd.read_csv(root / SNAPSHOT, dtype=str, keep_default_na=False)
    rule = ["---"] * len(frame.columns)
    return "\n".join(f"| {' | '.join(row)} |" for row in (frame.columns, rule, *frame.to_numpy()))


def loss(root: Path = ROOT) -> str:
    """The policy loss beside the public alternatives, as the benchmark prints it from its own file."""
    command = [sys.executable, "benchmarks/loss.py", "--table"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def step(root: Path = ROOT) -> str:
    """Whole steps beside TRL's, our time by phase, and the sampler beside transformers."""
    from benchmarks.step import table

    return table(json.loads((root / "benchmarks" / "step.json").read_text(encoding="utf-8")))


def growth(root: Path = ROOT) -> str:
    """What grows with what, its goal and what was measured."""
    from benchmarks.growth import table

    return table(json.loads((root / "benchmarks" / "growth.json").read_text(encoding="utf-8")))


def kernels(root: Path = ROOT) -> str:
    """What our Triton kernels and others' ask of a GPU, counted without one."""
    from benchmarks.kernels import table

    return table(json.loads((root / "benchmarks" / "kernels.json").read_text(encoding="utf-8")))


def sampler(root: Path = ROOT) -> str:
    """Tokens per second on SmolLM2: ours, transformers and vLLM on a CPU."""
    found = json.loads((root / "benchmarks" / "sampler.json").read_text(encoding="utf-8"))
    lines = [
        "| replies | prompts | at most | ours, tokens/s | transformers | vLLM | ours : transformers | ours : vLLM |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        speeds = " | ".join(f"{row[name]:,.0f}" for name in ("ours", "transformers", "vllm"))
        ratios = " | ".join(f"{row['ours'] / row[name]:.2f}" for name in ("transformers", "vllm"))
        lines.append(f"| {row['replies']} | {row['prompts']} | {row['limit']} | {speeds} | {ratios} |")
    how = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    how = f"Processor time, {found['threads']} thread, float32, medians of {found['rounds']} rounds ({how})."
    same = [found["greedy_as_ours"][name] for name in ("transformers", "vllm")]
    greedy = f"Of {found['greedy_replies']} greedy replies {same[0]} of transformers and {same[1]} of vLLM equal ours."
    return "\n".join([*lines, "", f"{how} {greedy}"])


def runs(root: Path = ROOT) -> str:
    """Whole runs of preset standard on one core, by phase."""
    found = json.loads((root / "benchmarks" / "runs.json").read_text(encoding="utf-8"))["runs"]
    heads = (
        "method",
        "steps",
        "seconds",
        "every round",
        "of which playing",
        "learning",
        "validating",
        "test before and after",
        "other set-ups, conversations",
        "imports, loading, saving",
        "peak MiB",
        "held-out",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for run in found:
        spent = [run[name] for name in ("play", "learn", "evaluate", "held_out")] + [run["setups"] + run["examined"]]
        rounds = ", ".join(f"{seconds:.0f}" for seconds in run["rounds"])
        phases = " | ".join(f"{seconds:.0f}" for seconds in (*spent, run["seconds"] - sum(spent)))
        held_out = f"{run['before']} -> {run['after']}"
        whole = f"{run['method']} | {run['steps']:.0f} | {run['seconds']:.0f} | {rounds}"
        lines.append(f"| {whole} | {phases} | {run['peak_mib']:,.0f} | {held_out} |")
    return "\n".join(lines)


def attacks(root: Path = ROOT) -> str:
    """What each attack earns of each verifier."""
    from benchmarks.attacks import table

    return table(json.loads((root / "benchmarks" / "attacks.json").read_text(encoding="utf-8")))


def verdicts(root: Path = ROOT) -> str:
    """What a second backbone changes in the ledger."""
    from benchmarks.verdicts import table

    return table(json.loads((root / "benchmarks" / "verdicts.json").read_text(encoding="utf-8")))


def dictionary() -> str:
    """All families of the tiny world, with an example of each."""
    rng = random.Random("dictionary")
    lines = ["| family | question | answer | misconception | level | plan |", "|---|---|---|---|---|---|"]
    for name in tasks.NAMES:
        task = tasks.draw(rng, name, 2)
        while tasks.is_correct(task.question, task.misconception):
            task = tasks.draw(rng, name, 2)
        cells = (name, f"`{task.question}`", f"`{task.answer}`", f"`{task.misconception}`", task.level, task.plan)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


BLOCKS = {  # name: the page that holds it, and what makes it
    "numbers": ("README.md", numbers),
    "dictionary": ("src/tinyworld/README.md", dictionary),
    "step": ("docs/speed.md", step),
    "growth": ("docs/speed.md", growth),
    "runs": ("docs/speed.md", runs),
    "sampler": ("docs/real-model.md", sampler),
    "loss": ("docs/speed.md", loss),
    "kernels": ("docs/kernels.md", kernels),
    "attacks": ("docs/verifiers.md", attacks),
    "verdicts": ("docs/reliability.md", verdicts),
    "reliability": ("docs/reliability.md", partial(reliability.table, ROOT)),
}


def main() -> None:
    """Rewrite the blocks, or print them."""
    if "--write" in sys.argv:
        take().to_csv(ROOT / SNAPSHOT, index=False, lineterminator="\n")
    for name, (page, block) in BLOCKS.items():
        if "--print" in sys.argv:
            print(block(), end="\n\n")
            continue
        text = (ROOT / page).read_text(encoding="utf-8")
        head, rest = text.split(f"<!-- {name}: tools/readme_numbers.py -->")
        end = f"<!-- end of {name} -->"
        text = f"{head}<!-- {name}: tools/readme_numbers.py -->\n{block()}\n{end}{rest.split(end)[1]}"
        (ROOT / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
