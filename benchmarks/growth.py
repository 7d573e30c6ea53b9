"""Scaling of pools, corpora, agents, groups, replies, episodes in flight and hanging verifiers.

`python -m benchmarks.growth` measures, sizes alternating, and writes growth.json beside this file
and docs/growth.png; `--figure` only draws again, and names of panels measure only these. Times are
processor times, except in the last panel.
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from benchmarks.step import Ours, draw_questions
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
DISTINCT_DOCUMENTS = 10_000
TURN = Turn("solver", ())
TURNS_PER_EPISODE = 4
EPISODES_TIMED = 5_000
IN_FLIGHT = (1, 10, 100, 1_000, 10_000)
# Processor seconds of a program; the last one is the default.
LIMITS = (
    0.1,
    0.3,
    1.0,
    3.0,
)
PROGRAMS_PER_BATCH = 200
PROGRAMS_PER_HANG = 100  # one program of this many hangs
HONEST = "def f(x):\n    return x * x\n"
LOOPS = "def f(x):\n    while True:\n        pass\n"
SLEEPS = "import time\ndef f(x):\n    time.sleep(1000)\n"
TESTS = "assert f(3) == 9\nassert f(-4) == 16"
# Series that are drawn for comparison and do not decide whether a goal is met.
COMPARISONS = ("a plain list", "looping, by arithmetic", "sleeping, by arithmetic")
Points = list[tuple[float, float]]  # the size, and the measurement at it
Series = Mapping[str, Points]


def measured(
    works: Mapping[Any, Callable[[], int]], unit: float, rounds: int = 7
) -> Points:
    """Return the median time per thing of alternating works, by size.

    Each work returns how many things it did; `unit` converts seconds (1e6: µs).
    """
    times: dict[Any, list[float]] = {size: [] for size in works}
    for _ in range(rounds):
        for size, work in works.items():
            start = time.process_time()
            count = work()
            elapsed = time.process_time() - start
            times[size].append(unit * elapsed / count)
    return [(size, statistics.median(values)) for size, values in times.items()]


def by_size(work: Callable[[int], int]) -> dict[int, Callable[[], int]]:
    """Return a work for every size."""
    return {size: partial(work, size) for size in SIZES}


def pool() -> dict[str, Points]:
    """Time draws from a pool and additions through an episode's view; draws from a plain list."""
    pools = {}
    for size in SIZES:
        pools[size] = Pool(f"{i}*7" for i in range(size))

    def draw(size: int) -> int:
        rng = random.Random(0)
        view = pools[size].view()
        return len([view.sample(rng) for _ in range(5_000)])

    def draw_from_list(size: int) -> int:
        rng = random.Random(0)
        items = pools[size].items
        return len([items[rng.randrange(size)] for _ in range(5_000)])

    def add(size: int) -> int:
        for i in range(2_000):
            pools[size].view().add(f"{i}+7")
        return 2_000

    return {
        "draw": measured(by_size(draw), 1e6),
        "a plain list": measured(by_size(draw_from_list), 1e6),
        "view and add": measured(by_size(add), 1e6),
    }


def corpus() -> dict[str, Points]:
    """Time opening a cached file of documents and drawing one.

    The file holds JSON lines: the same 10,000 documents, repeated up to the size.
    """
    source = TinyCorpus("math", DISTINCT_DOCUMENTS)
    draws = 1_000
    lines = []
    for i in range(DISTINCT_DOCUMENTS):
        lines.append(json.dumps({"text": source.document(i)}) + "\n")
    with tempfile.TemporaryDirectory() as folder:
        # The texts are cached in the folder and are deleted with it.
        datasets.config.HF_DATASETS_CACHE = Path(folder, "cache")
        paths = {size: Path(folder, f"{size}.jsonl") for size in SIZES}
        for size, path in paths.items():
            repetitions = size // len(lines) or 1
            path.write_text("".join((lines * repetitions)[:size]), encoding="utf-8")
        sources = {size: find(path, limit=10_000) for size, path in paths.items()}

        def draw(size: int) -> int:
            rng = random.Random(0)
            return len([sources[size].sample(rng) for _ in range(draws)])

        return {"draw": measured(by_size(draw), 1e6)}


def agents() -> dict[str, Points]:
    """Time a step of CoMAS, one question and m = 2 l, per token read or written."""
    points = []
    for count in (1, 2, 4, 8, 16):
        fields = {
            "agents": count,
            "rounds_per_agent": 2,
            "reuse": 4,
            "batch_size": 1,
            "lora": [],
        }
        with tempfile.TemporaryDirectory() as out:
            trainer = Trainer(config.build("comas", "quick", out=out, overrides=fields))
        for step in (1, 2):  # the first one warms up
            start = time.process_time()
            outcomes = trainer.play(step)
            trainer.learn(step, outcomes)
            elapsed = time.process_time() - start
        tokens = sum(o.facts["tokens_in"] + o.facts["tokens_out"] for o in outcomes)
        points.append((count, 1e6 * elapsed / tokens))
    return {"step": points}


