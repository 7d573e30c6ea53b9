"""vLLM's own OpenAI endpoint on this machine as MAE's judge: it says what the policy says, and its scores are paid.

Run by `make test-engines`; skipped where vLLM is not installed.
"""

import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec

import httpx
import pytest
from engines.digits import asked

from coevolve.engines.loading import load_policy
from coevolve.engines.openai_server import ServedPolicy
from coevolve.models.names import find
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train

pytestmark = pytest.mark.skipif(not find_spec("vllm"), reason="vLLM is not installed: make test-engines installs it")
NAME = "smollm2-roles"  # it has learnt to judge in the form that MAE asks for
# By itself vLLM takes nearly all memory, and binds its threads to one core, which may be busy.
SMALL = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.fixture(scope="module")
def address():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"-m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port {port} --dtype float32 --enforce-eager"
    command += f" --max-model-len 2048 --served-model-name {NAME} --model {find(NAME)}"
    server = subprocess.Popen([sys.executable, *command.split()], env=SMALL, stdout=subprocess.DEVNULL)
    while server.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/health")
            break
        except httpx.ConnectError:
            time.sleep(1)
    yield f"http://127.0.0.1:{port}/v1#{NAME}"
    server.terminate()
    server.wait(60)


def test_it_says_what_the_policy_says_and_counts_its_tokens(address):
    turns = [replace(turn, max_tokens=24) for turn in asked("judge", temperature=0.0)]
    engine, own = ServedPolicy(address, "judge"), load_policy(NAME).generate(turns)
    said = [(reply.text, reply.finished) for reply in engine.answer(turns)]
    assert said == [(reply.text, reply.finished) for reply in own]
    tokens = [sum(len(ids) for ids in rows) for rows in zip(*((r.prompt_ids, r.completion_ids) for r in own), strict=True)]
    assert [*engine.costs().values()] == [len(turns), *tokens]


def test_a_step_of_mae_is_paid_by_its_scores(address, tmp_path):
    fields = {"judge_model": address, "steps": 1, "batch_size": 2, "solves": 2, "attempts": 1, "max_tokens": 48}
    fields |= {"eval_items": 1, "eval_every": 0}
    out = train(config.build("mae", "real", out=tmp_path / "run", overrides=fields))
    row = record.read(out).query("step == 1").iloc[0]
    assert row["tokens_out/judge"] > row["requests/judge"] > 0 and 0 <= row["judged"] <= 1
