"""The committed records: every row of the ledger follows from them, without runs or torch."""

import gzip
import io
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pretend_runs
import pytest
from pandas.testing import assert_frame_equal

from reproduce import UserError
from reproduce.analysis import claims, recompute, records
from reproduce.analysis.evidence import RunFolders
from reproduce.analysis.records import Records
from reproduce.analysis.writing import rounded_csv

ROOT = Path(__file__).parents[2]
COMMITTED = sorted(ROOT.glob("results/*/records"))
# Columns of the ledger that do not depend on the p-values of other claims.
OF_ONE_CLAIM = ["effect", "low", "high", "p"]
# What a reader of the records does not need.
HEAVY = ("torch", "transformers", "datasets", "matplotlib", "seaborn", "papermill")
WITHOUT_HEAVY = f"""
import runpy, sys
class Refusal:
    def find_spec(name, *rest):
        if name in {HEAVY}:
            raise ImportError(name)
sys.meta_path.insert(0, Refusal)
runpy.run_module("reproduce.analysis.recompute", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> RunFolders:
    """Pretend runs of all arms of the ledger, two seeds each."""
    return pretend_runs.make(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def packed(folders: RunFolders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their records and the ledger that follows from them, as the batch lays them out."""
    results = tmp_path_factory.mktemp("results")
    home = results / recompute.RECORDS
    records.pack(folders, home, claims.step_columns())
    ledger = claims.weigh(claims.Ledger(Records(home)))
    (results / "claims").mkdir()
    (results / recompute.LEDGER).write_text(rounded_csv(ledger), encoding="utf-8")
    return results


@pytest.fixture(scope="module")
def home(packed: Path) -> Path:
    """The folder of the records."""
    return packed / recompute.RECORDS


@pytest.fixture
def results(packed: Path, tmp_path: Path) -> Path:
    """A copy to edit, far from any run."""
    return shutil.copytree(packed, tmp_path / "results")


