"""The Triton kernels without a GPU: interpreted against the reference, and compiled for three generations of GPUs."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from coevolve.losses import dispatch

triton = pytest.importorskip(
    "triton", reason="the kernel is tested where triton is installed (Linux, dev extra)"
)

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
WORDS = {"fp32": 4, "bf16": 2}


@pytest.mark.timeout(600)
def test_interpreted_kernel():
    """Every case of kernel_cases.py; a process of its own because Triton must see the variable at its import."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(ROOT / "tests/core/kernel_cases.py"),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d{2,} passed", done.stdout) and "skipped" not in done.stdout


def compiled(
    name: str, flags: dict, capability: int, word: str, columns: int, folder: Path
) -> tuple[str, str]:
    """The compiler's resource report and the machine code of a kernel as it is launched for such rows."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from coevolve.losses import kernels

    kernel, shape = getattr(kernels, name), kernels.launch_shape(columns, WORDS[word])
    warps = shape.pop("num_warps")
    constants = {**flags, **shape}
    names = kernel.arg_names
    kinds = {
        "logits": f"*{word}",
        "targets": "*i64",
        "inverse_temperature": "fp32",
        "columns": "i32",
    }
    kinds |= dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, "*fp32") for name in names}
    # Triton itself finds out at launch that these are multiples of 16; `columns` may be anything.
    wide = [i for i, name in enumerate(names) if signature[name].startswith("*")]
    source = ASTSource(
        kernel, signature, constants, {(i,): [["tt.divisibility", 16]] for i in wide}
    )
    binary = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps}
    )
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(binary.asm["cubin"])

    def read(flag: str) -> str:
        return subprocess.run(
            [TOOLS / "cuobjdump", flag, cubin],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    return read("--dump-resource-usage"), read("--dump-sass")


@pytest.mark.parametrize(
    "capability",
    [90, *(pytest.param(one, marks=pytest.mark.thorough) for one in (80, 100))],
)
@pytest.mark.parametrize(
    "word", ["bf16", pytest.param("fp32", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize(
    ("name", "flags"),
    [("_statistics", {}), ("_gradient", {}), ("_gradient", {"bonuses": None})],
)
def test_compiled_kernels_spill_nothing_and_move_16_bytes(
    capability, word, name, flags, tmp_path, monkeypatch
):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for columns in (151_936, 50_257, 511):
        report, code = compiled(name, flags, capability, word, columns, tmp_path)
        usage = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", report))
        assert usage["STACK"] == usage["LOCAL"] == "0" and not re.search(
            r"\b(LDL|STL)\b", code
        ), report
        assert (
            int(usage["REG"]) <= 64
        )  # 32 warps of a program then fit on a multiprocessor
        if columns > 511:
            assert re.search(r"LDG\.E\S*\.128", code)
            assert bool(re.search(r"STG\.E\S*\.128", code)) == (name == "_gradient")


GPUS = [
    (torch.bfloat16, (9, 0), True, ""),
    (torch.float32, (8, 0), True, ""),
    (torch.float64, (9, 0), True, "takes bfloat16"),
    (torch.float32, (7, 5), True, "needs an NVIDIA GPU"),
    (torch.float32, (9, 0), None, "needs the package triton"),
]


@pytest.mark.parametrize(("dtype", "capability", "package", "why"), GPUS)
def test_a_gpu_gets_the_kernel_where_it_runs(
    monkeypatch, dtype, capability, package, why
):
    monkeypatch.delenv("COEVOLVE_LOSS_PATH", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(dispatch, "find_spec", lambda name: package)
    hidden = SimpleNamespace(is_cuda=True, dtype=dtype, device="cuda:0")
    assert dispatch.choose_path(None, hidden) == ("chunked" if why else "triton")
    assert dispatch.choose_path("chunked", hidden) == "chunked"
    if why:
        with pytest.raises(ValueError, match=f"path of the loss 'triton' {why}"):
            dispatch.choose_path("triton", hidden)
