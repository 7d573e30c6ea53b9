"""The role warm start of a real model: demonstrations of every role of all five papers, learnt with LoRA by TRL.

A small instruct model solves but can neither propose, judge nor rank; after this it plays every role in the tiny world.
"""

from collections.abc import Mapping
from itertools import chain, count, islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, PositiveInt

from coevolve.methods.baselines.trl_trainers import SFT
from coevolve.rollout.engine import Engine
from coevolve.text import prompts
from coevolve.types import Role
from coevolve.validation import Share
from tinyworld import gates
from tinyworld.demonstrations import SOLVERS, demonstrate
from tinyworld.demonstrator import HABITS, TRUTH, Demonstrator

if TYPE_CHECKING:
    from coevolve.runs.record import Recorder

LONGEST = 900  # characters of a demonstration; longer ones, talks of many agents, are left out
MIXED = 512  # demonstrations among which those of about one length are sought
FAVOUR = 8.0  # how many times as often solvers come while the truth is shown: their demonstrations are short


class RoleWarmStart(SFT):
    """Fine-tuning on demonstrations whose errors are those of the embedded backbones' warm start."""

    paper_name: ClassVar[str] = ""  # none has such a warm start
    TRAINING: ClassVar[Mapping[str, Any]] = {
        "model": "smollm2",
        "steps": 1,  # `fit` takes its own, and `after_run` says how many
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
        """Return the role that speaks a prompt file of MAE."""
        return prompts.load_role("mae", prompt, self.prompt, name=name, folder=self.prompt_folder, **more)

    def numbers(self) -> dict[str, Any]:
        """Return the settings of TRL's: the batches stay as `examples` made them, and the first steps are small."""
        return super().numbers() | {"bf16": self.bf16, "train_sampling_strategy": "sequential", "warmup_steps": 20}

    def after_run(self, engine: Engine, key: tuple[int, ...], log: "Recorder") -> dict[str, Any]:
        """Return the steps that were taken, and what every role can do now as `figures`, see `gates`."""
        done: dict[str, Any] = {"steps": self.epochs * -(-self.demonstrations // self.sft_batch)}
        if self.examined:
            done["figures"] = gates.measure(engine.answer, self.examined, self.examined // 10, variant=self.prompt)
        return done

    def examples(self) -> list[dict[str, Any]]:
        """Return the demonstrations as prompt and completion messages, those of a batch of about one length.

        The truth comes first, then the roles' habits.
        """
        rng, ordered = Demonstrator("role warm start"), list[tuple[str, str]]()
        early, rng.favour = int(self.truthful * self.demonstrations), FAVOUR
        endless = (demonstrate(rng, variant=self.prompt)[1:] for _ in count())
        short = (pair for pair in endless if len("".join(pair)) < LONGEST)
        for size, rng.skill, rng.favoured in ((early, TRUTH, SOLVERS), (self.demonstrations - early, HABITS, ())):
            drawn = list(islice(short, size))
            mixed = [sorted(drawn[i : i + MIXED], key=lambda pair: len("".join(pair))) for i in range(0, size, MIXED)]
            batches = [part[i : i + self.sft_batch] for part in mixed for i in range(0, len(part), self.sft_batch)]
            rng.shuffle(batches)
            ordered += chain.from_iterable(batches)
        return [
            {"prompt": [{"role": "user", "content": asked}], "completion": [{"role": "assistant", "content": said}]}
            for asked, said in ordered
        ]
