"""Baselines that TRL trains: SFT on gold answers (MAE's Table 1), and SRLM, DPO on self-graded pairs (CoMAS's)."""

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveInt

from coevolve.methods.base import Method
from coevolve.methods.comas.method import Table1, quoted
from coevolve.methods.comas.rewards import extract_score
from coevolve.methods.facts import as_float, mean_known
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.runs import checkpoint
from coevolve.text.parse import boxed
from coevolve.types import Episode, Outcome
from coevolve.worlds import World

if TYPE_CHECKING:
    from coevolve.models.policy import Policy
    from coevolve.training.config import Run

Make = Callable[..., Any]


class SFT(Method):
    """Supervised fine-tuning, of a LoRA adapter unless `lora` is empty; `fit` takes the place of the training loop.

    The only method here that is shown answers of the seed set.
    """

    paper_name: ClassVar[str] = "mae"
    TRAINING: ClassVar[Mapping[str, Any]] = {"lora": (128, 128, 0.0)}  # the rank: section 5

    epochs: PositiveInt = 5
    """Passes over the examples (section 5)."""

    sft_batch: PositiveInt = 16
    """Examples per step."""

    def define_roles(self) -> None:
        """Make the solver."""
        self.solver = self.role("solver")

    def examples(self) -> list[dict[str, Any]]:
        """Return the seed rows (repeats included, as published) as prompt and completion messages."""
        examples = []
        for _, task in self.world.seed_rows():
            said = [{"role": "assistant", "content": f"<answer>{task.answer}</answer>"}]
            examples.append({"prompt": list(self.solver(question=task.question).messages), "completion": said})
        return examples

    def numbers(self) -> dict[str, Any]:
        """Return the settings of TRL's that are not the run's."""
        return {"per_device_train_batch_size": self.sft_batch, "num_train_epochs": self.epochs, "max_length": 1024}

    def fit(self, policy: "Policy", run: "Run") -> int:
        """Fine-tune the policy in place, saving as it goes; return the steps taken."""
        from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]

        # PEFT would ask the hub at every checkpoint whether the base has another vocabulary.
        policy.model.save_pretrained = partial(policy.model.save_pretrained, save_embedding_layers=False)
        numbers = self.numbers() | {"save_strategy": "steps", "save_steps": run.save_every, "save_total_limit": 2}
        trainer = tune(policy, run, self.examples(), partial(SFTTrainer, policy.model), SFTConfig, numbers)
        policy.model.eval()
        return int(trainer.state.global_step)


class SRLM(Table1):
    """Self-rewarding language model: iterated DPO on self-graded pairs; `fit` takes the place of the training loop.

    Every iteration samples candidates, lets the same model judge each of them several times, and prefers the best to
    the worst. Knows no verifier.
    """

    iterations: PositiveInt = 2
    """DPO iterations (M2 and M3 of the original)."""

    questions: PositiveInt = 2000
    """Questions asked per iteration."""

    candidates: Annotated[int, Field(ge=2)] = 4
    """Answers per question (as in the original)."""

    judgements: PositiveInt = 3
    """Scores averaged per answer (as in the original)."""

    dpo_beta: NonNegativeFloat = 0.1
    """beta of DPO (as in the original)."""

    dpo_batch: PositiveInt = 16
    """Pairs per step (as in the original)."""

    def define_roles(self) -> None:
        """Make the solver and the judge."""
        self.solver = self.role("solver")
        self.judge = self.role("scoring_alone", "judge")

    def episode(self, rng: Random) -> Episode:
        """Answer one question several times, judge each answer, and pair the best with the worst."""
        _, question = rng.choice(self.training_questions)
        replies = yield [self.solver(question=question)] * self.candidates
        judges = [self.judge(problem=question, solution=quoted(reply)) for reply in replies]
        verdicts = yield [judge for judge in judges for _ in range(self.judgements)]
        scores = [extract_score(verdict.text) for verdict in verdicts]
        means = [mean_known(scores[i : i + self.judgements]) for i in range(0, len(scores), self.judgements)]
        rated = [(score, reply.text) for score, reply in zip(means, replies, strict=True) if score is not None]
        return Outcome(trace=(question, preference(rated)))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Whether there is a pair, and which of the two answers are right."""
        question, pair = outcome.trace
        chosen, rejected = [as_float(world.is_correct(question, boxed(text))) for text in pair] if pair else (None, None)
        paired = {"paired": float(pair is not None), "pair": pair}
        return {"question": question, **paired, "chosen_right": chosen, "rejected_right": rejected}

    def pairs(self, policy: "Policy", run: "Run", iteration: int) -> list[dict[str, Any]]:
        """Play one iteration's episodes with the model as it is now; return the pairs as TRL reads them."""
        engine = BatchedEngine(partial(policy.generate, temperature=run.temperature, max_tokens=run.max_tokens))
        episodes = [self.episode(Random(f"{run.seed}/{iteration}/{i}")) for i in range(self.questions)]
        pairs = []
        for question, pair in (outcome.trace for outcome in play(episodes, engine, (run.seed, iteration))):
            if pair:
                chosen, rejected = ([{"role": "assistant", "content": text}] for text in pair)
                prompt = list(self.solver(question=question).messages)
                pairs.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
        return pairs

    def fit(self, policy: "Policy", run: "Run") -> int:
        """Train the policy's model in place, iteration by iteration; return the optimiser steps taken."""
        from peft import PeftModel
        from trl import DPOConfig, DPOTrainer  # type: ignore[attr-defined]

        batch, beta = self.dpo_batch, self.dpo_beta
        numbers = {"per_device_train_batch_size": batch, "num_train_epochs": 1, "beta": beta, "max_length": None}
        steps = 0
        for iteration in range(1, self.iterations + 1):
            pairs = self.pairs(policy, run, iteration)
            if pairs:
                model, reference = copy.deepcopy(policy.model), copy.deepcopy(policy.model)
                if isinstance(reference, PeftModel):  # TRL makes a reference only of an adapter called "default"
                    reference = reference.merge_and_unload()
                trainer = tune(policy, run, pairs, partial(DPOTrainer, model, reference), DPOConfig, numbers)
                steps += trainer.state.global_step
                policy.model.load_state_dict(model.state_dict())
        return steps


