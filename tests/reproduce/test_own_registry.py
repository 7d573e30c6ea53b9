"""A registry of one's own: its mistakes stop nothing else, and its paths may begin with ~."""

import json
from pathlib import Path

import pytest
from toy_repository import Toy

from reproduce import UserError, registry
from reproduce.plan import Item, load, with_needs

SOUND = """
[runs.sound]
method = "toy"
overrides = { steps = 1 }

[artefacts.sound_table]
notebook = "notebooks/tables/toy_table.ipynb"
runs = ["sound"]
outputs = ["table.csv"]
"""
# Entries of a registry, each with one mistake; the id of its item, and what is said about it.
ENTRIES = {
    "a notebook that is not there": (
        '[artefacts.bad]\nnotebook = "gone.ipynb"\noutputs = ["t.csv"]',
        "bad",
        "gone.ipynb cannot be read: FileNotFoundError",
    ),
    "a notebook that is a folder": (
        '[artefacts.bad]\nnotebook = "notebooks"\noutputs = ["t.csv"]',
        "bad",
        "cannot be read: IsADirectoryError",
    ),
    "an unknown field of an artefact": (
        '[artefacts.bad]\nnotbook = "x.ipynb"',
        "bad",
        "unknown field 'artefacts.bad.notbook'; did you mean notebook?",
    ),
    "an artefact without outputs": (
        '[artefacts.bad]\nnotebook = "x.ipynb"',
        "bad",
        "needs notebook and outputs, or skip",
    ),
    "an unknown run": (
        '[artefacts.bad]\nnotebook = "x.ipynb"\noutputs = ["t"]\nruns = ["gone"]',
        "bad",
        "unknown run 'gone'",
    ),
    "a parameter that the runner sets": (
        '[artefacts.bad]\nnotebook = "notebooks/tables/toy_table.ipynb"\n'
        'outputs = ["t"]\nparameters = { out = "x" }',
        "bad",
        "parameter 'out' is set by the runner",
    ),
    "a name that is no name": (
        '[artefacts."../up"]\nskip = "x"',
        "../up",
        "String should match pattern",
    ),
    "a run without a method": ("[runs.bad]", "runs/bad", "Field required"),
    "an entry that is no table": ("[runs]\nbad = 3", "runs/bad", "dictionary"),
    "a secret": (
        '[runs.bad]\nmethod = "toy"\noverrides = { api_key = "x" }',
        "runs/bad",
        "looks like a secret",
    ),
    "an unknown preset": (
        '[runs.bad]\nmethod = "toy"\nseeds = { quik = [1] }',
        "runs/bad",
        "unknown preset 'quik'; did you mean quick?",
    ),
}
# Contents of a file that is no notebook, or declares no parameters that can be read.
CONTENTS = {
    "nothing": "",
    "half a notebook": '{"cells": [{"cell_type": "code"',
    "a list": "[]",
    "no cells": "{}",
    "text for cells": '{"cells": "text"}',
    "cells that are no tables": '{"cells": [1]}',
    "a cell without text": '{"cells": [{"cell_type": "markdown"}]}',
    "brackets without end": "[" * 100_000,
    "no cell of parameters": '{"cells": []}',
}


def write(folder: Path, *texts: str) -> Path:
    """Write a registry of one's own."""
    file = folder / "own.toml"
    file.write_text("\n".join(texts), "utf-8")
    return file


@pytest.mark.parametrize("name", ENTRIES)
def test_a_faulty_entry_leaves_the_others_as_they_are(
    name: str, toy: Toy, tmp_path: Path
) -> None:
    text, id, reason = ENTRIES[name]
    alone = load(toy.root, "quick", write(tmp_path, SOUND))
    both = load(toy.root, "quick", write(tmp_path, text, SOUND))
    faulty = both.items.pop(id)
    assert reason in faulty.fault
    assert "\n" not in faulty.fault
    assert both.items == alone.items