def steps(
    cases: Mapping[float, Ours], unit: float, things: Callable[[Ours], int]
) -> Points:
    """Time whole steps of several policies, per thing done in a step."""
    step_numbers = dict.fromkeys(cases, 0)

    def work(size: float) -> int:
        cases[size].step(step_numbers[size])
        step_numbers[size] += 1
        return things(cases[size])

    for size in cases:
        work(size)  # warms up
    return measured({size: partial(work, size) for size in cases}, unit, rounds=5)


def group() -> dict[str, Points]:
    """Time a whole step of four prompts, per reply, by replies to a prompt."""
    questions = draw_questions(4 * 6)
    cases = {size: Ours(questions, 4, group=size) for size in (2, 4, 8, 16, 32, 64)}
    return {"step": steps(cases, 1e3, lambda ours: ours.prompts * ours.group)}


def length() -> dict[str, Points]:
    """Time a whole step of 32 replies of full length, per token, by length."""
    questions = draw_questions(4 * 6)
    cases = {}
    for size in (8, 16, 32, 64, 128, 256):
        cases[size] = Ours(questions, 4, full=True, max_tokens=size)
    return {
        "step": steps(
            cases, 1e6, lambda ours: ours.prompts * ours.group * ours.max_tokens
        )
    }


def driver() -> dict[str, Points]:
    """Time a turn of episodes in flight whose engine answers at once."""

    def episode() -> Episode:
        for _ in range(TURNS_PER_EPISODE):
            yield TURN
        return Outcome()

    def reply_at_once(turns: list[Turn]) -> list[Reply]:
        return [Reply(TURN, "")] * len(turns)

    def play_episodes(size: int, collect_garbage: bool) -> int:
        times = max(1, EPISODES_TIMED // size)
        if not collect_garbage:
            gc.disable()
        for _ in range(times):
            play([episode() for _ in range(size)], BatchedEngine(reply_at_once))
        gc.enable()
        return times * size * TURNS_PER_EPISODE

    works = {}
    for size in IN_FLIGHT:
        for collect_garbage in (True, False):
            works[size, collect_garbage] = partial(play_episodes, size, collect_garbage)
    names = {True: "as it is", False: "Python's garbage collector off"}
    series: dict[str, Points] = {name: [] for name in names.values()}
    for (size, collect_garbage), microseconds in measured(works, 1e6):
        series[names[collect_garbage]].append((size, microseconds))
    return series


class HangingPrograms:
    """Batches of programs of which some hang, run by all servers of the sandbox."""

    def __init__(self) -> None:
        self.servers = level.programs().size
        self.limits: dict[str, float] = {}
        self.hang_seconds: list[
            float
        ] = []  # how long each hanging program held its server

    def set_limit(self, limit: float) -> None:
        """Set the limit of processor seconds, with wall time as far above it as by default."""
        self.limits = {"cpu_seconds": limit, "wall_seconds": limit + 1}
        self.hang_seconds = []

    def judge(self, program: str) -> None:
        """Run one program, and note its time if it hangs."""
        start = time.perf_counter()
        run_tests(program, TESTS, **self.limits)
        if program != HONEST:
            self.hang_seconds.append(time.perf_counter() - start)

    def rate(self, hanging: str) -> float:
        """Return programs per second of a batch with 1 % of a hanging program."""
        programs = [HONEST] * PROGRAMS_PER_BATCH
        for i in range(PROGRAMS_PER_HANG // 2, PROGRAMS_PER_BATCH, PROGRAMS_PER_HANG):
            programs[i] = hanging
        start = time.perf_counter()
        with ThreadPoolExecutor(self.servers) as threads:
            list(threads.map(self.judge, programs))
        return PROGRAMS_PER_BATCH / (time.perf_counter() - start)


def hanging() -> dict[str, Points]:
    """Measure the throughput in percent where 1 % of programs never end, by their time limit.

    By arithmetic: an honest program holds its server for h seconds and a hanging one for H, both
    as measured, so that 99 honest ones and a hanging one take 99 h + H instead of 100 h.
    """
    batches = HangingPrograms()
    batches.rate(HONEST)  # the servers start on first use
    series: dict[str, Points] = {}
    for name, program in {"looping": LOOPS, "sleeping": SLEEPS}.items():
        measurements = series.setdefault(name, [])
        predictions = series.setdefault(f"{name}, by arithmetic", [])
        for limit in LIMITS:
            batches.set_limit(limit)
            rates = [(batches.rate(HONEST), batches.rate(program)) for _ in range(3)]
            percents = [100 * with_hangs / honest for honest, with_hangs in rates]
            measurements.append((limit, statistics.median(percents)))
            h = batches.servers / statistics.median(honest for honest, _ in rates)
            H = statistics.median(batches.hang_seconds)
            expected_seconds = (PROGRAMS_PER_HANG - 1) * h + H
            predictions.append((limit, 100 * PROGRAMS_PER_HANG * h / expected_seconds))
    return series


def factor(points: Points) -> float:
    """Return the ratio of the largest size's measurement to the smallest size's."""
    return points[-1][1] / points[0][1]


def highest(points: Points) -> float:
    """Return the highest measurement."""
    return max(value for _, value in points)


def negative_last(points: Points) -> float:
    """Return minus the measurement at the largest size, so that a lower bound is an upper one."""
    return -points[-1][1]


@dataclass(frozen=True)
class Panel:
    """A measurement by size, and its goal: `value` of every series is at most `limit`."""

    measure: Callable[[], Series]
    title: str
    size: str
    unit: str
    goal: str
    value: Callable[[Points], float]
    limit: float

    @property
    def name(self) -> str:
        """Name on the command line and in growth.json."""
        return self.measure.__name__


PANELS = (
    Panel(
        pool,
        "a pool",
        "items",
        "µs",
        "the largest takes at most twice as long",
        factor,
        2,
    ),
    Panel(
        corpus,
        "a corpus",
        "documents",
        "µs",
        "the largest takes at most twice as long",
        factor,
        2,
    ),
    Panel(
        agents,
        "agents of CoMAS",
        "agents",
        "µs a token",
        "16 take at most twice as long a token as 1",
        factor,
        2,
    ),
    Panel(
        group,
        "a group",
        "replies to a prompt",
        "ms a reply",
        "a reply of 64 takes no longer than one of 2",
        factor,
        1,
    ),
    Panel(
        length,
        "replies",
        "tokens",
        "µs a token",
        "a token of 256 takes at most twice as long as one of 8",
        factor,
        2,
    ),
    Panel(
        driver,
        "episodes in flight",
        "episodes",
        "µs a turn",
        "under 10 µs a turn",
        highest,
        10,
    ),
    Panel(
        hanging,
        "1 % of programs hang",
        "limit, s",
        "% of the throughput",
        "above 80 %",
        negative_last,
        -80,
    ),
)


def outcome(panel: Panel, series: Series) -> dict:
    """Return what is written of a panel: all points, the goal, and whether it was met."""
    deciding = [points for name, points in series.items() if name not in COMPARISONS]
    value = max(panel.value(points) for points in deciding)
    return {
        "title": panel.title,
        "size": panel.size,
        "unit": panel.unit,
        "goal": panel.goal,
        "value": abs(value),
        "met": bool(value <= panel.limit),
        "series": series,
    }


def draw_panel(ax: Axes, panel: dict) -> None:
    """Draw one panel."""
    for name, points in panel["series"].items():
        style = "--" if name in COMPARISONS else "-"
        ax.plot(*zip(*points, strict=True), style, marker="o", markersize=3, label=name)
    sizes = [size for size, _ in points]
    thousands = EngFormatter(sep="")
    labels = [f"{size:g}" if size < 1_000 else thousands(size) for size in sizes]
    ax.set(xscale="log", xlabel=panel["size"], ylabel=panel["unit"])
    ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
    ax.set_xticks(sizes, labels)
    ax.minorticks_off()
    ax.tick_params(labelsize=7)
    verdict = "met" if panel["met"] else "missed"
    ax.set_title(f"{panel['title']}: {verdict}\n{panel['goal']}", fontsize=6.5)
    if len(panel["series"]) > 1:
        ax.legend(fontsize=6)


def draw(panels: Mapping[str, dict], path: Path) -> None:
    """Draw all panels into one picture."""
    figures.style()
    plt.rcParams["axes.labelsize"] = 8
    fig, axes = plt.subplots(2, 4, figsize=(10, 4.2), layout="constrained")
    axes.flat[-1].axis("off")
    for ax, panel in zip(axes.flat, panels.values(), strict=False):
        draw_panel(ax, panel)
    fig.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(fig)


def table(panels: Mapping[str, dict]) -> str:
    """Return a line of Markdown for each panel."""
    lines = ["| what grows | goal | measured | |", "|---|---|---|---|"]
    for panel in panels.values():
        ranges = []
        for name, points in panel["series"].items():
            smallest_to_largest = f"{points[0][1]:.3g} to {points[-1][1]:.3g}"
            label = f"{name} " if len(panel["series"]) > 1 else ""
            ranges.append(label + smallest_to_largest)
        sizes = [size for size, _ in next(iter(panel["series"].values()))]
        cells = [
            f"{panel['title']}, {sizes[0]:,} to {sizes[-1]:,} {panel['size']}",
            panel["goal"],
            f"{', '.join(ranges)} {panel['unit']}",
            "met" if panel["met"] else "**missed**",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure all panels or the named ones, write JSON beside this file, draw, print Markdown."""
    torch.set_num_threads(1)
    file = Path(__file__).with_suffix(".json")
    results = json.loads(file.read_text()) if file.exists() else {}
    for panel in PANELS:
        if panel.name in sys.argv or len(sys.argv) == 1:
            results[panel.name] = outcome(panel, panel.measure())
    results = {
        panel.name: results[panel.name] for panel in PANELS if panel.name in results
    }
    file.write_text(json.dumps(results, indent=1) + "\n")
    draw(results, Path(__file__).parents[1] / "docs" / "growth.png")
    print(table(results))


if __name__ == "__main__":
    main()
