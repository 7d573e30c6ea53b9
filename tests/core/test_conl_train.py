"""CoNL through the trainer: what a run leaves behind, that it resumes, and that masked tokens have no gradient."""

import json
from pathlib import Path

import pytest
import torch
from test_learn import Keep, policy_of
from test_value import samples_of

from coevolve import config, record
from coevolve.learner import _rows, learn
from coevolve.loop import train
from coevolve.segments import owners
from coevolve.types import Sample
from reproduce.analysis import conversations

SMALL = {"steps": 2, "batch_size": 2, "eval_every": 1, "eval_items": 1, "save_every": 1, "examined": 1}


def run(out: Path, **fields) -> Path:
    return train(config.build("conl", "quick", out=out, overrides=SMALL | fields))


def gradient(samples: list[Sample]) -> list:
    policy = policy_of()
    policy.model.double()
    optimizer = Keep(policy.parameters(), lr=1.0)
    learn(
        policy,
        optimizer,
        samples,
        estimator="segment_centred",
        kind="importance",
        length_norm="token_sum",
        grad_clip=None,
    )
    return optimizer.seen


def test_masked_tokens_have_no_weight_and_no_gradient() -> None:
    policy = policy_of()
    samples = samples_of(policy)
    for row in _rows(samples, "segment_centred", "token_sum", None, 1.0):
        (sample,) = [s for s in samples if s.reply is row.reply]
        inside = [name == "s" for name in owners(sample)]
        assert row.weights == [float(paid) for paid in inside] and any(inside)
        assert all(value == 0 for value, paid in zip(row.advantages, inside, strict=True) if not paid)
    # A different number for a masked segment changes nothing; one for the paid segment does.
    other = [Sample(s.reply, {"s": s.reward["s"]}, s.group, s.spans) for s in samples]
    shifted = [Sample(s.reply, {"s": -s.reward["s"], "t": None}, s.group, s.spans) for s in samples]
    same, again, turned = gradient(samples), gradient(other), gradient(shifted)
    assert all(torch.equal(a, b) for a, b in zip(same, again, strict=True) if a is not None)
    assert all(torch.allclose(a, -b) for a, b in zip(same, turned, strict=True) if a is not None)
    assert any(a is not None and a.abs().max() > 0 for a in same)


def test_a_run_leaves_its_conversations_and_segment_rewards(tmp_path) -> None:
    out = run(tmp_path / "conl")
    talks = record.read(out, "conversations")
    assert json.loads((out / "summary.json").read_text())["conversations"]["n"] == 12
    assert len(talks) == 12 and set(talks["family"]) == set(config.method("conl").families)
    assert all(len(scores) == 4 for scores in talks["scores_after"])
    metrics = record.read(out).iloc[-1]
    for name in ("reward/proposal/initial_solution", "reward/revision/revised_solution", "r_diag_null", "entropy"):
        assert metrics[name] == metrics[name], name
    assert "reward/review/initial_ranking" not in metrics, "masked"
    again = run(tmp_path / "conl-s0")
    frame = conversations.conversations(tmp_path, {"conl": [0]}, {"conl": "CoNL"})
    assert conversations.measured(frame, {"DeepMath": ["DeepMath"]}, ["Pass@1"]).loc[0, "n"] == 5
    for name in ("metrics.jsonl", "conversations.jsonl", "policy/model.safetensors"):
        assert (out / name).read_bytes() == (again / name).read_bytes(), name


def test_a_gae_run_resumes_bit_for_bit(tmp_path) -> None:
    whole = run(tmp_path / "whole", estimator="gae")
    run(tmp_path / "halves", estimator="gae", steps=1)
    halves = run(tmp_path / "halves", estimator="gae")
    assert json.loads((halves / "summary.json").read_text())["resumed_at"] == 1
    for name in ("metrics.jsonl", "policy/model.safetensors", "conversations.jsonl"):
        assert (whole / name).read_bytes() == (halves / name).read_bytes(), name
    assert list((whole / "checkpoints").glob("*/optimizers/shared.value.safetensors"))


@pytest.mark.parametrize(("method", "fields"), [("srt", {}), ("srt", {"form": "multi"}), ("ground_truth", {})])
def test_the_baselines_run(method: str, fields: dict, tmp_path) -> None:
    small = {name: value for name, value in SMALL.items() if name != "examined"}
    out = train(config.build(method, "quick", out=tmp_path / "run", overrides=small | fields))
    assert json.loads((out / "summary.json").read_text())["held_out"]["after"]["n"] > 0
    assert record.read(out).iloc[-1]["tokens_turn"] > 0
    assert not (out / "conversations.jsonl").exists()


def test_the_papers_training_values_are_kept() -> None:
    paper = config.training(config.method("conl"))
    assert (paper["loss"], paper["length_norm"], paper["learning_rate"]) == ("importance", "token_sum", 3e-5)
    built = config.build("conl", "gpu", out=".")
    assert (built.loss, built.length_norm, built.protocol.estimator) == ("importance", "token_sum", "gae")
