"""What to run first on a machine with an NVIDIA GPU: `python -m tools.first_hour`.

It takes about a quarter of an hour. Each part is a process with a limit of time. After each part
its result is in benchmarks/first_hour.json, whether it worked, failed or hung; `--parts` repeats
some. Nothing is downloaded. Without a CUDA device nothing is measured, but `--try` runs what has a
small form there.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coevolve.validation import check_choice, user_path
from tools.markdown_tables import markdown

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
OUT = BENCHMARKS / "first_hour.json"
# Stands in a command for the file to which the part writes its result.
RESULT = "RESULT"
KEPT_CHARACTERS = 6000
LONGEST_FINDING = 400
DONE = "done"
FAILED = "failed"
TIMED_OUT = "timed out"
NOT_MEASURED = "not measured"
HEAD = ("part", "state", "seconds", "finding")
Measured = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """A measurement: arguments of Python, and how its result becomes one line."""

    seconds: float
    """Its limit if all parts together have the default one."""
    command: Sequence[str]
    small: Sequence[str] = ()
    """The arguments of its small form on a CPU; none: it has no such form."""
    needs: Sequence[str] = ()
    """Modules without which it measures nothing."""
    extra: str = ""
    """The extra of pyproject.toml that brings these modules."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables of its small form."""
    result: Path | None = None
    """The file that it writes, if its command has no RESULT."""
    describe: Callable[[Measured], str] | None = None
    """Returns the finding; none: the last line that the part prints is the finding."""


@dataclass(frozen=True)
class Result:
    """What became of a part."""

    state: str
    finding: str
    seconds: float = 0.0
    command: str = ""
    ended: str = ""
    """When, in UTC."""
    printed: str = ""
    """The last KEPT_CHARACTERS of its output."""
    errors: str = ""
    """The same of its standard error."""
    measured: Measured | None = None


def loss_finding(measured: Measured) -> str:
    """Compare the loss with its floor and with others, for the longest batch with a frozen head."""
    part = measured["cuda"]
    if isinstance(part, str):
        return part
    without_extras = []
    for entry in part["cases"]:
        if not (entry["case"]["trained"] or entry["case"]["bonus"]):
            without_extras.append(entry)
    longest = max(without_extras, key=lambda entry: entry["case"]["T"])
    rows = {row["name"]: row for row in longest["rows"]}
    ours = rows.pop("ours, Triton")
    words = [
        f"{part['machine']}, {longest['case']['T']:,} tokens: {1000 * ours['seconds']:.0f} ms",
        f"{ours['floor']:.2f} times the floor",
        f"gradient {ours['error']:.1%} from float64",
    ]
    others = []
    for name, row in rows.items():
        ratio = f"{row['ours']:.2f}" if "ours" in row else NOT_MEASURED
        others.append(f"{name} {ratio}")
    return f"{', '.join(words)}; time over ours: {', '.join(others)}"


def tokens_finding(measured: Measured) -> str:
    """Give the seconds of each phase and its tokens a second, and say whether vLLM is there."""
    words = []
    for row in measured["phases"]:
        phase = f"{row['phase']} {row['seconds']:.1f} s"
        if row["tokens_per_s"]:
            phase += f" ({row['tokens_per_s']:,.0f} tokens/s)"
        words.append(phase)
    return f"{', '.join(words)}; {vllm_note()}"


def vllm_note() -> str:
    """Say whether vLLM can be imported; `benchmarks.real` measures it when it is asked to."""
    if find_spec("vllm") is None:
        return "vllm is not installed"
    version = metadata.version("vllm")
    return f"vllm {version} is installed: python -m benchmarks.real engine=vllm measures it"


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
KERNELS = (*PYTEST, "-n", "4", "tests/core/kernel_cases.py")
REAL = ("-m", "benchmarks.real", "--out", RESULT)
MEMORY = ("-m", "benchmarks.gpu_memory", "--out", RESULT)
MACHINE = ("-m", "tools.gpu_machine", "--out", RESULT)
UNSLOTH = ("-m", "benchmarks.unsloth_step", "--out", RESULT)
RUNS = ("-m", "benchmarks.gpu_runs", "--out", RESULT)
# The Python loop over tokens takes as long for a few replies as for many.
SMALL_BATCH = ("lora=[64,128,0.0]", "batch_size=16", "max_tokens=512", "eval_items=4")
QUANTIZED = ("engine=unsloth", "quantize=4bit", "optimizer=adamw_8bit")

