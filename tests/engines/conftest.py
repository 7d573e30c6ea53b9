"""What all tests of engines share: vLLM's cache is bounded, and a question is asked in words that SmolLM2 understands.

Without the bound vLLM on a CPU takes 92 % of the whole memory, and refuses to start where other processes hold some of it.
"""

import os
from dataclasses import replace

from engines.digits import QUESTIONS

from coevolve import prompts
from coevolve.types import Turn

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB, and the least that it takes


def asked(policy: str = "shared", temperature: float | None = None) -> list[Turn]:
    """A turn for each question."""
    turns = [prompts.load("mae", "solver", "plain")(question=question, policy=policy) for question in QUESTIONS]
    return [replace(turn, temperature=temperature, key=(0, 1, i)) for i, turn in enumerate(turns)]
