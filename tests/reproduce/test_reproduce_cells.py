"""Items made alone, one after the other and again: cells, their locks, the order of a batch, second tries."""

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest
from toy_repository import ROOT, Toy, cells, gone, products, states

from reproduce import UserError, folder, keys
from reproduce.__main__ import at_work
from reproduce.plan import Item, load, with_needs
from reproduce.run import Batch, Report, read_line


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Build the toy repository in a folder with a blank and an umlaut."""
    return Toy(tmp_path / "ein Bäumchen {x}")


def test_cells_by_hand_make_what_a_batch_makes(toy: Toy, tmp_path: Path) -> None:
    assert "toy_table1 needs runs/plain-s0, which is todo; run it first" in toy("cell", "toy_table1", code=2)
    assert "toy_fig1 never runs: drawn by hand" in toy("cell", "toy_fig1", code=2)
    assert "cell runs/plain: names 2 items; one is needed" in toy("cell", "runs/plain", code=2)
    assert "did you mean runs/plain-s1" in toy("cell", "runs/plain-s9", code=2)
    assert not (toy.root / "results").exists()
    for id in ("runs/plain-s0", "runs/plain-s1", "runs/odd-s0", "runs/odd-s1", "toy_table1", "toy_table2"):
        assert re.fullmatch(rf"\[1/1\] {id} ok \d+\.\ds\n", toy("cell", id))
    batch = Toy(tmp_path / "batch")
    assert "ran 6" in batch() and products(toy) == products(batch)
    assert toy("cell", "toy_table1").endswith("s (cached)\n")
    assert not toy("cell", "toy_table1", "--force").endswith("(cached)\n")
    assert "ran 0, cached 6" in toy() and [path.name for path in toy.result("").glob(".*")] == [".lock"]
    toy.edit("notebooks/tables/toy_table.ipynb", "folder =", "1 / 0; folder =")
    assert toy("cell", "toy_table1", code=1).endswith("ZeroDivisionError: division by zero\n")
    assert toy.result("toy_table1/done.json").exists() and states(toy)["toy_table1"] == "failed"
    toy.result("").chmod(0o555)
    assert "is read-only" in toy("cell", "toy_table1", code=2)
    toy.result("").chmod(0o755)


def test_a_cell_excludes_batches_and_itself_only(toy: Toy) -> None:
    toy.hold()
    command = [sys.executable, "-m", "reproduce", "cell", "runs/odd-s0", "--root", str(toy.root), "--parent"]
    shell = subprocess.Popen(["bash", "-c", '"$@" $$ & wait', "-", *command], cwd=ROOT)
    toy.wait_for_hold(shell)
    assert "another command is at work in" in toy(code=2)
    assert "at work in" in (refusal := toy("cell", "runs/odd-s0", code=2)) and "on runs/odd-s0" in refusal
    assert "runs/plain-s0 ok" in toy("cell", "runs/plain-s0")
    assert states(toy)["runs/odd-s0"] == "interrupted" and cells(toy)
    shell.kill()  # a scheduler that is killed takes its cell with it, and the kernel
    shell.wait()
    gone(toy)
    toy.release()
    assert "ran 1, cached 0" in toy("--only", "runs/odd-s0")
    assert toy.result("runs/odd-s0/resumed_from").read_text() == "3"


def test_failed_items_are_tried_again_from_their_checkpoint(toy: Toy) -> None:
    toy.edit("reproduce/toy.toml", "overrides = { steps = 1 }", 'overrides = { steps = 2, fault = "once" }')
    toy.edit("reproduce/presets.toml", "jobs = 2", "jobs = 2\nretries = 1")
    out = toy("--only", "toy_table2", "--force")
    assert re.search(r"runs/odd-s0 failed, trying again \(1 of 1\): .*died", out) and "ran 3, cached 0, failed 0" in out
    assert toy.result("runs/odd-s0/resumed_from").read_text() == "2"
    toy.edit("reproduce/toy.toml", 'fault = "once"', 'fault = "raise"')
    out = toy("--only", "runs/odd-s0", code=1)
    assert out.count("trying again") == 1 and "failed 1" in out


class Recorder:
    """An engine that makes nothing, one item at a time, and remembers the order."""

    apart = False

    def __init__(self) -> None:
        self.live: list[Item] = []
        self.order: list[str] = []
        self.fresh: list[bool] = []

    def open(self, scratch: Path, items: list[Item]) -> None:
        """Have nothing to prepare."""

    def free(self, item: Item) -> bool:
        """Take one item at a time."""
        return not self.live

    def begin(self, item: Item, found: keys.Parts, fresh: bool) -> None:
        """Remember the item."""
        self.live, self.order, self.fresh = [item], [*self.order, item.id], [*self.fresh, fresh]

    def ended(self) -> list[tuple[Item, str | None, float]]:
        """Say that it is made; a run called s1 fails."""
        item, self.live = self.live[0], []
        return [(item, "broken" if item.id == "runs/odd-s1" else None, 1.0)]

    def close(self) -> None:
        """Have nothing to close."""


def test_artefacts_come_as_soon_as_their_runs_are_done(toy: Toy, tmp_path: Path) -> None:
    toy.edit(
        "reproduce/toy.toml",
        '[artefacts.toy_fig1]\nskip = "drawn by hand"',
        '[artefacts.toy_fig1]\nnotebook = "notebooks/tables/toy_table.ipynb"\nruns = ["odd"]\noutputs = ["table.csv"]',
    )
    plan, engine = load(toy.root, "quick"), Recorder()
    items = [item for item in with_needs(plan, set(plan.items)) if "s1" not in item.id]
    report = Batch(plan, items, set(), engine, tmp_path).run(lambda line, report: None)
    # toy_table2 and toy_fig1 need odd, only toy_table1 needs plain
    assert engine.order == ["runs/odd-s0", "toy_table2", "toy_fig1", "runs/plain-s0", "toy_table1"]
    assert len(report.ran) == report.total == 5
    engine = Recorder()
    report = Batch(plan, with_needs(plan, set(plan.items)), set(), engine, tmp_path).run(lambda line, report: None)
    assert report.blocked == dict.fromkeys(["toy_table2", "toy_fig1"], "needs runs/odd-s1, which failed")
    assert report.failed == {"runs/odd-s1": "broken"} and len(report.ran) == 4


def test_a_forced_item_begins_from_nothing_until_one_try_has_begun(toy: Toy, tmp_path: Path) -> None:
    toy.edit("reproduce/presets.toml", "jobs = 2", "retries = 1")
    plan, made = load(toy.root, "quick"), toy.result("runs/odd-s1/done.json")
    made.parent.mkdir(parents=True)
    for marker, fresh in (('{"id": "what was there before"}', [True, True]), ("", [True, False])):
        made.write_text(marker)
        engine = Recorder()
        Batch(plan, [plan.items["runs/odd-s1"]], {"runs/odd-s1"}, engine, tmp_path).run(lambda line, report: None)
        assert engine.fresh == fresh


def test_a_file_system_without_locks_is_named(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(folder.fcntl, "lockf", refuse)
    with pytest.raises(UserError, match="cannot lock .*quick/.lock: No locks available"):
        folder.take(load(toy.root, "quick"), "toy_table1", 60.0)


def test_cells_leave_the_scratch_folders_of_others(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, scratch = load(toy.root, "quick"), tmp_path / "s"
    scratch.mkdir()
    monkeypatch.setattr(folder.tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(folder, "LONGEST", 1000)
    ids = ["runs/odd-s430", "runs/odd-s554"]  # the hashes of both begin with 777f
    first, second = [folder.scratch_folder(plan, id) for id in ids]
    assert set(scratch.iterdir()) == {first, second}
    again = folder.scratch_folder(plan, ids[0])
    assert set(scratch.iterdir()) == {again, second}
    alone = folder.scratch_folder(plan, "")
    assert list(scratch.iterdir()) == [alone]  # a batch is alone, and sweeps them all up


def test_lines_are_read_back_and_the_bar_names_a_few() -> None:
    report = Report(2)
    assert read_line(report.done("a", 1.25, cached=True)) == (None, 1.2, True)
    assert read_line(report.fail("b", "X: y: z (cached)", 3)) == ("X: y: z (cached)", 3.0, False)
    assert read_line("reproduce: no such id") == ("no such id", 0.0, False)
    assert read_line("")[0] == "its process died"
    live = [f"runs/run_{number}-s0" for number in range(150)]
    assert at_work(live[:2], 40) == "run_0-s0, run_1-s0" and at_work([], 40) == ""
    assert at_work(live, 40) == "run_0-s0, run_1-s0, run_2-s0, 147 more"
    assert at_work(live, 37) == "run_0-s0, run_1-s0, 148 more" and at_work(live, 5) == "150 at work"
