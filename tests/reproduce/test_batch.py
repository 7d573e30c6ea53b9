"""The batch on a toy repository: caching, resuming, isolated failures, nothing left behind."""

import json
import re
import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from unittest.mock import Mock

import pytest
from data_files import tables
from toy_repository import ROOT, Toy

from reproduce import UserError, compare, plan, work
from reproduce.plan import Item
from reproduce.run import Report, execute

FAULTS = tables("mistakes")["faults"]


def test_results_are_made_once_and_repeat(toy: Toy) -> None:
    assert set(toy.states().values()) == {"todo", "skipped"}
    assert not (toy.root / "results").exists()
    out = toy(HF_TOKEN="canary-4711")
    assert "ran 6, cached 0, failed 0, blocked 0, skipped 1" in out
    assert "skipped toy_fig1: drawn by hand" in out
    assert toy.table("toy_table1") == ["run,seed,value", "plain,0,60.0", "plain,1,70.0"]
    check_that_an_artefact_has_its_files(toy.result("toy_table1"))
    check_that_a_page_is_safe(toy)
    check_that_the_origin_is_recorded(toy.result("toy_table2"))
    check_that_no_variable_is_recorded(toy)
    products = toy.products()
    out = toy(JOBS="1")
    assert "ran 0, cached 6" in out
    assert re.search(r"\[\d/6\] toy_table1 ok \d+\.\ds \(cached\)", out)
    assert "ran 3, cached 2" in toy("--force", "--only", "toy_table1,odd")
    assert toy.products() == products
    assert toy.hidden_results() == [".lock"]
    toy.wait_until_gone()


def check_that_an_artefact_has_its_files(folder: Path) -> None:
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["done.json", "notebook.html", "provenance.json", "table.csv"]


def check_that_a_page_is_safe(toy: Toy) -> None:
    page = toy.result("toy_table2/notebook.html").read_text()
    assert "<script>window.PWNED" not in page
    assert "&lt;script&gt;window.PWNED" in page
    assert "default-src &#x27;none&#x27;" in page
    assert "cdnjs" not in page
    assert str(toy.root) not in page


def check_that_the_origin_is_recorded(folder: Path) -> None:
    origin = json.loads((folder / "provenance.json").read_text())
    assert origin["configuration"] == {"runs": {"odd": [0, 1]}}
    assert origin["peak_rss_mib"] > 10
    assert origin["source"] == {"commit": None, "dirty": None}


def check_that_no_variable_is_recorded(toy: Toy) -> None:
    for path in toy.root.rglob("*"):
        assert not path.is_file() or b"canary-4711" not in path.read_bytes()


@pytest.mark.thorough
def test_what_changed_is_said_and_made_again(toy: Toy) -> None:
    toy("--only", "toy_table2,plain")
    assert toy("--why", "toy_table2") == "toy_table2: is up to date\n"
    toy.edit("reproduce/toy.toml", "scale = 10.0", "scale = 1.0")
    toy.edit("reproduce/presets.toml", "jobs = 2", "jobs = 1")
    toy("--only", "toy_table1")
    check_that_a_parameter_is_named(toy)
    check_that_a_printed_number_is_named(toy)
    check_that_a_forged_output_is_named(toy)
    check_that_comments_do_not_count(toy)
    check_that_code_counts(toy)


def check_that_a_parameter_is_named(toy: Toy) -> None:
    toy.edit("reproduce/toy.toml", "scale = 1.0", "scale = 2.0")
    assert toy("--why", "toy_table1") == "toy_table1: parameters.scale: 1.0 -> 2.0\n"
    states = toy.states()
    assert states["toy_table1"] == "stale"
    assert states["toy_table2"] == "done"


def check_that_a_printed_number_is_named(toy: Toy) -> None:
    (toy.root / "reproduce/paper_numbers/toy_table1.csv").write_text("value\n2\n")
    why = toy("--why", "toy_table1")
    assert "data.reproduce/paper_numbers/toy_table1.csv: changed" in why


def check_that_a_forged_output_is_named(toy: Toy) -> None:
    toy.result("toy_table2/table.csv").write_text("forged")
    assert "output table.csv is missing or was changed" in toy("--why", "toy_table2")


def check_that_comments_do_not_count(toy: Toy) -> None:
    toy.edit("src/coevolve/toy.py", "3", "3  # the factor")
    toy.edit("notebooks/train.ipynb", "import sys\\n", "import  sys  # to leave\\n")
    assert toy("--why", "odd").count("is up to date") == 2


