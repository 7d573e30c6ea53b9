"""A pretend vLLM with the states of the real one's memory; it breaks where the real one would.

Asleep, it takes no request. Keys and values of old weights stay in its prefix cache until that is
reset. It reads an adapter when a request first needs it, and keeps it by its number. Its replies
are one token, whose log-probability is the fingerprint of the weights that produced it.
"""

import queue
import sys
import weakref
from collections import namedtuple
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

# Imported before a pretend package stands in vLLM's place, which TRL would look into.
from trl.generation import vllm_client

END = 0  # the token of every reply


def fingerprint(weights: dict[str, Tensor]) -> float:
    """Return a number that changes with the weights, of adapters or whole models."""
    changed = [part for name, part in weights.items() if is_fingerprinted(name, part)]
    return -sum(float(part.float().sum()) for part in changed)


def is_fingerprinted(name: str, weights: Tensor) -> bool:
    """Whether a weight counts: what `Policy.perturbed` changes."""
    return "lora_B" in name or weights.ndim == 1


class Worker:
    """The worker of an engine, whose parts hold memory of the sleep pool."""

    def __init__(self) -> None:
        self.model_runner = SimpleNamespace(lora_manager=object())


class Executor:
    """The part that ends the worker."""

    def __init__(self, llm: "PretendLLM") -> None:
        self.llm = weakref.ref(llm)
        self.worker = Worker()

    def collective_rpc(self, method: Any) -> list[Any]:
        """Run a function on the worker."""
        return [method(self.worker)]

    def shutdown(self) -> None:
        """Release the pool; tensors that still live in it would end the process."""
        assert self.worker.model_runner.lora_manager is None, "adapters hold the pool"
        assert self.llm() is None, "the engine holds the pool"
        PretendLLM.pools_in_use -= 1


class PretendLLM:
    """vllm.LLM and its engine in one."""

    pools_in_use = 0
    started: "list[dict[str, Any]]" = []  # the settings of every engine

    def __init__(self, **settings: Any) -> None:
        PretendLLM.started.append(settings)
        if settings["enable_sleep_mode"]:
            assert PretendLLM.pools_in_use == 0, "one sleeping engine a process"
        PretendLLM.pools_in_use += 1
        self.settings = settings
        self.llm_engine = weakref.proxy(self)
        self.model_config = SimpleNamespace(max_model_len=512)
        finalizer = SimpleNamespace(detach=lambda: None)
        core = SimpleNamespace(model_executor=Executor(self))
        self.engine_core = SimpleNamespace(engine_core=core, _finalizer=finalizer)
        self.asleep = False
        self.running: dict[str, tuple] = {}
        self.adapters: dict[int, float] = {}
        self.cache: dict[tuple, float] = {}
        self.weights = 0.0

    def _must_be_awake(self) -> None:
        assert not self.asleep, "the engine is asleep"

    def add_request(
        self, request_id: str, prompt: dict, params: Any, lora_request: Any = None
    ) -> str:
        """Queue a request."""
        self._must_be_awake()
        self.running[request_id] = (tuple(prompt["prompt_token_ids"]), lora_request)
        return request_id

    def abort_request(self, request_ids: list[str]) -> None:
        """Forget requests."""
        for request_id in request_ids:
            del self.running[request_id]

    def step(self) -> list[Any]:
        """Finish the oldest request."""
        self._must_be_awake()
        request_id, (prompt, lora) = next(iter(self.running.items()))
        del self.running[request_id]
        name = "" if lora is None else lora.lora_name
        value = self.cache.setdefault((name, prompt), self._weights_of(lora))
        logprobs = [{END: SimpleNamespace(logprob=value)}]
        output = SimpleNamespace(token_ids=[END], logprobs=logprobs)
        return [SimpleNamespace(request_id=request_id, finished=True, outputs=[output])]

    def _weights_of(self, lora: Any) -> float:
        if lora is None:
            return self.weights
        if lora.lora_int_id not in self.adapters:
            file = Path(lora.lora_path) / "adapter_model.safetensors"
            self.adapters[lora.lora_int_id] = fingerprint(load_file(file))
        return self.adapters[lora.lora_int_id]

    def remove_lora(self, number: int) -> bool:
        """Forget an adapter; False if no request has named it."""
        self._must_be_awake()
        return self.adapters.pop(number, None) is not None

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        """Reload the weights of a whole model."""
        self._must_be_awake()
        assert method == "reload_weights"
        self.weights = fingerprint(dict(kwargs["weights_iterator"]))

    def apply_model(self, function: Any) -> None:
        """Accept a function of the model."""
        self._must_be_awake()

    def reset_prefix_cache(self) -> bool:
        """Forget keys and values, unless requests use them."""
        self._must_be_awake()
        if self.running:
            return False
        self.cache.clear()
        return True

    def sleep(self, level: int) -> None:
        """Free the memory, and with it the cache."""
        self._must_be_awake()
        assert level == 1
        assert not self.running
        self.asleep = True
        self.cache.clear()

    def wake_up(self) -> None:
        """Take the memory again."""
        assert self.asleep
        self.asleep = False


