"""How many replies the rows of a table were trained on, counted in the records of their runs.

A method with several agents trains each on its own replies, and one of them answers a test
question. So the numbers that compare are those per agent that answers test questions. Loads no
torch.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from coevolve.runs import record
from reproduce.analysis import standins

SAMPLES = "samples/"  # prefix of the metrics


def trained_on(
    folder: str | Path, runs: standins.Runs, labels: standins.Labels
) -> pd.DataFrame:
    """Return the rewarded replies of each trained row, per agent that answers test questions.

    Columns: method (the label), role, replies (a mean over seeds). A row whose method brings a
    trainer of its own has the role "" and no number.
    """
    is_trained = standins.is_trained(folder, runs, labels)
    rows = []
    for run, label in labels.items():
        if not is_trained[run]:
            continue
        for seed in runs[run]:
            replies_by_role = _replies_by_role(folder, run, seed)
            for role, replies in replies_by_role.items():
                rows.append((label, role, replies))
    frame = pd.DataFrame(rows, columns=["method", "role", "replies"])
    by_role = frame.groupby(["method", "role"], sort=False)
    return by_role["replies"].mean().reset_index()


def _replies_by_role(folder: str | Path, run: str, seed: int) -> dict[str, float]:
    """Return the rewarded replies of one run by role, per agent that answers test questions."""
    summary = standins.summary(folder, run, seed)
    agents = len(summary["scored"])
    home = Path(folder) / f"{run}-s{seed}"
    metrics = record.read(home, "metrics")
    counts = {}
    for name in metrics.columns:
        if name.startswith(SAMPLES):
            role = name.removeprefix(SAMPLES)
            counts[role] = metrics[name].sum() / agents
    return counts or {"": float("nan")}


def note(folder: str | Path, runs: standins.Runs, labels: standins.Labels) -> str:
    """Say how many replies each row was trained on, in all and by role; "" without trained rows."""
    by_role = trained_on(folder, runs, labels)
    parts = []
    for label, own in by_role.groupby("method", sort=False):
        parts.append(f"{label} {_counts_of_row(own)}")
    if not parts:
        return ""
    return (
        "Rewarded replies in training, for each agent that answers test questions: "
        f"{'; '.join(parts)}."
    )


def _counts_of_row(by_role: pd.DataFrame) -> str:
    total = by_role["replies"].sum(skipna=False)
    if pd.isna(total):
        return "not counted (a trainer of its own)"
    if len(by_role) == 1:
        return f"{total:,.0f}"
    roles = []
    for row in by_role.itertuples():
        roles.append(f"{row.role} {row.replies:,.0f}")
    in_parts = ", ".join(roles)
    return f"{total:,.0f} ({in_parts})"


def by_run(
    folder: str | Path, runs: standins.Runs, earlier: str | Path
) -> dict[str, str]:
    """Return the rewarded replies of each run, such as 5,760, a mean over its seeds.

    An untrained run has 0, and "?" stands for a trainer of its own. A run whose folders are not
    here, as where only its records are committed, has the number in the file `earlier` (see
    `write_by_run`), or none.
    """
    known = read_by_run(earlier)
    texts = {}
    for run, seeds in runs.items():
        if _is_here(folder, run, seeds):
            texts[run] = _total(folder, runs, run)
        elif run in known:
            texts[run] = known[run]
    return texts


def _is_here(folder: str | Path, run: str, seeds: Sequence[int]) -> bool:
    """Whether every seed of a run has its folder."""
    for seed in seeds:
        home = Path(folder) / f"{run}-s{seed}"
        if not home.is_dir():
            return False
    return True


def read_by_run(path: str | Path) -> dict[str, str]:
    """Return what `write_by_run` wrote, nothing if there is no such file."""
    if not Path(path).is_file():
        return {}
    table = pd.read_csv(
        path,
        dtype=str,
        keep_default_na=False,
        index_col="run",
    )
    replies: dict[str, str] = table["replies"].to_dict()
    return replies


def write_by_run(replies: Mapping[str, str], path: str | Path) -> None:
    """Write the replies of each run as CSV."""
    table = pd.Series(replies, name="replies")
    table.to_csv(
        path,
        index_label="run",
        lineterminator="\n",
    )


def of_claims(
    replies: Mapping[str, str], claims: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """Return, for each claim about accuracy, the rewarded replies of its arms, such as 480 / 960.

    `replies` is that of `by_run`. Claims with an arm that it lacks are left out.
    """
    texts = {}
    for name, claim in claims.items():
        arms = claim.get("arms", ())
        is_known = set(arms) <= set(replies)
        if claim.get("metric") == "accuracy" and is_known:
            of_arms = [replies[arm] for arm in arms]
            texts[name] = " / ".join(of_arms)
    return texts


def _total(folder: str | Path, runs: standins.Runs, run: str) -> str:
    """Return the number of rewarded replies of a run, as a text."""
    by_role = trained_on(folder, runs, {run: run})
    total = by_role["replies"].sum(skipna=False)
    if pd.isna(total):
        return "?"
    return f"{total:,.0f}"
