"""A real server of vLLM answers the turns of a run and takes its weights; NCCL alone is replaced.

Run by `make test-engines`; skipped where vLLM is not installed. Weights go by a file, because NCCL
needs GPUs, see `weights_by_file`.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from engines import servers
from engines.digits import DIGITS, turns_of
from safetensors.torch import save_file

pytest.importorskip(
    "vllm", reason="vLLM is not installed: make test-engines installs it"
)

from engines import weights_by_file

from coevolve.engines import vllm_server
from coevolve.engines.loading import load_policy
from coevolve.engines.vllm_server import SERVED_DTYPE, VLLMServer
from coevolve.models.names import find
from coevolve.models.policy import Policy
from coevolve.models.policy_set import PolicySet
from coevolve.runs import record
from coevolve.training import config, machine
from coevolve.training.loop import train

MODEL = "smollm2"
LORA = (8, 16, 0.0)
CLOSE = 1e-4  # difference of log-probabilities


@pytest.fixture(scope="module")
def weights_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("weights") / "weights.safetensors"


@pytest.fixture(scope="module")
def address(
    weights_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A server that knows the plugin, as that of an installed package."""
    folder = tmp_path_factory.mktemp("plugin")
    information = folder / "weights_by_file-0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: weights-by-file\nVersion: 0\n")
    entry = f"[vllm.general_plugins]\n{weights_by_file.NAME} = weights_by_file:register"
    (information / "entry_points.txt").write_text(entry)
    source = Path(weights_by_file.__file__)
    (folder / source.name).write_text(source.read_text())
    options = ["--model", str(find(MODEL)), "--served-model-name", MODEL]
    options += ["--max-model-len", "512", "--logprobs-mode", "processed_logprobs"]
    backend = json.dumps({"backend": weights_by_file.NAME})
    options += ["--weight-transfer-config", backend]
    variables = {
        "VLLM_SERVER_DEV_MODE": "1",
        "WEIGHTS_FILE": str(weights_file),
        **servers.path_with(str(folder)),
    }
    with servers.vllm_server(*options, **variables) as address:
        yield address


@pytest.fixture(autouse=True)
def by_file(weights_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a file where weights would go by NCCL."""
    from trl.generation.vllm_client import VLLMClient

    def join(client: Any, device: Any) -> None:
        group = {"rank_offset": 1, "world_size": 2}
        group |= {"master_address": "unused", "master_port": 1}
        client._post(
            f"{client.base_url}/init_weight_transfer_engine", json={"init_info": group}
        )

    def send(weights: Any, group: Any) -> None:
        part = weights_file.with_suffix(".part")
        save_file({name: tensor.contiguous() for name, tensor in weights}, part)
        os.replace(part, weights_file)

    monkeypatch.setattr(VLLMClient, "init_communicator", join)
    monkeypatch.setattr(vllm_server, "broadcast", send)
    monkeypatch.setattr(vllm_server, "BACKEND", weights_by_file.NAME)


def rounded(policy: Policy) -> Policy:
    """Return a plain policy with the weights that the server has."""
    plain = load_policy(MODEL)
    weights = {}
    for name, served in policy.served_weights():
        weights[name] = served.to(SERVED_DTYPE)
    plain.model.load_state_dict(weights, strict=False)  # a tied head is left out
    return plain


def gap(policy: Policy, engine: VLLMServer, temperature: float) -> float:
    """Return how far the log-probabilities of the server's replies are from the policy's."""
    gaps = []
    for reply in engine.answer(turns_of(temperature=temperature)):
        sampled = torch.tensor(reply.logprobs)
        gaps.append(float((sampled - policy.logprobs([reply])).abs().max()))
    return max(gaps)


@pytest.mark.parametrize("lora", [LORA, ()], ids=["adapter", "all weights"])
def test_the_server_speaks_with_the_current_weights(lora: tuple, address: str) -> None:
    policy = PolicySet({"shared": MODEL}, ("shared",), lora).primary
    before = rounded(policy)
    engine = VLLMServer(address, policy, 1.0, 8)
    for temperature in (1.0, 0.6, 0.0):
        assert gap(before, engine, temperature) < CLOSE
    with policy.perturbed():
        after = rounded(policy)
        assert gap(before, engine, 1.0) < CLOSE
        engine.load_weights()
        assert gap(after, engine, 1.0) < CLOSE
        assert gap(before, engine, 1.0) > 0.1
    engine.close()


def test_a_key_gives_the_same_reply_beside_others(address: str) -> None:
    policy = PolicySet({"shared": MODEL}, ("shared",), LORA).primary
    engine = VLLMServer(address, policy, 1.0, 8)
    turns = turns_of()
    together = engine.answer(turns)
    alone = [engine.answer([turn])[0] for turn in turns]
    assert [reply.completion_ids for reply in together] == [
        reply.completion_ids for reply in alone
    ]
    other = engine.answer([replace(turns[0], key=(9, 9, 9))])[0]
    assert other.completion_ids != together[0].completion_ids
    engine.close()


@pytest.mark.parametrize("trainer", ["own", "trl"])
def test_a_run_learns_from_its_replies(
    trainer: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "check", lambda run: None)  # it asks for a GPU
    fields = {
        "trainer": trainer,
        "engine": "vllm",
        "vllm_server": address,
        "model": MODEL,
        "lora": LORA,
        "learning_rate": 1e-3,
        "steps": 2,
        "batch_size": 2,
        "max_tokens": 4,
        "eval_items": 1,
        "eval_every": 0,
    }
    run = config.build(DIGITS, "real", out=tmp_path / "run", overrides=fields)
    train(run)
    metrics = record.read(run.out).query("step > 0")
    # The server's weights are rounded to bfloat16, and the learner's on a CPU are not.
    assert 0 < metrics["logprob_gap"].max() < 0.1
    assert (metrics["tokens"] > 0).all()


def test_preflight_accepts_it(address: str) -> None:
    vllm_server.check(address, MODEL)
