"""The shipped backbones are whole, small, and pass their gates; the recipe runs."""

import json

import pytest

from coevolve import policies
from coevolve.evaluate import gates
from coevolve.policies import tiny


@pytest.mark.parametrize("name", tiny.SIZES)
def test_shipped_files_match_their_checksums_and_stay_small(name):
    tiny.verify(name)
    folder = tiny.find(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 2**20
    recipe = json.loads((folder / "card.json").read_text())["recipe"]
    assert recipe["name"] == name and recipe["steps"] == tiny.SIZES[name].steps


def test_a_changed_byte_is_found(tmp_path, monkeypatch):
    import shutil

    shutil.copytree(tiny.find("tiny"), tmp_path / "tiny")
    monkeypatch.setattr(tiny, "BACKBONES", tmp_path)
    tiny.verify("tiny")
    weights = tmp_path / "tiny" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="model.safetensors"):
        tiny.verify("tiny")


def test_the_middle_backbone_passes_every_gate():
    figures = gates.measure(policies.load("tiny").generate)
    assert gates.failures(figures) == []


def test_gates_can_fail():
    figures = {name: 0.0 for name in gates.GATES} | {"format": {"mae/solver": 0.5}}
    assert len(gates.failures(figures)) == len(gates.GATES) + 1


def test_the_recipe_makes_a_backbone_that_loads(tmp_path):
    tiny.make("tiny-small", tmp_path / "made", steps=30)
    again = tmp_path / "again"
    tiny.make("tiny-small", again, steps=30)
    assert (again / "model.safetensors").read_bytes() == (tmp_path / "made" / "model.safetensors").read_bytes()
    assert policies.load(str(again)).vocabulary == policies.load("tiny-small").vocabulary
    assert "Gates it misses" in (again / "README.md").read_text()


def test_unknown_models_are_named():
    with pytest.raises(ValueError, match="tiny-small, tiny, tiny-large"):
        tiny.find("huge")
