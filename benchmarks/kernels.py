"""Work of the Triton kernels of coevolve, TRL and Liger on an H100, counted without a GPU.

GPU code runs on fake tensors: torch's operations and launches are counted, kernels are compiled
for compute capability 9.0 to read their resources, and Triton's interpreter counts the loads and
stores of a row. `python -m benchmarks.kernels` writes kernels.json and prints Markdown.
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
from dataclasses import dataclass
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from benchmarks import loss
from benchmarks.step import markdown
from benchmarks.traffic import Operation, Traffic
from coevolve.losses import LossConfig, TokenBatch

JSON = Path(__file__).with_suffix(".json")
ROWS = 4  # tokens of the interpreter's problem, one sequence; all rows load and store alike
KERNELS = ("ours, Triton", "TRL", "Liger, Triton")
NAMES = (*KERNELS, "torch, naive")
CASES = [
    loss.Case("cuda", 4_096, 2_048, 151_936, trained=False),
    loss.Case("cuda", 4_096, 2_048, 151_936, trained=True),
]
# An H100 SXM by NVIDIA's data sheet, in dense bfloat16.
OPERATIONS_PER_SECOND = 989e12
BYTES_PER_SECOND = 3.35e12
# Limits of a multiprocessor of compute capability 9.0.
REGISTERS = 65_536
REGISTER_UNIT = 256  # registers are allocated to a warp in multiples of this
WARPS = 64
PROGRAMS = 32
SHARED_BYTES = 228 * 1024
SHARED_BYTES_PER_PROGRAM = 1024  # on top of what the program itself uses


class Problem(loss.Problem):
    """A case filled with zeros, in bfloat16, on torch's default device."""

    def __init__(self, case: loss.Case):
        self.case = case
        dtype = torch.bfloat16
        self.hidden_TH = torch.zeros(case.T, case.H, dtype=dtype).requires_grad_()
        self.head_VH = torch.zeros(case.V, case.H, dtype=dtype).requires_grad_(
            case.trained
        )
        self.targets_T = torch.zeros(case.T, dtype=torch.long)
        self.advantages_B = torch.ones(case.T // loss.LENGTH)
        self.advantages_T = self.advantages_B.repeat_interleave(loss.LENGTH)
        self.old_T = torch.zeros(case.T)
        weights_T = torch.ones(case.T)
        self.tokens = TokenBatch(
            targets_T=self.targets_T,
            advantages_T=self.advantages_T,
            weights_T=weights_T,
            old_logprobs_T=self.old_T,
            config=LossConfig(clip=loss.CLIP),
        )


class NoDriver:
    """A Triton driver that claims a GPU of compute capability 9.0, as a target of compilation."""

    def get_current_device(self) -> int:
        """Return the number of the device."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """Return the number of the stream."""
        return 0

    def get_current_target(self) -> object:
        """Return the target of compilation."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """Add a product to a float32 sum, as TRL and coevolve do on a GPU."""
    torch.addmm(total, a, b, out_dtype=total.dtype, out=total)


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel: its name, the number of its programs and its compiled code."""

    kernel: str
    programs: int
    binary: Any


@contextmanager
def as_if_on_a_gpu(launches: list[Launch]) -> Iterator[None]:
    """Make tensors appear to be on a GPU without memory; note launches instead of running."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    run = JITFunction.run

    def compile_only(
        kernel: Any,
        *args: object,
        grid: tuple[int, ...],
        warmup: bool,
        **kwargs: object,
    ) -> None:
        binary = run(kernel, *args, grid=grid, warmup=True, **kwargs)
        launches.append(Launch(kernel.__name__, math.prod(grid), binary))

    patches = (
        mock.patch.object(JITFunction, "run", compile_only),
        mock.patch.object(FakeTensor, "is_cuda", True, create=True),
        mock.patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)),
        mock.patch("trl.kernels.chunked_logprob._addmm_fp32", add_product),
    )
    driver.set_active(NoDriver())
    with (
        ExitStack() as stack,
        FakeTensorMode(),
        torch.autograd.set_multithreading_enabled(False),
    ):
        for patch in patches:
            stack.enter_context(patch)
        yield


class Interpreter:
    """Counts the bytes that each kernel loads and stores under Triton's interpreter."""

    def __init__(self) -> None:
        from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

        self.loaded: Counter[str] = Counter()
        self.stored: Counter[str] = Counter()
        self.kernel = ""  # the one that runs
        self.patches = (
            self.counting(InterpreterBuilder, "create_masked_load", self.loaded),
            self.counting(InterpreterBuilder, "create_masked_store", self.stored),
            self.naming(GridExecutor),
        )

    def counting(self, builder: type, method: str, total: Counter[str]) -> Any:
        """Return a patch of a load or store that adds its bytes to a total."""
        execute = getattr(builder, method)
        # A store has a value before it.
        mask_index = 1 if method == "create_masked_load" else 2

        def count_and_execute(builder: object, *args: Any) -> object:
            pointers = args[0]
            bits = pointers.get_element_ty().primitive_bitwidth
            total[self.kernel] += int(args[mask_index].data.sum()) * bits // 8
            return execute(builder, *args)

        return mock.patch.object(builder, method, count_and_execute)

    def naming(self, executor: type) -> Any:
        """Return a patch that notes which kernel runs."""
        execute = executor.__call__

        def note_and_execute(grid: Any, *args: object, **kwargs: object) -> None:
            self.kernel = grid.fn.__name__
            execute(grid, *args, **kwargs)

        return mock.patch.object(executor, "__call__", note_and_execute)


def loads() -> dict[str, dict[str, tuple[float, float]]]:
    """Return the bytes that each kernel loads and stores for a token, by contender."""
    small = loss.Case("cuda", ROWS, 16, CASES[0].V, trained=False)
    bytes_by_contender = {}
    interpreter = Interpreter()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(loss, "LENGTH", ROWS))
        for patch in interpreter.patches:
            stack.enter_context(patch)
        for name in KERNELS:
            interpreter.loaded.clear()
            interpreter.stored.clear()
            loss.CONTENDERS[name](Problem(small))().backward()
            kernels = {}
            for kernel in interpreter.loaded | interpreter.stored:
                loaded = interpreter.loaded[kernel] / ROWS
                stored = interpreter.stored[kernel] / ROWS
                kernels[kernel] = (loaded, stored)
            bytes_by_contender[name] = kernels
    return bytes_by_contender


