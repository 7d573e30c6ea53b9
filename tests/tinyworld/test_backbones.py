"""The shipped backbones are whole, small, and pass their gates; the recipe runs."""

import json

import pytest

from coevolve import policies
from tinyworld import gates
from tinyworld import recipe as tiny


@pytest.mark.parametrize("name", tiny.SIZES)
def test_shipped_files_match_their_checksums_and_stay_small(name):
    tiny.verify(name)
    folder = tiny.find(name)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 2**20
    made = json.loads((folder / "card.json").read_text())["recipe"]
    assert made == json.loads(json.dumps(tiny.recipe(name, 1.0, 0, made["minutes"])))


def test_a_changed_byte_is_found(tmp_path, monkeypatch):
    import shutil

    shutil.copytree(tiny.find("tiny"), tmp_path / "tiny")
    monkeypatch.setattr("tinyworld.BACKBONES", tmp_path)
    tiny.verify("tiny")
    weights = tmp_path / "tiny" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="model.safetensors"):
        tiny.verify("tiny")


def test_the_middle_backbone_passes_every_gate():
    shipped = json.loads((tiny.find("tiny") / "card.json").read_text())["figures"]
    assert gates.failures(shipped) == []
    measured = gates.measure(policies.load("tiny").generate)  # here and now; another processor rounds differently
    for name, (low, high) in gates.GATES.items():
        assert low - 0.01 <= measured[name] <= high + 0.01, name
        assert abs(measured[name] - shipped[name]) < 0.02, name
    for role, share in measured["format"].items():
        assert share >= gates.FORMAT_GATE - 0.01 and abs(share - shipped["format"][role]) < 0.02, role


def test_gates_can_fail():
    figures = {name: 0.0 for name in gates.GATES} | {"format": {"mae/solver": 0.5}}
    assert len(gates.failures(figures)) == len(gates.GATES) + 1


def test_the_recipe_gives_the_same_bytes_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "finish", lambda folder, recipe: None)  # measuring an untrained model takes minutes
    for name in ("one", "two"):
        tiny.make("tiny-small", tmp_path / name, share=0.0005)
    for file in ("model.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    assert policies.load(str(tmp_path / "one")).vocabulary == policies.load("tiny-small").vocabulary


@pytest.mark.parametrize("name", tiny.SIZES)
def test_the_card_is_made_from_the_measured_figures(name):
    made = json.loads((tiny.find(name) / "card.json").read_text())
    text = tiny.card(made["recipe"], made["figures"], gates.failures(made["figures"]))
    assert (tiny.find(name) / "README.md").read_text() == text


@pytest.mark.parametrize("name", tiny.SIZES)
def test_transformers_reads_the_tokenizer_as_the_recipe_made_it(name):
    from transformers import AutoTokenizer

    from tinyworld.demonstrations import demonstrate
    from tinyworld.demonstrator import Demonstrator
    from tinyworld.warmstart import make_tokenizer, portable

    original, loaded, rng = make_tokenizer(), AutoTokenizer.from_pretrained(tiny.find(name)), Demonstrator("tokens")
    new_id = {old: new for new, old in enumerate(portable(original)[1])}
    for _ in range(1500):
        _, prompt, completion = demonstrate(rng)
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
        ids = loaded.apply_chat_template(messages, return_dict=False)
        assert ids == [new_id[i] for i in original.apply_chat_template(messages, return_dict=False)]
        assert loaded.decode(ids) == f"<bos><user>{prompt}<assistant>{completion}<end>"


def test_unknown_models_are_named():
    with pytest.raises(ValueError, match="tiny-small, tiny, tiny-large, tiny-seasoned"):
        tiny.find("huge")
