"""The Triton kernels without a GPU: interpreted, and compiled for the GPUs of the presets."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from coevolve.losses import dispatch

triton = pytest.importorskip(
    "triton", reason="kernels are tested where triton is installed (Linux, dev extra)"
)

ROOT = Path(__file__).resolve().parents[2]
NVIDIA_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
ELEMENT_SIZES = {"bf16": 2, "fp32": 4}


@pytest.mark.timeout(600)
def test_all_kernel_cases_pass_in_the_interpreter() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(ROOT / "tests/core/kernel_cases.py"),
        ],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d{2,} passed", done.stdout)
    assert "skipped" not in done.stdout


@dataclass(frozen=True)
class Kernel:
    """A kernel as it is launched: its name, and the arguments known at compile time."""

    name: str
    constants: dict = field(default_factory=dict)

    def argument_types(self, element: str) -> dict[str, str]:
        """Return Triton's types of all arguments, as if none were a constant."""
        from coevolve.losses import kernels

        types = {
            "logits": f"*{element}",
            "targets": "*i64",
            "inverse_temperature": "fp32",
            "columns": "i32",
        }
        names = getattr(kernels, self.name).arg_names
        return {name: types.get(name, "*fp32") for name in names}

    def compile(self, capability: int, element: str, columns: int) -> bytes:
        """Compile the kernel for rows of this many columns; return the GPU's binary."""
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        from coevolve.losses import kernels

        shape = kernels.launch_shape(columns, ELEMENT_SIZES[element])
        warps = shape.pop("num_warps")
        constants = {**self.constants, **shape}
        signature = self.argument_types(element)
        signature |= dict.fromkeys(constants, "constexpr")
        # At a launch Triton finds that pointers are multiples of 16; `columns` may be anything.
        attributes = {}
        for position, argument_type in enumerate(signature.values()):
            if argument_type.startswith("*"):
                attributes[position,] = [["tt.divisibility", 16]]
        source = ASTSource(
            getattr(kernels, self.name), signature, constants, attributes
        )
        binary = triton.compile(
            source,
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": warps},
        )
        return binary.asm["cubin"]


def cuobjdump(flag: str, cubin: Path) -> str:
    """Return what NVIDIA's tool prints about a binary."""
    command = [NVIDIA_TOOLS / "cuobjdump", flag, cubin]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


KERNELS = [
    Kernel("_statistics"),
    Kernel("_gradient"),
    Kernel("_gradient", {"bonuses": None}),
]
thorough = pytest.mark.thorough


SHORT_ROW = 511
# Vocabularies of Qwen2.5 and GPT-2, and a row so short that the size of its moves is no matter.
WIDTHS = [151_936, 50_257, SHORT_ROW]
# The H100, and the cards of preset one-gpu: 8.6 and 8.9 are RTX 3090 and 4090, A10 and L4.
TARGETS: list[Any] = [
    *((90, columns) for columns in WIDTHS),
    (86, 151_936),
    (89, 151_936),
]
for target in product((80, 86, 89, 100, 120), WIDTHS):
    if target not in TARGETS:
        TARGETS.append(pytest.param(*target, marks=thorough))


@pytest.mark.parametrize(("capability", "columns"), TARGETS)
@pytest.mark.parametrize("element", ["bf16", pytest.param("fp32", marks=thorough)])
@pytest.mark.parametrize(
    "kernel", KERNELS, ids=["statistics", "gradient", "gradient_without_bonus"]
)
def test_a_compiled_kernel_fits_and_moves_long_rows_by_16_bytes(
    kernel: Kernel, element: str, capability: int, columns: int, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(kernel.compile(capability, element, columns))

    report = cuobjdump("--dump-resource-usage", cubin)
    usage = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", report))
    assert usage["STACK"] == "0", report
    assert usage["LOCAL"] == "0", report
    assert int(usage["REG"]) <= 64  # 32 warps of a program fit on a multiprocessor
    machine_code = cuobjdump("--dump-sass", cubin)
    assert not re.search(r"\b(LDL|STL)\b", machine_code), report

    is_long = columns > SHORT_ROW
    loads_by_16_bytes = bool(re.search(r"LDG\.E\S*\.128", machine_code))
    assert loads_by_16_bytes or not is_long
    stores_by_16_bytes = bool(re.search(r"STG\.E\S*\.128", machine_code))
    assert stores_by_16_bytes == (kernel.name == "_gradient") or not is_long


class TestChoiceOfThePath:
    @pytest.fixture
    def hidden_states(self, monkeypatch: pytest.MonkeyPatch):
        """Return a function that makes hidden states on a GPU of this capability."""
        monkeypatch.delenv("COEVOLVE_LOSS_PATH", raising=False)

        def make(
            dtype: torch.dtype = torch.float32,
            capability: tuple[int, int] = (9, 0),
            triton_installed: bool = True,
        ) -> SimpleNamespace:
            monkeypatch.setattr(
                torch.cuda, "get_device_capability", lambda device: capability
            )
            package = object() if triton_installed else None
            monkeypatch.setattr(dispatch, "find_spec", lambda name: package)
            return SimpleNamespace(is_cuda=True, dtype=dtype, device="cuda:0")

        return make

    @pytest.mark.parametrize(
        "gpu",
        [
            {"dtype": torch.bfloat16},
            {"capability": (8, 0)},
        ],
    )
    def test_a_gpu_runs_the_kernels(self, gpu: dict, hidden_states) -> None:
        hidden_TH = hidden_states(**gpu)
        assert dispatch.choose_path(None, hidden_TH) == "triton"
        assert dispatch.choose_path("chunked", hidden_TH) == "chunked"

    @pytest.mark.parametrize(
        ("gpu", "reason"),
        [
            ({"dtype": torch.float64}, "takes bfloat16"),
            ({"capability": (7, 5)}, "needs an NVIDIA GPU"),
            ({"triton_installed": False}, "needs the package triton"),
        ],
    )
    def test_a_gpu_that_cannot_run_them_stays_in_torch(
        self, gpu: dict, reason: str, hidden_states
    ) -> None:
        hidden_TH = hidden_states(**gpu)
        assert dispatch.choose_path(None, hidden_TH) == "chunked"
        assert dispatch.choose_path("chunked", hidden_TH) == "chunked"
        with pytest.raises(ValueError, match=f"path of the loss 'triton' {reason}"):
            dispatch.choose_path("triton", hidden_TH)
