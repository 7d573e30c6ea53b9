"""The batch on a toy repository: mistakes in one line, caching, resuming, isolated failures, nothing left behind."""

import json
import re
import runpy
import signal
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from data_files import tables
from toy_repository import ROOT, Toy

from reproduce import UserError, compare, keys, plan, work
from reproduce.__main__ import main
from reproduce.notebooks import check_parameters, declared
from reproduce.plan import Item
from reproduce.run import execute

KNOWN = tables("mistakes")


def test_results_are_made_once_and_repeat(toy: Toy) -> None:
    assert set(toy.states().values()) == {"todo", "skipped"} and not (toy.root / "results").exists()
    out = toy(HF_TOKEN="canary-4711")
    assert "ran 6, cached 0, failed 0, blocked 0, skipped 1" in out
    assert "skipped toy_fig1: drawn by hand" in out
    table = toy.result("toy_table1/table.csv").read_text().splitlines()
    assert table == ["run,seed,value", "plain,0,60.0", "plain,1,70.0"]
    made = sorted(path.name for path in toy.result("toy_table1").iterdir())
    assert made == ["done.json", "notebook.html", "provenance.json", "table.csv"]
    page = toy.result("toy_table2/notebook.html").read_text()
    assert "<script>window.PWNED" not in page and "&lt;script&gt;window.PWNED" in page
    assert "default-src &#x27;none&#x27;" in page and "cdnjs" not in page and str(toy.root) not in page
    facts = json.loads(toy.result("toy_table2/provenance.json").read_text())
    assert facts["configuration"] == {"runs": {"odd": [0, 1]}}
    assert facts["peak_rss_mib"] > 10 and facts["source"] == {"commit": None, "dirty": None}
    for path in toy.root.rglob("*"):
        assert not path.is_file() or b"canary-4711" not in path.read_bytes()
    first = toy.products()
    out = toy(JOBS="1")
    assert "ran 0, cached 6" in out and re.search(r"\[\d/6\] toy_table1 ok \d+\.\ds \(cached\)", out)
    assert "ran 3, cached 2" in toy("--force", "--only", "toy_table1,odd")
    assert toy.products() == first
    assert [path.name for path in toy.result("").glob(".*")] == [".lock"]
    toy.wait_until_gone()


def test_what_changed_is_said_and_made_again(toy: Toy) -> None:
    toy("--only", "toy_table2,plain")
    assert toy("--why", "toy_table2") == "toy_table2: is up to date\n"
    toy.edit("reproduce/toy.toml", "scale = 10.0", "scale = 1.0")
    toy.edit("reproduce/presets.toml", "jobs = 2", "jobs = 1")
    toy("--only", "toy_table1")
    toy.edit("reproduce/toy.toml", "scale = 1.0", "scale = 2.0")
    assert toy("--why", "toy_table1") == "toy_table1: parameters.scale: 1.0 -> 2.0\n"
    assert toy.states()["toy_table1"] == "stale" and toy.states()["toy_table2"] == "done"
    (toy.root / "reproduce/paper_numbers/toy_table1.csv").write_text("value\n2\n")
    assert "data.reproduce/paper_numbers/toy_table1.csv: changed" in toy("--why", "toy_table1")
    toy.result("toy_table2/table.csv").write_text("forged")
    assert "output table.csv is missing or was changed" in toy("--why", "toy_table2")
    toy.edit("src/coevolve/toy.py", "3", "3  # the factor")
    toy.edit("notebooks/train.ipynb", "import sys\\n", "import  sys  # to leave\\n")
    assert toy("--why", "odd").count("is up to date") == 2
    toy.edit("src/coevolve/toy.py", "3", "4")
    assert "modules.coevolve.toy: changed" in toy("--why", "runs/odd-s0")
    assert "ran 3, cached 0" in toy("--only", "toy_table2")
    assert toy.result("toy_table2/table.csv").read_text().splitlines()[1] == "odd,0,4.0"
    assert toy.result("runs/odd-s0/resumed_from").read_text() == "0"


