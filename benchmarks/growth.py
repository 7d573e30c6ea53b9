"""What grows with what: pools, corpora, agents, groups, replies, episodes in flight, verifiers that hang.

`python -m benchmarks.growth` measures, sizes alternating, and writes growth.json beside this file and docs/growth.png;
`--figure` only draws again, and names of panels measure these alone. Times are processor time but for the last panel.
"""

import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import EngFormatter

from benchmarks.step import Ours, asked, seconds
from codesandbox import level, run_tests
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.pools import Pool
from coevolve.rollout.scheduler import play
from coevolve.training import config
from coevolve.training.trainer import Trainer
from coevolve.types import Episode, Outcome, Reply, Turn
from published.corpus import find
from reproduce.analysis import figures
from tinyworld.documents import TinyCorpus

SIZES = (1_000, 10_000, 100_000, 1_000_000)
TURN, TURNS = Turn("solver", ()), 4  # of an episode whose engine answers at once
IN_FLIGHT = (1, 10, 100, 1_000, 10_000)
LIMITS = (0.1, 0.3, 1.0, 3.0)  # processor seconds of a program; the last one is the default
PROGRAMS, EVERY = 200, 100  # a batch, and how many programs there are to one that hangs
HONEST, LOOPS = "def f(x):\n    return x * x\n", "def f(x):\n    while True:\n        pass\n"
SLEEPS = "import time\ndef f(x):\n    time.sleep(1000)\n"
TESTS = "assert f(3) == 9\nassert f(-4) == 16"
LEAST = ("a plain list", "looping, by arithmetic", "sleeping, by arithmetic")  # shown beside the rest
Points = list[tuple[float, float]]  # the size, and what was measured at it


def measured(works: Mapping[Any, Callable[[], int]], unit: float, rounds: int = 7) -> Points:
    """Median time by size of works that alternate; each says how many things it did, and `unit` is 1e6 for µs."""
    times: dict[Any, list[float]] = {size: [] for size in works}
    for _ in range(rounds):
        for size, work in works.items():
            done: list[int] = []
            took = seconds(lambda work=work, done=done: done.append(work()))
            times[size].append(unit * took / done[0])
    return [(size, statistics.median(values)) for size, values in times.items()]


def pool() -> dict[str, Points]:
    """Drawing from a pool and adding to it, through the view that an episode has; and drawing from a plain list."""
    pools = {size: Pool(f"{i}*7" for i in range(size)) for size in SIZES}

    def draw(size: int) -> int:
        rng, view = random.Random(0), pools[size].view()
        return len([view.sample(rng) for _ in range(5_000)])

    def plain(size: int) -> int:
        rng, items = random.Random(0), pools[size].items
        return len([items[rng.randrange(size)] for _ in range(5_000)])

    def add(size: int) -> int:
        for i in range(2_000):
            pools[size].view().add(f"{i}+7")
        return 2_000

    works = {"draw": draw, "a plain list": plain, "view and add": add}
    return {name: measured({size: partial(work, size) for size in SIZES}, 1e6) for name, work in works.items()}