def test_the_ledger_is_recomputed_without_runs_and_without_torch(results: Path) -> None:
    options = ["--results", str(results), "--check"]
    process = subprocess.run(
        [sys.executable, "-c", WITHOUT_HEAVY, *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={},  # no PYTHONPATH, as in a fresh clone
    )
    assert process.returncode == 0, process.stdout + process.stderr
    *table, verdict = process.stdout.splitlines()
    assert verdict == f"all {len(claims.CLAIMS)} rows are equal"
    assert any(line.startswith("mae_half_over_base ") for line in table)


@pytest.mark.thorough
def test_the_records_give_the_ledger_that_the_runs_give(
    folders: RunFolders, home: Path
) -> None:
    of_runs = claims.weigh(claims.Ledger(folders)).set_index("claim")
    of_records = claims.weigh(claims.Ledger(Records(home))).set_index("claim")
    assert of_runs["effect"].notna().sum() > 80
    metrics = [claims.CLAIMS[name].get("metric") for name in of_runs.index]
    rests_on_answers = np.array(metrics) == "accuracy"
    own = of_runs.loc[rests_on_answers, OF_ONE_CLAIM]
    other = of_records.loc[rests_on_answers, OF_ONE_CLAIM]
    assert_frame_equal(own, other, rtol=0)
    # Of the other measurements the records hold six digits.
    assert_frame_equal(of_runs, of_records, rtol=1e-3)


@pytest.mark.parametrize("run", ["mae_half", "conl", "base"])
def test_both_sources_give_the_same_frames(
    run: str, folders: RunFolders, home: Path
) -> None:
    committed = Records(home)
    assert_frame_equal(
        pd.DataFrame(committed.summaries(run)),
        pd.DataFrame(folders.summaries(run)),
    )
    for strategy, stage in [("vanilla", "before"), ("debate", "after"), ("no", "no")]:
        assert_frame_equal(
            committed.answers(run, strategy, stage),
            folders.answers(run, strategy, stage),
            check_dtype=stage != "no",
        )
    columns = ["seed", "model", "step", *claims.step_columns()]
    of_runs = folders.step_metrics(run)[columns]
    of_records = committed.step_metrics(run)[columns]
    assert_frame_equal(of_records, of_runs, rtol=1e-5)


def test_a_run_s_backbone_is_that_of_its_first_policy(folders: RunFolders) -> None:
    backbones = [summary.backbone for summary in folders.summaries("comas_mixed")]
    assert backbones == list(pretend_runs.BACKBONES)


def test_both_sources_give_the_same_conversations_and_pass_rates(
    folders: RunFolders, home: Path
) -> None:
    committed = Records(home)
    talks = committed.conversations("conl")
    assert_frame_equal(talks, folders.conversations("conl"), rtol=1e-5)
    assert committed.conversations("mae_half").empty
    assert_frame_equal(committed.cross_play(), folders.cross_play(), rtol=1e-5)


def flip(results: Path, run: str) -> None:
    """Turn the first verdict on a run's answers after training into its opposite."""
    path = results / recompute.RECORDS / records.ANSWERS
    table = pd.read_csv(path, dtype={"correct": str})
    is_row = (table["run"] == run) & (table["stage"] == "after")
    row = table.index[is_row & (table["strategy"] == "vanilla")][0]
    correct = table.loc[row, "correct"]
    opposite = {"0": "1", "1": "0"}[correct[0]]
    table.loc[row, "correct"] = opposite + correct[1:]
    records.write(table, path)


def check(results: Path, *options: str) -> tuple[int, str]:
    """Check the ledger; return the exit code and what is printed."""
    with redirect_stdout(io.StringIO()) as printed:
        code = recompute.main(["--results", str(results), "--check", *options])
    return code, printed.getvalue()


@pytest.mark.thorough
def test_a_flipped_bit_is_found(results: Path) -> None:
    flip(results, "mae_half")
    code, printed = check(results)
    assert code == 1
    with_effect = set(re.findall(r"^(\w+): effect ", printed, re.MULTILINE))
    tested = set()
    for name, claim in claims.CLAIMS.items():
        if "mae_half" in claim.get("arms", ()) and claim["metric"] == "accuracy":
            tested.add(name)
    assert "mae_half_over_base" in with_effect
    assert with_effect <= tested


@pytest.mark.thorough
def test_only_the_named_claims_are_shown_and_checked(results: Path) -> None:
    flip(results, "mae_half")
    code, printed = check(results, "--claim", "mae_half_over_base", "conl_harm")
    assert code == 1
    *table, difference, last = printed.splitlines()
    assert len(table) == 4  # two lines of head
    assert difference.startswith("mae_half_over_base: effect ")
    assert last == "1 rows differ"


@pytest.mark.thorough
def test_a_changed_digit_of_the_ledger_is_found(results: Path) -> None:
    ledger = results / recompute.LEDGER
    table = pd.read_csv(ledger, dtype=str, keep_default_na=False)
    first = table.loc[0, "claim"]
    low = table.loc[0, "low"]
    last_digit = int(low[-1])
    other_digit = (last_digit + 1) % 10
    other = f"{low[:-1]}{other_digit}"
    table.loc[0, "low"] = other
    table = table.drop(index=1)
    ledger.write_text(table.to_csv(index=False))
    code, printed = check(results)
    assert code == 1
    assert f"{first}: low {other} -> {low}\n" in printed
    assert ": not in the committed ledger\n" in printed
    assert printed.endswith("\n2 rows differ\n")


def test_a_backbone_is_left_out(results: Path, capsys: pytest.CaptureFixture) -> None:
    claim = "mae_half_over_base"
    options = ["--results", str(results), "--claim", claim, "--without", "tiny"]
    assert recompute.main(options) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    name, effect, *_ = line.split()
    assert name == claim
    ledger = recompute.read_ledger(results)
    assert float(effect) != pytest.approx(float(ledger.at[claim, "effect"]))


def test_mistakes_are_reported(tmp_path: Path, results: Path) -> None:
    with pytest.raises(UserError, match=r"no runs\.csv in .*nothing"):
        recompute.main(["--results", str(tmp_path / "nothing")])
    with pytest.raises(UserError, match="did you mean conl_harm"):
        recompute.main(["--results", str(results), "--claim", "conl_harms"])
    with pytest.raises(UserError, match="did you mean tiny"):
        recompute.main(["--results", str(results), "--without", "tiny-9"])
    with pytest.raises(UserError, match="--check compares with all backbones"):
        check(results, "--without", "tiny")
    (results / recompute.LEDGER).unlink()
    with pytest.raises(UserError, match=r"no ledger to compare with: .*ledger\.csv"):
        check(results)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, r"mae_half of seed 0 has 66 verdicts on the 65 questions of list 1"),
        (2, r"conl has conversations on questions that are not in items\.csv"),
    ],
)
def test_a_missing_question_is_noticed(
    number: int, message: str, results: Path
) -> None:
    home = results / recompute.RECORDS
    items = pd.read_csv(home / records.ITEMS)
    last = items.index[items["list"] == number][-1]
    records.write(items.drop(index=last), home / records.ITEMS)
    committed = Records(home)
    with pytest.raises(UserError, match=message):
        committed.answers("mae_half")
        committed.conversations("conl")


