"""The shipped backbones are complete, small, and pass their gates; the recipe runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from coevolve.engines.loading import load_policy
from tinyworld import NAMES, backbone, gates, warmstart
from tinyworld.demonstrations import demonstrate
from tinyworld.demonstrator import Demonstrator
from tools import backbones, tiny_tokenizer

# The shipped files


@pytest.mark.parametrize("name", NAMES)
def test_shipped_files_match_their_checksums_and_are_small(name: str) -> None:
    folder = backbone(name)
    backbones.verify(folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 4 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_page_is_the_one_that_the_card_gives(name: str) -> None:
    folder = backbone(name)
    page = (folder / "README.md").read_text()
    assert page == backbones.card(**backbones.read_card(folder))


@pytest.mark.parametrize("name", NAMES)
def test_the_shape_of_a_backbone_is_the_one_on_its_card(name: str) -> None:
    recipe = backbones.read_card(backbone(name))["recipe"]
    config = load_policy(name).model.config
    assert recipe["hidden"] == config.hidden_size
    assert recipe["layers"] == config.num_hidden_layers
    assert recipe["heads"] == config.num_attention_heads


def flip_last_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_changed_byte_a_new_file_and_a_lost_one_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    shutil.copytree(backbone("tiny"), folder)
    backbones.verify(folder)
    flip_last_bit(folder / "model.safetensors")
    (folder / "new.txt").touch()
    (folder / "config.json").unlink()
    files = "config.json, model.safetensors, new.txt"
    with pytest.raises(ValueError, match=f"tiny differs from its checksums in {files}"):
        backbones.verify(folder)


# What the middle backbone can do

SLACK = 0.06  # between two machines, which round differently
SCORES_SLACK = 2
# Gates that the middle backbone misses on questions it has never seen, as its card says.
MISSED_BY_AT_MOST = {
    "solve_greedy": 0.15,
    "judge_answer_sampled": 0.08,
    "correct_plan_gain": 0.08,
    "wrong_plan_gain": 0.1,
    "ranking": 0.18,
    "multiple_choice_gold": 0.32,
    "gold_with_document": 0.06,
}


@pytest.fixture(scope="module")
def shipped() -> dict:
    return backbones.read_card(backbone("tiny"))["figures"]


@pytest.fixture(scope="module")
def measured() -> dict:
    return backbones.measure("tiny")


@pytest.mark.parametrize("name", gates.GATES)
def test_the_middle_backbone_passes_a_gate_or_misses_it_by_little(
    shipped: dict, name: str
) -> None:
    gate = gates.GATES[name]
    excess = MISSED_BY_AT_MOST.get(name, 0.0)
    assert gate.low - excess <= shipped[name] <= gate.high + excess


@pytest.mark.thorough
def test_the_middle_backbone_has_the_figures_of_its_card(
    shipped: dict, measured: dict
) -> None:
    for name in gates.GATES:
        slack = SCORES_SLACK if name == "judge_scores" else SLACK
        assert abs(measured[name] - shipped[name]) < slack, name


def test_the_replies_of_the_middle_backbone_are_well_formed(shipped: dict) -> None:
    for role, share in shipped["format"].items():
        assert share >= gates.FORMAT_GATE.low - SLACK, role


@pytest.mark.thorough
def test_the_replies_of_the_middle_backbone_are_as_well_formed_as_its_card_says(
    shipped: dict, measured: dict
) -> None:
    for role, share in measured["format"].items():
        assert abs(share - shipped["format"][role]) < SLACK, role


# The recipe


def test_the_recipe_gives_the_same_bytes_twice_also_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Measuring an untrained model takes minutes.
    monkeypatch.setattr(backbones, "finish", lambda folder, recipe: None)
    first = tmp_path / "first"
    second = tmp_path / "second"
    backbones.make("tiny-small", first, share=0.0005)

    trained = []
    warm_start = warmstart.warm_start

    def stopped(*arguments: Any) -> None:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(warm_start(*arguments))

    with monkeypatch.context() as patch:
        patch.setattr(warmstart, "warm_start", stopped)
        with pytest.raises(KeyboardInterrupt):
            backbones.make("tiny-small", second, share=0.0005)
    assert len(list(second.glob("cycle-*.pt"))) == 2
    backbones.make("tiny-small", second, share=0.0005)

    for file in (
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "config.json",
    ):
        assert (first / file).read_bytes() == (second / file).read_bytes(), file

    shipped_files = {path.name for path in backbone("tiny-small").iterdir()}
    files_of_finish = {"README.md", "SHA256SUMS", "card.json"}
    assert {path.name for path in first.iterdir()} | files_of_finish == shipped_files

    remade = load_policy(str(first))
    assert remade.head_VH.shape == load_policy("tiny-small").head_VH.shape


# The tokenizer


def as_messages(prompt: str, completion: str) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": prompt},
        {"role": "assistant", "content": completion},
    ]


def test_the_shipped_numbers_of_tokens_are_a_permutation() -> None:
    shipped = AutoTokenizer.from_pretrained(backbone("tiny"))
    numbers = json.loads(backbones.NUMBERS.read_text())
    assert sorted(numbers) == list(range(len(shipped)))


def test_the_shipped_tokenizer_says_every_demonstration() -> None:
    shipped = AutoTokenizer.from_pretrained(backbone("tiny"))
    rng = Demonstrator("tokens")
    for _ in range(1500):
        _, prompt, completion = demonstrate(rng)
        messages = as_messages(prompt, completion)
        ids = shipped.apply_chat_template(messages, return_dict=False)
        assert shipped.decode(ids) == f"<bos><user>{prompt}<assistant>{completion}<end>"


def test_a_portable_tokenizer_gives_the_same_tokens_under_other_numbers() -> None:
    original = tiny_tokenizer.train()
    rebuilt, numbers = tiny_tokenizer.portable(original)
    assert sorted(numbers) == list(range(len(original)))
    new_id_of = {original_id: new_id for new_id, original_id in enumerate(numbers)}
    rng = Demonstrator("tokens")
    for _ in range(500):
        _, prompt, completion = demonstrate(rng)
        messages = as_messages(prompt, completion)
        ids = rebuilt.apply_chat_template(messages, return_dict=False)
        original_ids = original.apply_chat_template(messages, return_dict=False)
        assert ids == [new_id_of[original_id] for original_id in original_ids]


@pytest.mark.parametrize("name", NAMES)
def test_all_backbones_share_one_tokenizer(name: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(backbone(name))
    tiny = AutoTokenizer.from_pretrained(backbone("tiny"))
    assert tokenizer.get_vocab() == tiny.get_vocab()
    assert tokenizer.chat_template == tiny.chat_template

    text = 'solve<question>f(1)=2 f(2)=4 f=</question> assert g("381")=="138" Zoë\n'
    ids = tokenizer(text).input_ids
    assert ids == tiny(text).input_ids
    assert tokenizer.decode(ids) == text


# The command line


def test_the_command_line_verifies_every_backbone(
    capsys: pytest.CaptureFixture,
) -> None:
    backbones.main(["verify"])
    assert capsys.readouterr().out.splitlines() == [f"{name}: whole" for name in NAMES]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["make", "huge", "--out", "x"], "tiny-small"),
        (["measure", "huge"], "model must be"),
    ],
)
def test_the_command_line_refuses_an_unknown_backbone(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    with pytest.raises(SystemExit):
        backbones.main(arguments)
    assert message in capsys.readouterr().err
