"""Baselines that TRL trains: SFT on gold answers, and SRLM, DPO on self-graded pairs.

SFT is from MAE's Table 1, SRLM from CoMAS's.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, NonNegativeFloat, PositiveInt

from coevolve.methods.base import FitSettings, Method
from coevolve.methods.comas.method import CoMASBenchmark, quoted
from coevolve.methods.comas.rewards import extract_score
from coevolve.methods.facts import as_float, mean_known
from coevolve.rollout.engine import Engine
from coevolve.rollout.scheduler import play
from coevolve.runs import checkpoint
from coevolve.text.parse import boxed
from coevolve.types import Dialogue, Episode, Outcome, Reply
from coevolve.worlds import World

if TYPE_CHECKING:
    from coevolve.models.policy import Policy

TRL_REFERENCE = "ref"  # the adapter that TRL's DPO adds as a reference
# Fields of the loop's steps; here TRL takes steps of its own instead.
FIELDS_OF_THE_LOOP = (
    "steps",
    "batch_size",
    "minibatches",
    "schedule",
    "warmup_steps",
    "optimizer",
    "estimator",
    "kl_coef",
    "kl_loss_coef",
    "entropy_coef",
    "loss",
    "loss_aggregation",
    "clip",
    "old_logprobs",
    "ratio_cap",
)

Make = Callable[..., Any]
Example = dict[str, Any]  # a row of a data set as TRL reads it


@dataclass(frozen=True)
class RatedAnswer:
    """An answer and the mean of its readable scores."""

    score: float
    text: str


@dataclass(frozen=True)
class EpisodeTrace:
    """What an episode of SRLM leaves behind."""

    question: str
    pair: tuple[str, str] | None  # (chosen, rejected); None: the answers are all alike


class SFT(Method):
    """Supervised fine-tuning, of a LoRA adapter unless `lora` is empty, by TRL.

    No other baseline learns the seed set's answers.
    """

    paper_name: ClassVar[str] = "mae"
    unread: ClassVar[tuple[str, ...]] = FIELDS_OF_THE_LOOP
    # The rank: section 5.
    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = {"lora": (128, 128, 0.0)}

    epochs: PositiveInt = 5
    """Passes over the examples (section 5)."""

    sft_batch: PositiveInt = 16
    """Examples per step."""

    def define_roles(self) -> None:
        """Make the solver."""
        self.solver = self.role("solver")

    def examples(self) -> list[Example]:
        """Return the seed rows (repeats included, as published) as prompts and completions."""
        examples = []
        for _, task in self.world.seed_rows():
            turn = self.solver(question=task.question)
            completion = assistant(f"<answer>{task.answer}</answer>")
            example = {"prompt": list(turn.messages), "completion": completion}
            examples.append(example)
        return examples

    def numbers(self) -> dict[str, Any]:
        """Return the arguments of TRL's trainer that are not fields of the run."""
        return {
            "per_device_train_batch_size": self.sft_batch,
            "num_train_epochs": self.epochs,
            "max_length": 1024,
        }

    def fit(self, policy: "Policy", run: FitSettings, engine: Engine) -> int:
        """Fine-tune the policy in place, with checkpoints; return the number of steps."""
        from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]

        # PEFT would ask the hub at every checkpoint whether the base has another vocabulary.
        policy.model.save_pretrained = partial(
            policy.model.save_pretrained, save_embedding_layers=False
        )
        arguments = self.numbers() | {
            "save_strategy": "steps",
            "save_steps": run.save_every,
            "save_total_limit": 2,
        }
        make_trainer = partial(SFTTrainer, policy.model)
        trainer = tune(policy, run, self.examples(), make_trainer, SFTConfig, arguments)
        policy.model.eval()
        return int(trainer.state.global_step)


