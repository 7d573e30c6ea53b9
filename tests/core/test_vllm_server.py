"""A run whose turns a server of vLLM answers: what is asked, what is sent, what is refused."""

import copy
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pretend_vllm
import pytest
import torch
from pretend_vllm import PretendClient, PretendServer
from trl.generation.vllm_client import VLLMClient

from coevolve.cli import main
from coevolve.engines import vllm_server
from coevolve.engines.openai_server import ServerError
from coevolve.engines.router import make_engine
from coevolve.engines.vllm_server import VLLMServer
from coevolve.models.policy_set import PolicySet
from coevolve.runs import record
from coevolve.training import config, machine, memory, plan, preflight
from coevolve.training.machine import Machine
from coevolve.types import Turn

ADDRESS = "http://gpu:8000"
QUESTION = ({"role": "user", "content": "3+4=?"},)
MODEL = "tiny-small"
SERVED = {"engine": "vllm", "vllm_server": ADDRESS, "model": MODEL}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> PretendServer:
    return pretend_vllm.install_server(monkeypatch)


def team(lora: tuple = ()) -> PolicySet:
    return PolicySet({"shared": MODEL}, ("shared",), lora)


def start(policies: PolicySet) -> VLLMServer:
    engine = make_engine(policies, "vllm", 0.7, 8, server=ADDRESS)
    (only,) = engine.distinct
    assert isinstance(only, VLLMServer)
    return only


def turn(**settings: object) -> Turn:
    return Turn("solver", QUESTION, "shared", key=(1, 2), **settings)


def run_of(tmp_path: Path, **fields: object) -> config.Run:
    return config.build("mae", "quick", out=tmp_path / "run", overrides=fields)


class TestWeights:
    """What the server gets is the model that answers as the policy does."""

    @pytest.fixture
    def policies(self) -> PolicySet:
        policies = team(lora=(4, 8, 0.0))
        with torch.no_grad():
            for parameter in policies.primary.parameters():
                parameter.copy_(torch.randn(parameter.shape))
        return policies

    def test_an_adapter_is_merged_as_peft_merges_it(self, policies: PolicySet) -> None:
        served = dict(policies.primary.served_weights())
        merged = copy.deepcopy(policies.primary.model).merge_and_unload()
        expected = dict(merged.named_parameters())
        assert served.keys() == expected.keys()
        for name, weights in expected.items():
            torch.testing.assert_close(served[name], weights.detach())

    def test_the_policy_itself_stays_as_it_is(self, policies: PolicySet) -> None:
        before = copy.deepcopy(policies.primary.model.state_dict())
        dict(policies.primary.served_weights())
        after = policies.primary.model.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)

    def test_a_whole_model_is_sent_under_its_own_names(self) -> None:
        policy = team().primary
        served = dict(policy.served_weights())
        assert served.keys() == dict(policy.model.named_parameters()).keys()

    @pytest.mark.parametrize("lora", [(), (4, 8, 0.0)])
    def test_shapes_are_those_of_the_weights(self, lora: tuple) -> None:
        policy = team(lora).primary
        shapes = [(name, part.shape) for name, part in policy.served_weights()]
        assert list(policy.served_shapes()) == shapes


def test_a_request_samples_plainly_with_the_noise_of_its_key(
    server: PretendServer,
) -> None:
    engine = start(team())
    for one in (turn(), turn(temperature=0.0, max_tokens=3), turn()):
        engine.answer([one])
    first, greedy, again = server.requests
    assert first == again
    assert (first["temperature"], first["max_tokens"]) == (0.7, 8)
    assert (greedy["temperature"], greedy["max_tokens"]) == (0.0, 3)
    ends = sorted(engine.policy.eos_token_ids)
    assert first["generation_kwargs"]["stop_token_ids"] == ends


def test_a_prompt_that_fills_the_context_is_refused(
    server: PretendServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "context", 4)
    with pytest.raises(ValueError, match="fills the server's context of 4"):
        start(team()).answer([turn()])


