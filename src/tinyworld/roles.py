"""The role warm start of a real model: LoRA on demonstrations of every role of all five papers.

A small instruct model can solve, but neither propose, judge nor rank; after the warm start it
plays every role in the tiny world.
"""

from collections.abc import Iterator, Mapping
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PositiveInt

from coevolve.methods.baselines.trl_trainers import SFT
from coevolve.rollout.engine import Engine
from coevolve.text import prompts
from coevolve.types import Role
from coevolve.validation import Share
from tinyworld import gates
from tinyworld.demonstrations import SOLVERS, demonstrate
from tinyworld.demonstrator import PERFECT_SKILL, SOLVER_SKILL, Demonstrator

if TYPE_CHECKING:
    from coevolve.runs.record import Recorder

LONGEST = 900  # characters of a demonstration; talks of many agents, which are longer, are left out
SORTED_TOGETHER = 512  # demonstrations sorted by length at once
FAVOUR = 8.0  # of solvers in the truthful phase, where their demonstrations are short

Pair = tuple[str, str]  # prompt, completion


class RoleWarmStart(SFT):
    """Fine-tuning on demonstrations with the errors of the embedded backbones' warm start."""

    paper_name: ClassVar[str] = ""  # of no paper
    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = {
        "model": "smollm2",
        "steps": 1,  # `fit` takes its own number, see `after_run`
        "lora": (16, 32.0, 0.0),
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "max_tokens": 64,
        "eval_every": 0,
        "eval_items": 10,
    }

    prompt: prompts.Variant = "plain"
    """Prompt files: compact, plain or full, see `Method`."""

    demonstrations: PositiveInt = 20_000
    """Number of demonstrations."""

    truthful: Share = 0.6
    """Share of demonstrations, the first ones, that show the truth and favour solvers."""

    sft_batch: PositiveInt = 8
    """Demonstrations per step."""

    epochs: PositiveInt = 1
    """Passes over the demonstrations."""

    bf16: bool = True
    """Whether to use bfloat16 autocast; False is faster on processors without bfloat16."""

    examined: Annotated[int, Field(ge=0, multiple_of=10)] = 100
    """Replies of each role that are measured at the end."""

    def role(self, prompt: str, name: str | None = None, **more: Any) -> Role:
        """Return the role of a prompt file of MAE."""
        folder = self.prompt_folder
        return prompts.load_role(
            "mae", prompt, self.prompt, name=name, folder=folder, **more
        )

    def numbers(self) -> dict[str, Any]:
        """Return TRL's settings: batches in the order of `examples`, small first steps."""
        return super().numbers() | {
            "bf16": self.bf16,
            "train_sampling_strategy": "sequential",
            "warmup_steps": 20,
        }

    def after_run(
        self, engine: Engine, key: tuple[int, ...], log: "Recorder"
    ) -> dict[str, Any]:
        """Return the number of steps, and as `figures` the abilities of all roles (see `gates`)."""
        steps_per_epoch = -(-self.demonstrations // self.sft_batch)  # rounded up
        summary: dict[str, Any] = {"steps": self.epochs * steps_per_epoch}
        if self.examined:
            per_family = self.examined // 10
            summary["figures"] = gates.measure(
                engine.answer, self.examined, per_family, variant=self.prompt
            )
        return summary

    def examples(self) -> list[dict[str, Any]]:
        """Return the demonstrations as prompt and completion messages.

        The first ones are truthful, the others have the roles' errors. The demonstrations of a
        batch have about the same length.
        """
        rng = Demonstrator("role warm start")
        rng.favour = FAVOUR
        stream = self._short_pairs(rng)
        truthful_count = int(self.truthful * self.demonstrations)

        rng.skill = PERFECT_SKILL
        rng.favoured_roles = SOLVERS
        truthful = list(islice(stream, truthful_count))
        pairs = _in_batches_of_one_length(rng, truthful, self.sft_batch)

        rng.skill = SOLVER_SKILL
        rng.favoured_roles = ()
        others = list(islice(stream, self.demonstrations - truthful_count))
        pairs += _in_batches_of_one_length(rng, others, self.sft_batch)

        return [_as_messages(prompt, completion) for prompt, completion in pairs]

    def _short_pairs(self, rng: Demonstrator) -> Iterator[Pair]:
        """Yield demonstrations without end, leaving out the long ones."""
        for _ in count():
            _, prompt, completion = demonstrate(rng, variant=self.prompt)
            if len(prompt + completion) < LONGEST:
                yield prompt, completion


def _in_batches_of_one_length(
    rng: Random, pairs: list[Pair], batch_size: int
) -> list[Pair]:
    """Order demonstrations by batches of about one length, and the batches at random."""
    batches = []
    for start in range(0, len(pairs), SORTED_TOGETHER):
        part = pairs[start : start + SORTED_TOGETHER]
        part.sort(key=lambda pair: len("".join(pair)))
        for first in range(0, len(part), batch_size):
            batches.append(part[first : first + batch_size])
    rng.shuffle(batches)
    return [pair for batch in batches for pair in batch]


def _as_messages(prompt: str, completion: str) -> dict[str, Any]:
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "completion": [{"role": "assistant", "content": completion}],
    }
