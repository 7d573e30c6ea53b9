"""What the Triton kernels of ours, TRL and Liger ask of an H100, counted on a machine without a GPU; nothing is timed.

The code that would run on a GPU runs on tensors without contents: torch's operations and the launches are counted, each
kernel is compiled for compute capability 9.0 and its resources are read, and Triton's interpreter counts what a row
loads and stores. `python -m benchmarks.kernels` writes kernels.json beside this file and prints Markdown.
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import loss
from benchmarks.step import markdown
from coevolve.losses import TokenBatch

JSON = Path(__file__).with_suffix(".json")
ROWS = 4  # of the interpreter's problem, one sequence: every row loads and stores alike
NAMES = ("ours, Triton", "TRL", "Liger, Triton", "torch, naive")
CASES = [loss.Case("cuda", 4_096, 2_048, 151_936, trained) for trained in (False, True)]
# An H100 SXM by NVIDIA's data sheet: dense bfloat16 products a second, bytes a second.
PRODUCTS, BANDWIDTH = 989e12, 3.35e12
# Compute capability 9.0: registers, warps, programs and bytes of shared memory of a multiprocessor. Registers come in
# pieces of 256 to a warp; every program costs 1 KiB of shared memory on top of its own.
REGISTERS, WARPS, PROGRAMS, SHARED = 65_536, 64, 32, 228 * 1024
FREE = ("empty", "new_empty", "empty_like", "empty_strided", "detach", "lift_fresh", "_unsafe_view")
BLANK = ("copy_", "fill_", "zero_", "zeros_like", "ones_like", "new_zeros", "new_ones", "full_like")  # reads no self


class Problem(loss.Problem):
    """The case with zeros in it, in bfloat16, on whatever device torch makes tensors by default."""

    def __init__(self, case: loss.Case):
        self.case = case
        self.hidden_TH = torch.zeros(case.T, case.H, dtype=torch.bfloat16).requires_grad_()
        self.head_VH = torch.zeros(case.V, case.H, dtype=torch.bfloat16).requires_grad_(case.trained)
        self.targets_T = torch.zeros(case.T, dtype=torch.long)
        self.advantages_B, self.old_T = torch.ones(case.T // loss.LENGTH), torch.zeros(case.T)
        self.advantages_T = self.advantages_B.repeat_interleave(loss.LENGTH)
        self.tokens = TokenBatch(self.targets_T, self.advantages_T, self.old_T, torch.ones(case.T), clip=loss.CLIP)


class Traffic(TorchDispatchMode):
    """Counts torch's operations as if each read its inputs once and wrote its outputs once, which is the least.

    `products` and `others` hold (operations of a product, bytes) for each. Answers that only contents could give are
    those of a batch without masked tokens.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products: list[tuple[int, int]] = []
        self.others: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        name, kwargs = func._schema.name.removeprefix("aten::"), kwargs or {}
        if name == "_local_scalar_dense":
            return 1
        if name == "index" and args[1][0].dtype == torch.bool:  # by a mask that takes all
            return args[0].clone()
        result = func(*args, **kwargs)
        if func.is_view or name in FREE or func.namespace == "prim":
            return result
        read, written = list(tree_leaves((args, {k: v for k, v in kwargs.items() if k != "out"}))), tree_leaves(result)
        if name in BLANK:
            read = read[1:]
        if name in ("gather", "scatter_add"):  # looks at the places that the index names, not at all
            read, written = read[2:] * 2, []
        moved = sum(map(size, read)) + sum(map(size, written))
        if name in ("mm", "addmm", "addmm_"):
            a, b = args[:2] if name == "mm" else args[1:3]
            self.products.append((2 * a.shape[0] * a.shape[1] * b.shape[1], moved))
        else:
            self.others.append((0, moved))
        return result


def size(x: object) -> int:
    """Bytes of a tensor that is no repetition of itself; 0 for anything else."""
    if not isinstance(x, Tensor):
        return 0
    return x.element_size() * math.prod(n for n, stride in zip(x.shape, x.stride(), strict=True) if stride)


class NoDriver:
    """Tells Triton that there is a GPU of compute capability 9.0, to compile for."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> object:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """What TRL's and our own sum of products does on a GPU, which both ask the tensors for."""
    torch.addmm(total, a, b, out_dtype=total.dtype, out=total)