def preference(rated: Sequence[tuple[float, str]]) -> tuple[str, str] | None:
    """Return the best and the worst of (score, text), the earliest of equals; None if they score or read the same."""
    high, best = max(rated, key=itemgetter(0), default=(0.0, ""))
    low, worst = min(rated, key=itemgetter(0), default=(0.0, ""))
    return (best, worst) if high > low and best != worst else None


class PlainHead:
    """TRL's fused head as plain torch, for where there is no CUDA to run that kernel."""

    @staticmethod
    def apply(hidden_TH: Any, head_VH: Any, bias: None, targets_T: Any, *_: object) -> tuple[Any, ...]:
        """Return log-probabilities, entropies, nothing, mean logits, and whether the target is the likeliest token."""
        logits_TV = hidden_TH @ head_VH.T
        logprobs_TV = logits_TV.log_softmax(-1)
        chosen_T = logprobs_TV.gather(-1, targets_T[:, None])[:, 0]
        entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        return chosen_T, entropy_T, None, logits_TV.mean(-1), logits_TV.argmax(-1) == targets_T


def tune(
    policy: "Policy", run: "Run", examples: list[dict[str, Any]], trainer: Make, config: Make, numbers: dict[str, Any]
) -> Any:
    """Train on examples in full precision with one of TRL's trainers; return that trainer.

    `trainer` makes it of arguments, data and the policy's tokenizer; `config` makes the arguments of `numbers` and
    the run's own. Goes on from the newest checkpoint that is whole, where `numbers` ask for checkpoints.
    """
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl.trainer import utils

    class Seal(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
            checkpoint.seal(folder / f"checkpoint-{state.global_step}")

    on_gpu, folder = policy.head_VH.is_cuda, run.out / "checkpoints"
    if not on_gpu:
        utils._ChunkedLogProbFunction = PlainHead  # type: ignore[assignment, attr-defined]
    ours = {"learning_rate": run.learning_rate, "weight_decay": run.weight_decay, "max_grad_norm": run.grad_clip}
    plain = {"bf16": False, "gradient_checkpointing": False, "report_to": "none", "save_strategy": "no"}
    where = {"output_dir": str(folder), "dataloader_pin_memory": on_gpu, "use_cpu": not on_gpu}
    settings = config(seed=run.seed, logging_steps=50, **(ours | plain | where | numbers))
    data = Dataset.from_list(examples)
    made = trainer(args=settings, train_dataset=data, processing_class=policy.tokenizer, callbacks=[Seal()])
    if whole := checkpoint.of_trl(folder):
        print(f"goes on at step {max(whole)}", flush=True)
    made.train(resume_from_checkpoint=whole[max(whole)] if whole else None)
    return made
