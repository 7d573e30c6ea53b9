"""The real vLLM on SmolLM2: same tokens, same log-probabilities, and always the learner's weights.

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
from core import ranks
from core.tensors import learn
from engines.digits import DIGITS, turns_of

pytest.importorskip(
    "vllm", reason="vLLM is not installed: make test-engines installs it"
)

from coevolve.engines.limits import RESERVE_GIB, VLLM_RANKS, VLLM_SHARE
from coevolve.engines.loading import load_policy
from coevolve.engines.vllm import VLLM
from coevolve.models.policy import Policy
from coevolve.models.policy_set import PolicySet
from coevolve.types import Reply

TRAIN_TWICE = """
import sys
from coevolve.cli import main
for out in sys.argv[1:3]:
    assert main(["train", *sys.argv[3:], "--preset", "real", "--out", out]) == 0
"""
FIELDS = (
    "engine=vllm model=smollm2 max_tokens=4 batch_size=2 steps=2 learning_rate=1e-4 eval_every=0 "
    "eval_items=1"
)
CLOSE = 1e-4  # difference of log-probabilities
LATER_GIB = 3.0  # of the learner
# Of a GPU of 24 GiB with 20 free.
SHARE = (20 - RESERVE_GIB - LATER_GIB) / 24


def logprob_gap(policy: Policy, *replies: Reply) -> float:
    """Return the largest difference between the replies' and the policy's log-probabilities."""
    gaps = []
    for reply in replies:
        sampled = torch.tensor(reply.logprobs)
        gaps.append(float((sampled - policy.logprobs([reply])).abs().max()))
    return max(gaps)


def teach(
    policy: Policy, optimizer: torch.optim.Optimizer, replies: list[Reply]
) -> None:
    """Take a step that rewards every other reply."""
    samples = [reply.earns(float(i % 2)) for i, reply in enumerate(replies)]
    learn(policy, optimizer, samples)


def ids_of(replies: list[Reply]) -> list[tuple[int, ...]]:
    return [reply.completion_ids for reply in replies]


def test_two_processes_have_an_engine_each_and_a_process_can_run_twice(tmp_path):
    # The first test of this file: two processes need 7 GB beside one that holds nothing yet.
    script = tmp_path / "train_twice.py"
    script.write_text(TRAIN_TWICE)
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    ranks.launch(2, str(script), *folders, DIGITS, *FIELDS.split(), timeout=1500)
    first = (tmp_path / "one" / "metrics.jsonl").read_text()
    second = (tmp_path / "two" / "metrics.jsonl").read_text()
    gaps = []
    for line in first.splitlines():
        gap = json.loads(line).get("logprob_gap")
        if gap is not None:
            gaps.append(gap)
    assert len(gaps) == 2, "samples of both ranks, before and after an update"
    assert max(gaps) < CLOSE
    assert first == second


@pytest.fixture(scope="module")
def policy():
    return load_policy("smollm2")


@pytest.fixture(scope="module")
def engine(policy):
    """The engine of a fully trained policy, for all tests until it is closed."""
    return VLLM({"shared": policy}, 1.0, 32)


def test_greedy_replies_are_those_of_the_policy_itself(policy, engine):
    turns = turns_of(temperature=0.0)
    expected = policy.generate(turns)
    for reply, expected_reply in zip(engine.answer(turns), expected, strict=True):
        assert reply.turn == expected_reply.turn
        assert reply.text == expected_reply.text
        assert reply.prompt_ids == expected_reply.prompt_ids
        assert reply.completion_ids == expected_reply.completion_ids
        assert reply.char_ends == expected_reply.char_ends
        assert reply.logprobs == pytest.approx(expected_reply.logprobs, abs=CLOSE)
        assert reply.finished


def test_the_ranks_are_those_of_this_vllm():
    from vllm.config.lora import MaxLoRARanks

    assert get_args(MaxLoRARanks) == VLLM_RANKS


@pytest.mark.parametrize("temperature", [None, 0.6])
def test_noise_depends_on_the_key_and_logprobs_agree_with_transformers(
    policy, engine, temperature
):
    turns = turns_of(temperature=temperature)
    replies = engine.answer(turns)
    reversed_replies = engine.answer(turns[::-1])
    assert ids_of(replies) == ids_of(reversed_replies[::-1])
    assert logprob_gap(policy, *replies) < CLOSE


def test_the_engine_serves_the_current_weights_after_an_update(policy, engine):
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    teach(policy, optimizer, engine.answer(turns_of()))
    stale = logprob_gap(policy, *engine.answer(turns_of()))
    assert stale > 20 * CLOSE, "the update must be large enough to tell the two apart"
    engine.sleep()
    engine.load_weights()
    assert logprob_gap(policy, *engine.answer(turns_of())) < CLOSE


@pytest.fixture
def settings_on_a_gpu(policy, engine, monkeypatch):
    """Return vLLM's settings on a GPU for a number of engines and processes; nothing starts."""
    refuse = Mock(side_effect=InterruptedError)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    free_and_total = (20 * 2**30, 24 * 2**30)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: free_and_total)
    monkeypatch.setattr("vllm.LLM", refuse)

    def settings(engines, processes):
        state = SimpleNamespace(num_processes=processes)
        monkeypatch.setattr("coevolve.engines.vllm.PartialState", lambda cpu: state)
        with pytest.raises(InterruptedError):
            VLLM({"shared": policy}, 1.0, 32, engines=engines, later_gib=LATER_GIB)
        return refuse.call_args.kwargs

    return settings