@contextmanager
def as_if_on_a_gpu(launches: list[tuple[str, int, Any]]) -> Iterator[None]:
    """Tensors are on a GPU that has no memory; a launch notes its kernel, its programs and what it was compiled to."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def compiled(kernel: Any, *args: object, grid: tuple[int, ...], warmup: bool, **kwargs: object) -> None:
        launches.append((kernel.__name__, math.prod(grid), run(kernel, *args, grid=grid, warmup=True, **kwargs)))

    driver.set_active(NoDriver())
    with ExitStack() as stack, FakeTensorMode(), torch.autograd.set_multithreading_enabled(False):
        stack.enter_context(mock.patch.object(JITFunction, "run", compiled))
        stack.enter_context(mock.patch.object(FakeTensor, "is_cuda", True, create=True))
        stack.enter_context(mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)))
        stack.enter_context(mock.patch("trl.kernels.chunked_logprob._addmm_fp32", add_product))
        yield


def loads() -> dict[str, dict[str, tuple[float, float]]]:
    """Bytes that every kernel loads and stores for a token, by contender, as Triton's interpreter executes them."""
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    moved: Counter[tuple[str, str]] = Counter()
    running = [""]
    load, store, execute = (
        InterpreterBuilder.create_masked_load,
        InterpreterBuilder.create_masked_store,
        GridExecutor.__call__,
    )

    def note(way: str, ptrs: Any, mask: Any) -> None:
        moved[running[0], way] += int(mask.data.sum()) * ptrs.get_element_ty().primitive_bitwidth // 8

    def loaded(self: object, ptrs: Any, mask: Any, *rest: object) -> object:
        note("loaded", ptrs, mask)
        return load(self, ptrs, mask, *rest)

    def stored(self: object, ptrs: Any, value: Any, mask: Any, *rest: object) -> object:
        note("stored", ptrs, mask)
        return store(self, ptrs, value, mask, *rest)

    def executed(self: Any, *args: object, **kwargs: object) -> None:
        running[0] = self.fn.__name__
        execute(self, *args, **kwargs)

    found = {}
    small = loss.Case("cuda", ROWS, 16, CASES[0].V, False)
    with (
        mock.patch.object(loss, "LENGTH", ROWS),
        mock.patch.object(InterpreterBuilder, "create_masked_load", loaded),
        mock.patch.object(InterpreterBuilder, "create_masked_store", stored),
        mock.patch.object(GridExecutor, "__call__", executed),
    ):
        for name in NAMES[:3]:
            moved.clear()
            loss.CONTENDERS[name](Problem(small))().backward()
            kernels = dict.fromkeys(kernel for kernel, _ in moved)
            found[name] = {k: tuple(moved[k, what] / ROWS for what in ("loaded", "stored")) for k in kernels}
    return found