def test_a_server_that_dies_ends_the_run_in_one_line(
    server: PretendServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(team())

    def die(*_: object, **__: object) -> None:
        raise ConnectionError("refused\nby 10.0.0.1")

    monkeypatch.setattr(PretendClient, "generate", die)
    line = (
        r"^vllm_server 'http://gpu:8000' gave no answer \(refused by 10.0.0.1\); start"
    )
    with pytest.raises(ServerError, match=line):
        engine.answer([turn(), turn()])
    assert not engine.waiting


class TestFaultsOfUpdates:
    """An update that fails ends the run in one line, and leaves nobody waiting for ever."""

    @pytest.fixture
    def engine(self, server: PretendServer) -> VLLMServer:
        return start(team())

    def test_weights_that_cannot_be_computed(
        self, engine: VLLMServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run_out(*_: object) -> None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

        monkeypatch.setattr(vllm_server, "broadcast", run_out)
        line = (
            r"got a part of the weights \(CUDA out of memory\); start the server again"
        )
        with pytest.raises(ServerError, match=line):
            engine.load_weights()

    def test_a_server_that_cannot_take_them(
        self, engine: VLLMServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(url: str, **_: object) -> httpx.Response:
            status = 500 if url.endswith("update_weights") else 200
            request = httpx.Request("POST", url)
            return httpx.Response(status, json={}, request=request)

        monkeypatch.setattr(httpx, "post", refuse)
        with pytest.raises(ServerError, match=r"refused update_weights .*500"):
            engine.load_weights()

    def test_an_old_cache_that_stays(
        self, engine: VLLMServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kept = {"success": False}
        monkeypatch.setattr(PretendServer, "reset_prefix_cache", lambda server: kept)
        with pytest.raises(ServerError, match="kept the keys and values of the old"):
            engine.load_weights()

    def test_a_group_that_cannot_be_joined(
        self, server: PretendServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError("address already in use")

        monkeypatch.setattr(PretendClient, "init_communicator", refuse)
        with pytest.raises(ServerError, match="could not be joined .*already in use"):
            start(team())

    def test_an_engine_that_cannot_start_leaves_the_group(
        self, server: PretendServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run_out(*_: object) -> None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")

        left = []
        monkeypatch.setattr(vllm_server, "broadcast", run_out)
        monkeypatch.setattr(
            PretendClient, "close_communicator", lambda client: left.append(client)
        )
        with pytest.raises(ServerError):
            start(team())
        assert left

    def test_the_command_says_it_in_one_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        def end(*_: object) -> None:
            raise ServerError("vllm_server 'http://gpu:8000' gave no answer")

        monkeypatch.setattr("coevolve.training.loop.train", end)
        assert main(["train", "mae", f"--out={tmp_path}"]) != 0
        assert "gave no answer" in capsys.readouterr().err.splitlines()[-1]


class TestSeveralProcesses:
    """One process sends; none asks before the others have their replies, or during it."""

    @pytest.mark.parametrize("is_main", [True, False])
    def test_all_wait_before_and_after(
        self, is_main: bool, server: PretendServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        events: list[str] = []
        processes = SimpleNamespace(
            is_main_process=is_main,
            device="cpu",
            wait_for_everyone=lambda: events.append("wait"),
        )
        monkeypatch.setattr(vllm_server, "PartialState", lambda: processes)
        engine = start(team())

        def note(*arguments: Any) -> None:
            events.append("send")
            server.broadcast(*arguments)

        monkeypatch.setattr(vllm_server, "broadcast", note)
        events.clear()
        engine.load_weights()
        assert events == (["wait", "send", "wait"] if is_main else ["wait", "wait"])
        assert (engine.client.communicator == "joined") == is_main


REFUSED = {
    "vllm_server must be http://HOST:PORT, got 'gpu:8000'": {"vllm_server": "gpu:8000"},
    "vllm_server must be http://HOST:PORT, got 'http://gpu/v1'": {
        "vllm_server": "http://gpu/v1"
    },
    "vllm_server must be empty with engine 'torch'": {"engine": "torch"},
    "vllm must be empty with vllm_server": {"vllm": {"max_num_seqs": 8}},
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_configuration_that_cannot_be_is_refused(
    message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        run_of(tmp_path, **SERVED | REFUSED[message])


def test_a_merged_adapter_may_have_any_rank(tmp_path: Path) -> None:
    large = {"lora": [1024, 1024, 0.0]}
    run_of(tmp_path, **SERVED | large)
    with pytest.raises(ValueError, match="rank of at most 512"):
        run_of(tmp_path, **SERVED | large | {"vllm_server": ""})


def test_a_server_speaks_for_one_policy(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="unless the run loads one policy, got agent_1"
    ):
        config.build("comas", "quick", out=tmp_path, overrides=SERVED)


class TestPreflight:
    """Before a model loads."""

    @pytest.fixture(autouse=True)
    def gpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(preflight, "find_spec", lambda name: name)
        monkeypatch.setattr(machine, "this_machine", lambda out: Machine())

    def refusal(self, tmp_path: Path) -> str:
        with pytest.raises(ValueError) as error:
            preflight.check(run_of(tmp_path, **SERVED))
        assert "\n" not in str(error.value)
        return str(error.value)

    def test_a_server_with_the_model_is_accepted(
        self, server: PretendServer, tmp_path: Path
    ) -> None:
        preflight.check(run_of(tmp_path, **SERVED))

    def test_another_model_is_refused(
        self, server: PretendServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "model", "Org/Other")
        line = self.refusal(tmp_path)
        assert "has the model 'Org/Other', and the run 'tiny-small'" in line

    def test_no_answer_says_how_to_start_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def get(*_: object, **__: object) -> httpx.Response:
            raise httpx.ConnectError("[Errno 111] Connection refused")

        monkeypatch.setattr(httpx, "get", get)
        line = self.refusal(tmp_path)
        assert "does not answer ([Errno 111] Connection refused)" in line
        assert vllm_server.COMMAND in line

    @pytest.mark.parametrize("answer", [{}, {"data": []}, {"data": [{"id": "x"}]}])
    def test_another_kind_of_server_is_refused(
        self, answer: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        response = httpx.Response(200, json=answer)
        monkeypatch.setattr(httpx, "get", lambda *_, **__: response)
        assert "is no open server of vLLM" in self.refusal(tmp_path)

    def test_a_server_without_the_mode_for_training_is_refused(
        self, server: PretendServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def get(url: str, timeout: float) -> httpx.Response:
            return server.get(url, timeout) if "models" in url else httpx.Response(404)

        monkeypatch.setattr(httpx, "get", get)
        assert "is not in the mode for training" in self.refusal(tmp_path)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("weight_transfer_config", None, "takes no weights by nccl"),
            ("weight_transfer_config", {"backend": "ipc"}, "takes no weights by nccl"),
            ("model_config", {"logprobs_mode": "raw_logprobs"}, "gives raw_logprobs"),
        ],
    )
    def test_a_forgotten_flag_is_named(
        self, name: str, value: Any, message: str, server: PretendServer, tmp_path: Path
    ) -> None:
        server.settings[name] = value
        line = self.refusal(tmp_path)
        assert message in line
        assert vllm_server.COMMAND in line

    def test_weights_need_a_gpu(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        laptop = Machine(driver="", torch_cuda="", sees_gpu=False)
        monkeypatch.setattr(machine, "this_machine", lambda out: laptop)
        assert "must be empty without an NVIDIA GPU" in self.refusal(tmp_path)


def test_the_learner_s_gpu_keeps_nothing_for_a_server(tmp_path: Path) -> None:
    served = memory.estimate(run_of(tmp_path, **SERVED))
    own = memory.estimate(run_of(tmp_path, engine="vllm", model=MODEL))
    assert served.sampler == served.engine_while_learning == served.in_ram == 0
    assert served.updating < own.updating


METHODS = {
    "__init__": {"base_url", "connection_timeout"},
    "init_communicator": {"device"},
    "generate": {"temperature", "max_tokens", "generation_kwargs"},
    "close_communicator": set(),
}


@pytest.mark.parametrize(("name", "needed"), METHODS.items())
def test_trl_s_client_takes_what_is_passed(name: str, needed: set[str]) -> None:
    assert needed <= inspect.signature(getattr(VLLMClient, name)).parameters.keys()


def test_a_run_may_go_on_with_a_server_elsewhere(tmp_path: Path) -> None:
    run = run_of(tmp_path, **SERVED)
    run.out.mkdir()
    described = json.dumps(record.clean(run.describe()))
    (run.out / "config.json").write_text(described)
    elsewhere = run_of(tmp_path, **SERVED | {"vllm_server": "http://other:8001"})
    preflight.check_same_run(elsewhere, run.out)


def test_a_plan_counts_replies_in_the_tiny_world() -> None:
    fields = {"engine": "vllm", "vllm_server": ADDRESS, "world": "tiny"}
    assert plan.count_replies("mae", "gpu", fields).total > 0
