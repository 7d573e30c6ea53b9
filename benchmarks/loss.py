"""Time and memory of one policy-loss step (loss and gradient) beside public alternatives.

Clipped PPO on packed tokens, contenders alternating, on the CPU and on a CUDA device if there is
one; `--cpu` or `--cuda` chooses one of them. Medians go to loss.json; `--table` prints that file
again. A contender that cannot run is reported as not measured, with the reason.
"""

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module, metadata
from pathlib import Path

import torch
from torch import Tensor

from coevolve.losses import LossConfig, TokenBatch, policy_loss, selective_logprobs

JSON = Path(__file__).with_suffix(".json")
CLIP = (0.2, 0.28)
MIB = 2**20
# Tokens of a sequence: the alternatives require a rectangle with one advantage for each row.
LENGTH = 128
# Side of the square matrix product whose speed defines the floor.
SIDE = {"cpu": 2048, "cuda": 8192}
MEASURED_PACKAGES = (
    "torch",
    "triton",
    "trl",
    "liger-kernel",
    "unsloth-zoo",
)
Loss = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """Sizes of a problem: T tokens, width H, vocabulary V."""

    device: str
    T: int
    H: int
    V: int
    trained: bool  # the head needs a gradient too
    bonus: float = 0.0  # entropy coefficient


CPU = [
    Case("cpu", 1024, 64, 32_768, trained=False),
    Case("cpu", 1024, 64, 32_768, trained=True),
    Case("cpu", 1024, 512, 32_768, trained=False),
    Case("cpu", 1024, 512, 32_768, trained=True),
    Case("cpu", 1024, 512, 32_768, trained=False, bonus=0.01),
]
FLAT = [Case("cpu", T, 64, 32_768, trained=False) for T in (512, 1024, 2048, 4096)]
CUDA = [
    Case("cuda", 4_096, 2_048, 151_936, trained=False),
    Case("cuda", 4_096, 2_048, 151_936, trained=True),
    Case("cuda", 32_768, 2_048, 151_936, trained=False),
    Case("cuda", 32_768, 2_048, 151_936, trained=True),
    Case("cuda", 32_768, 2_048, 151_936, trained=False, bonus=0.01),
]
CASES = {"cpu": CPU, "cuda": CUDA}


