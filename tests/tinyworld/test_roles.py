"""The role warm start of a real model: its demonstrations, and a run from the command line."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
from safetensors.torch import load
from test_demonstrations import shares

from coevolve.cli import main
from coevolve.text.parse import tag
from tinyworld import tasks
from tinyworld.demonstrations import ROLES
from tinyworld.roles import LONGEST, RoleWarmStart

COUNT = 1024  # demonstrations, the first half truthful
BATCH = 8


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """Return (prompt, completion) of all demonstrations."""
    examples = RoleWarmStart(demonstrations=COUNT, truthful=0.5).examples()
    pairs = []
    for example in examples:
        pairs.append(
            (example["prompt"][0]["content"], example["completion"][0]["content"])
        )
    return pairs


@pytest.fixture(scope="module")
def lengths(texts: list[tuple[str, str]]) -> list[int]:
    return [len(prompt + completion) for prompt, completion in texts]


def test_a_warm_start_has_its_number_of_demonstrations_and_no_long_one(
    lengths: list[int],
) -> None:
    assert len(lengths) == COUNT
    assert max(lengths) < LONGEST


def test_most_batches_are_of_one_length(lengths: list[int]) -> None:
    spreads = []
    for start in range(0, COUNT, BATCH):
        batch = lengths[start : start + BATCH]
        spreads.append(max(batch) - min(batch))
    assert sorted(spreads)[102] < 60, "four fifths of the batches"
    assert max(lengths) - min(lengths) > 60


def test_a_warm_start_has_the_same_demonstrations_every_time() -> None:
    first = RoleWarmStart(demonstrations=COUNT, truthful=0.5).examples()
    second = RoleWarmStart(demonstrations=COUNT, truthful=0.5).examples()
    assert first == second


def test_truthful_demonstrations_come_first(texts: list[tuple[str, str]]) -> None:
    rows = []
    for number, (prompt, completion) in enumerate(texts):
        is_truthful = number < COUNT // 2
        # Of MAE's solver.
        instruction = prompt.partition("question. Write the answer")[2]
        question = instruction.partition("\n")[2]
        answer = tag(completion, "answer")
        if instruction and answer:
            rows.append((is_truthful, tasks.is_correct(question, answer)))
    rates = shares(rows)
    assert rates[True] == 1
    assert 0 < rates[False] < 1


def check_figures(summary: dict) -> None:
    assert summary["steps"] == 32
    assert set(summary["figures"]["format"]) == set(ROLES)
    assert summary["figures"]["items"] == 22


def check_adapter_has_learnt(adapter: bytes) -> None:
    for name, weight in load(adapter).items():
        if "lora_B" in name:
            assert weight.any(), f"{name} is still 0, its initial value"


@pytest.mark.thorough
def test_a_role_warm_start_runs_from_the_command_line_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    command = [
        *("warm", "tiny-small", "--out", str(tmp_path)),
        *("prompt=compact", "demonstrations=512", "sft_batch=16", "lora=[8,16,0.0]"),
        *("learning_rate=0.01", "eval_items=1", "examined=10"),
    ]
    summary_path = tmp_path / "summary.json"
    adapter_path = tmp_path / "policy" / "adapter_model.safetensors"

    assert main(command) == 0
    check_figures(json.loads(summary_path.read_bytes()))
    adapter = adapter_path.read_bytes()
    check_adapter_has_learnt(adapter)
    assert "steps 1 to 32 in " in capsys.readouterr().out

    # Interrupted before the first step of a second start.
    summary_path.unlink()
    adapter_path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(RoleWarmStart, "examples", Mock(side_effect=KeyboardInterrupt))
        assert main(command) == 130
    assert "stopped at step 32; run the same command" in capsys.readouterr().err

    # The last checkpoint is damaged, so the run resumes from the one before.
    (tmp_path / "checkpoints/checkpoint-32/optimizer.pt").write_bytes(b"")
    assert main([*command, "epochs=2"]) == 2
    assert "epochs 1 there, 2 now; use" in capsys.readouterr().err
    assert main(command) == 0
    assert "resuming at step 20\n" in capsys.readouterr().out
    assert adapter_path.read_bytes() == adapter