def test_failures_are_isolated(toy: Toy) -> None:
    options = ("--registry", str(toy.root / "own/faults.toml"))
    out = toy(*options, code=1)
    for fault, message in KNOWN["faults"].items():
        assert re.search(f"^failed runs/{fault}-s0: .*{message}", out, re.MULTILINE), out
        assert toy.result(f"runs/{fault}-s0/notebook.failed.ipynb").exists()
        assert not toy.result(f"runs/{fault}-s0/done.json").exists()
    assert "ran 6, cached 0, failed 7, blocked 1" in out
    assert "blocked fault_table: needs runs/exit-s0, which failed" in out
    assert toy.result("toy_table1/done.json").exists() and not toy.result("fault_table").exists()
    toy.wait_until_gone()
    failed = {id for id, state in toy.states(*options).items() if state == "failed"}
    assert failed == {f"runs/{fault}-s0" for fault in KNOWN["faults"]}
    toy.edit("notebooks/tables/toy_table.ipynb", "folder =", "1 / 0; folder =")
    assert "ZeroDivisionError: division by zero (see " in toy("--only", "toy_table1", code=1)
    assert toy.result("toy_table1/done.json").exists(), "what was there before stays"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_batch_leaves_nothing_and_is_resumed(toy: Toy, sign: int) -> None:
    toy.hold()
    process = toy.start("--only", "toy_table2")
    held = toy.wait_for_hold(process)
    assert "another command is at work in" in toy(code=2)
    toy.ends_and_is_resumed(process, sign, held)


def test_a_registry_of_your_own_with_a_method_in_a_file(toy: Toy) -> None:
    options = ("--registry", str(toy.root / "own/debate.toml"), "--paper", "debate")
    assert "ran 4, cached 0, failed 0" in toy(*options)
    assert toy.result("debate_table/table.csv").read_text().splitlines()[1] == "debate,7,10.0"
    assert json.loads(toy.result("runs/debate-s7/config.json").read_text())["protocol"] == "../own/debate.py:Own"
    toy.edit("own/debate.py", "rounds = 2", "rounds = 3")
    why = toy("--why", "runs/debate-s7", *options)
    assert why.startswith("runs/debate-s7: modules.own/debate.py: changed\n")
    assert "debate" not in toy("--list")


def test_code_that_is_edited_during_a_batch_does_not_pass_for_what_ran(monkeypatch, tmp_path: Path) -> None:
    ours = plan.load(ROOT, "quick")
    monkeypatch.setattr(work, "BEGAN", 0.0)
    with pytest.raises(UserError, match=r"^coevolve\S* was edited after this command had loaded it"):
        work.produce(ours, ours.items["runs/mae_half-s0"], tmp_path)


def nothing(item: Item) -> Future[None]:
    """What an engine answers that makes nothing; the run called s1 fails."""
    future: Future[None] = Future()
    future.set_exception(RuntimeError("broken") if item.id == "runs/odd-s1" else None)
    return future


def test_artefacts_come_as_soon_as_their_runs_are_done(toy: Toy) -> None:
    drawn = 'notebook = "notebooks/tables/toy_table.ipynb"\nruns = ["odd"]\noutputs = ["table.csv"]'
    toy.edit("reproduce/toy.toml", 'skip = "drawn by hand"', drawn)
    toys = plan.load(toy.root, "quick")
    engine = Mock(spec_set=("at_once", "submit", "close"), at_once=1, **{"submit.side_effect": nothing})
    items = plan.with_needs(toys, set(toys.items))
    few = [item for item in items if "s1" not in item.id]
    report = execute(toys, few, set(toys.items), set(), lambda scratch: engine)
    # toy_table1 needs plain, toy_table2 and toy_fig1 need odd
    order = [submitted.args[0].id for submitted in engine.submit.call_args_list]
    assert order == ["runs/plain-s0", "toy_table1", "runs/odd-s0", "toy_table2", "toy_fig1"]
    assert len(report.ran) == report.bar.total == 5
    report = execute(toys, items, set(toys.items), set(), lambda scratch: engine)
    assert report.blocked == dict.fromkeys(["toy_table2", "toy_fig1"], "needs runs/odd-s1, which failed")
    assert report.failed == {"runs/odd-s1": "broken"} and len(report.ran) == 4


def test_tables_that_a_preset_cannot_have_are_refused_before_their_runs_train(toy: Toy) -> None:
    toy.edit("reproduce/presets.toml", "jobs = 2", 'jobs = 2\nuntabled = ["toy"]')
    out = toy("--only", "toy_table1")
    assert "skipped toy_table1: its notebook lays out the tiny world" in out and "ran 0, cached 0" in out
    assert not toy.result("runs").exists()
    ours = plan.load(ROOT, "gpu").items.values()
    assert not any(item.needs for item in ours) and sum(item.skip == plan.UNTABLED for item in ours) > 50


MISTAKES = [(file, *edit, "") for file, table in KNOWN["reproduce"].items() for edit in table["edits"]]
MISTAKES += [("toy.toml", "", "", message, options) for options, message in KNOWN["options"].items()]