def sum_of(weights: dict[str, Tensor]) -> float:
    """Return a number that changes with any weight of a model, adapters merged."""
    return -sum(float(part.double().sum()) for part in weights.values())


class PretendServer:
    """What `vllm serve` keeps; one stands at every address."""

    current: "PretendServer"
    model = "tiny-small"
    context = 512

    def __init__(self) -> None:
        PretendServer.current = self
        self.cache: dict[tuple[int, ...], float] = {}
        self.weights = 0.0
        self.requests: list[dict[str, Any]] = []
        self.settings = {
            "weight_transfer_config": {"backend": "nccl"},
            "model_config": {"logprobs_mode": "processed_logprobs"},
        }
        self.is_updating = False
        self.arrived: queue.Queue[dict[str, Tensor]] = queue.Queue()

    def get(self, url: str, timeout: float) -> httpx.Response:
        """Answer a GET request."""
        if url.endswith("/v1/models"):
            entry = {"id": self.model, "max_model_len": self.context}
            return httpx.Response(200, json={"data": [entry]})
        assert url.endswith("/server_info?config_format=json")
        return httpx.Response(200, json={"vllm_config": self.settings})

    def post(self, url: str, json: dict[str, Any], timeout: float) -> httpx.Response:
        """Answer a POST request."""
        answer = getattr(self, url.rpartition("/")[2])(**json)
        request = httpx.Request("POST", url)
        return httpx.Response(200, json=answer, request=request)

    def start_weight_update(self) -> dict[str, Any]:
        """Open an update."""
        assert not self.is_updating
        self.is_updating = True
        return {}

    def update_weights(self, update_info: dict[str, Any]) -> dict[str, Any]:
        """Wait for weights, which come as they were announced."""
        assert self.is_updating
        try:
            weights = self.arrived.get(timeout=5)
        except queue.Empty:  # the real server would wait on
            raise httpx.ReadTimeout("no weights came") from None
        assert list(weights) == update_info["names"]
        shapes = [list(part.shape) for part in weights.values()]
        assert shapes == update_info["shapes"]
        dtypes = [str(part.dtype) for part in weights.values()]
        assert dtypes == [f"torch.{name}" for name in update_info["dtype_names"]]
        self.weights = sum_of(weights)
        return {}

    def finish_weight_update(self) -> dict[str, Any]:
        """Close an update."""
        assert self.is_updating
        self.is_updating = False
        return {}

    def reset_prefix_cache(self) -> dict[str, Any]:
        """Forget keys and values."""
        self.cache.clear()
        return {"success": True}

    def broadcast(self, weights: Any, group: Any) -> None:
        """Take what a learner sends to the server's group."""
        assert group == "joined"
        self.arrived.put(dict(weights))


class PretendClient:
    """TRL's client of a pretend server."""

    def __init__(self, base_url: str, connection_timeout: float) -> None:
        self.server = PretendServer.current
        self.communicator: str | None = None

    def init_communicator(self, device: Any) -> None:
        """Join the group through which weights go."""
        self.communicator = "joined"

    def close_communicator(self) -> None:
        """Leave it."""
        self.communicator = None

    def generate(self, prompts: list[list[int]], **settings: Any) -> dict[str, Any]:
        """Answer one prompt with one token."""
        (prompt,) = prompts
        self.server.requests.append(settings)
        value = self.server.cache.setdefault(tuple(prompt), self.server.weights)
        return {"completion_ids": [[END]], "logprobs": [[[value]]]}


def install_server(patch: pytest.MonkeyPatch) -> PretendServer:
    """Put a pretend server behind every address, and its client in TRL's place."""
    server = PretendServer()
    patch.setattr(vllm_client, "VLLMClient", PretendClient)
    patch.setattr("coevolve.engines.vllm_server.broadcast", server.broadcast)
    patch.setattr(httpx, "get", server.get)
    patch.setattr(httpx, "post", server.post)
    return server


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the pretend package in vLLM's place."""
    PretendLLM.pools_in_use = 0
    PretendLLM.started = []
    package = ModuleType("vllm")
    package.LLM = PretendLLM
    package.SamplingParams = SimpleNamespace
    request = ModuleType("vllm.lora.request")
    request.LoRARequest = namedtuple("LoRARequest", "lora_name lora_int_id lora_path")
    # Looking for garbage takes most of a test's time, and the pretend engine leaves none.
    patch.setattr("coevolve.engines.vllm._free_memory", lambda: None)
    for module in (package, ModuleType("vllm.lora"), request):
        patch.setitem(sys.modules, module.__name__, module)


def pretend_gpu(patch: pytest.MonkeyPatch, free_gib: int = 17) -> None:
    """Let the engine believe that there is a GPU of 24 GiB."""
    memory = (free_gib * 2**30, 24 * 2**30)
    patch.setattr(torch.cuda, "is_available", lambda: True)
    patch.setattr(torch.cuda, "mem_get_info", lambda: memory)
    patch.setattr(torch.cuda, "empty_cache", lambda: None)
    one_process = SimpleNamespace(num_processes=1)
    patch.setattr("coevolve.engines.vllm.PartialState", lambda cpu: one_process)