PARTS: dict[str, Part] = {
    "machine": Part(90, command=MACHINE, small=MACHINE),
    "kernels": Part(
        180,
        command=KERNELS,
        small=(*KERNELS, "-k", "no_tokens or probability_zero"),
        needs=("pytest", "pytest_timeout", "xdist", "hypothesis", "triton"),
        extra="dev",
        environment={"TRITON_INTERPRET": "1"},
    ),
    "memory": Part(240, command=MEMORY, small=MEMORY),
    "loss": Part(
        270,
        command=("-m", "benchmarks.loss", "--cuda"),
        result=BENCHMARKS / "loss.json",
        describe=loss_finding,
    ),
    "unsloth": Part(
        180,
        command=UNSLOTH,
        small=(*UNSLOTH, "--shape", "tiny"),
        needs=("unsloth",),
        extra="gpu",
    ),
    "tokens": Part(
        240,
        command=(*REAL, "engine=torch", *SMALL_BATCH),
        small=(*REAL, "--shape", "tiny", "lora=[4,8,0.0]"),
        describe=tokens_finding,
    ),
    "tokens-unsloth": Part(
        240,
        command=(*REAL, "engine=unsloth", *SMALL_BATCH),
        small=(*REAL, "--shape", "tiny", "engine=unsloth", "lora=[4,8,0.0]"),
        needs=("unsloth",),
        extra="gpu",
        describe=tokens_finding,
    ),
    "four-bits": Part(
        180,
        command=(*REAL, "--shape", "0.5b", *QUANTIZED, *SMALL_BATCH),
        small=(*REAL, "--shape", "tiny", *QUANTIZED, "lora=[4,8,0.0]"),
        needs=("unsloth", "bitsandbytes"),
        extra="gpu",
        describe=tokens_finding,
    ),
    "runs": Part(
        240,
        command=RUNS,
        small=(*RUNS, "--preset", "smoke", "--seeds", "1"),
    ),
}


def run_part(part: Part, limit: float, log: Path, is_small: bool) -> Result:
    """Run a part for at most `limit` seconds; its output goes to the file `log`, errors beside."""
    missing = [name for name in part.needs if find_spec(name) is None]
    if missing:
        install = f"pip install -e '.[{part.extra}]' -c constraints-gpu.txt"
        return Result(NOT_MEASURED, f"not installed: {', '.join(missing)} ({install})")
    arguments = part.small if is_small else part.command
    if not arguments:
        return Result(NOT_MEASURED, "it has no small form for a CPU")
    result_file = part.result or log.with_suffix(".json")
    filled = [str(result_file) if word == RESULT else word for word in arguments]
    command = [sys.executable, *filled]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    # Interpreted kernels would run on the CPU.
    environment.pop("TRITON_INTERPRET", None)
    if is_small:
        environment |= part.environment
    started = time.time()
    code = run_process(command, limit, log, environment)
    seconds = time.time() - started
    printed = log.read_text(encoding="utf-8", errors="replace")
    errors = error_log(log).read_text(encoding="utf-8", errors="replace")
    measured = read_result(result_file, started)
    state, finding = outcome_of(part, code, measured, printed, errors)
    if state == TIMED_OUT:
        finding = f"stopped after {limit:.0f} s; {finding}"
    return Result(
        state,
        finding[:LONGEST_FINDING],
        seconds=seconds,
        command=" ".join(command),
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        printed=printed[-KEPT_CHARACTERS:],
        errors=errors[-KEPT_CHARACTERS:],
        measured=measured,
    )


def error_log(log: Path) -> Path:
    """Return the file for the standard error of a part."""
    return log.with_suffix(".err")


def run_process(
    command: Sequence[str], limit: float, log: Path, environment: dict[str, str]
) -> int | None:
    """Run a command with all that it starts; return its exit status, None if it hung."""
    with log.open("wb") as output, error_log(log).open("wb") as errors:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Also what a part that crashed has left running: it would keep the GPU's memory.
            end_group(process)


def end_group(process: subprocess.Popen) -> None:
    """End a process and all that it started."""
    with suppress(ProcessLookupError, PermissionError):  # nothing is left of them
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_result(file: Path, started: float) -> Measured | None:
    """Return what a part wrote since it started, None without such a file."""
    if not file.is_file() or file.stat().st_mtime < started:
        return None
    try:
        measured: Measured = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:  # it was ended while it wrote
        return None
    return measured


