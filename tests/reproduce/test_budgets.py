"""Counts of the replies that rows are trained on, on made-up records of runs."""

from pathlib import Path

import pytest
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import budgets

RUNS = {"base": [0], "team": [0, 1], "judge": [0], "dpo": [0]}
LABELS = {"base": "Untrained", "team": "Team", "judge": "Judged", "dpo": "DPO"}
COUNTED = {  # rewarded replies of each run
    "base": "0",
    "team": "250",
    "judge": "1,000",
    "dpo": "?",
}
SAMPLES = {  # by run and seed: rewarded completions of a step
    ("team", 0): {"solution": 100, "scoring": 50},
    ("team", 1): {"solution": 300, "scoring": 50},
    ("judge", 0): {"solver": 500},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two steps; two agents of the team answer test questions."""
    home = tmp_path_factory.mktemp("runs")
    for run, seeds in RUNS.items():
        agents = ["agent_1", "agent_2"] if run == "team" else ["shared"]
        steps = 0 if run == "base" else 2
        for seed in seeds:
            recorder = Recorder(home / f"{run}-s{seed}")
            summary = {"steps": steps, "scored": agents}
            write_json(recorder.out / "summary.json", summary)
            rows = [{"step": 0, "validation": 0.5}]
            counts = SAMPLES.get((run, seed), {})
            for step in range(1, steps + 1):
                named = {f"samples/{role}": count for role, count in counts.items()}
                rows.append({"step": step, **named})
            recorder.rows("metrics", rows)
    return home


def test_replies_are_counted_per_agent_and_role_and_averaged_over_seeds(
    folder: Path,
) -> None:
    table = budgets.trained_on(folder, RUNS, {"team": "Team"})
    by_role = table.set_index("role")["replies"]
    assert by_role["solution"] == approx(2 * (100 + 300) / 2 / 2)
    assert by_role["scoring"] == approx(2 * 50 / 2)


def test_the_note_names_trained_rows_and_those_that_are_not_counted(
    folder: Path,
) -> None:
    assert budgets.note(folder, RUNS, LABELS) == (
        "Rewarded replies in training, for each agent that answers test questions: "
        "Team 250 (solution 200, scoring 50); Judged 1,000; "
        "DPO not counted (a trainer of its own)."
    )


def test_untrained_rows_need_no_note(folder: Path) -> None:
    assert budgets.note(folder, RUNS, {"base": "Untrained"}) == ""


def test_replies_are_counted_where_the_runs_are_and_otherwise_kept(
    folder: Path, tmp_path: Path
) -> None:
    counted = budgets.by_run(folder, RUNS, tmp_path / "nothing.csv")
    assert counted == COUNTED
    earlier = tmp_path / "replies.csv"
    budgets.write_by_run({"gone": "5,760", "judge": "7"}, earlier)
    runs = {
        "judge": [0],
        "gone": [0, 1],
        "never": [0],
        "team": [0, 1, 2],  # its third seed is not here
    }
    known = budgets.by_run(folder, runs, earlier)
    assert known == {"judge": "1,000", "gone": "5,760"}


def test_a_claim_about_accuracy_has_the_replies_of_its_arms() -> None:
    claims = {
        "a": {"metric": "accuracy", "arms": ["team", "judge", "base"]},
        "b": {"metric": "accuracy", "arms": ["dpo", "base"]},
        "c": {"metric": "column", "arms": ["team"]},
        "d": {"metric": "accuracy", "arms": ["team", "never"]},
        "e": {"cannot": "no sound"},
    }
    expected = {"a": "250 / 1,000 / 0", "b": "? / 0"}
    assert budgets.of_claims(COUNTED, claims) == expected
