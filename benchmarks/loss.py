"""Time and memory of one policy-loss step (loss and gradient) beside the public alternatives, alternating.

Clipped PPO on packed tokens, on the CPU and, where there is one, on a CUDA device. Medians go to loss.json; `--table`
prints that file again. What cannot run here is reported as not measured, with the reason.
"""

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from importlib import import_module, metadata
from pathlib import Path

import torch
from torch import Tensor

from coevolve.losses import TokenBatch, policy_loss, selective_logprobs

JSON = Path(__file__).with_suffix(".json")
CLIP = (0.2, 0.28)
MIB = 2**20
LENGTH = 128  # of a sequence: the alternatives want a rectangle and one advantage for each of its rows
SIDE = {"cpu": 2048, "cuda": 8192}  # of the square product whose speed is the measure of the floor
Loss = Callable[[], Tensor]


@dataclass(frozen=True)
class Case:
    """What is computed: T tokens, width H, vocabulary V."""

    device: str
    T: int
    H: int
    V: int
    trained: bool  # the head needs a gradient too
    bonus: float = 0.0  # entropy coefficient


CPU = [Case("cpu", 1024, H, 32_768, trained) for H in (64, 512) for trained in (False, True)]
CPU += [Case("cpu", 1024, 512, 32_768, False, 0.01)]
FLAT = [Case("cpu", T, 64, 32_768, False) for T in (512, 1024, 2048, 4096)]
CUDA = [Case("cuda", T, 2_048, 151_936, trained) for T in (4_096, 32_768) for trained in (False, True)]
CUDA += [Case("cuda", 32_768, 2_048, 151_936, False, 0.01)]
CASES = {"cpu": CPU, "cuda": CUDA}


