"""The shipped backbones are whole, small, and pass their gates; the recipe runs."""

import json
import shutil

import pytest
from transformers import AutoTokenizer

from coevolve.engines.loading import load_policy
from coevolve.types import Reply
from tinyworld import NAMES, backbone, gates
from tinyworld.demonstrations import demonstrate
from tinyworld.demonstrator import Demonstrator
from tools import backbones, tiny_tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_match_their_checksums_and_their_card(name):
    folder = backbone(name)
    backbones.verify(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 2**20
    made = backbones.read_card(folder)
    assert (folder / "README.md").read_text() == backbones.card(**made)
    config = load_policy(name).model.config
    shape = (config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    assert (made["recipe"]["hidden"], made["recipe"]["layers"], made["recipe"]["heads"]) == shape


def test_a_changed_byte_a_new_file_and_a_lost_one_are_found(tmp_path):
    folder = tmp_path / "tiny"
    shutil.copytree(backbone("tiny"), folder)
    backbones.verify(folder)
    *rest, last = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(bytes([*rest, last ^ 1]))
    (folder / "new.txt").touch()
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match="tiny differs from its checksums in config.json, model.safetensors, new.txt"):
        backbones.verify(folder)


MISSED = {  # gates that the middle backbone misses, as its card says, and by how much at most
    "proposals_valid": 0.05, "right_plan_gain": 0.05, "wrong_plan_gain": 0.03, "ranking": 0.1, "multiple_choice_gold": 0.2,
}  # fmt: skip


def test_the_middle_backbone_can_do_what_its_card_says_and_misses_few_gates():
    shipped, slack = backbones.read_card(backbone("tiny"))["figures"], 0.06
    measured = backbones.measure("tiny")  # here and now; another processor rounds differently
    for name, (low, high) in gates.GATES.items():
        room = MISSED.get(name, 0.0)
        assert low - room <= shipped[name] <= high + room, name
        assert abs(measured[name] - shipped[name]) < (2 if name == "judge_scores" else slack), name
    for role, share in measured["format"].items():
        assert shipped["format"][role] >= gates.FORMAT_GATE[0] - slack, role
        assert abs(share - shipped["format"][role]) < slack, role


def test_gates_can_fail():
    figures = {name: 0.0 for name in gates.GATES} | {"format": {"mae/solver": 0.5, "mae/proposer": 1.0}}
    failures = gates.failures(figures)
    assert len(failures) == len(gates.GATES) + 2
    assert failures[-1] == "format of mae/proposer is 1.000, wanted 0.88 to 0.95"


def test_a_reader_of_documents_that_always_wants_multiple_choice_is_seen():
    wants = '{"suitable_for_mcq": true, "suitable_for_free_form": false, "best_answer_type": null, "reason": "names"}'
    assert gates.challenging(lambda role, fields, *_: [Reply(None, wants) for _ in fields], 3)["multiple_choice"] == 1.0


def test_the_recipe_gives_the_same_bytes_twice(tmp_path, monkeypatch, name="tiny-small"):
    monkeypatch.setattr(backbones, "finish", lambda folder, recipe: None)  # measuring an untrained model takes minutes
    made = [tmp_path / "one", tmp_path / "two"]
    for folder in made:
        backbones.make(name, folder, share=0.0005)
    for file in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json"):
        assert (made[0] / file).read_bytes() == (made[1] / file).read_bytes(), file
    finished = {"README.md", "SHA256SUMS", "card.json"}
    assert {path.name for path in made[0].iterdir()} | finished == {path.name for path in backbone(name).iterdir()}
    assert load_policy(str(made[0])).head_VH.shape == load_policy(name).head_VH.shape


def test_the_shipped_tokenizer_is_the_one_that_demonstrations_train():
    original = tiny_tokenizer.train()
    numbers = json.loads(backbones.NUMBERS.read_text())
    assert tiny_tokenizer.portable(original)[1] == numbers and sorted(numbers) == list(range(len(original)))
    new_id, loaded = {old: new for new, old in enumerate(numbers)}, AutoTokenizer.from_pretrained(backbone("tiny"))
    rng = Demonstrator("tokens")
    for _ in range(1500):
        _, prompt, completion = demonstrate(rng)
        messages = [{"role": "user", "content": prompt}, {"role": "assistant", "content": completion}]
        ids = loaded.apply_chat_template(messages, return_dict=False)
        assert ids == [new_id[i] for i in original.apply_chat_template(messages, return_dict=False)]
        assert loaded.decode(ids) == f"<bos><user>{prompt}<assistant>{completion}<end>"


@pytest.mark.parametrize("name", NAMES)
def test_all_backbones_share_one_tokenizer(name):
    mine, tiny = (AutoTokenizer.from_pretrained(backbone(one)) for one in (name, "tiny"))
    text = 'solve<question>f(1)=2 f(2)=4 f=</question> assert g("381")=="138" Zoë\n'
    assert mine.get_vocab() == tiny.get_vocab() and mine.chat_template == tiny.chat_template
    assert mine(text).input_ids == tiny(text).input_ids and mine.decode(mine(text).input_ids) == text


def test_the_command_line(capsys):
    backbones.main(["verify"])
    assert capsys.readouterr().out.splitlines() == [f"{name}: whole" for name in NAMES]
    for arguments, message in (["make", "huge", "--out", "x"], "tiny-small"), (["measure", "huge"], "model must be"):
        with pytest.raises(SystemExit):
            backbones.main(arguments)
        assert message in capsys.readouterr().err
