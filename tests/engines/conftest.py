"""What all tests of engines share: questions in words that SmolLM2 understands."""

from dataclasses import replace

from engines.digits import QUESTIONS

from coevolve import prompts
from coevolve.types import Turn


def asked(policy: str = "shared", temperature: float | None = None) -> list[Turn]:
    """A turn for each question."""
    turns = [prompts.load("mae", "solver", "plain")(question=question, policy=policy) for question in QUESTIONS]
    return [replace(turn, temperature=temperature, key=(0, 1, i)) for i, turn in enumerate(turns)]
