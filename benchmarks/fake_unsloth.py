"""Unsloth's GPU code on a fake GPU: `python -m benchmarks.fake_unsloth LIBRARY`, where Unsloth is.

Reads and writes what `fake_step` does. `coevolve.models.lora.load_unsloth` loads each model, as it
does in a run; only the weights are not read. Unsloth then patches the model for a pretended RTX
4090: attention, products with LoRA, checkpoints in the host's memory. Launches of its kernels are
counted, nothing is computed, and torch.compile stays off.
"""

import os
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from benchmarks import fake_gpu, fake_step
from benchmarks.fake_step import Case

ENVIRONMENT = {
    "UNSLOTH_ALLOW_CPU": "1",  # else it takes its backend for CPUs
    "UNSLOTH_BLOCK_COMPILE": "0",  # compiled blocks cannot be traced on fake tensors
    "HF_HUB_OFFLINE": "1",
}
CARD = SimpleNamespace(
    name="NVIDIA GeForce RTX 4090",
    total_memory=24 * fake_gpu.GIB,
    major=8,
    minor=9,
    multi_processor_count=128,
    max_threads_per_multi_processor=1536,
    warp_size=32,
    shared_memory_per_block_optin=101_376,
    regs_per_multiprocessor=65_536,
    gcnArchName="",
)
FREE_BYTES = 20 * fake_gpu.GIB
WITHOUT_LENGTH = "no length"


class Idle:
    """Stands in for streams, events and the choice of a device: it does nothing that it is told."""

    cuda_stream = 0
    device_index = 0
    idx = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> "Idle":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: Idle()


def pretend_card() -> None:
    """Let torch describe a card, for the whole process."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    def returning(value: Any) -> Any:
        return lambda *_, **__: value

    answers = {
        "is_available": True,
        "is_initialized": True,
        "_lazy_init": None,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (CARD.major, CARD.minor),
        "get_device_properties": CARD,
        "get_device_name": CARD.name,
        "is_bf16_supported": True,
        "mem_get_info": (FREE_BYTES, CARD.total_memory),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_allocated": 0,
        "max_memory_reserved": 0,
        "get_per_process_memory_fraction": 1.0,
        "empty_cache": None,
        "synchronize": None,
        "current_stream": Idle(),
        "default_stream": Idle(),
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, returning(value))
    for name in ("device", "device_of", "Event", "Stream", "stream"):
        setattr(torch.cuda, name, Idle)
    torch._C._cuda_getCurrentRawStream = returning(0)
    # Fake tensors would start CUDA, now that there seems to be one.
    FakeTensorMode.avoid_device_init = property(lambda mode: True)  # type: ignore[assignment]


def make_policy(case: Case, folder: Path) -> Any:
    """Return the policy that `load_unsloth` makes of a model of the case's shape."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config
    from unsloth.models import llama

    from coevolve.models.lora import load_unsloth
    from coevolve.models.names import find

    configuration = Qwen2Config(
        num_hidden_layers=case.layers,
        architectures=["Qwen2ForCausalLM"],
        **fake_step.SHAPES[case.shape],
    )
    configuration.save_pretrained(folder)
    AutoTokenizer.from_pretrained(find("tiny")).save_pretrained(folder)
    plain_auto = llama.AutoModelForCausalLM

    def from_pretrained(name: str, **settings: Any) -> Any:
        """Make the model that would be read, on the fake GPU."""
        configuration = llama.AutoConfig.from_pretrained(
            name, attn_implementation=settings["attn_implementation"]
        )
        return plain_auto.from_config(configuration, dtype=settings["dtype"])

    auto = SimpleNamespace(from_pretrained=from_pretrained)
    # A fake tensor cannot change its device, so everything is made on the GPU.
    stay = mock.patch.object(torch.nn.Module, "to", lambda module, *_, **__: module)
    unread = mock.patch.object(llama, "AutoModelForCausalLM", auto)
    with torch.device("cuda"), stay, unread, fault(case.mutant):
        lora = (case.lora, 2 * case.lora, 0.0)
        policy = load_unsloth(str(folder), ["shared"], lora)["shared"]
    policy.checkpoint_activations()
    return policy


def saved(policy: Any, folder: Path) -> dict[str, Any]:
    """Save the adapter as a run does, for vLLM and at the end; return what the files would hold.

    Keys: "engine" and "end"; values: names, types and devices of the tensors.
    """
    import torch

    written: dict[str, Any] = {}
    name_of_file = ""

    def take(tensors: dict[str, torch.Tensor], *_: Any, **__: Any) -> None:
        """Stand in for the writer: a fake tensor has no values to write."""
        written[name_of_file] = {
            "names": sorted(tensors),
            "types": sorted({str(tensor.dtype) for tensor in tensors.values()}),
            "devices": sorted({str(tensor.device) for tensor in tensors.values()}),
        }

    with (
        mock.patch("coevolve.models.lora.save_file", take),
        mock.patch("peft.peft_model.safe_save_file", take),
    ):
        name_of_file = "engine"
        policy.save_for_engine(folder / "engine", torch.bfloat16)
        name_of_file = "end"
        policy.save(folder / "end")
    return written


def fault(name: str) -> Any:
    """Return a context in which Unsloth is called wrongly; see `fake_step.fault` for others."""
    from unsloth import FastLanguageModel

    if name != WITHOUT_LENGTH:
        return nullcontext()
    load = FastLanguageModel.from_pretrained

    def load_without_length(source: str, **settings: Any) -> Any:
        return load(source, **settings | {"max_seq_length": None})

    return mock.patch.object(FastLanguageModel, "from_pretrained", load_without_length)


def main() -> None:
    """Measure the cases of stdin."""
    from coevolve.models import environment

    os.environ.update(ENVIRONMENT)
    environment.prepare("unsloth")
    fake_gpu.load(Path(sys.argv[1]))
    environment.spare_older_processors()
    pretend_card()
    os.system = lambda command: 0  # type: ignore[assignment]  # as root, Unsloth runs ldconfig
    answers = sys.stdout
    sys.stdout = sys.stderr  # Unsloth prints while it is imported and while it loads
    import unsloth  # noqa: F401

    with tempfile.TemporaryDirectory() as folder:

        def measure(case: Case) -> dict[str, Any]:
            files: dict[str, Any] = {}

            def make(case: Case) -> Any:
                policy = make_policy(case, Path(folder))
                files.update(saved(policy, Path(folder)))
                return policy

            return fake_step.measure(case, make_policy=make) | {"saved": files}

        fake_step.answer(measure, answers)


if __name__ == "__main__":
    main()