def disassemble(binary: Any) -> tuple[str, str]:
    """Return the report of resources and the machine code of a compiled kernel."""
    tool = str(files("triton") / "backends" / "nvidia" / "bin" / "cuobjdump")
    reports = []
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary.asm["cubin"])
        for flag in ("--dump-resource-usage", "--dump-sass"):
            command = [tool, flag, file.name]
            process = subprocess.run(
                command, capture_output=True, text=True, check=True
            )
            reports.append(process.stdout)
    usage, code = reports
    return usage, code


def widest(code: str, instruction: str) -> int:
    """Return the bytes of the widest access to global memory: LDG loads, STG stores."""
    bits = re.findall(rf"{instruction}\.E\S*?\.(64|128)\b", code)
    return max(map(int, bits), default=32) // 8


def resources(binary: Any) -> dict[str, int]:
    """Return registers, spills, shared memory, widest accesses and occupancy of a kernel."""
    usage, code = disassemble(binary)
    registers = int(re.search(r"REG:(\d+)", usage)[1])
    stack_bytes = int(re.search(r"STACK:(\d+)", usage)[1])
    spill_instructions = len(re.findall(r"\b(?:LDL|STL)\b", code))
    shared = binary.metadata.shared
    warps = binary.metadata.num_warps
    registers_per_warp = REGISTER_UNIT * math.ceil(registers * 32 / REGISTER_UNIT)
    resident_programs = min(
        PROGRAMS,
        WARPS // warps,
        REGISTERS // (registers_per_warp * warps),
        SHARED_BYTES // (shared + SHARED_BYTES_PER_PROGRAM),
    )
    return {
        "threads": 32 * warps,
        "registers": registers,
        "spills": stack_bytes + spill_instructions,
        "shared": shared,
        "load": widest(code, "LDG"),
        "store": widest(code, "STG"),
        "warps_resident": resident_programs * warps,
    }