def check_that_code_counts(toy: Toy) -> None:
    toy.edit("src/coevolve/toy.py", "3", "4")
    assert "modules.coevolve.toy: changed" in toy("--why", "runs/odd-s0")
    assert "ran 3, cached 0" in toy("--only", "toy_table2")
    assert toy.table("toy_table2")[1] == "odd,0,4.0"
    assert toy.resumed_from("odd-s0") == "0"


@pytest.mark.thorough
def test_failures_are_isolated(toy: Toy) -> None:
    options = ("--registry", str(toy.root / "own/faults.toml"))
    out = toy(*options, code=1)
    for fault, message in FAULTS.items():
        assert re.search(f"^failed runs/{fault}-s0: .*{message}", out, re.MULTILINE), (
            out
        )
        assert toy.result(f"runs/{fault}-s0/notebook.failed.ipynb").exists()
        assert not toy.result(f"runs/{fault}-s0/done.json").exists()
    assert "ran 6, cached 0, failed 7, blocked 1" in out
    assert "blocked fault_table: needs runs/exit-s0, which failed" in out
    assert toy.result("toy_table1/done.json").exists()
    assert not toy.result("fault_table").exists()
    toy.wait_until_gone()
    failed = {id for id, state in toy.states(*options).items() if state == "failed"}
    assert failed == {f"runs/{fault}-s0" for fault in FAULTS}
    check_that_a_table_that_fails_leaves_its_last_version(toy)


def check_that_a_table_that_fails_leaves_its_last_version(toy: Toy) -> None:
    toy.edit("notebooks/tables/toy_table.ipynb", "folder =", "1 / 0; folder =")
    out = toy("--only", "toy_table1", code=1)
    assert "ZeroDivisionError: division by zero (see " in out
    assert toy.result("toy_table1/done.json").exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    "signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]
)
def test_a_killed_batch_leaves_nothing_and_is_resumed(
    toy: Toy, signal_number: int
) -> None:
    toy.hold()
    process = toy.start("--only", "toy_table2")
    held = toy.wait_for_hold(process)
    assert "another command is at work in" in toy(code=2)
    toy.check_kill_and_resume(process, signal_number, held)


@pytest.mark.thorough
def test_a_registry_of_your_own_has_a_method_in_a_file(toy: Toy) -> None:
    options = ("--registry", str(toy.root / "own/debate.toml"), "--paper", "debate")
    assert "ran 4, cached 0, failed 0" in toy(*options)
    assert toy.table("debate_table")[1] == "debate,7,10.0"
    config = json.loads(toy.result("runs/debate-s7/config.json").read_text())
    assert config["method"] == "../own/debate.py:Own"
    toy.edit("own/debate.py", "rounds = 2", "rounds = 3")
    why = toy("--why", "runs/debate-s7", *options)
    assert why.startswith("runs/debate-s7: modules.own/debate.py: changed\n")
    assert "debate" not in toy("--list")


