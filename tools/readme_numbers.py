"""Write the tables of README.md and docs/ from results/readme.csv and benchmarks/*.json.

`python -m tools.readme_numbers` rewrites the blocks between the marks, `--print` only shows them.
`--write` first takes results/readme.csv from results/standard, which `make reproduce` on another
processor may have changed.
"""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from coevolve.training.machine import faults as machine_faults
from reproduce.analysis.claims import CLAIMS, Ledger, control_over_untrained
from reproduce.analysis.records import Records
from reproduce.analysis.verdicts import MEANINGS, counts_of
from tinyworld import tasks
from tools import control_numbers, gpu_machine, judge_numbers, reliability
from tools.markdown_tables import line, markdown, points

ROOT = Path(__file__).resolve().parent.parent
SNAPSHOT = Path("results") / "readme.csv"


@dataclass(frozen=True)
class Paper:
    """A paper with its two main claims.

    They compare it with the untrained model and with the strongest baseline. Where these are
    asked in another way than the paper's method, two further claims ask them in the same way.
    """

    key: str
    name: str
    over_untrained: str
    over_baseline: str
    baseline: str
    same_over_untrained: str = ""
    same_over_baseline: str = ""


PAPERS = (
    Paper(
        "mae",
        "MAE",
        over_untrained="mae_half_over_base",
        over_baseline="mae_zero_over_azr",
        baseline="AZR, both without outside data",
    ),
    Paper(
        "sage",
        "SAGE",
        over_untrained="sage_over_base_3b",
        over_baseline="sage_over_rival_3b",
        baseline="MAE",
    ),
    Paper(
        "spice",
        "SPICE",
        over_untrained="spice_over_base",
        over_baseline="spice_over_strong",
        baseline="Strong Challenger",
    ),
    Paper(
        "comas",
        "CoMAS",
        over_untrained="comas_over_base_vanilla",
        over_baseline="comas_over_rival_vanilla",
        baseline="MAPoRL",
    ),
    Paper(
        "conl",
        "CoNL",
        over_untrained="conl_over_base",
        over_baseline="conl_over_srt_m",
        baseline="SRT-M",
        same_over_untrained="conl_over_base_top_ranked",
        same_over_baseline="conl_over_srt_m_same_room",
    ),
)


def result_of(name: str, root: Path) -> Any:
    """Return what a benchmark wrote to its JSON file."""
    path = root / "benchmarks" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def gain(row: pd.Series) -> str:
    """Return a claim's effect with its interval, the printed effect, and the verdict."""
    if pd.isna(row["effect"]):
        return row["verdict"]
    text = points(row["effect"], row["low"], row["high"])
    if not pd.isna(row["paper_effect"]):
        text += f", printed {row['paper_effect']:+.1f}"
    return f"{text}: {row['verdict']}"


def gains(ledger: pd.DataFrame, claim: str, same_setting: str) -> str:
    """Return a claim's gain, and that of the claim that asks both sides in the same setting."""
    text = gain(ledger.loc[claim])
    if same_setting:
        text += f"; in the same conversation {gain(ledger.loc[same_setting])}"
    return text


def over_control(row: pd.Series) -> str:
    """Return a claim's gain over its control arm, with its interval."""
    names = ("over_control", "over_control_low", "over_control_high")
    return points(*(row[name] for name in names))


def shuffled(evidence: Ledger, paper: Paper) -> str:
    """Return what a paper's method gains if its rewards are shuffled, with its interval."""
    claim = CLAIMS[paper.same_over_untrained or paper.over_untrained]
    return points(*control_over_untrained(evidence, claim))


