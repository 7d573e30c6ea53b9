"""vLLM's own OpenAI endpoint on this machine as MAE's judge: its replies, costs and scores.

Run by `make test-engines`; skipped where vLLM is not installed.
"""

from dataclasses import replace
from importlib.util import find_spec

import pytest
from engines.digits import turns_of
from engines.servers import vllm_server

from coevolve.engines.loading import load_policy
from coevolve.engines.openai_server import ServedPolicy
from coevolve.models.names import find
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train

pytestmark = pytest.mark.skipif(
    not find_spec("vllm"), reason="vLLM is not installed: make test-engines installs it"
)
NAME = "smollm2-roles"  # it has learned to judge in the form that MAE asks for


@pytest.fixture(scope="module")
def address():
    options = ["--max-model-len", "2048", "--served-model-name", NAME]
    with vllm_server(*options, "--model", str(find(NAME))) as address:
        yield f"{address}/v1#{NAME}"


def test_it_says_what_the_policy_says_and_counts_its_tokens(address):
    turns = [
        replace(turn, max_tokens=24) for turn in turns_of("judge", temperature=0.0)
    ]
    engine = ServedPolicy(address, "judge")
    replies = engine.answer(turns)
    expected = load_policy(NAME).generate(turns)
    for reply, expected_reply in zip(replies, expected, strict=True):
        assert reply.text == expected_reply.text
        assert reply.finished == expected_reply.finished
    tokens_in = sum(len(reply.prompt_ids) for reply in expected)
    tokens_out = sum(len(reply.completion_ids) for reply in expected)
    empty = 0
    expected_costs = [len(turns), tokens_in, tokens_out, empty]
    assert list(engine.costs().values()) == expected_costs


def test_its_scores_are_the_rewards_of_a_step_of_mae(address, tmp_path):
    fields = {
        "judge_model": address,
        "steps": 1,
        "batch_size": 2,
        "solves": 2,
        "attempts": 1,
        "max_tokens": 48,
        "eval_items": 1,
        "eval_every": 0,
    }
    out = train(config.build("mae", "real", out=tmp_path / "run", overrides=fields))
    step = record.read(out).query("step == 1").iloc[0]
    assert step["tokens_out/judge"] > step["requests/judge"] > 0
    assert 0 <= step["judged"] <= 1