class SRLM(CoMASBenchmark):
    """Self-rewarding language model: iterated DPO on self-graded pairs, by TRL.

    Every iteration samples candidates, has the same model judge each of them several times, and
    prefers the best to the worst. No verifier is used.
    """

    unread: ClassVar[tuple[str, ...]] = FIELDS_OF_THE_LOOP

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
        """Answer one question several times, judge the answers, and pair the best and the worst."""
        _, question = rng.choice(self.training_questions)
        candidates = yield [self.solver(question=question)] * self.candidates
        rated = yield from self.rate(question, candidates)
        return Outcome(trace=EpisodeTrace(question, preference(rated)))

    def rate(
        self, question: str, candidates: Sequence[Reply]
    ) -> Dialogue[list[RatedAnswer]]:
        """Judge each candidate `judgements` times; return those with a readable score."""
        turns = []
        for candidate in candidates:
            turn = self.judge(problem=question, solution=quoted(candidate))
            turns += [turn] * self.judgements
        verdicts = yield turns
        scores = [extract_score(verdict.text) for verdict in verdicts]
        rated = []
        for i, candidate in enumerate(candidates):
            first = i * self.judgements
            score = mean_known(scores[first : first + self.judgements])
            if score is not None:
                rated.append(RatedAnswer(score, candidate.text))
        return rated

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return whether there is a pair, and which of its two answers are correct."""
        trace: EpisodeTrace = outcome.trace
        chosen_verdict = rejected_verdict = None
        if trace.pair is not None:
            chosen, rejected = trace.pair
            chosen_verdict = world.is_correct(trace.question, boxed(chosen))
            rejected_verdict = world.is_correct(trace.question, boxed(rejected))
        return {
            "question": trace.question,
            "paired": float(trace.pair is not None),
            "pair": trace.pair,
            "chosen_correct": as_float(chosen_verdict),
            "rejected_correct": as_float(rejected_verdict),
        }

    def pairs(self, engine: Engine, run: FitSettings, iteration: int) -> list[Example]:
        """Play the episodes of one iteration with the current model; return the pairs for TRL."""
        episodes = []
        for i in range(self.questions):
            rng = Random(f"{run.seed}/{iteration}/{i}")
            episodes.append(self.episode(rng))
        key = (run.seed, iteration)
        pairs = []
        for outcome in play(episodes, engine, key):
            trace: EpisodeTrace = outcome.trace
            if trace.pair is None:
                continue
            chosen, rejected = trace.pair
            pair = {
                "prompt": list(self.solver(question=trace.question).messages),
                "chosen": assistant(chosen),
                "rejected": assistant(rejected),
            }
            pairs.append(pair)
        return pairs

    def fit(self, policy: "Policy", run: FitSettings, engine: Engine) -> int:
        """Train the policy's model in place, iteration by iteration; return the number of steps.

        The reference of an iteration is the model that it starts from: a copy of the weights, or of
        the adapter alone.
        """
        from peft import PeftModel
        from trl import DPOConfig, DPOTrainer  # type: ignore[attr-defined]

        arguments = {
            "per_device_train_batch_size": self.dpo_batch,
            "num_train_epochs": 1,
            "beta": self.dpo_beta,
            "max_length": None,
        }
        steps = 0
        for iteration in range(1, self.iterations + 1):
            engine.load_weights()
            pairs = self.pairs(engine, run, iteration)
            engine.sleep()
            if not pairs:
                continue
            has_adapter = isinstance(policy.model, PeftModel)
            # None: TRL copies the adapter, and the base is there already.
            reference = None if has_adapter else copy.deepcopy(policy.model)
            make_trainer = partial(DPOTrainer, policy.model, reference)
            trainer = tune(policy, run, pairs, make_trainer, DPOConfig, arguments)
            steps += trainer.state.global_step
            # TRL's forward would stay in the next reference, and call this model from there.
            vars(policy.plain_model).pop("forward", None)
            if has_adapter:
                policy.model.delete_adapter(TRL_REFERENCE)
            policy.model.eval()
        return steps


def assistant(text: str) -> list[dict[str, str]]:
    """Return a text as the messages of an assistant, as TRL reads them."""
    return [{"role": "assistant", "content": text}]


def preference(rated: Sequence[RatedAnswer]) -> tuple[str, str] | None:
    """Return the texts of the best and of the worst answer, each the earliest of equals.

    None if their scores or their texts are the same.
    """
    if not rated:
        return None
    best = max(rated, key=lambda answer: answer.score)
    worst = min(rated, key=lambda answer: answer.score)
    if best.score == worst.score or best.text == worst.text:
        return None
    return best.text, worst.text


class TorchLogProbHead:
    """TRL's fused head in plain torch, for machines without CUDA, which that kernel requires."""

    @staticmethod
    def apply(
        hidden_TH: Any,
        head_VH: Any,
        bias: None,
        targets_T: Any,
        temperature: float,
        chunk: int,
        cap: None,
        scale: float,
        *_: object,
    ) -> tuple[Any, ...]:
        """Return what TRL's kernel returns, each of shape T, and None for its third value.

        Log-probabilities and entropies; mean logits, and whether the target is the likeliest token.
        """
        logits_TV = hidden_TH @ head_VH.T * (scale / temperature)
        logprobs_TV = logits_TV.log_softmax(-1)
        chosen_T = logprobs_TV.gather(-1, targets_T[:, None])[:, 0]
        entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        is_likeliest_T = logits_TV.argmax(-1) == targets_T
        return chosen_T, entropy_T, None, logits_TV.mean(-1), is_likeliest_T


def tune(
    policy: "Policy",
    run: FitSettings,
    examples: list[Example],
    make_trainer: Make,
    make_config: Make,
    arguments: dict[str, Any],
) -> Any:
    """Train on examples in full precision with one of TRL's trainers; return the trainer.

    `make_trainer` gets the config, the data and the policy's tokenizer; `make_config` gets
    `arguments` and the run's settings. Where `arguments` ask for checkpoints, training resumes from
    the newest one that verifies.
    """
    from datasets import Dataset
    from trl.trainer import utils

    folder = run.out / "checkpoints"
    on_gpu = policy.head_VH.is_cuda
    if not on_gpu:
        utils._ChunkedLogProbFunction = TorchLogProbHead  # type: ignore[assignment, attr-defined]
    defaults = {
        "seed": run.seed,
        "logging_steps": 50,
        "learning_rate": run.learning_rate,
        "weight_decay": run.weight_decay,
        "max_grad_norm": run.grad_clip,
        "bf16": False,
        # Large models recompute their activations already, see `models.policy_set`.
        "gradient_checkpointing": False,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "report_to": "none",
        "save_strategy": "no",
        "output_dir": str(folder),
        "dataloader_pin_memory": on_gpu,
        "use_cpu": not on_gpu,
    }
    trainer = make_trainer(
        args=make_config(**(defaults | arguments)),
        train_dataset=Dataset.from_list(examples),
        processing_class=policy.tokenizer,
        callbacks=[_sealing_callback(folder)],
    )
    newest = None
    checkpoints = checkpoint.of_trl(folder)
    if checkpoints:
        step = max(checkpoints)
        newest = checkpoints[step]
        print(f"resuming at step {step}", flush=True)
    trainer.train(resume_from_checkpoint=newest)
    return trainer


def _sealing_callback(folder: Path) -> Any:
    """Return the callback that seals every checkpoint after TRL has written it."""
    from transformers import TrainerCallback

    class Seal(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: object) -> None:
            checkpoint.seal(folder / f"checkpoint-{state.global_step}")

    return Seal()