def corpus() -> dict[str, Points]:
    """Opening a file of documents that was read before, and drawing one: JSON lines, the same 10,000 over and over."""
    source, draws = TinyCorpus("math", SIZES[1]), 1_000
    lines = [json.dumps({"text": source.document(i)}) + "\n" for i in range(SIZES[1])]
    with tempfile.TemporaryDirectory() as folder:
        datasets.config.HF_DATASETS_CACHE = Path(folder, "cache")  # the texts are kept here and go with the folder
        paths = {size: Path(folder, f"{size}.jsonl") for size in SIZES}
        for size, path in paths.items():
            path.write_text("".join((lines * (size // len(lines) or 1))[:size]), encoding="utf-8")
        sources = {size: find(path, limit=10_000) for size, path in paths.items()}

        def draw(size: int) -> int:
            rng = random.Random(0)
            return len([sources[size].sample(rng) for _ in range(draws)])

        return {"draw": measured({size: partial(draw, size) for size in SIZES}, 1e6)}


def agents() -> dict[str, Points]:
    """A step of CoMAS, one question and m = 2 l, by tokens read and written."""
    points = []
    for count in (1, 2, 4, 8, 16):
        fields = {"agents": count, "rounds_per_agent": 2, "reuse": 4, "batch_size": 1, "lora": []}
        with tempfile.TemporaryDirectory() as out:
            trainer = Trainer(config.build("comas", "quick", out=out, overrides=fields))
        for step in (1, 2):  # the first one warms up
            start = time.process_time()
            outcomes = trainer.play(step)
            trainer.learn(step, outcomes)
            took = time.process_time() - start
        points.append((count, 1e6 * took / sum(o.facts["tokens_in"] + o.facts["tokens_out"] for o in outcomes)))
    return {"step": points}


def steps(cases: Mapping[float, Ours], unit: float, things: Callable[[Ours], int]) -> Points:
    """Whole steps of several policies, by what each of them does in a step."""
    number = dict.fromkeys(cases, 0)

    def work(size: float) -> int:
        cases[size].step(number[size])
        number[size] += 1
        return things(cases[size])

    for size in cases:
        work(size)  # warms up
    return measured({size: partial(work, size) for size in cases}, unit, rounds=5)


def group() -> dict[str, Points]:
    """A whole step of four prompts, by replies."""
    questions = asked(4 * 6)
    cases = {size: Ours(questions, 4, group=size) for size in (2, 4, 8, 16, 32, 64)}
    return {"step": steps(cases, 1e3, lambda ours: ours.prompts * ours.group)}


def length() -> dict[str, Points]:
    """A whole step of 32 replies that go on to the end, by tokens."""
    questions = asked(4 * 6)
    cases = {size: Ours(questions, 4, full=True, most=size) for size in (8, 16, 32, 64, 128, 256)}
    return {"step": steps(cases, 1e6, lambda ours: ours.prompts * ours.group * ours.most)}


def driver() -> dict[str, Points]:
    """Episodes in flight whose engine answers at once."""

    def talk() -> Episode:
        for _ in range(TURNS):
            yield TURN
        return Outcome()

    def run(size: int, collected: bool) -> int:
        times = max(1, 5_000 // size)
        if not collected:
            gc.disable()
        for _ in range(times):
            play([talk() for _ in range(size)], BatchedEngine(lambda turns: [Reply(TURN, "")] * len(turns)))
        gc.enable()
        return times * size * TURNS

    works = {(size, collected): partial(run, size, collected) for size in IN_FLIGHT for collected in (True, False)}
    points = measured(works, 1e6)
    names = {True: "as it is", False: "Python's garbage collector off"}
    return {name: [(size, y) for (size, c), y in points if c == collected] for collected, name in names.items()}


def hanging() -> dict[str, Points]:
    """Programs a second where 1 % never end, as a share of those where all do; the limit of each is the size.

    By arithmetic: an honest program takes its server for h seconds and one that hangs for H, both as measured, so that
    99 honest ones and one that hangs take 99 h + H where 100 honest ones take 100 h.
    """
    servers, limits, held = level.programs().size, {}, []

    def judge(program: str) -> None:
        start = time.perf_counter()
        run_tests(program, TESTS, **limits)
        if program != HONEST:
            held.append(time.perf_counter() - start)

    def rate(other: str) -> float:
        programs = [other if i % EVERY == EVERY // 2 else HONEST for i in range(PROGRAMS)]
        start = time.perf_counter()
        with ThreadPoolExecutor(servers) as threads:
            list(threads.map(judge, programs))
        return PROGRAMS / (time.perf_counter() - start)

    rate(HONEST)  # the servers start on first use
    found: dict[str, Points] = {}
    for name, program in {"looping": LOOPS, "sleeping": SLEEPS}.items():
        for limit in LIMITS:
            limits |= {"cpu_seconds": limit, "wall_seconds": limit + 1}  # as far apart as by default
            held.clear()
            pairs = [(rate(HONEST), rate(program)) for _ in range(3)]
            h = servers / statistics.median(all_end for all_end, _ in pairs)
            share = 100 * EVERY * h / ((EVERY - 1) * h + statistics.median(held))
            found.setdefault(name, []).append((limit, statistics.median(100 * hung / end for end, hung in pairs)))
            found.setdefault(f"{name}, by arithmetic", []).append((limit, share))
    return found


def factor(points: Points) -> float:
    """How much more at the largest size than at the smallest."""
    return points[-1][1] / points[0][1]


PANELS = {  # how it is measured; the title, the size, what is measured; the goal; from points to a value that has to be
    pool: ("a pool", "items", "µs", "the largest takes at most twice as long", factor, 2),
    corpus: ("a corpus", "documents", "µs", "the largest takes at most twice as long", factor, 2),
    agents: ("agents of CoMAS", "agents", "µs a token", "16 take at most twice as long a token as 1", factor, 2),
    group: ("a group", "replies to a prompt", "ms a reply", "a reply of 64 takes no longer than one of 2", factor, 1),
    length: ("replies", "tokens", "µs a token", "a token of 256 takes at most twice as long as one of 8", factor, 2),
    driver: ("episodes in flight", "episodes", "µs a turn", "under 10 µs a turn", lambda p: max(y for _, y in p), 10),
    hanging: ("1 % of programs hang", "limit, s", "% of the throughput", "above 80 %", lambda p: -p[-1][1], -80),
}


def outcome(panel: Callable, series: Mapping[str, Points]) -> dict:
    """What is written of a panel: all points, the goal, and whether it was met."""
    title, size, unit, goal, value, most = PANELS[panel]
    found = max(value(points) for name, points in series.items() if name not in LEAST)
    said = {"title": title, "size": size, "unit": unit, "goal": goal}
    return said | {"value": abs(found), "met": bool(found <= most), "series": series}


def draw(found: Mapping[str, dict], path: Path) -> None:
    """One small panel each."""
    figures.style()
    plt.rcParams["axes.labelsize"] = 8
    fig, axes = plt.subplots(2, 4, figsize=(10, 4.2), layout="constrained")
    axes.flat[-1].axis("off")
    for ax, panel in zip(axes.flat, found.values(), strict=False):
        for name, points in panel["series"].items():
            style = "--" if name in LEAST else "-"
            ax.plot(*zip(*points, strict=True), style, marker="o", markersize=3, label=name)
        sizes = [size for size, _ in points]
        ax.set(xscale="log", xlabel=panel["size"], ylabel=panel["unit"])
        ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
        ax.set_xticks(sizes, [f"{size:g}" if size < 1_000 else EngFormatter(sep="")(size) for size in sizes])
        ax.minorticks_off()
        ax.tick_params(labelsize=7)
        ax.set_title(f"{panel['title']}: {'met' if panel['met'] else 'missed'}\n{panel['goal']}", fontsize=6.5)
        if len(panel["series"]) > 1:
            ax.legend(fontsize=6)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)


def table(found: Mapping[str, dict]) -> str:
    """Markdown: a line for each panel."""
    lines = ["| what grows | goal | measured | |", "|---|---|---|---|"]
    for panel in found.values():
        ends = [f"{points[0][1]:.3g} to {points[-1][1]:.3g}" for points in panel["series"].values()]
        named = [f"{name} {text}" if len(ends) > 1 else text for name, text in zip(panel["series"], ends, strict=True)]
        sizes = next(iter(panel["series"].values()))
        span = f"{panel['title']}, {sizes[0][0]:,} to {sizes[-1][0]:,} {panel['size']}"
        came = f"{', '.join(named)} {panel['unit']}"
        lines.append(f"| {span} | {panel['goal']} | {came} | {'met' if panel['met'] else '**missed**'} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all panels or those that are named, write JSON beside this file, draw, print Markdown."""
    torch.set_num_threads(1)
    file = Path(__file__).with_suffix(".json")
    found = json.loads(file.read_text()) if file.exists() else {}
    for panel in PANELS:
        if panel.__name__ in sys.argv or len(sys.argv) == 1:
            found[panel.__name__] = outcome(panel, panel())
    found = {panel.__name__: found[panel.__name__] for panel in PANELS if panel.__name__ in found}
    file.write_text(json.dumps(found, indent=1) + "\n")
    draw(found, Path(__file__).parents[1] / "docs" / "growth.png")
    print(table(found))


if __name__ == "__main__":
    main()
