"""A fake `cuda:0` on a machine without a GPU: tensors have shapes, types, devices, but no values.

Code for a GPU runs on it as it would there, so that a tensor on the wrong device, a wrong type or a
wrong shape raises, and the memory of every moment can be counted. Nothing is computed: numbers that
leave a tensor are stand-ins. Call `load` before torch is imported.
"""

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Path(__file__).with_suffix(".cpp")
LIBRARIES = ("libc10.so", "libtorch_cpu.so")
GIB = 2**30


def why_not() -> str:
    """Return why there can be no fake GPU on this machine, "" if there can."""
    if not sys.platform.startswith("linux"):
        return "the fake GPU is for Linux"
    if shutil.which("g++") is None:
        return "the fake GPU is compiled, and there is no g++"
    return ""


def compile_shim(folder: Path) -> Path:
    """Compile the shim against the installed torch; return the library."""
    torch_folder = _torch_folder()
    library = folder / "libfakegpu.so"
    command = ["g++", "-std=c++20", "-O0", "-shared", "-fPIC", str(SOURCE)]
    for include in ("include", "include/torch/csrc/api/include"):
        command += ["-I", str(torch_folder / include)]
    command += ["-o", str(library)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def measure(
    module: str, library: Path, cases: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Measure cases in a process of `fake_step` or `fake_unsloth`; yield a row for each.

    Raises RuntimeError if the process fails.
    """
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", module, str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(list(cases)))
    process.stdin.close()
    yield from map(json.loads, process.stdout)
    if process.wait():
        raise RuntimeError(f"{module} ended with exit code {process.returncode}")


def load(library: Path) -> None:
    """Load the shim into this process, which has not imported torch."""
    if "torch" in sys.modules:
        raise RuntimeError("the fake GPU must be loaded before torch is imported")
    for name in LIBRARIES:
        ctypes.CDLL(str(_torch_folder() / "lib" / name), mode=ctypes.RTLD_GLOBAL)
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def _torch_folder() -> Path:
    specification = importlib.util.find_spec("torch")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).parent


@cache
def _fake_tensors() -> Any:
    """Return the mode of all fake tensors, also of copies, so that any two of them fit together."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode: Any = FakeTensorMode()
    mode.__deepcopy__ = lambda memo: mode
    return mode


@contextmanager
def device() -> Iterator[Any]:
    """Give the fake GPU to the code inside; yields a `benchmarks.fake_memory.Memory`."""
    import torch
    import torch.nn.functional as F
    import transformers.masking_utils
    from peft.tuners.tuners_utils import BaseTunerLayer
    from triton.runtime.jit import JITFunction

    from benchmarks.fake_memory import Memory, attention

    def do_nothing(*_: Any, **__: Any) -> None:
        """Stand in for a move to the device."""

    memory = Memory()

    def launch(kernel: Any, *arguments: Any, **named: Any) -> None:
        """Stand in for the launch of a kernel, which refuses other devices' tensors."""
        memory.launches[kernel.fn.__name__] += 1
        for argument in (*arguments, *named.values()):
            if isinstance(argument, torch.Tensor) and argument.device.type != "cuda":
                raise ValueError(
                    f"{kernel.fn.__name__} got a tensor on {argument.device}"
                )

    fake_attention = attention(F.scaled_dot_product_attention, memory.attention)
    replacements = [
        (F, "scaled_dot_product_attention", fake_attention),
        (torch.cuda, "get_device_capability", lambda *_: (8, 9)),
        (torch.cuda, "device_of", lambda *_: nullcontext()),
        (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
        (torch.Tensor, "tolist", lambda tensor: [0.0] * tensor.numel()),
        (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
        # A tensor without values would ask for a mask, which real code does without.
        (transformers.masking_utils, "is_tracing", lambda *_: False),
        (JITFunction, "run", launch),
        # Adapters are made on the device: a fake tensor cannot change its own.
        (BaseTunerLayer, "_move_adapter_to_device_of_base_layer", do_nothing),
    ]
    with ExitStack() as stack:
        stack.enter_context(_fake_tensors())
        for owner, name, replacement in replacements:
            stack.enter_context(mock.patch.object(owner, name, replacement))
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(memory)
        yield memory