@pytest.mark.parametrize("name", CONTENTS)
def test_a_notebook_that_cannot_be_read_is_a_fault_of_its_item(
    name: str, toy: Toy, tmp_path: Path
) -> None:
    (toy.root / "bad.ipynb").write_text(CONTENTS[name])
    entry = '[artefacts.bad]\nnotebook = "bad.ipynb"\noutputs = ["t.csv"]'
    items = load(toy.root, "quick", write(tmp_path, entry, SOUND)).items
    assert "notebook" in items["bad"].fault
    assert [id for id, item in items.items() if item.fault] == ["bad"]


def test_a_notebook_in_another_encoding_is_a_fault_of_its_item(
    toy: Toy, tmp_path: Path
) -> None:
    (toy.root / "bad.ipynb").write_bytes('{"cells": ["ä"]}'.encode("latin-1"))
    entry = '[artefacts.bad]\nnotebook = "bad.ipynb"\noutputs = ["t.csv"]'
    items = load(toy.root, "quick", write(tmp_path, entry)).items
    assert "UnicodeDecodeError" in items["bad"].fault


def test_a_table_names_the_faulty_run_that_it_needs(toy: Toy, tmp_path: Path) -> None:
    file = write(tmp_path, SOUND.replace('method = "toy"', 'metod = "toy"'))
    items = load(toy.root, "quick", file).items
    assert items["sound_table"].fault.startswith("needs runs/sound: own.toml: ")


def test_the_command_lists_and_explains_faulty_items(toy: Toy, tmp_path: Path) -> None:
    text, *_ = ENTRIES["a notebook that is not there"]
    options = ("--registry", str(write(tmp_path, text, SOUND)))
    states = toy.states(*options)
    assert states["bad"] == "faulty"
    assert states["sound_table"] == "todo"
    assert "bad" not in toy.states("--only", "sound_table", *options)
    assert "gone.ipynb cannot be read" in toy("--why", "bad", *options)
    assert "gone.ipynb cannot be read" in toy("--only", "bad", *options, code=2)
    assert not (toy.root / "results").exists()


def test_other_items_are_made_and_the_page_names_the_faulty_one(
    toy: Toy, tmp_path: Path
) -> None:
    text, *_ = ENTRIES["a notebook that is not there"]
    options = ("--registry", str(write(tmp_path, text, SOUND)))
    out = toy("--only", "sound_table", *options)
    assert "ran 3, cached 0, failed 0" in out
    assert "gone.ipynb cannot be read" in toy.result("index.html").read_text()


def test_a_file_that_is_no_toml_is_refused_as_a_whole(toy: Toy, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="own.toml cannot be read: "):
        registry.read(toy.root, "quick", write(tmp_path, "[runs.bad"))


def test_a_name_that_two_files_use_is_refused(toy: Toy, tmp_path: Path) -> None:
    file = write(tmp_path, "[runs.odd]\nmetod = 'toy'")
    with pytest.raises(UserError, match="odd: another file has one of this name"):
        registry.read(toy.root, "quick", file)


def overrides_of(item: Item) -> dict[str, object]:
    """Return the overrides that a run's notebook gets."""
    return json.loads(item.parameters["overrides"])


def test_a_grid_is_a_run_for_each_combination(toy: Toy, tmp_path: Path) -> None:
    text = """
    [runs.dial]
    method = "toy"
    overrides = { steps = 1 }
    grid = { accuracy = [0.5, 1.0], errors = ["random", "level"] }
    tags = ["own"]
    [artefacts.all_of_them]
    notebook = "notebooks/tables/toy_table.ipynb"
    runs = ["dial-*"]
    outputs = ["table.csv"]
    """
    items = load(toy.root, "quick", write(tmp_path, text)).items
    names = ["dial-0_5-random", "dial-0_5-level", "dial-1_0-random", "dial-1_0-level"]
    assert list(items["all_of_them"].config["runs"]) == names
    item = items["runs/dial-1_0-level-s0"]
    expected = {"steps": 1, "accuracy": 1.0, "errors": "level"}
    assert overrides_of(item) == expected
    assert item.names == ("dial-1_0-level", "runs/dial-1_0-level", "own", "dial")


