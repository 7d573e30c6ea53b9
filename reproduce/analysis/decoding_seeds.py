"""Trained teams asked several times: the spread over decoding seeds beside that over training.

Loads the policies of finished runs.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from coevolve.evaluation.scoring import score
from coevolve.methods.comas import CoMAS
from coevolve.rollout.engine import BatchedEngine
from reproduce.analysis import standins

MAX_TOKENS = 64
CELL = ["method", "benchmark"]


def load_team(run: Path) -> dict[str, BatchedEngine]:
    """Load the policies of a run into an engine each; several agents have a folder each."""
    from coevolve.engines.loading import load_policy

    home = run / "policy"
    names = sorted(path.name for path in home.iterdir() if path.is_dir())
    engines = {}
    for name in names or [""]:
        policy = load_policy(str(home / name), name or "shared")
        generate = partial(policy.generate, max_tokens=MAX_TOKENS)
        engines[name or "shared"] = BatchedEngine(generate)
    return engines


def answers_of(
    team: dict[str, BatchedEngine],
    method: CoMAS,
    tasks: Sequence,
    temperature: float,
    key: tuple[int, int],
) -> pd.DataFrame:
    """Return the team's scores on the tasks, in which item i goes to agent i modulo their number.

    `key` are the training seed and the decoding seed.
    """
    agents = len(team)
    frames = []
    for number, (name, engine) in enumerate(team.items()):
        rows = score(
            engine,
            method,
            tasks[number::agents],
            temperature=temperature,
            key=(*key, number),
            policies=[name],
        )
        frame = pd.DataFrame(rows)
        frame["item"] = number + agents * frame["item"]
        frames.append(frame)
    return pd.concat(frames)


def ask_all(
    folder: Path,
    runs: standins.Runs,
    labels: standins.Labels,
    method: CoMAS,
    tasks: Sequence,
    decoding_seeds: int,
    temperature: float,
) -> pd.DataFrame:
    """Ask the team of every run in `labels` several times; return a row per answer."""
    frames = []
    for run, label in labels.items():
        for seed in runs[run]:
            team = load_team(folder / f"{run}-s{seed}")
            for decoding in range(decoding_seeds):
                frame = answers_of(team, method, tasks, temperature, (seed, decoding))
                frame = frame.assign(
                    method=label, seed=seed, run=run, decoding=decoding
                )
                frames.append(frame)
    scores = pd.concat(frames, ignore_index=True)
    benchmark_of = standins.layout("comas").benchmark_of
    return scores.assign(
        benchmark=scores["family"].map(benchmark_of),
        trained=scores["run"] != "comas_base",
    )


def spread(scores: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation over decoding seeds, averaged over training seeds.

    In percent, by method and benchmark.
    """
    by_decoding = scores.groupby(
        ["method", "seed", "decoding", "benchmark"],
        sort=False,
    )
    accuracy = by_decoding["correct"].mean() * 100
    by_seed = accuracy.groupby(["method", "benchmark", "seed"], sort=False)
    spreads = by_seed.agg(["mean", "std"])
    return spreads.groupby(CELL, sort=False).mean()


def main_table(
    spreads: pd.DataFrame,
    paper: pd.DataFrame,
    benchmarks: Sequence[str],
    labels: Sequence[str],
) -> pd.DataFrame:
    """Return the spreads beside the paper's, a row per benchmark and a column per method."""
    printed = paper.set_index(CELL)
    rows = []
    for (method, benchmark), row in spreads.iterrows():
        cell = printed.loc[(method, benchmark)]
        reproduced = f"{row['mean']:.1f} ± {row['std']:.1f}"
        reported = f"{cell['printed']} ± {cell['std']:.2f}"
        rows.append((benchmark, method, f"{reproduced} / {reported}"))
    frame = pd.DataFrame(rows, columns=["benchmark", "method", "cell"])
    table = frame.pivot(index="benchmark", columns="method", values="cell")
    table = table.loc[list(benchmarks), list(labels)]
    return table.reset_index().rename_axis(columns=None)


def printed_averages(paper: pd.DataFrame, labels: Sequence[str]) -> pd.DataFrame:
    """Return the paper's average of each method, as `standins.gains` takes it."""
    by_method = paper.set_index(CELL)
    rows = []
    for method in labels:
        values = by_method.loc[method]["value"].astype(float)
        rows.append((method, "Average", values.mean()))
    return pd.DataFrame(rows, columns=["method", "benchmark", "paper"])