def test_equal_runs_give_equal_bytes(
    folders: RunFolders, home: Path, tmp_path: Path
) -> None:
    records.pack(folders, tmp_path, claims.step_columns())
    for name in records.FILES:
        first = (home / name).read_bytes()
        assert (tmp_path / name).read_bytes() == first, name


def test_the_lines_of_the_readme_read_the_files(
    home: Path, folders: RunFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (home / "README.md").read_text()
    code = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(home)
    names: dict = {}
    exec(code[1], names)
    row = names["row"]
    answers = folders.answers(row["run"])
    own = answers[answers["seed"] == row["seed"]]
    expected = own.groupby("family")["correct"].mean()
    assert names["accuracy"].to_dict() == expected.to_dict()


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.parent.name)
def test_the_readme_computes_an_effect_of_the_ledger(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    text = (folder / "README.md").read_text()
    assert text == records.DESCRIPTION.read_text()
    blocks = text.split("```python\n")
    code, _, _ = blocks[2].partition("```")
    monkeypatch.chdir(folder)
    exec(code, {})
    printed = capsys.readouterr().out
    ledger = recompute.read_ledger(folder.parent)
    effect = ledger.at["mae_half_over_base", "effect"]
    expected = float(effect)
    assert float(printed) == pytest.approx(expected, rel=1e-5)


def test_the_readme_describes_every_file(home: Path) -> None:
    text = (home / "README.md").read_text()
    for name in records.FILES[1:]:
        assert f"\n**{name}**" in text


@pytest.mark.parametrize(
    "name", [records.RUNS, records.ITEMS, records.ANSWERS, records.CONVERSATIONS]
)
def test_the_readme_describes_every_column(name: str, home: Path) -> None:
    text = (home / "README.md").read_text()
    _, _, rest = text.partition(f"**{name}**")
    part, _, _ = rest.partition("\n**")
    described = re.findall(r"^\| ([\w, ]+) \|", part, re.MULTILINE)
    columns = ", ".join(described[1:]).split(", ")
    assert columns == list(pd.read_csv(home / name, nrows=1))


def test_each_list_of_questions_is_stored_once(home: Path) -> None:
    items = pd.read_csv(home / records.ITEMS)
    asked = len(pretend_runs.questions())
    discussed = (asked + 1) // 2
    assert items["list"].value_counts().to_dict() == {1: asked, 2: discussed}


def test_verdicts_are_a_character_each() -> None:
    verdicts = pd.Series([1, 0, np.nan])
    text = records.verdict_text(verdicts)
    assert text == "10-"
    np.testing.assert_array_equal(records.verdict_values(text), verdicts)
    with pytest.raises(ValueError, match=r"correct must be 0, 1 or empty, got 0\.5"):
        records.verdict_text(pd.Series([1, 0.5]))


def test_compressed_files_bear_no_time(home: Path) -> None:
    content = (home / records.ANSWERS).read_bytes()
    time_of_gzip = content[4:8]
    assert time_of_gzip == bytes(4)
    assert gzip.decompress(content).startswith(b"run,seed,stage,")


@pytest.mark.parametrize("folder", COMMITTED, ids=lambda folder: folder.parent.name)
def test_the_committed_ledger_follows_from_the_committed_records(folder: Path) -> None:
    code, printed = check(folder.parent)
    assert code == 0, printed