def outcome_of(
    part: Part, code: int | None, measured: Measured | None, printed: str, errors: str
) -> tuple[str, str]:
    """Return the state of a part that has ended and its finding; a code of None means it hung."""
    last = last_line(printed) or last_line(errors) or "it printed nothing"
    if code is None:
        return TIMED_OUT, f"last line: {last}"
    if code != 0:
        return FAILED, last_exception(errors) or last
    if last.startswith(NOT_MEASURED):
        return NOT_MEASURED, last.removeprefix(f"{NOT_MEASURED}: ")
    if part.describe is None:
        return DONE, last
    try:
        return DONE, part.describe(measured or {})
    except (LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__} {error}"
        return FAILED, f"its result cannot be read ({reason}); last line: {last}"


def last_line(text: str) -> str:
    """Return the last line that is not empty, as a cell of a table."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return plain(lines[-1]) if lines else ""


def last_exception(errors: str) -> str:
    """Return the last line of a traceback, "" without one."""
    lines = re.findall(r"(?m)^[\w.]+(?:Error|Exception)\b.*$", errors)
    return plain(lines[-1]) if lines else ""


def plain(line: str) -> str:
    """Return a line without what would break a cell of a table."""
    return line.strip("= ").replace("|", "/")


def limits(names: Sequence[str], total: float | None) -> dict[str, float]:
    """Return the seconds of each part: its own, or its share of `total`."""
    own = {name: PARTS[name].seconds for name in names}
    if total is None:
        return own
    scale = total / sum(own.values())
    return {name: scale * seconds for name, seconds in own.items()}


def save(results: dict[str, Result], file: Path) -> None:
    """Write results beside those of other parts that the file has already."""
    earlier = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    new = {name: asdict(result) for name, result in results.items()}
    text = json.dumps(earlier | new, indent=1) + "\n"
    partial = file.with_name(f"{file.name}.tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)


def table(results: dict[str, Result]) -> str:
    """Return the parts as Markdown."""
    rows = []
    for name, result in results.items():
        rows.append([name, result.state, f"{result.seconds:.0f}", result.finding])
    return markdown(HEAD, rows)


def why_not() -> str:
    """Return why nothing can be measured here, "" if there is a CUDA device."""
    from coevolve.training.machine import faults, this_machine

    machine = this_machine(ROOT)
    if machine.sees_gpu:
        return ""
    return "; ".join(["torch finds no CUDA device", *faults(machine)])


def chosen_parts(text: str) -> list[str]:
    """Return the parts that a list names, in their order; ValueError for an unknown one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        check_choice("--parts", name, PARTS)
    return [name for name in PARTS if name in names]


def check_limit(seconds: float | None) -> None:
    """Raise ValueError unless a limit is above 0."""
    if seconds is not None and not seconds > 0:
        raise ValueError(f"--limit must be above 0 seconds, got {seconds:g}")


def run(names: Sequence[str], total: float | None, out: Path, is_small: bool) -> int:
    """Run parts, write and print their results; return 1 if one failed or hung, else 0."""
    logs = Path(tempfile.mkdtemp(prefix="first_hour-"))
    results: dict[str, Result] = {}
    for name, limit in limits(names, total).items():
        log = logs / f"{name}.log"
        print(f"{name}: at most {limit:.0f} s; its output is in {log}", flush=True)
        results[name] = run_part(PARTS[name], limit, log, is_small)
        save(results, out)
    print(f"\n{table(results)}\n\nwritten to {out}")
    states = {result.state for result in results.values()}
    return int(bool(states & {FAILED, TIMED_OUT}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="a,b: only these")
    parser.add_argument("--limit", type=float, help="seconds of all parts together")
    parser.add_argument("--try", action="store_true", dest="is_small")
    parser.add_argument("--out", type=user_path)
    options = parser.parse_args(arguments)
    try:
        names = chosen_parts(options.parts)
        check_limit(options.limit)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    reason = "" if options.is_small else why_not()
    if reason:
        print(f"nothing is measured: {reason}; --try runs the small forms on a CPU")
        return 0
    # A trial says nothing about a GPU, so it leaves the file of measurements alone.
    trial = Path(tempfile.gettempdir(), "first_hour-trial.json")
    out = options.out or (trial if options.is_small else OUT)
    return run(names, options.limit, out, options.is_small)


if __name__ == "__main__":
    raise SystemExit(main())