class Problem:
    """A case filled with random numbers; gradients go to hidden_TH.grad and head_VH.grad."""

    def __init__(self, case: Case):
        self.case = case
        device = case.device
        dtype = torch.bfloat16 if device == "cuda" else torch.float32
        rng = torch.Generator(device).manual_seed(0)
        hidden_TH = torch.randn(
            case.T, case.H, generator=rng, device=device, dtype=dtype
        )
        head_VH = torch.randn(case.V, case.H, generator=rng, device=device, dtype=dtype)
        head_VH = head_VH * (2 / math.sqrt(case.H))
        self.hidden_TH = hidden_TH.requires_grad_()
        self.head_VH = head_VH.requires_grad_(case.trained)
        self.targets_T = torch.randint(case.V, (case.T,), generator=rng, device=device)
        self.advantages_B = torch.randn(case.T // LENGTH, generator=rng, device=device)
        self.advantages_T = self.advantages_B.repeat_interleave(LENGTH)
        logprobs_T = selective_logprobs(self.hidden_TH, self.head_VH, self.targets_T)
        noise_T = torch.randn(case.T, generator=rng, device=device)
        self.old_T = logprobs_T + 0.05 * noise_T
        self.tokens = TokenBatch(
            targets_T=self.targets_T,
            advantages_T=self.advantages_T,
            weights_T=torch.full_like(self.old_T, 1 / case.T),
            old_logprobs_T=self.old_T,
            config=LossConfig(clip=CLIP, entropy_coef=case.bonus),
        )

    def objective(self, logprobs_T: Tensor, entropy_T: Tensor) -> Tensor:
        """Return the loss that every contender computes."""
        return self.tokens.loss_and_stats(logprobs_T, entropy_T).loss

    def error(self) -> float:
        """Return the relative distance of the first rows' gradient from float64."""
        first_TH = self.hidden_TH[:LENGTH].detach().double().requires_grad_()
        head_VH = self.head_VH.detach().double()
        tokens = self.tokens.chunk(slice(LENGTH))
        policy_loss(first_TH, head_VH, tokens, path="reference").loss.backward()
        difference_TH = self.hidden_TH.grad[:LENGTH] - first_TH.grad
        return float(difference_TH.norm() / first_TH.grad.norm())

    def clear_gradients(self) -> None:
        """Drop the gradients of the previous step."""
        self.hidden_TH.grad = None
        self.head_VH.grad = None


def by_row(x_T: Tensor) -> Tensor:
    """Return the same numbers as (sequences, LENGTH)."""
    return x_T.unflatten(0, (-1, LENGTH))


def ours(path: str) -> Callable[[Problem], Loss]:
    """Return coevolve's loss along one path."""

    def build(p: Problem) -> Loss:
        return lambda: policy_loss(p.hidden_TH, p.head_VH, p.tokens, path=path).loss

    return build


def naive(p: Problem) -> Loss:
    """Return the loss over all logits at once; the entropy has a gradient only with a bonus."""

    def loss() -> Tensor:
        logits_TV = p.hidden_TH @ p.head_VH.T
        logprobs_TV = logits_TV.float().log_softmax(-1)
        with torch.set_grad_enabled(p.case.bonus != 0):
            entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        logprobs_T = logprobs_TV.gather(-1, p.targets_T[:, None])[:, 0]
        return p.objective(logprobs_T, entropy_T)

    return loss


def compiled(p: Problem) -> Loss:
    """Return the naive loss under torch.compile."""
    torch._dynamo.reset()
    return torch.compile(naive(p))


def trl(p: Problem) -> Loss:
    """Return what TRL's GRPO trainer computes from hidden states.

    On a GPU that is its fused head, on a CPU its log-softmax on logits.
    """
    utils = import_module("trl.trainer.utils")
    if p.case.device == "cuda":
        fused = import_module("trl.kernels").ChunkedLogProbFunction.apply
        inputs = (
            p.hidden_TH,
            p.head_VH,
            None,
            p.targets_T,
        )
        chunk_size = utils._CHUNKED_LOGPROB_CHUNK_SIZE
        settings = (1.0, chunk_size, None, 1.0, ("log_probs", "entropy"))
        return lambda: p.objective(*fused(*inputs, *settings)[:2])

    def loss() -> Tensor:
        logits_BTV = by_row(p.hidden_TH @ p.head_VH.T)
        with_bonus = p.case.bonus != 0
        logprobs_BT, entropy_BT = utils.selective_log_softmax_and_entropy(
            logits_BTV, by_row(p.targets_T), with_bonus
        )
        return p.objective(logprobs_BT.flatten(), entropy_BT.flatten())

    return loss


def liger_linear(p: Problem) -> Loss:
    """Return Liger's fused linear GRPO loss, one sequence at a time by default."""
    if p.case.bonus:
        raise ValueError("it has no entropy bonus")
    build = import_module("liger_kernel.chunked_loss").LigerFusedLinearGRPOLoss
    loss = build(
        beta=0.0,
        use_ref_model=False,
        epsilon_low=CLIP[0],
        epsilon_high=CLIP[1],
        loss_type="bnpo",
    )
    targets_BT = by_row(p.targets_T)
    mask_BT = torch.ones_like(targets_BT)
    old_BT = by_row(p.old_T)
    inputs = (
        p.head_VH,
        targets_BT,
        mask_BT,
        p.advantages_B,
        None,
        None,
        old_BT,
    )
    return lambda: loss(by_row(p.hidden_TH), *inputs)[0]


def liger_triton(p: Problem) -> Loss:
    """Return Liger's Triton GRPO kernel, which requires one more position in every sequence."""
    if p.case.bonus:
        raise ValueError("it has no entropy bonus")
    if p.case.device != "cuda":
        raise ValueError("it needs a CUDA device")
    grpo_loss = import_module("liger_kernel.transformers.grpo_loss").triton_grpo_loss
    targets_BT = by_row(p.targets_T)
    old_BT = by_row(p.old_T)
    mask_BT = torch.ones_like(targets_BT)
    inputs = (
        old_BT,
        None,
        targets_BT,
        p.advantages_B,
        mask_BT,
    )
    settings = (1.0, 0.0, *CLIP, True, "bnpo")

    def loss() -> Tensor:
        padded_BTH = torch.nn.functional.pad(by_row(p.hidden_TH), (0, 0, 0, 1))
        return grpo_loss(padded_BTH @ p.head_VH.T, *inputs, *settings, reduce=True)[0]

    return loss


def unsloth(p: Problem) -> Loss:
    """Return the loss on Unsloth's fused head."""
    # Its kernels without its patches to other packages.
    os.environ.setdefault("UNSLOTH_IS_PRESENT", "1")
    fused = import_module("unsloth_zoo.fused_losses.fused_linear").fused_linear_logprobs
    inputs = (p.hidden_TH, p.head_VH, p.targets_T)
    no_entropy = torch.zeros(())

    def loss() -> Tensor:
        if p.case.bonus:
            return p.objective(*fused(*inputs, return_entropy=True))
        return p.objective(fused(*inputs), no_entropy)

    return loss


CONTENDERS: dict[str, Callable[[Problem], Loss]] = {
    "ours, chunked": ours("chunked"),
    "ours, Triton": ours("triton"),
    "torch, naive": naive,
    "torch.compile, naive": compiled,
    "TRL": trl,
    "Liger, fused linear": liger_linear,
    "Liger, Triton": liger_triton,
    "Unsloth": unsloth,
}


def seconds(device: str, work: Callable[[], object]) -> float:
    """Return the wall seconds of one call."""
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    finish()
    start = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - start


def step(p: Problem, loss: Loss) -> float:
    """Take loss and gradient once; return seconds."""
    p.clear_gradients()
    return seconds(p.case.device, lambda: loss().backward())


@dataclass
class Running:
    """A contender that runs: its loss, its row of the report and the seconds of its steps."""

    loss: Loss
    row: dict
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median seconds of a step."""
        return statistics.median(self.seconds)


def first_line(reason: Exception) -> str:
    """Return the first sentence of an error message, with single spaces."""
    return " ".join(str(reason).split(". ")[0].split())


def start_contenders(p: Problem) -> tuple[list[dict], dict[str, Running]]:
    """Take one step of every contender; return a row for each, and those that run by name."""
    rows = []
    running = {}
    for name, contender in CONTENDERS.items():
        try:
            loss = contender(p)
            step(p, loss)
            row = {"name": name, "error": p.error()}
            running[name] = Running(loss, row)
        except Exception as reason:  # noqa: BLE001 third-party code may fail in any way
            # coevolve's own paths refuse a case by ValueError; any other error is a fault.
            if name.startswith("ours") and not isinstance(reason, ValueError):
                raise
            row = {"name": name, "not measured": first_line(reason)}
        rows.append(row)
    return rows, running


def measure(case: Case, rounds: int) -> list[dict]:
    """Return a row for each contender: seconds, ratios to coevolve and floor, memory, error."""
    p = Problem(case)
    rows, running = start_contenders(p)
    side = SIDE[case.device]
    square = torch.randn(side, side, device=case.device, dtype=p.hidden_TH.dtype)
    square_seconds = []  # how fast this machine multiplies
    for _ in range(rounds):
        square_seconds.append(seconds(case.device, lambda: square @ square))
        for contender in running.values():
            contender.seconds.append(step(p, contender.loss))
    # The least work: the logits once, and each gradient once.
    operations = (6 if case.trained else 4) * case.T * case.H * case.V
    floor = operations / (2 * side**3) * statistics.median(square_seconds)
    best = running["ours, Triton" if case.device == "cuda" else "ours, chunked"].median
    for name, contender in running.items():
        row = contender.row
        row["seconds"] = contender.median
        row["ours"] = contender.median / best
        row["floor"] = contender.median / floor
        if case.device == "cuda":
            row["extra_mib"] = gpu_peak(p, contender.loss)
        else:
            row["extra_mib"] = cpu_peak(case, name)
    return rows


def gpu_peak(p: Problem, loss: Loss) -> float:
    """Return the peak memory of a step above that before it, gradients included, in MiB."""
    p.clear_gradients()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(p, loss)
    return (torch.cuda.max_memory_allocated() - before) / MIB


def cpu_peak(case: Case, name: str) -> float:
    """Return the same on a CPU, measured in a separate process."""
    # As a module: beside this file stands one called kernels, as a library of transformers is.
    command = [sys.executable, "-m", "benchmarks.loss", "--peak", name]
    command.append(json.dumps(asdict(case)))
    # Freed memory returns to the system at once; otherwise the peak would not show its reuse.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(MIB // 8)}
    process = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env=env, check=True
    )
    return float(process.stdout.split()[-1])


def print_peak(name: str, case: Case) -> None:
    """Print how far this process' resident memory rises above the inputs, in MiB."""
    torch.set_num_threads(1)
    warm = Problem(replace(case, T=LENGTH))
    p = Problem(case)
    step(warm, CONTENDERS[name](warm))  # loads libraries, compiles
    loss = CONTENDERS[name](p)
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    before = resident_pages * os.sysconf("SC_PAGE_SIZE")
    step(p, loss)
    status = Path("/proc/self/status").read_text()
    peak_kib = int(status.split("VmHWM:")[1].split()[0])
    print((peak_kib * 1024 - before) / MIB)


def installed_versions(
    packages: Sequence[str] = MEASURED_PACKAGES,
) -> dict[str, str | None]:
    """Return the versions of packages; None where one is not installed."""
    versions = {}
    for package in metadata.distributions():
        versions[package.name.lower().replace("_", "-")] = package.version
    return {name: versions.get(name) for name in packages}


def section(device: str, rounds: int) -> dict | str:
    """Return all measurements on one device, or why there are none."""
    if device == "cuda" and not torch.cuda.is_available():
        return "not measured: there is no CUDA device"
    torch.set_num_threads(1)
    machine = f"{platform.machine()}, 1 thread"
    if device == "cuda":
        machine = torch.cuda.get_device_name()
    result = {
        "machine": machine,
        "versions": installed_versions(),
        "cases": [],
    }
    for case in CASES[device]:
        result["cases"].append({"case": asdict(case), "rows": measure(case, rounds)})
    if device == "cpu":
        result["memory"] = []
        for case in FLAT:
            for name in ("ours, chunked", "torch, naive"):
                row = {"T": case.T, "name": name, "extra_mib": cpu_peak(case, name)}
                result["memory"].append(row)
    return result


def cell(row: dict) -> str:
    """Return time, ratio to coevolve's time, and memory."""
    if "seconds" not in row:
        return "not measured"
    milliseconds = 1000 * row["seconds"]
    return f"{milliseconds:,.0f} ms ({row['ours']:.2f}x), {row['extra_mib']:,.0f} MiB"


def heading(case: Case) -> str:
    """Return the heading of a case's column."""
    head = "trained" if case.trained else "frozen"
    text = f"T={case.T:,} H={case.H:,}, head {head}"
    return f"{text}, entropy bonus" if case.bonus else text


def table(result: dict, device: str) -> str:
    """Return one device's measurements as Markdown, contenders down, cases across.

    Where nothing was measured, that is one line. A contender that was never measured is named in
    a note with the first reason.
    """
    part = result[device]
    if not isinstance(part, dict):
        return f"V={CASES[device][0].V:,} on {device}: {part}"
    cases = [Case(**entry["case"]) for entry in part["cases"]]
    cells: dict[str, list[str]] = {name: [] for name in CONTENDERS}
    reasons: dict[str, str] = {}
    for entry in reversed(part["cases"]):
        for row in reversed(entry["rows"]):
            if "not measured" in row:
                reasons[row["name"]] = row["not measured"]
    for entry in part["cases"]:
        for row in entry["rows"]:
            cells[row["name"]].append(cell(row))
    header = [f"V={cases[0].V:,}", *map(heading, cases)]
    lines = [header, ["---"] * len(header)]
    for name, row in cells.items():
        if set(row) != {"not measured"}:
            lines.append([name, *row])
    notes = [part["machine"]]
    for name, reason in reasons.items():
        notes.append(f"{name}: {reason}")
    markdown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return markdown + "\n\n" + "; ".join(notes)


def main() -> None:
    """Measure the devices, write JSON, print Markdown; keep the results of other devices."""
    if "--peak" in sys.argv:
        print_peak(sys.argv[2], Case(**json.loads(sys.argv[3])))
        return
    chosen = [device for device in CASES if f"--{device}" in sys.argv]
    devices = chosen or list(CASES)
    result = json.loads(JSON.read_text()) if JSON.exists() else {}
    if "--table" not in sys.argv:
        for device in devices:
            measurements = section(device, rounds=3)
            if isinstance(measurements, dict) or device not in result:
                result[device] = measurements
        JSON.write_text(json.dumps(result, indent=1) + "\n")
    for device in devices:
        print(table(result, device), end="\n\n")
    if "cpu" in devices:
        for row in result["cpu"]["memory"]:
            print(f"- T={row['T']:,}, {row['name']}: {row['extra_mib']:,.0f} MiB")


if __name__ == "__main__":
    main()
