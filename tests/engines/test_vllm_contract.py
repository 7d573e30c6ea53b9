"""What coevolve calls of vLLM's GPU wheel exists there: names and parameters, read as text.

Nothing is imported, so neither CUDA nor a GPU is needed. `make test-engines` fetches the wheel; the
variable VLLM_WHEEL may name another one.
"""

import ast
import os
import zipfile
from functools import cache
from pathlib import Path

import pytest

WHEELS = Path(__file__).resolve().parents[2] / ".venv-engines" / "wheels"


def wheel() -> Path | None:
    """Return the wheel to read, None without one."""
    named = os.environ.get("VLLM_WHEEL")
    found = [Path(named)] if named else sorted(WHEELS.glob("vllm-*.whl"))
    return found[-1] if found else None


pytestmark = pytest.mark.skipif(wheel() is None, reason="see make test-engines")


@cache
def tree(module: str) -> ast.Module:
    """Parse a file of the wheel."""
    path = wheel()
    assert path is not None
    with zipfile.ZipFile(path) as archive:
        return ast.parse(archive.read(f"vllm/{module}.py"))


def class_of(module: str, name: str) -> ast.ClassDef:
    """Return a class of a file."""
    for node in tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    raise AssertionError(f"vllm/{module}.py has no class {name}")


def parameters(module: str, owner: str, name: str) -> list[str]:
    """Return the names of a method's parameters."""
    for node in class_of(module, owner).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            arguments = node.args
            both = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
            return [argument.arg for argument in both]
    raise AssertionError(f"{owner} of vllm/{module}.py has no {name}")


def fields(module: str, owner: str) -> set[str]:
    """Return the annotated names of a class."""
    names = set()
    for node in class_of(module, owner).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return names


ENGINE = "v1/engine/llm_engine"
METHODS = [
    ("entrypoints/llm", "LLM", "sleep", {"level"}),
    ("entrypoints/llm", "LLM", "wake_up", set()),
    ("entrypoints/llm", "LLM", "collective_rpc", {"method", "kwargs"}),
    ("entrypoints/llm", "LLM", "apply_model", {"func"}),
    ("entrypoints/llm", "LLM", "reset_prefix_cache", set()),
    (
        ENGINE,
        "LLMEngine",
        "add_request",
        {"request_id", "prompt", "params", "lora_request"},
    ),
    (ENGINE, "LLMEngine", "abort_request", {"request_ids"}),
    (ENGINE, "LLMEngine", "step", set()),
    (ENGINE, "LLMEngine", "remove_lora", {"lora_id"}),
    ("v1/worker/gpu/model_runner", "GPUModelRunner", "shutdown", set()),
    (
        "v1/worker/gpu/model_runner",
        "GPUModelRunner",
        "reload_weights",
        {"weights_iterator"},
    ),
    ("device_allocator/cumem", "CuMemAllocator", "release_pools", set()),
]


@pytest.mark.parametrize(("module", "owner", "name", "needed"), METHODS)
def test_a_method_takes_what_is_passed(
    module: str, owner: str, name: str, needed: set[str]
) -> None:
    assert needed <= set(parameters(module, owner, name))


def test_the_engine_takes_every_setting() -> None:
    names = fields("engine/arg_utils", "EngineArgs")
    assert names >= {
        "model",
        "dtype",
        "seed",
        "enable_prefix_caching",
        "logprobs_mode",
        "enforce_eager",
        "enable_sleep_mode",
        "disable_log_stats",
        "gpu_memory_utilization",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "tensor_parallel_size",
        "distributed_executor_backend",
        "enable_lora",
        "max_loras",
        "max_lora_rank",
        "kv_cache_memory_bytes",
    }


def test_requests_take_every_setting() -> None:
    names = fields("sampling_params", "SamplingParams")
    assert names >= {
        "temperature",
        "max_tokens",
        "stop_token_ids",
        "seed",
        "logprobs",
        "detokenize",
    }