def take(root: Path = ROOT) -> pd.DataFrame:
    """Return a row for each paper: its main gains, and its claims by verdict."""
    results = root / "results" / "standard"
    ledger = pd.read_csv(results / "claims" / "ledger.csv").set_index("claim")
    evidence = Ledger(Records(results / "records"))
    rows = []
    for paper in PAPERS:
        claims = ledger[ledger["paper"] == paper.key]
        counts = claims["verdict"].value_counts()
        verdicts = [
            f"{counts[verdict]} {verdict}" for verdict in MEANINGS if verdict in counts
        ]
        over_untrained = gains(ledger, paper.over_untrained, paper.same_over_untrained)
        over_baseline = gains(ledger, paper.over_baseline, paper.same_over_baseline)
        row = {
            "paper": paper.name,
            "over the untrained model": over_untrained,
            "over shuffled rewards": over_control(ledger.loc[paper.over_untrained]),
            "shuffled rewards over the untrained model": shuffled(evidence, paper),
            "over the paper's strongest baseline": f"{paper.baseline}: {over_baseline}",
            "all its claims": ", ".join(verdicts),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def numbers(root: Path = ROOT) -> str:
    """Return the papers' main gains and verdicts as of the last snapshot."""
    frame = pd.read_csv(root / SNAPSHOT, dtype=str, keep_default_na=False)
    rule = ["---"] * len(frame.columns)
    return "\n".join(map(line, [frame.columns, rule, *frame.to_numpy()]))


def verdict_counts(root: Path = ROOT) -> str:
    """Return how many claims of each paper have which verdicts as of the last snapshot.

    A group of verdicts that no claim has gets no column.
    """
    frame = pd.read_csv(root / SNAPSHOT, dtype=str, keep_default_na=False)
    rows = []
    for text in frame["all its claims"]:
        given: list[str] = []
        for part in text.split(", "):
            count, _, verdict = part.partition(" ")
            given += [verdict] * int(count)
        rows.append({"all": len(given), **counts_of(given)})
    counts = pd.DataFrame(rows, index=frame["paper"])
    totals = counts.sum()
    kept = counts.loc[:, totals > 0]
    lines = [
        [paper, *row] for paper, row in zip(kept.index, kept.to_numpy(), strict=True)
    ]
    lines.append(["**all five**", *(f"**{totals[name]}**" for name in kept)])
    return markdown(("claims of", *kept), lines)


def loss(root: Path = ROOT) -> str:
    """Return the policy loss beside public alternatives, as its benchmark prints it."""
    command = [sys.executable, "benchmarks/loss.py", "--table"]
    process = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True
    )
    return process.stdout.strip()


def step(root: Path = ROOT) -> str:
    """Return whole steps beside TRL's, our time by phase, and the sampler's speed."""
    from benchmarks.step import table

    return table(result_of("step", root))


def growth(root: Path = ROOT) -> str:
    """Return the scaling of each part, its goal and its measurement."""
    from benchmarks.growth import table

    return table(result_of("growth", root))


def kernels(root: Path = ROOT) -> str:
    """Return the work of our and others' Triton kernels on a GPU, counted without one."""
    from benchmarks.kernels import table

    return table(result_of("kernels", root))


def sampler(root: Path = ROOT) -> str:
    """Return tokens per second on SmolLM2: coevolve, transformers and vLLM on a CPU."""
    result = result_of("sampler", root)
    head = (
        "completions",
        "prompts",
        "max tokens",
        "coevolve, tokens/s",
        "transformers",
        "vLLM",
        "coevolve / transformers",
        "coevolve / vLLM",
    )
    rows = []
    for row in result["rows"]:
        cells = [
            row["replies"],
            row["prompts"],
            row["limit"],
            f"{row['ours']:,.0f}",
            f"{row['transformers']:,.0f}",
            f"{row['vllm']:,.0f}",
            f"{row['ours'] / row['transformers']:.2f}",
            f"{row['ours'] / row['vllm']:.2f}",
        ]
        rows.append(cells)
    versions = ", ".join(
        f"{name} {version}" for name, version in result["versions"].items()
    )
    equal = result["greedy_as_ours"]
    notes = (
        f"Processor time, {result['threads']} thread, float32, "
        f"medians of {result['rounds']} rounds\n"
        f"({versions}).\n"
        f"Of {result['greedy_replies']} greedy completions, {equal['transformers']} of "
        f"transformers and {equal['vllm']} of vLLM equal coevolve's."
    )
    return f"{markdown(head, rows)}\n\n{notes}"


