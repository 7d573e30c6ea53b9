"""vLLM for real, on SmolLM2: same tokens, same log-probabilities, and always the learner's weights.

Run by `make test-engines`; skipped where vLLM is not installed.
"""

import json
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import get_args
from unittest.mock import Mock

import pytest
import torch
from core.tensors import learn
from core.test_ranks import start
from engines.digits import DIGITS, asked

pytest.importorskip("vllm", reason="vLLM is not installed: make test-engines installs it")

from coevolve import validation
from coevolve.engines.loading import load_policy
from coevolve.engines.vllm import VLLM, VLLM_SHARE
from coevolve.models.policy import Policy
from coevolve.models.policy_set import PolicySet

TWICE = """
import sys
from coevolve.cli import main
for out in sys.argv[1:3]:
    assert main(["train", *sys.argv[3:], "--preset", "real", "--out", out]) == 0
"""
FIELDS = "engine=vllm model=smollm2 max_tokens=4 batch_size=2 steps=2 learning_rate=1e-4 eval_every=0 eval_items=1"
CLOSE = 1e-4  # log-probabilities


def gap(policy: Policy, reply) -> float:
    """How far the log-probabilities of a reply are from those of the policy at most."""
    return float((torch.tensor(reply.logprobs) - policy.logprobs([reply])).abs().max())


def teach(policy: Policy, optimizer: torch.optim.Optimizer, replies: list) -> None:
    learn(policy, optimizer, [reply.earns(float(i % 2)) for i, reply in enumerate(replies)])


def test_two_processes_have_an_engine_each_and_a_process_can_run_twice(tmp_path):
    # The first test of this file: two processes need 7 GB beside one that holds nothing yet.
    script = tmp_path / "twice.py"
    script.write_text(TWICE)
    start(2, str(script), str(tmp_path / "one"), str(tmp_path / "two"), DIGITS, *FIELDS.split(), timeout=1500)
    one, two = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("one", "two"))
    gaps = [row["logprob_gap"] for row in map(json.loads, one.splitlines()) if row.get("logprob_gap") is not None]
    assert len(gaps) == 2 and max(gaps) < CLOSE, "samples of both ranks, before and after an update"
    assert one == two


@pytest.fixture(scope="module")
def whole():
    policy = load_policy("smollm2")
    return policy, VLLM({"shared": policy}, 1.0, 32)


def test_greedy_tokens_are_those_of_the_policy_itself(whole):
    policy, engine = whole
    turns = asked(temperature=0.0)
    for reply, own in zip(engine.answer(turns), policy.generate(turns), strict=True):
        assert (reply.text, reply.completion_ids, reply.prompt_ids, reply.char_ends) == (own.text, own.completion_ids, own.prompt_ids, own.char_ends)
        assert reply.logprobs == pytest.approx(own.logprobs, abs=CLOSE)
        assert reply.finished and reply.turn == own.turn


def test_the_ranks_are_those_of_this_vllm():
    from vllm.config.lora import MaxLoRARanks

    assert get_args(MaxLoRARanks) == validation.VLLM_RANKS


@pytest.mark.parametrize("heat", [None, 0.6])
def test_log_probabilities_agree_with_transformers_and_noise_hangs_on_the_key(whole, heat):
    policy, engine = whole
    replies, again = (engine.answer(asked(temperature=heat)[::step])[::step] for step in (1, -1))
    assert [reply.completion_ids for reply in replies] == [reply.completion_ids for reply in again]
    assert max(gap(policy, reply) for reply in replies) < CLOSE


def test_the_engine_serves_the_weights_as_they_are_after_an_update(whole):
    policy, engine = whole
    teach(policy, torch.optim.SGD(policy.parameters(), lr=0.1), engine.answer(asked()))
    stale = max(gap(policy, reply) for reply in engine.answer(asked()))
    assert stale > 20 * CLOSE, "the update must be large enough to tell the two apart"
    engine.sleep(), engine.load_weights()
    assert max(gap(policy, reply) for reply in engine.answer(asked())) < CLOSE


def test_engines_share_one_part_of_the_gpu_only_a_single_one_sleeps_and_a_rank_has_its_own(whole, monkeypatch):
    refuse = Mock(side_effect=InterruptedError)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr("vllm.LLM", refuse)
    for count, ranks in ((1, 1), (2, 1), (1, 4)):
        monkeypatch.setattr("coevolve.engines.vllm.Distributed", lambda ranks=ranks: SimpleNamespace(count=ranks))
        with pytest.raises(InterruptedError):
            VLLM({"shared": whole[0]}, 1.0, 32, engines=count)
    asked_for = [call.kwargs for call in refuse.call_args_list]
    assert [one["gpu_memory_utilization"] for one in asked_for] == [VLLM_SHARE, VLLM_SHARE / 2, VLLM_SHARE]
    assert [one["enable_sleep_mode"] for one in asked_for] == [True, False, True]
    assert [one.get("distributed_executor_backend") for one in asked_for] == [None, None, "external_launcher"]


def test_a_closed_engine_leaves_room_for_the_next(whole):
    policy, engine = whole  # the last test of this engine
    before = [reply.completion_ids for reply in engine.answer(asked())]
    model = weakref.ref(engine.llm.apply_model(lambda model: weakref.ref(model))[0]())
    engine.close()
    assert model() is None, "its weights are gone"
    again = VLLM({"shared": policy}, 1.0, 32)
    assert [reply.completion_ids for reply in again.answer(asked())] == before
    again.close()


def test_adapters_of_one_base_are_mixed_in_one_batch():
    torch.manual_seed(0)
    team = PolicySet({"left": "smollm2", "right": "smollm2"}, ("left", "right"), (4, 8, 0.0))
    team.optimize(1e-2, 0.0)
    engine = VLLM(team.policies, 1.0, 32)
    for name in team.trained:
        teach(team.policies[name], team.optimizers[name], engine.answer(asked(name)))
    engine.load_weights()
    assert len(list(Path(engine.folder.name).iterdir())) == 2, "of each adapter the version that is served"
    turns = [turn for pair in zip(asked("left"), asked("right"), strict=True) for turn in pair]
    gaps = [{name: gap(policy, reply) for name, policy in team.policies.items()} for reply in engine.answer(turns)]
    engine.close()
    assert max(found[turn.policy] for found, turn in zip(gaps, turns, strict=True)) < CLOSE
    assert max(max(found.values()) for found in gaps) > 20 * CLOSE, "the adapters must differ to show anything"