def test_code_that_is_edited_during_a_batch_does_not_pass_for_what_ran(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    quick = plan.load(ROOT, "quick")
    monkeypatch.setattr(work, "IMPORTED_AT", 0.0)
    message = r"^coevolve\S* was edited after this command had loaded it"
    with pytest.raises(UserError, match=message):
        work.produce(quick, quick.items["runs/mae_half-s0"], tmp_path)


def make_nothing(item: Item) -> Future[None]:
    """Return the future of an engine that makes nothing; the run of odd with seed 1 fails."""
    future: Future[None] = Future()
    if item.id == "runs/odd-s1":
        future.set_exception(RuntimeError("broken"))
    else:
        future.set_result(None)
    return future


def execute_all(toys: plan.Plan, items: list[Item]) -> tuple[Report, list[str]]:
    """Execute items by an engine that makes nothing; return the report and the ids it got."""
    engine = Mock(spec_set=("at_once", "submit", "close"), at_once=1)
    engine.submit.side_effect = make_nothing
    report = execute(toys, items, set(toys.items), set(), lambda scratch: engine)
    return report, [call.args[0].id for call in engine.submit.call_args_list]


FIGURE = """
notebook = "notebooks/tables/toy_table.ipynb"
runs = ["odd"]
outputs = ["table.csv"]
"""


@pytest.fixture
def three_artefacts(toy: Toy) -> plan.Plan:
    """A plan in which toy_table1 needs plain, and toy_table2 and toy_fig1 need odd."""
    toy.edit("reproduce/toy.toml", 'skip = "drawn by hand"', FIGURE)
    return plan.load(toy.root, "quick")


def test_artefacts_are_made_as_soon_as_their_runs_are_done(
    three_artefacts: plan.Plan,
) -> None:
    items = plan.with_needs(three_artefacts, set(three_artefacts.items))
    without_seed_1 = [item for item in items if "s1" not in item.id]
    report, order = execute_all(three_artefacts, without_seed_1)
    assert order == [
        "runs/plain-s0",
        "toy_table1",
        "runs/odd-s0",
        "toy_table2",
        "toy_fig1",
    ]
    assert len(report.ran) == report.bar.total == 5


def test_a_failed_run_blocks_the_artefacts_that_need_it(
    three_artefacts: plan.Plan,
) -> None:
    items = plan.with_needs(three_artefacts, set(three_artefacts.items))
    report, _ = execute_all(three_artefacts, items)
    reason = "needs runs/odd-s1, which failed"
    assert report.blocked == {"toy_table2": reason, "toy_fig1": reason}
    assert report.failed == {"runs/odd-s1": "broken"}
    assert len(report.ran) == 4


def test_tables_that_a_preset_cannot_have_are_refused_before_their_runs_train(
    toy: Toy,
) -> None:
    toy.edit("reproduce/presets.toml", "jobs = 2", 'jobs = 2\nuntabled = ["toy"]')
    out = toy("--only", "toy_table1")
    assert "skipped toy_table1: its notebook lays out the tiny world" in out
    assert "ran 0, cached 0" in out
    assert not toy.result("runs").exists()


def test_the_preset_for_gpus_has_no_tables_of_runs() -> None:
    items = plan.load(ROOT, "gpu").items.values()
    assert not any(item.needs for item in items)
    assert sum(item.skip == plan.UNTABLED for item in items) > 50


def test_results_that_cannot_be_written_are_one_line(toy: Toy) -> None:
    toy.result("").parent.mkdir()
    toy.result("").write_text("in the way")
    assert "cannot write to" in toy(code=2)


FIRST = {
    "same": "name,value\nx,0.5\ny,nan\n",
    "gone": "x\n",
    "longer": "a\n1\n",
    "other": "a\n1\n",
    ".part": "a\n",
}
SECOND = {
    "same": "name,value\nx,0.5004\ny,nan\n",
    "new": "x\n",
    "longer": "a\n1\n2\n",
    "other": "b\n1\n",
}
LARGE_DIFFERENCES = [
    "gone/table.csv: only in the first tree",
    "new/table.csv: only in the second tree",
    "longer/table.csv: 1 -> 2 rows",
    "other/table.csv: columns a -> b",
]
SMALL_DIFFERENCE = "same/table.csv: row 1 (x), value: 0.5 -> 0.5004"


def write_tree(root: Path, files: dict[str, str]) -> Path:
    """Write folder -> text of its table.csv below a root, and return the root."""
    for folder, text in files.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "table.csv").write_text(text)
    return root


def test_trees_are_compared_cell_by_cell_within_a_tolerance(tmp_path: Path) -> None:
    first = write_tree(tmp_path / "first", FIRST)
    second = write_tree(tmp_path / "second", SECOND)
    assert compare.compare_trees(first, second, 1e-3) == LARGE_DIFFERENCES
    differences = compare.compare_trees(first, second, 1e-6)
    assert differences == [*LARGE_DIFFERENCES, SMALL_DIFFERENCE]


def test_diff_prints_the_differences_and_exits_with_1(toy: Toy, tmp_path: Path) -> None:
    first = str(write_tree(tmp_path / "first", FIRST))
    second = str(write_tree(tmp_path / "second", SECOND))
    missing = str(tmp_path / "missing")
    assert toy("diff", first, first) == "no differences\n"
    out = toy("diff", first, second, "--tolerance", "0.01", code=1)
    assert out.endswith("\n4 differences\n")
    assert "is not a folder" in toy("diff", first, missing, code=2)


@pytest.mark.thorough
def test_the_report_is_built_at_the_end_of_a_batch_and_alone(toy: Toy) -> None:
    front = toy.result("index.html")
    assert toy("--report").startswith("report: ")
    assert "toy_table1</code>: not made yet" in front.read_text()
    assert "report: " in toy("--only", "toy_table1")
    assert "toy_table1</code>: not made yet" not in front.read_text()


def test_listing_imports_no_torch(toy: Toy) -> None:
    heavy = {"torch", "papermill", "pandas", "tqdm"}
    arguments = ["--list", "--root", str(toy.root)]
    code = (
        "import sys\n"
        "from reproduce.__main__ import main\n"
        f"main({arguments!r})\n"
        f"sys.exit(bool({heavy!r} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