def test_a_single_engine_takes_what_is_free_and_sleeps(settings_on_a_gpu):
    settings = settings_on_a_gpu(engines=1, processes=1)
    share = settings["gpu_memory_utilization"]
    assert share == pytest.approx(SHARE)
    assert settings["enable_sleep_mode"] is True
    assert "distributed_executor_backend" not in settings


def test_engines_share_one_part_of_the_gpu_and_do_not_sleep(settings_on_a_gpu):
    settings = settings_on_a_gpu(engines=2, processes=1)
    assert settings["gpu_memory_utilization"] == VLLM_SHARE / 2
    assert settings["enable_sleep_mode"] is False
    assert "distributed_executor_backend" not in settings


def test_each_of_several_processes_has_an_engine_of_its_own(settings_on_a_gpu):
    settings = settings_on_a_gpu(engines=1, processes=4)
    share = settings["gpu_memory_utilization"]
    assert share == pytest.approx(SHARE)
    assert settings["enable_sleep_mode"] is True
    assert settings["distributed_executor_backend"] == "external_launcher"


def test_a_closed_engine_leaves_room_for_the_next(policy, engine):
    # The last test of this engine.
    before = engine.answer(turns_of())
    (reference,) = engine.llm.apply_model(lambda model: weakref.ref(model))
    engine.close()
    assert reference() is None, "its weights are gone"
    next_engine = VLLM({"shared": policy}, 1.0, 32)
    assert ids_of(next_engine.answer(turns_of())) == ids_of(before)
    next_engine.close()


def test_adapters_of_one_base_are_mixed_in_one_batch():
    torch.manual_seed(0)
    names = ("left", "right")
    team = PolicySet(dict.fromkeys(names, "smollm2"), names, (4, 8, 0.0))
    team.optimize(1e-2, 0.0)
    engine = VLLM(team.policies, 1.0, 32)
    for name in names:
        teach(team.policies[name], team.optimizers[name], engine.answer(turns_of(name)))
    engine.load_weights()
    folders = list(Path(engine.folder.name).iterdir())
    assert len(folders) == 2, "the served version of each adapter"

    turns = []
    for left, right in zip(turns_of("left"), turns_of("right"), strict=True):
        turns += [left, right]
    gaps = []
    gaps_to_the_other = []
    for reply in engine.answer(turns):
        other = "left" if reply.turn.policy == "right" else "right"
        gaps.append(logprob_gap(team.policies[reply.turn.policy], reply))
        gaps_to_the_other.append(logprob_gap(team.policies[other], reply))
    engine.close()
    assert max(gaps) < CLOSE
    assert max(gaps_to_the_other) > 20 * CLOSE, "the adapters must differ"