def runs(root: Path = ROOT) -> str:
    """Return the seconds of whole runs of preset standard on one core, by phase."""
    head = (
        "method",
        "steps",
        "seconds",
        "seconds of each round",
        "playing",
        "learning",
        "validating",
        "test before and after",
        "other strategies, conversations",
        "imports, loading, saving",
        "peak MiB",
        "test questions correct",
    )
    rows = []
    for run in result_of("runs", root)["runs"]:
        phases = [
            run["play"],
            run["learn"],
            run["evaluate"],
            run["held_out"],
            run["strategies"] + run["after_run"],
        ]
        rest = run["seconds"] - sum(phases)
        cells = [
            run["method"],
            f"{run['steps']:.0f}",
            f"{run['seconds']:.0f}",
            ", ".join(f"{seconds:.0f}" for seconds in run["rounds"]),
            *(f"{seconds:.0f}" for seconds in phases),
            f"{rest:.0f}",
            f"{run['peak_mib']:,.0f}",
            f"{run['before']} -> {run['after']}",
        ]
        rows.append(cells)
    return markdown(head, rows)


def attacks(root: Path = ROOT) -> str:
    """Return the reward of each attack with each verifier."""
    from benchmarks.attacks import table

    return table(result_of("attacks", root))


def checkers(root: Path = ROOT) -> str:
    """Return how our verifier and other projects' checkers judge the same pairs."""
    from benchmarks.checkers import table

    return table(result_of("checkers", root))


def verdicts(root: Path = ROOT) -> str:
    """Return how far the ledger's verdicts rest on one backbone."""
    from benchmarks.verdicts import table

    return table(result_of("verdicts", root))


def coverage(root: Path = ROOT) -> str:
    """Return how often simulated intervals cover the truth, and how often tests err."""
    from benchmarks.coverage import table

    return table(result_of("coverage", root))


def dictionary() -> str:
    """Return all families of the tiny world, with an example of each."""
    rng = random.Random("dictionary")
    head = ("family", "question", "answer", "misconception", "level", "plan")
    rows = []
    for name in tasks.NAMES:
        task = tasks.draw(rng, name, 2)
        while tasks.is_correct(task.question, task.misconception):
            task = tasks.draw(rng, name, 2)
        cells = [
            name,
            f"`{task.question}`",
            f"`{task.answer}`",
            f"`{task.misconception}`",
            task.level,
            task.plan,
        ]
        rows.append(cells)
    return markdown(head, rows)


def authors(root: Path = ROOT) -> str:
    """Return how often our values equal those of the authors' released code."""
    from benchmarks.released.tables import counts

    return counts(result_of("authors", root)["comparisons"])


def differences(root: Path = ROOT) -> str:
    """Return the classes of differences from the authors' released code."""
    from benchmarks.released.tables import differences

    return differences(result_of("authors", root)["comparisons"])


def trl(root: Path = ROOT) -> str:
    """Return the last step of each method under both trainers."""
    head = ("method", "loss: own, TRL", "gradient norm: own, TRL", "weights apart")
    rows = []
    for row in result_of("trl", root)["rows"]:
        own = row["own"]
        other = row["trl"]
        cells = [
            row["method"],
            f"{own['loss']:.6f}, {other['loss']:.6f}",
            f"{own['grad_norm']:.5f}, {other['grad_norm']:.5f}",
            f"{row['apart']:.1e}",
        ]
        rows.append(cells)
    return markdown(head, rows)


def machines() -> str:
    """Return what a run says of machines on which it cannot work."""
    rows = []
    for name, machine in gpu_machine.WRONG.items():
        (line,) = machine_faults(machine)
        rows.append([name, line])
    return markdown(("machine", "the run is refused"), rows)