@dataclass(frozen=True)
class Passes:
    """Passes of a step over bfloat16 logits (T, V), head (V, H) and hidden states (T, H)."""

    logits: int
    head: int
    states: int


def formula(name: str, case: loss.Case, parts: int) -> int:
    """Return the bytes of a step, derived by hand from its passes over the large tensors.

    Ours and Liger: a product writes the logits, a kernel reads them, one reads and overwrites
    them, a product for each gradient reads them. TRL makes them twice. Torch: the product; to
    float32; log_softmax; exp, times and sum of the entropy; zeros, log_softmax and bfloat16 back;
    products. `parts`: the chunks of tokens (ours) or of the vocabulary (TRL). A gradient in parts
    is a float32 sum that every part reads and writes; zeros before, bfloat16 after.
    """
    with_frozen_head = {
        "ours, Triton": Passes(5, 2 * parts, 8),
        "TRL": Passes(6, 3, 6 * parts + 5),
        "Liger, Triton": Passes(5, 2, 2),
        "torch, naive": Passes(32, 2, 2),
    }
    for_head_gradient = {
        "ours, Triton": Passes(1, 4 * parts + 5, 1),
        "TRL": Passes(1, 9, parts),
        "Liger, Triton": Passes(1, 1, 1),
        "torch, naive": Passes(1, 1, 1),
    }
    counts = [with_frozen_head[name]]
    if case.trained:
        counts.append(for_head_gradient[name])
    total = 0
    for passes in counts:
        total += passes.logits * 2 * case.T * case.V
        total += passes.head * 2 * case.V * case.H
        total += passes.states * 2 * case.T * case.H
    return total


def least_seconds(operation: Operation) -> float:
    """Return the least seconds of an operation, by its arithmetic and by its bytes."""
    return max(
        operation.arithmetic / OPERATIONS_PER_SECOND,
        operation.bytes / BYTES_PER_SECOND,
    )


def step(
    name: str, case: loss.Case, moved: dict[str, tuple[float, float]]
) -> tuple[dict, dict[str, Launch]]:
    """Return the work of a step, and the first launch of each of its kernels.

    `moved` has the bytes that each kernel loads and stores for a token.
    """
    launches: list[Launch] = []
    with as_if_on_a_gpu(launches):
        contender = loss.CONTENDERS[name](Problem(case))
        with Traffic() as traffic:
            contender().backward()
    kernels = {launch.kernel: launch for launch in reversed(launches)}
    kernel_bytes = case.T * sum(map(sum, moved.values()))
    work = [*traffic.products, *traffic.others, Operation(0, kernel_bytes)]
    parts = len(launches) // max(1, len(kernels))
    row = {
        "contender": name,
        "trained": case.trained,
        "operations": sum(product.arithmetic for product in traffic.products),
        "product_bytes": sum(product.bytes for product in traffic.products),
        "kernel_bytes": kernel_bytes,
        "other_bytes": sum(other.bytes for other in traffic.others),
        "formula_bytes": formula(name, case, parts),
        "floor": sum(map(least_seconds, work)),
    }
    return row, kernels


