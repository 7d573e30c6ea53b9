"""One update by Unsloth's policy and by PEFT's: the same model, adapter and completions.

`python -m benchmarks.unsloth_step` prints loss and gradient norm of both and writes
benchmarks/unsloth_step.json. The model has random weights, so nothing is downloaded. Each library
has a process of its own, because Unsloth patches transformers.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import real
from coevolve.models.policy import Policy
from coevolve.models.policy_set import PolicySet
from coevolve.training.settings import OptimizationConfig
from coevolve.training.update import update_policy
from coevolve.types import Reply, Sample, Turn
from coevolve.validation import user_path

OUT = Path(__file__).with_suffix(".json")
LIBRARIES = ("peft", "unsloth")
NAME = "shared"
LORA = (16, 32, 0.0)
ADAPTER_SCALE = 0.02
REPLIES = 16
REPLY_TOKENS = 64
# Standard deviation of sampler's minus learner's log-probability, so that ratios are not all 1.
GAP = 0.1
GIB = 2**30
SETTINGS = OptimizationConfig(max_tokens=REPLY_TOKENS, max_tokens_per_micro_batch=2048)
COMPARED = ("loss", "grad_norm", "entropy", "logprob_gap")


def fill_adapter(policy: Policy) -> None:
    """Give an adapter weights that depend on their names alone; fresh ones change nothing."""
    with torch.no_grad():
        for name, parameter in adapter_weights(policy):
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            values = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(ADAPTER_SCALE * values)


def adapter_weights(policy: Policy) -> Iterator[tuple[str, nn.Parameter]]:
    """Yield the adapter's weights by their names below the model, whatever wraps it."""
    for name, parameter in policy.model.named_parameters():
        if "lora_" in name:
            _, _, below = name.partition("layers.")
            yield below, parameter


def make_replies() -> list[Reply]:
    """Return replies of random tokens to random prompts, of different lengths."""
    rng = random.Random(0)
    replies = []
    for number in range(REPLIES):
        turn = Turn("solver", ({"role": "user", "content": "x"},), key=(0, 1, number))
        prompt = rng.choices(range(5, 500), k=rng.randint(20, 100))
        completion = rng.choices(range(5, 500), k=rng.randint(8, REPLY_TOKENS))
        reply = Reply(
            turn,
            "x" * len(completion),
            prompt_ids=tuple(prompt),
            completion_ids=tuple(completion),
            logprobs=(0.0,) * len(completion),
            char_ends=tuple(range(1, len(completion) + 1)),
        )
        replies.append(reply)
    return replies


def sampled_logprobs(policy: Policy) -> list[float]:
    """Return the log-probability of every token, off by a random gap."""
    generator = torch.Generator().manual_seed(0)
    exact_T = policy.logprobs(make_replies()).cpu()
    return (exact_T + GAP * torch.randn(exact_T.shape, generator=generator)).tolist()


def make_samples(logprobs: list[float]) -> list[Sample]:
    """Return the replies with these log-probabilities, and rewards of 0, 1 and 2 in turn."""
    rest = iter(logprobs)
    samples = []
    for number, reply in enumerate(make_replies()):
        own = tuple(next(rest) for _ in reply.completion_ids)
        samples.append(replace(reply, logprobs=own).earns(float(number % 3)))
    return samples


def update(library: str, folder: Path) -> dict[str, Any]:
    """Update the folder's model once by a library; return metrics, seconds and peak GiB.

    PEFT comes first and leaves the log-probabilities that both take for the sampler's.
    """
    team = PolicySet({NAME: str(folder)}, [NAME], LORA, unsloth=library == "unsloth")
    team.optimize(learning_rate=1e-5, weight_decay=0.0)
    policy = team.primary
    fill_adapter(policy)
    file = folder / "logprobs.json"
    if library == "peft":
        file.write_text(json.dumps(sampled_logprobs(policy)))
    samples = make_samples(json.loads(file.read_text()))
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    metrics = update_policy(
        policy,
        team.optimizers[NAME],
        samples,
        SETTINGS,
        estimator="task_relative",
    )
    row: dict[str, Any] = {name: metrics[name] for name in COMPARED}
    row["seconds"] = time.perf_counter() - start
    row["trained"] = sum(parameter.numel() for parameter in policy.parameters())
    if on_gpu:
        row["peak_gib"] = torch.cuda.max_memory_allocated() / GIB
    return row


def in_a_process(library: str, folder: Path) -> dict[str, Any]:
    """Return what `update` returns, from a process of its own, which prints its own errors.

    Raises CalledProcessError if it fails.
    """
    command = [sys.executable, "-m", "benchmarks.unsloth_step", library, str(folder)]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    # Unsloth greets on stdout.
    row: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return row


def compare(shape: str) -> dict[str, Any]:
    """Update a model of a shape by both libraries; return a row for each.

    Stops at the first library that fails, whose row is {"failed": exit status}.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        parameters = real.make(shape, folder)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        report: dict[str, Any] = {"shape": shape, "parameters": parameters}
        for library in LIBRARIES:
            try:
                report[library] = in_a_process(library, folder)
            except subprocess.CalledProcessError as error:
                report[library] = {"failed": error.returncode}
                break
    return report


def failed(report: dict[str, Any]) -> list[str]:
    """Return the libraries whose process failed: none or one."""
    return [name for name in LIBRARIES if "failed" in report.get(name, {})]


def summary(report: dict[str, Any]) -> str:
    """Describe both updates in one line."""
    for library in failed(report):
        return f"{library} failed with status {report[library]['failed']}"
    words = []
    for name in COMPARED:
        values = [f"{report[library][name]:.4g}" for library in LIBRARIES]
        words.append(f"{name} {' and '.join(values)}")
    return f"{' and '.join(LIBRARIES)}: {', '.join(words)}"


def main() -> int:
    """Compare, print, write; or, given a library and a folder, update once and print.

    Returns 1 if a library failed.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=real.SHAPES, default="0.5b")
    parser.add_argument("--out", type=user_path, default=OUT)
    parser.add_argument("one_of_them", nargs="*", help="LIBRARY FOLDER")
    options = parser.parse_args()
    if options.one_of_them:
        library, folder = options.one_of_them
        print(json.dumps(update(library, Path(folder))))
        return 0
    if find_spec("unsloth") is None:
        print("not measured: unsloth is not installed")
        return 0
    if options.shape != "tiny" and not torch.cuda.is_available():
        print("not measured: there is no CUDA device")
        return 0
    report = compare(options.shape)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(summary(report))
    return int(bool(failed(report)))


if __name__ == "__main__":
    raise SystemExit(main())