class Problem:
    """The case with random numbers in it; gradients end up in hidden_TH.grad and head_VH.grad."""

    def __init__(self, case: Case):
        self.case, kind = case, {"dtype": torch.bfloat16 if case.device == "cuda" else torch.float32}
        draw, where = torch.Generator(case.device).manual_seed(0), {"device": case.device}
        self.hidden_TH = torch.randn(case.T, case.H, generator=draw, **where, **kind).requires_grad_()
        head_VH = torch.randn(case.V, case.H, generator=draw, **where, **kind) * (2 / math.sqrt(case.H))
        self.head_VH = head_VH.requires_grad_(case.trained)
        self.targets_T = torch.randint(case.V, (case.T,), generator=draw, **where)
        self.advantages_B = torch.randn(case.T // LENGTH, generator=draw, **where)
        self.advantages_T = self.advantages_B.repeat_interleave(LENGTH)
        now_T = selective_logprobs(self.hidden_TH, self.head_VH, self.targets_T)
        self.old_T = now_T + 0.05 * torch.randn(case.T, generator=draw, **where)
        self.given = self.hidden_TH, self.head_VH, self.targets_T, self.advantages_T, self.old_T
        share_T = torch.full_like(self.old_T, 1 / case.T)
        self.tokens = TokenBatch(*self.given[2:], share_T, clip=CLIP, entropy_coef=case.bonus)

    def objective(self, logprobs_T: Tensor, entropy_T: Tensor) -> Tensor:
        """What every contender computes."""
        return self.tokens.loss_and_stats(logprobs_T, entropy_T).loss

    def error(self) -> float:
        """Distance of the first rows' gradient from float64, relative."""
        first = self.hidden_TH[:LENGTH].detach().double().requires_grad_()
        rows = self.tokens.part(slice(LENGTH))
        policy_loss(first, self.head_VH.detach().double(), rows, path="reference").loss.backward()
        return float((self.hidden_TH.grad[:LENGTH] - first.grad).norm() / first.grad.norm())


def by_row(x_T: Tensor) -> Tensor:
    """The same numbers as (sequences, LENGTH)."""
    return x_T.unflatten(0, (-1, LENGTH))


def ours(path: str) -> Callable[[Problem], Loss]:
    """Our loss along one path."""
    return lambda p: lambda: policy_loss(p.hidden_TH, p.head_VH, p.tokens, path=path).loss


def naive(p: Problem) -> Loss:
    """All logits at once; the entropy is only looked at unless it is paid for."""

    def loss() -> Tensor:
        logprobs_TV = (p.hidden_TH @ p.head_VH.T).float().log_softmax(-1)
        with torch.set_grad_enabled(p.case.bonus != 0):
            entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        return p.objective(logprobs_TV.gather(-1, p.targets_T[:, None])[:, 0], entropy_T)

    return loss


def compiled(p: Problem) -> Loss:
    """The same under torch.compile."""
    torch._dynamo.reset()
    return torch.compile(naive(p))


def trl(p: Problem) -> Loss:
    """What TRL's GRPO trainer computes from hidden states: its fused head, or on a CPU its log-softmax on logits."""
    utils = import_module("trl.trainer.utils")
    if p.case.device == "cuda":
        size = utils._CHUNKED_LOGPROB_CHUNK_SIZE
        fixed = p.hidden_TH, p.head_VH, None, p.targets_T, 1.0, size, None, 1.0, ("log_probs", "entropy")
        return lambda: p.objective(*import_module("trl.kernels").ChunkedLogProbFunction.apply(*fixed)[:2])

    def loss() -> Tensor:
        logits = by_row(p.hidden_TH @ p.head_VH.T)
        both = utils.selective_log_softmax_and_entropy(logits, by_row(p.targets_T), p.case.bonus != 0)
        return p.objective(*(x.flatten() for x in both))

    return loss


def liger_linear(p: Problem) -> Loss:
    """Liger's fused linear GRPO loss, a sequence at a time as it comes."""
    if p.case.bonus:
        raise ValueError("it has no entropy bonus")
    build = import_module("liger_kernel.chunked_loss").LigerFusedLinearGRPOLoss
    loss = build(beta=0.0, use_ref_model=False, epsilon_low=CLIP[0], epsilon_high=CLIP[1], loss_type="bnpo")
    targets, old = by_row(p.targets_T), by_row(p.old_T)
    given = p.head_VH, targets, torch.ones_like(targets), p.advantages_B, None, None, old
    return lambda: loss(by_row(p.hidden_TH), *given)[0]


def liger_triton(p: Problem) -> Loss:
    """Liger's Triton GRPO kernel on logits, which want one more position in every sequence."""
    if p.case.bonus or p.case.device != "cuda":
        raise ValueError("it has no entropy bonus" if p.case.bonus else "it needs a CUDA device")
    loss = import_module("liger_kernel.transformers.grpo_loss").triton_grpo_loss
    targets, pad = by_row(p.targets_T), torch.nn.functional.pad
    given = by_row(p.old_T), None, targets, p.advantages_B, torch.ones_like(targets), 1.0, 0.0, *CLIP, True, "bnpo"
    return lambda: loss(pad(by_row(p.hidden_TH), (0, 0, 0, 1)) @ p.head_VH.T, *given, reduce=True)[0]


def unsloth(p: Problem) -> Loss:
    """Unsloth's fused head."""
    os.environ.setdefault("UNSLOTH_IS_PRESENT", "1")  # its kernels without its patches to other packages
    fused = import_module("unsloth_zoo.fused_losses.fused_linear").fused_linear_logprobs
    known, nothing = p.given[:3], torch.zeros(())
    return lambda: p.objective(*(fused(*known, return_entropy=True) if p.case.bonus else (fused(*known), nothing)))


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
    """Wall seconds of one call."""
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    finish()
    start = time.perf_counter()
    work()
    finish()
    return time.perf_counter() - start


def step(p: Problem, loss: Loss) -> float:
    """Take loss and gradient once; return seconds."""
    p.hidden_TH.grad = p.head_VH.grad = None
    return seconds(p.case.device, lambda: loss().backward())


def measure(case: Case, rounds: int) -> list[dict]:
    """One row per contender: median seconds, times the first's, times the floor, extra memory, error."""
    p, rows, running, side = Problem(case), [], {}, SIDE[case.device]
    for name, contender in CONTENDERS.items():
        try:
            step(p, loss := contender(p))
            rows.append({"name": name, "error": p.error()})
            running[name] = rows[-1], loss
        except Exception as reason:  # noqa: BLE001 others' code may fail in its own way, and the rest is still measured
            if name.startswith("ours") and not isinstance(reason, ValueError):  # what ours refuses, it refuses so
                raise
            rows.append({"name": name, "not measured": " ".join(str(reason).split(". ")[0].split())})
    square = torch.randn(side, side, device=case.device, dtype=p.hidden_TH.dtype)
    times: dict[str, list[float]] = {name: [] for name in ("", *running)}
    for _ in range(rounds):
        times[""].append(seconds(case.device, lambda: square @ square))  # how fast this machine multiplies
        for name, (_, loss) in running.items():
            times[name].append(step(p, loss))
    # The least to do: the logits once, and each gradient once.
    floor = (6 if case.trained else 4) * case.T * case.H * case.V / (2 * side**3) * statistics.median(times[""])
    best = statistics.median(times["ours, Triton" if case.device == "cuda" else "ours, chunked"])
    for name, (row, loss) in running.items():
        row |= {"seconds": (took := statistics.median(times[name])), "ours": took / best, "floor": took / floor}
        row["extra_mib"] = gpu_peak(p, loss) if case.device == "cuda" else cpu_peak(case, name)
    return rows


def gpu_peak(p: Problem, loss: Loss) -> float:
    """Most memory above what was there before, gradients included, in MiB."""
    p.hidden_TH.grad = p.head_VH.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(p, loss)
    return (torch.cuda.max_memory_allocated() - before) / MIB


def cpu_peak(case: Case, name: str) -> float:
    """The same on a CPU, in a process of its own."""
    command = [sys.executable, __file__, "--peak", name, json.dumps(asdict(case))]
    # What is freed goes back at once; else the inputs' leftovers would be reused, unseen.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": str(MIB // 8)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=env, check=True)
    return float(done.stdout.split()[-1])


def print_peak(name: str, case: Case) -> None:
    """Print how far this process' resident memory rises above the inputs."""
    torch.set_num_threads(1)
    warm, p = Problem(replace(case, T=LENGTH)), Problem(case)
    step(warm, CONTENDERS[name](warm))  # libraries, compilation
    loss = CONTENDERS[name](p)
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back
    before = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    step(p, loss)
    high = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
    print((int(high) * 1024 - before) / MIB)


def section(device: str, rounds: int) -> dict | str:
    """Everything measured on one device, or why nothing is."""
    if device == "cuda" and not torch.cuda.is_available():
        return "not measured: there is no CUDA device"
    torch.set_num_threads(1)
    installed = {found.name.lower().replace("_", "-"): found.version for found in metadata.distributions()}
    result = {
        "machine": torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, 1 thread",
        "versions": {name: installed.get(name) for name in ("torch", "triton", "trl", "liger-kernel", "unsloth-zoo")},
        "cases": [{"case": asdict(case), "rows": measure(case, rounds)} for case in CASES[device]],
    }
    if device == "cpu":
        flat = [(case, name) for case in FLAT for name in ("ours, chunked", "torch, naive")]
        result["memory"] = [{"T": c.T, "name": name, "extra_mib": cpu_peak(c, name)} for c, name in flat]
    return result


def cell(row: dict) -> str:
    """Time, times ours, memory."""
    if "seconds" not in row:
        return "not measured"
    return f"{1000 * row['seconds']:,.0f} ms ({row['ours']:.2f}x), {row['extra_mib']:,.0f} MiB"


def table(result: dict, device: str) -> str:
    """One device's measurements as Markdown, contenders down, cases across; one line where nothing was measured."""
    part = result[device]
    if not isinstance(part, dict):
        return f"V={CASES[device][0].V:,} on {device}: {part}"
    cases = [Case(**entry["case"]) for entry in part["cases"]]
    entries = [row for entry in part["cases"] for row in entry["rows"]]
    cells = {name: [cell(row) for row in entries if row["name"] == name] for name in CONTENDERS}
    why = {row["name"]: row["not measured"] for row in reversed(entries) if "not measured" in row}
    notes = [part["machine"], *(f"{name}: {reason}" for name, reason in why.items())]
    heads = [f"T={c.T:,} H={c.H:,}, head {'trained' if c.trained else 'frozen'}" for c in cases]
    heads = [head + ", entropy bonus" * bool(c.bonus) for head, c in zip(heads, cases, strict=True)]
    rows = [[name, *row] for name, row in cells.items() if set(row) != {"not measured"}]  # the note says why
    lines = [[f"V={cases[0].V:,}", *heads], ["---"] * (len(heads) + 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n\n" + "; ".join(notes)


def main() -> None:
    """Measure every device there is, write JSON, print Markdown; what was measured elsewhere is kept."""
    if "--peak" in sys.argv:
        return print_peak(sys.argv[2], Case(**json.loads(sys.argv[3])))
    result = json.loads(JSON.read_text()) if JSON.exists() else {}
    if "--table" not in sys.argv:
        for device in CASES:
            new = section(device, rounds=3)
            result[device] = new if isinstance(new, dict) else result.get(device, new)
        JSON.write_text(json.dumps(result, indent=1) + "\n")
    for device in CASES:
        print(table(result, device), end="\n\n")
    for row in result["cpu"]["memory"]:
        print(f"- T={row['T']:,}, {row['name']}: {row['extra_mib']:,.0f} MiB")


if __name__ == "__main__":
    main()