def test_a_preset_can_have_a_smaller_grid(toy: Toy, tmp_path: Path) -> None:
    toy.edit("reproduce/presets.toml", "[quick]", "[smoke]\nseeds = [0]\n[quick]")
    text = """
    [runs.dial]
    method = "toy"
    grid = { accuracy = [0.5, 0.7, 1.0], errors = ["random", "level"] }
    grids.smoke.accuracy = [0.7]
    """
    path = write(tmp_path, text)
    smoke = load(toy.root, "smoke", path).items
    names = [id for id in smoke if id.startswith("runs/dial")]
    assert names == ["runs/dial-0_7-random-s0", "runs/dial-0_7-level-s0"]
    quick = load(toy.root, "quick", path).items
    assert sum(id.startswith("runs/dial") for id in quick) == 6 * 2  # seeds
    write(tmp_path, text.replace("grids.smoke", "grids.smok"))
    fault = load(toy.root, "quick", path).items["runs/dial-0_5-random"].fault
    assert "unknown preset 'smok'" in str(fault)


COPIED = """
[artefacts.toy_copy]
notebook = "notebooks/tables/toy_table.ipynb"
artefacts = ["toy_table1"]
outputs = ["table.csv"]
"""


def test_an_artefact_needs_the_artefacts_that_it_reads_and_their_runs(
    toy: Toy, tmp_path: Path
) -> None:
    plan = load(toy.root, "quick", write(tmp_path, COPIED))
    needed = [item.id for item in with_needs(plan, {"toy_copy"})]
    assert needed == ["runs/plain-s0", "runs/plain-s1", "toy_table1", "toy_copy"]


@pytest.mark.thorough
def test_an_artefact_is_made_after_those_that_it_reads_and_again_when_they_change(
    toy: Toy, tmp_path: Path
) -> None:
    options = ("--only", "toy_copy", "--registry", str(write(tmp_path, COPIED)))
    out = toy(*options)
    assert "ran 4, cached 0" in out
    assert out.index("] toy_table1 ok") < out.index("] toy_copy ok")
    assert "ran 0, cached 4" in toy(*options)
    toy.edit("reproduce/toy.toml", "scale = 10.0", "scale = 20.0")
    assert "toy_copy: toy_table1 is not done" in toy("--why", *options[1:])
    assert "ran 2, cached 2" in toy(*options)


@pytest.mark.thorough
def test_an_artefact_is_blocked_behind_a_blocked_one(toy: Toy, tmp_path: Path) -> None:
    toy.edit("reproduce/toy.toml", "steps = 2", 'steps = 2, fault = "exit"')
    options = ("--only", "toy_copy", "--registry", str(write(tmp_path, COPIED)))
    out = toy(*options, code=1)
    assert "blocked toy_copy: needs toy_table1, which was blocked" in out


def test_an_artefact_reads_only_artefacts_above_it(toy: Toy, tmp_path: Path) -> None:
    later = COPIED.replace("toy_copy", "early").replace("toy_table1", "toy_copy")
    skipped = COPIED.replace("toy_copy", "late").replace("toy_table1", "toy_fig1")
    items = load(toy.root, "quick", write(tmp_path, later, COPIED, skipped)).items
    assert items["early"].fault.startswith(
        "[artefacts.early]: no artefact 'toy_copy' above it; did you mean "
    )
    assert items["late"].fault == "needs toy_fig1: drawn by hand"
    assert items["toy_copy"].fault is None


def test_patterns_of_the_repository_mean_its_own_runs(toy: Toy, tmp_path: Path) -> None:
    toy.edit("reproduce/toy.toml", 'runs = ["plain"]', 'runs = ["*"]')
    own = SOUND.replace('runs = ["sound"]', 'runs = ["*"]')
    items = load(toy.root, "quick", write(tmp_path, own)).items
    assert list(items["toy_table1"].config["runs"]) == ["plain", "odd"]
    assert list(items["sound_table"].config["runs"]) == ["plain", "odd", "sound"]