@pytest.mark.parametrize(("file", "old", "new", "message", "options"), MISTAKES)
def test_mistakes_are_one_line(toy, monkeypatch, file: str, old: str, new: str, message: str, options: str) -> None:
    configuration = SimpleNamespace(**runpy.run_path(str(toy.root / "src/coevolve/training/config.py")))
    for module in (plan, keys):
        monkeypatch.setattr(module, "configuration", lambda root: configuration)
    toy.edit(f"reproduce/{file}", old, new)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        main([*options.split(), "--root", str(toy.root)])
    assert len(str(error.value).splitlines()) == 1 or "cannot be read" in message
    assert not (toy.root / "results").exists()


def test_results_that_cannot_be_written(toy: Toy) -> None:
    toy.result("").parent.mkdir()
    toy.result("").write_text("in the way")
    assert "cannot write to" in toy(code=2)


def test_trees_are_compared_cell_by_cell(toy: Toy, tmp_path: Path) -> None:
    first = {"same": "name,value\nx,0.5\ny,nan\n", "gone": "x\n", "longer": "a\n1\n", "other": "a\n1\n", ".part": "a\n"}
    second = {"same": "name,value\nx,0.5004\ny,nan\n", "new": "x\n", "longer": "a\n1\n2\n", "other": "b\n1\n"}
    for tree, files in (("first", first), ("second", second)):
        for name, text in files.items():
            (tmp_path / tree / name).mkdir(parents=True)
            (tmp_path / tree / name / "table.csv").write_text(text)
    expected = ["gone/table.csv: only in the first tree", "new/table.csv: only in the second tree"]
    expected += ["longer/table.csv: 1 -> 2 rows", "other/table.csv: columns a -> b"]
    a, b = tmp_path / "first", tmp_path / "second"
    assert compare.trees(a, b, 1e-3) == expected
    assert compare.trees(a, b, 1e-6) == [*expected, "same/table.csv: row 1 (x), value: 0.5 -> 0.5004"]
    assert toy("diff", str(a), str(a)) == "no differences\n"
    assert toy("diff", str(a), str(b), "--tolerance", "0.01", code=1).endswith("\n4 differences\n")
    assert "is not a folder" in toy("diff", str(a), str(tmp_path / "c"), code=2)


def test_the_report_is_built_at_the_end_of_a_batch_and_alone(toy: Toy) -> None:
    assert toy("--report").startswith("report: ")
    assert "toy_table1</code>: not made yet" in toy.result("index.html").read_text()
    assert "report: " in toy("--only", "toy_table1")
    assert "toy_table1</code>: not made yet" not in toy.result("index.html").read_text()


PARAMETERS = "steps = 1  # n\nlr: float = 1e-3\nname: str | None = None\ntable: dict = {}\nfree = None\nsign = -1.5"
HOSTILE = {  # parameter: values that it must not have
    "x = 0; __import__('os').system('true'); y": [1],
    "steps": ["5", True, None],
    "lr": [float("nan")],
    "name": [b"__import__('os')"],
    "table": [{(1, 2): 3}, {"a": {1, 2}}, {"a": float("inf")}],
}


def test_parameters_are_declared_plain_values(tmp_path: Path) -> None:
    paths = []
    for number, source in enumerate((PARAMETERS, "x: int = f()", "x = = 1")):
        cell = {"cell_type": "code", "source": source, "metadata": {"tags": ["parameters"]}}
        paths.append(tmp_path / f"{number}.ipynb")
        paths[-1].write_text(json.dumps({"cells": [cell]}))
    good, *bad = paths
    assert declared(good) == {"steps": int, "lr": float, "name": None, "table": dict, "free": None, "sign": float}
    check_parameters(good, {"steps": 5, "lr": 1, "name": '"""; import os #\\', "table": {"a": [1, {"b": None}]}})
    for name, value in ((name, value) for name, values in HOSTILE.items() for value in values):
        with pytest.raises(UserError, match="0.ipynb: "):
            check_parameters(good, {name: value})
    for path in bad:
        with pytest.raises(UserError, match="must be names with literal defaults"):
            declared(path)


def test_listing_imports_no_torch(toy: Toy) -> None:
    listing = f"import sys; from reproduce.__main__ import main; main(['--list', '--root', {str(toy.root)!r}]); "
    code = listing + "sys.exit(bool({'torch', 'papermill', 'pandas', 'tqdm'} & {*sys.modules}))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
