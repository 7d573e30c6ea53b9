"""Records of a batch whose runs were made on several machines."""

import json
from pathlib import Path

import pretend_runs
import pytest
from pandas.testing import assert_frame_equal

from reproduce import UserError
from reproduce.analysis import claims, join_records, records
from reproduce.analysis.evidence import RunFolders
from reproduce.analysis.records import Records

FIRST, SECOND = pretend_runs.SEEDS
RUNS = ("mae_half", "conl", "base")


def pack(folders: RunFolders, runs: dict[str, list[int]], out: Path) -> Path:
    """Pack some of the runs, as one machine does."""
    part = RunFolders(folders.folder, runs, folders.crossed)
    records.pack(part, out, claims.step_columns())
    return out


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> RunFolders:
    return pretend_runs.make(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def parts(folders: RunFolders, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The records of two machines: CoNL came first on one of them, so its lists differ."""
    home = tmp_path_factory.mktemp("parts")
    some = dict.fromkeys(RUNS, [FIRST])
    others = dict.fromkeys(reversed(RUNS), [SECOND])
    first = pack(folders, some, home / "a")
    second = pack(folders, others, home / "b")
    return [first, second]


def test_joined_records_are_those_of_all_runs(
    folders: RunFolders, parts: list[Path], tmp_path: Path
) -> None:
    names = [str(part) for part in parts]
    join_records.main([*names, "--out", str(tmp_path)])
    runs = dict.fromkeys(RUNS, [FIRST, SECOND])
    whole = pack(folders, runs, tmp_path / "whole")
    joined = Records(tmp_path)
    expected = Records(whole)
    for run in RUNS:
        assert joined.runs[run] == [FIRST, SECOND]
        assert joined.summaries(run) == expected.summaries(run)
        for read in (Records.answers, Records.step_metrics, Records.conversations):
            of_joined = read(joined, run)
            of_whole = read(expected, run)
            assert_frame_equal(of_joined, of_whole)
    assert len(joined.conversations("conl")) > 0


def test_equal_lists_of_questions_are_one(parts: list[Path], tmp_path: Path) -> None:
    join_records.join(parts, tmp_path)
    both = (tmp_path / records.ITEMS).read_text()
    first = (parts[0] / records.ITEMS).read_text()
    assert both == first


def test_the_origin_of_each_part_is_kept(parts: list[Path], tmp_path: Path) -> None:
    origin = parts[0] / "provenance.json"
    origin.write_text('{"machine": "one"}')
    join_records.join(parts, tmp_path)
    text = (tmp_path / "provenance.json").read_text()
    first, second = json.loads(text)["joined"]
    assert first == {"machine": "one"}
    assert second == {"folder": "b"}


def test_a_run_in_two_folders_is_refused(parts: list[Path], tmp_path: Path) -> None:
    first, _ = parts
    with pytest.raises(UserError, match="mae_half of seed 0 twice"):
        join_records.join([first, first], tmp_path)


def test_a_folder_without_records_is_refused(parts: list[Path], tmp_path: Path) -> None:
    first, _ = parts
    nothing = tmp_path / "nothing"
    with pytest.raises(UserError, match=r"no runs\.csv in .*nothing"):
        join_records.join([first, nothing], tmp_path)