def memory(root: Path = ROOT) -> str:
    """Return the peaks of learning steps on a fake GPU beside the estimate."""
    from benchmarks.memory import HEAD, cells

    return markdown(HEAD, [cells(row) for row in result_of("memory", root)])


def changes(root: Path = ROOT) -> str:
    """Return the verdicts that differ from the earlier ledger's, with a reason for each."""
    from reproduce.analysis import changes

    ledger = pd.read_csv(root / "results/standard/claims/ledger.csv")
    counted = changes.counts(ledger)
    head = ["ledger", *counted.columns]
    totals = markdown(head, [[name, *row] for name, row in counted.iterrows()])
    changed = changes.changed(ledger)
    if changed.empty:
        return f"{totals}\n\nNo verdict differs from the earlier ledger's."
    rows = []
    for row in changed.to_dict("records"):
        before = judged(row, "earlier_")
        rows.append([f"`{row['claim']}`", before, judged(row), row["reason"]])
    table = markdown(("claim", "before", "now", "why"), rows)
    return f"{totals}\n\n{table}"


def judged(row: dict[str, Any], prefix: str = "") -> str:
    """Return a verdict with the effect that it rests on; "" for a claim that was not there."""
    verdict = row[f"{prefix}verdict"]
    if pd.isna(verdict):
        return ""
    effect = row[f"{prefix}effect"]
    if pd.isna(effect):
        return str(verdict)
    low = row[f"{prefix}low"]
    high = row[f"{prefix}high"]
    limits = "" if pd.isna(low) else f" [{low:+.3g}, {high:+.3g}]"
    return f"{verdict}: {effect:+.3g}{limits}"


# Name of each block: the page that holds it, and the function that makes it.
BLOCKS: dict[str, tuple[str, Callable[[], str]]] = {
    "tally": ("README.md", verdict_counts),
    "numbers": ("docs/results.md", numbers),
    "dictionary": ("src/tinyworld/README.md", dictionary),
    "step": ("docs/speed.md", step),
    "growth": ("docs/speed.md", growth),
    "runs": ("docs/speed.md", runs),
    "sampler": ("docs/real-model.md", sampler),
    "loss": ("docs/speed.md", loss),
    "kernels": ("docs/kernels.md", kernels),
    "attacks": ("docs/verifiers.md", attacks),
    "checkers": ("docs/verifiers.md", checkers),
    "authors": ("docs/authors-code.md", authors),
    "trl": ("docs/trl.md", trl),
    "machines": ("docs/gpu.md", machines),
    "memory": ("docs/gpu.md", memory),
    "differences": ("docs/authors-code.md", differences),
    "verdicts": ("docs/reliability.md", verdicts),
    "judge": ("docs/judge-quality.md", partial(judge_numbers.judge, ROOT)),
    "controls": ("docs/controls.md", partial(control_numbers.controls, ROOT)),
    "coverage": ("docs/ledger.md", coverage),
    "changes": ("docs/ledger.md", changes),
    "reliability": ("docs/reliability.md", partial(reliability.table, ROOT)),
}


def rewrite(page: Path, name: str, block: str) -> None:
    """Replace the block of a page between its marks."""
    begin = f"<!-- {name}: tools/readme_numbers.py -->"
    end = f"<!-- end of {name} -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    after = rest.split(end)[1]
    page.write_text(f"{before}{begin}\n{block}\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Rewrite the blocks, or print them."""
    if "--write" in sys.argv:
        take().to_csv(ROOT / SNAPSHOT, index=False, lineterminator="\n")
    for name, (page, make_block) in BLOCKS.items():
        block = make_block()
        if "--print" in sys.argv:
            print(block, end="\n\n")
        else:
            rewrite(ROOT / page, name, block)


if __name__ == "__main__":
    main()