def resources(binary: Any) -> dict[str, int]:
    """Registers a thread, stack for spilled ones, shared memory, and the widest load and store, out of machine code."""
    tool = str(files("triton") / "backends" / "nvidia" / "bin" / "cuobjdump")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary.asm["cubin"])
        commands = ([tool, flag, file.name] for flag in ("--dump-resource-usage", "--dump-sass"))
        usage, code = (subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands)
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage)[1]) for name in ("REG", "STACK"))
    spilled = len(re.findall(r"\b(?:LDL|STL)\b", code))
    wide = [max(map(int, re.findall(rf"{way}\.E\S*?\.(64|128)\b", code)), default=32) // 8 for way in ("LDG", "STG")]
    shared, warps = binary.metadata.shared, binary.metadata.num_warps
    per_warp = 256 * -(-registers * 32 // 256)
    fit = min(PROGRAMS, WARPS // warps, REGISTERS // (per_warp * warps), SHARED // (shared + 1024))
    return {
        "threads": 32 * warps,
        "registers": registers,
        "spills": stack + spilled,
        "shared": shared,
        "load": wide[0],
        "store": wide[1],
        "warps_resident": fit * warps,
    }


def formula(name: str, case: loss.Case, parts: int) -> int:
    """Bytes of a step by hand: passes over bfloat16 logits (T, V), and reads of the head (V, H) and of states (T, H).

    Ours and Liger: a product writes the logits, a kernel reads them, one reads and overwrites them, a product for each
    gradient reads them. TRL makes them twice. Torch: the product; to float32; log_softmax; exp, times and sum of the
    entropy; zeros, log_softmax and bfloat16 back; products. `parts`: ours has so many chunks of tokens, TRL of the
    vocabulary. A gradient in parts is a float32 sum that every part reads and writes; zeros before, bfloat16 after.
    """
    logits, head, states = (2 * a * b for a, b in ((case.T, case.V), (case.V, case.H), (case.T, case.H)))
    frozen = {
        "ours, Triton": (5, 2 * parts, 8),
        "TRL": (6, 3, 6 * parts + 5),
        "Liger, Triton": (5, 2, 2),
        "torch, naive": (32, 2, 2),
    }
    trained = {"ours, Triton": (1, 4 * parts + 5, 1), "TRL": (1, 9, parts)}
    counts = [frozen[name], trained.get(name, (1, 1, 1))][: 1 + case.trained]
    return sum(n * bytes_ for row in counts for n, bytes_ in zip(row, (logits, head, states), strict=True))


def step(name: str, case: loss.Case, moved: dict[str, tuple[float, float]]) -> tuple[dict, dict[str, tuple[int, Any]]]:
    """What a step asks for, and its kernels: the programs and the compiled code of the first launch of each."""
    launches: list[tuple[str, int, Any]] = []
    with as_if_on_a_gpu(launches):
        contender = loss.CONTENDERS[name](Problem(case))
        with Traffic() as traffic:
            contender().backward()
    kernels = {kernel: (programs, binary) for kernel, programs, binary in reversed(launches)}
    in_kernels = case.T * sum(map(sum, moved.values()))
    work = [*traffic.products, *traffic.others, (0, in_kernels)]
    by_hand = formula(name, case, len(launches) // max(1, len(kernels)))
    return {
        "contender": name,
        "trained": case.trained,
        "operations": sum(n for n, _ in traffic.products),
        "product_bytes": sum(n for _, n in traffic.products),
        "kernel_bytes": in_kernels,
        "other_bytes": sum(n for _, n in traffic.others),
        "formula_bytes": by_hand,
        "floor": sum(max(n / PRODUCTS, size / BANDWIDTH) for n, size in work),
    }, kernels


def table(found: dict) -> str:
    """EpisodeStepper and kernels as Markdown."""
    steps, kernels = [], []
    for row in found["steps"]:
        moved = [row[f"{part}_bytes"] for part in ("product", "kernel", "other")]
        least = 1e3 * row["operations"] / PRODUCTS, 1e3 * sum(moved) / BANDWIDTH, 1e3 * row["floor"]
        cells = [row["contender"], "trained" if row["trained"] else "frozen", f"{row['operations'] / 1e12:.2f}"]
        cells += [f"{n / 1e9:.2f}" for n in (*moved, sum(moved), row["formula_bytes"])]
        steps.append([*cells, *(f"{ms:.2f}" for ms in least)])
    for row in found["kernels"]:
        moved = f"{row['loaded'] / 1e3:.1f} + {row['stored'] / 1e3:.1f}"
        cells = [row["contender"], f"`{row['kernel']}`", f"{row['programs']:,} x {row['threads']}", row["registers"]]
        cells += [row["spills"], f"{row['shared']:,}", f"{100 * row['warps_resident'] / WARPS:.0f} %"]
        least = 1e3 * found["case"]["T"] * (row["loaded"] + row["stored"]) / BANDWIDTH
        kernels.append([*cells, f"{row['load']} and {row['store']}", moved, f"{least:.2f}"])
    head = ("a step of", "head", "products, 10^12 operations", "GB of products", "of kernels", "of other operations")
    head += ("all GB", "by formula", "floor by products, ms", "by bandwidth", "launch by launch")
    second = ("of", "kernel", "programs x threads", "registers a thread", "spills", "shared memory, bytes", "occupancy")
    second += ("widest load and store, bytes", "kB a token, read + written", "floor, ms")
    return "\n\n".join((markdown(head, steps), markdown(second, kernels)))


def main() -> None:
    """Count, write JSON beside this file, print Markdown; `--loads` prints what the interpreter counts."""
    torch.set_num_threads(1)
    if "--loads" in sys.argv:  # a process of its own: Triton sees the variable at its import
        return print(json.dumps(loads()))
    command = [sys.executable, "-m", "benchmarks.kernels", "--loads"]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=os.environ | {"TRITON_INTERPRET": "1"}, check=True)
    moved, kernels = json.loads(done.stdout), []
    steps = []
    for name in NAMES:
        for case in CASES:
            row, launched = step(name, case, moved.get(name, {}))
            steps.append(row)
        for kernel, (loaded, stored) in moved.get(name, {}).items():
            programs, binary = launched[kernel]
            row = {"contender": name, "kernel": kernel, "programs": programs, "loaded": loaded, "stored": stored}
            kernels.append(row | resources(binary))
    versions = {name: metadata.version(name) for name in ("torch", "triton", "trl", "liger-kernel")}
    shape = {name: getattr(CASES[0], name) for name in "THV"}
    found = {"versions": versions, "case": shape, "steps": steps, "kernels": kernels}
    JSON.write_text(json.dumps(found, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