def table_of_steps(rows: list[dict]) -> str:
    """Return the work of whole steps as Markdown."""
    head = (
        "a step of",
        "head",
        "products, 10^12 operations",
        "GB of products",
        "of kernels",
        "of other operations",
        "all GB",
        "by formula",
        "floor by products, ms",
        "by bandwidth",
        "launch by launch",
    )
    lines = []
    for row in rows:
        total_bytes = row["product_bytes"] + row["kernel_bytes"] + row["other_bytes"]
        cells = [
            row["contender"],
            "trained" if row["trained"] else "frozen",
            f"{row['operations'] / 1e12:.2f}",
            f"{row['product_bytes'] / 1e9:.2f}",
            f"{row['kernel_bytes'] / 1e9:.2f}",
            f"{row['other_bytes'] / 1e9:.2f}",
            f"{total_bytes / 1e9:.2f}",
            f"{row['formula_bytes'] / 1e9:.2f}",
            f"{1e3 * row['operations'] / OPERATIONS_PER_SECOND:.2f}",
            f"{1e3 * total_bytes / BYTES_PER_SECOND:.2f}",
            f"{1e3 * row['floor']:.2f}",
        ]
        lines.append(cells)
    return markdown(head, lines)


def table_of_kernels(rows: list[dict], tokens: int) -> str:
    """Return the resources of the kernels as Markdown."""
    head = (
        "of",
        "kernel",
        "programs x threads",
        "registers a thread",
        "spills",
        "shared memory, bytes",
        "occupancy",
        "widest load and store, bytes",
        "kB a token, read + written",
        "floor, ms",
    )
    lines = []
    for row in rows:
        floor_ms = 1e3 * tokens * (row["loaded"] + row["stored"]) / BYTES_PER_SECOND
        cells = [
            row["contender"],
            f"`{row['kernel']}`",
            f"{row['programs']:,} x {row['threads']}",
            row["registers"],
            row["spills"],
            f"{row['shared']:,}",
            f"{100 * row['warps_resident'] / WARPS:.0f} %",
            f"{row['load']} and {row['store']}",
            f"{row['loaded'] / 1e3:.1f} + {row['stored'] / 1e3:.1f}",
            f"{floor_ms:.2f}",
        ]
        lines.append(cells)
    return markdown(head, lines)


def table(result: dict) -> str:
    """Return steps and kernels as Markdown."""
    steps = table_of_steps(result["steps"])
    kernels = table_of_kernels(result["kernels"], result["case"]["T"])
    return f"{steps}\n\n{kernels}"


def loads_in_a_process() -> dict[str, dict[str, tuple[float, float]]]:
    """Return what `loads` returns, from a process in which Triton interprets its kernels."""
    command = [sys.executable, "-m", "benchmarks.kernels", "--loads"]
    # Triton reads the variable at its import.
    env = os.environ | {"TRITON_INTERPRET": "1"}
    process = subprocess.run(command, stdout=subprocess.PIPE, env=env, check=True)
    return json.loads(process.stdout)


def main() -> None:
    """Count, write JSON beside this file, print Markdown; or print loads and stores."""
    torch.set_num_threads(1)
    if "--loads" in sys.argv:
        print(json.dumps(loads()))
        return
    loads_by_contender = loads_in_a_process()
    steps = []
    kernels = []
    for name in NAMES:
        moved = loads_by_contender.get(name, {})
        for case in CASES:
            row, launches = step(name, case, moved)
            steps.append(row)
        for kernel, (loaded, stored) in moved.items():
            launch = launches[kernel]
            row = {
                "contender": name,
                "kernel": kernel,
                "programs": launch.programs,
                "loaded": loaded,
                "stored": stored,
            }
            kernels.append(row | resources(launch.binary))
    packages = ("torch", "triton", "trl", "liger-kernel")
    result = {
        "versions": {name: metadata.version(name) for name in packages},
        "case": {"T": CASES[0].T, "H": CASES[0].H, "V": CASES[0].V},
        "steps": steps,
        "kernels": kernels,
    }
    JSON.write_text(json.dumps(result, indent=1) + "\n")
    print(table(result))


if __name__ == "__main__":
    main()