def test_runs_take_the_backbones_of_a_preset_in_turn(toy: Toy, tmp_path: Path) -> None:
    toy.edit(
        "reproduce/presets.toml",
        "[quick]",
        '[quick]\nbackbones = ["first", "second"]',
    )
    text = """
    [runs.taught]
    method = "toy"
    seeds.quick = [0, 1, 2]
    [runs.large]
    method = "toy"
    overrides.model = "large"
    """
    items = load(toy.root, "quick", write(tmp_path, text)).items
    models = []
    for seed in range(3):
        item = items[f"runs/taught-s{seed}"]
        models.append(overrides_of(item)["model"])
    assert models == ["first", "second", "first"]
    assert overrides_of(items["runs/large-s1"])["model"] == "large"


def test_a_preset_overrides_fields_of_a_method_that_its_runs_leave_open(
    toy: Toy, tmp_path: Path
) -> None:
    toy.edit(
        "reproduce/presets.toml",
        "[quick]",
        "[quick]\noverrides = { all.batch_size = 3, all.steps = 9, toy.steps = 2 }",
    )
    text = """
    [runs.open]
    method = "toy"
    [runs.own]
    method = "toy"
    overrides.steps = 5
    [runs.here]
    method = "toy"
    presets.quick.steps = 7
    """
    items = load(toy.root, "quick", write(tmp_path, text)).items
    steps = {}
    for name in ("open", "own", "here"):
        overrides = overrides_of(items[f"runs/{name}-s0"])
        assert overrides["batch_size"] == 3
        steps[name] = overrides["steps"]
    assert steps == {"open": 2, "own": 5, "here": 7}


def test_overrides_of_an_unknown_method_are_refused(toy: Toy) -> None:
    toy.edit(
        "reproduce/presets.toml", "[quick]", "[quick]\noverrides.tox = { steps = 2 }"
    )
    assert (
        "presets.toml: [quick.overrides]: unknown method 'tox'; did you mean toy?"
        in toy(code=2)
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_the_registry_may_lie_in_the_home_folder(toy: Toy, home: Path) -> None:
    write(home, SOUND)
    for option in (["--registry=~/own.toml"], ["--registry", "~/own.toml"]):
        states = toy.states("--paper", "own", *option)
        assert set(states) == {"runs/sound-s0", "runs/sound-s1", "sound_table"}


def test_paths_of_a_registry_may_begin_at_home(toy: Toy, home: Path) -> None:
    table = toy.root / "notebooks/tables/toy_table.ipynb"
    (home / "table.ipynb").write_text(table.read_text("utf-8"), "utf-8")
    text = """
    [runs.own]
    method = "~/own.py:Debate"
    overrides = { model = "~/model" }
    [artefacts.own_table]
    notebook = "~/table.ipynb"
    inputs = ["~/input.csv"]
    outputs = ["table.csv"]
    """
    items = load(toy.root, "quick", write(home, text)).items
    run = items["runs/own-s0"]
    assert run.method == f"{home}/own.py:Debate"
    assert run.inputs == (f"{home}/model",)
    notebooks = toy.root / "notebooks"
    model = json.loads(run.parameters["overrides"])["model"]
    assert (notebooks / model).resolve() == (home / "model").resolve()
    assert items["own_table"].notebook == f"{home}/table.ipynb"
    assert items["own_table"].inputs == (f"{home}/input.csv",)


def test_every_notebook_takes_folders_of_the_home_folder() -> None:
    notebooks = sorted((Path(__file__).parents[2] / "notebooks").rglob("*.ipynb"))
    assert len(notebooks) > 20
    for notebook in notebooks:
        text = notebook.read_text("utf-8")
        for name in ("out", "results", "exported", "benchmark"):
            path = f"Path({name})"
            assert text.count(path) == text.count(f"{path}.expanduser()"), notebook