def test_a_request_for_an_adapter_is_made_of_name_number_and_folder() -> None:
    order = []
    for node in class_of("lora/request", "LoRARequest").body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            order.append(node.target.id)
    assert order[:3] == ["lora_name", "lora_int_id", "lora_path"]


def test_a_cache_in_use_is_not_reset_in_silence() -> None:
    (function,) = [
        node
        for node in class_of("v1/core/block_pool", "BlockPool").body
        if isinstance(node, ast.FunctionDef) and node.name == "reset_prefix_cache"
    ]
    returned = [
        node.value.value
        for node in ast.walk(function)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant)
    ]
    assert sorted(returned) == [False, True]


def test_minus_one_fits_the_context_to_the_memory() -> None:
    text = ast.unparse(tree("v1/core/kv_cache_utils"))
    assert "original_max_model_len == -1" in text
    assert "_auto_fit_max_model_len" in text


def test_close_finds_what_it_takes_apart() -> None:
    client = ast.unparse(tree("v1/engine/core_client"))
    assert (
        "self._finalizer = weakref.finalize(self, self.engine_core.shutdown)" in client
    )
    assert "self.model_executor" in ast.unparse(tree("v1/engine/core"))
    assert "self.lora_manager" in ast.unparse(tree("v1/worker/lora_model_runner_mixin"))


# What TRL's client of `vllm serve` imports and asks for.
FUNCTIONS = [
    ("distributed/weight_transfer/nccl_common", "trainer_init", set()),
    (
        "distributed/weight_transfer/packed_tensor",
        "packed_nccl_broadcast_producer",
        {"iterator", "group", "src", "post_iter_func"},
    ),
    ("utils/network_utils", "get_ip", set()),
]
ROUTES = [
    ("entrypoints/rl/online/api_router", "post", "/init_weight_transfer_engine"),
    ("entrypoints/rl/online/api_router", "post", "/start_weight_update"),
    ("entrypoints/rl/online/api_router", "post", "/update_weights"),
    ("entrypoints/rl/online/api_router", "post", "/finish_weight_update"),
    ("entrypoints/rl/online/api_router", "get", "/get_world_size"),
    ("entrypoints/serve/dev/cache/api_router", "post", "/reset_prefix_cache"),
    ("entrypoints/serve/dev/server_info/api_router", "get", "/server_info"),
    ("entrypoints/openai/completion/api_router", "post", "/v1/completions"),
    ("entrypoints/openai/models/api_router", "get", "/v1/models"),
]


@pytest.mark.parametrize(("module", "name", "needed"), FUNCTIONS)
def test_a_function_of_weight_transfer_takes_what_is_passed(
    module: str, name: str, needed: set[str]
) -> None:
    found = [node for node in tree(module).body if getattr(node, "name", "") == name]
    (function,) = found
    assert isinstance(function, ast.FunctionDef)
    names = {argument.arg for argument in function.args.args}
    assert needed <= names


@pytest.mark.parametrize(("module", "verb", "path"), ROUTES)
def test_a_server_has_the_route(module: str, verb: str, path: str) -> None:
    routes = set()
    for node in ast.walk(tree(module)):
        is_route = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if is_route and node.args and isinstance(node.args[0], ast.Constant):
            routes.add((node.func.attr, node.args[0].value))
    assert (verb, path) in routes


def test_a_request_to_a_server_takes_every_setting() -> None:
    names = fields("entrypoints/openai/completion/protocol", "CompletionRequest")
    assert names >= {
        "prompt",
        "temperature",
        "max_tokens",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "seed",
        "stop_token_ids",
        "logprobs",
        "return_token_ids",
        "return_tokens_as_token_ids",
    }


def test_a_server_says_how_long_its_context_is() -> None:
    names = fields("entrypoints/serve/engine/protocol", "ModelCard")
    assert {"id", "max_model_len"} <= names
