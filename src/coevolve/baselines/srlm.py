"""SRLM (self-rewarding language models) as CoMAS's Table 1 uses it: the model grades its own answers, DPO by TRL.

Every iteration samples candidates, lets the same model judge each of them several times, and prefers the best
to the worst. Knows no verifier.
"""

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from coevolve.checks import at_least
from coevolve.driver import Batched, play
from coevolve.method import Method
from coevolve.papers.comas.method import CoMAS, quoted
from coevolve.papers.comas.rewards import extract_score
from coevolve.parse import boxed
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

if TYPE_CHECKING:
    from coevolve.config import Run
    from coevolve.policies.causal import Policy


@dataclass(kw_only=True)
class SRLM(Method):
    """Iterated DPO on self-graded pairs; `fit` takes the place of the training loop."""

    PROMPTS: ClassVar[str] = "comas"
    TRAINING: ClassVar[dict[str, Any]] = CoMAS.TRAINING

    iterations: int = 2  # DPO iterations (M2 and M3 of the original)
    questions: int = 2000  # asked per iteration
    candidates: int = 4  # answers per question, of the original
    judgements: int = 3  # scores averaged per answer, of the original
    dpo_beta: float = 0.1  # of the original
    dpo_batch: int = 16  # pairs a step, of the original
    setups: tuple[str, ...] = ("vanilla", "consistency", "autogen", "debate")
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        at_least(self, iterations=1, questions=1, candidates=2, judgements=1, dpo_batch=1)
        if not self.dpo_beta > 0:
            raise ValueError(f"dpo_beta must be above 0, got {self.dpo_beta}")
        self.solver, self.judge = self._role("solver"), self._role("scoring_alone", "judge")

    @cached_property
    def tasks(self) -> list[str]:
        """The training questions."""
        return [question for _, question in self.world.training()]

    read = staticmethod(boxed)

    def episode(self, rng: Random) -> Episode:
        """Answer one question several times and judge each answer; the facts hold the pair, if there is one."""
        question = rng.choice(self.tasks)
        replies = yield [self.solver(question=question)] * self.candidates
        judges = [self.judge(problem=question, solution=quoted(reply)) for reply in replies]
        verdicts = yield [turn for turn in judges for _ in range(self.judgements)]
        scores = [extract_score(verdict.text) for verdict in verdicts]
        rated = [
            (value, reply.text)
            for i, reply in enumerate(replies)
            if (value := mean(scores[i * self.judgements : (i + 1) * self.judgements])) is not None
        ]
        pair = preference(rated)
        truth = [self.world.right(question, boxed(text)) for text in pair] if pair else [None, None]
        facts = {
            "question": question,
            "paired": float(pair is not None),
            "pair": pair,
            "chosen_right": number(truth[0]),
            "rejected_right": number(truth[1]),
        }
        return Outcome([], facts)

    def pairs(self, policy: "Policy", run: "Run", iteration: int) -> list[dict[str, list[dict[str, str]]]]:
        """Play one iteration's episodes with the model as it is now; return TRL's preference rows."""
        engine = Batched(partial(policy.generate, temperature=run.temperature, max_tokens=run.max_tokens))
        episodes = [self.episode(Random(f"{run.seed}/{iteration}/{i}")) for i in range(self.questions)]
        rows = []
        for outcome in play(episodes, engine, (run.seed, iteration)):
            if outcome.facts["pair"]:
                chosen, rejected = ([{"role": "assistant", "content": text}] for text in outcome.facts["pair"])
                prompt = list(self.solver(question=outcome.facts["question"]).messages)
                rows.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
        return rows

    def fit(self, policy: "Policy", run: "Run") -> int:
        """Train the policy's model in place, iteration by iteration; return the optimiser steps taken."""
        steps = 0
        for iteration in range(1, self.iterations + 1):
            rows = self.pairs(policy, run, iteration)
            if rows:
                steps += self._prefer(policy, run, rows)
        return steps

    def _prefer(self, policy: "Policy", run: "Run", rows: list[dict]) -> int:
        from datasets import Dataset
        from trl import DPOConfig, DPOTrainer

        model, reference = copy.deepcopy(policy.model), copy.deepcopy(policy.model)
        if hasattr(reference, "merge_and_unload"):  # TRL makes a reference only of an adapter called "default"
            reference = reference.merge_and_unload()
        with tempfile.TemporaryDirectory() as scratch:
            arguments = DPOConfig(
                output_dir=scratch,
                num_train_epochs=1,
                per_device_train_batch_size=self.dpo_batch,
                beta=self.dpo_beta,
                learning_rate=run.learning_rate,
                weight_decay=run.weight_decay,
                max_grad_norm=run.grad_clip,
                seed=run.seed,
                report_to="none",
                save_strategy="no",
                logging_steps=50,
                disable_tqdm=True,
                bf16=False,
                fp16=False,
                gradient_checkpointing=False,
                max_length=None,
                dataloader_pin_memory=policy.head_VH.is_cuda,
            )
            trainer = DPOTrainer(
                model, reference, arguments, train_dataset=Dataset.from_list(rows), processing_class=policy.tokenizer
            )
            if not policy.head_VH.is_cuda:
                for one in (model, reference):
                    _plain_head(one.get_base_model() if hasattr(one, "get_base_model") else one)
            trainer.train()
        policy.model.load_state_dict(model.state_dict())
        return trainer.state.global_step


def preference(rated: Sequence[tuple[float, str]]) -> tuple[str, str] | None:
    """The best and the worst of (score, text), the earliest of equals; None when they score or read the same."""
    if not rated:
        return None
    best, worst = max(rated, key=lambda row: row[0]), min(rated, key=lambda row: row[0])
    return (best[1], worst[1]) if best[0] > worst[0] and best[1] != worst[1] else None


def _plain_head(model: Any) -> None:
    """TRL's fused head is a CUDA kernel; anywhere else the same numbers come from plain torch."""

    def forward(input_ids: Any, attention_mask: Any, labels: Any, **_: object) -> SimpleNamespace:
        hidden_BTH = model.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, :-1]
        logits_BTV = model.get_output_embeddings()(hidden_BTH)
        wanted_BT, logprobs_BTV = labels[:, 1:].clamp(min=0), logits_BTV.log_softmax(-1)
        counted_BT = (labels[:, 1:] != -100).to(logits_BTV)
        chosen_BT = logprobs_BTV.gather(-1, wanted_BT[..., None])[..., 0]
        return SimpleNamespace(
            log_probs=chosen_BT * counted_BT,
            entropy=-(logprobs_BTV.exp() * logprobs_BTV).sum(-1) * counted_BT,
            mean_logits=logits_BTV.mean(-1) * counted_BT,
            is_top1=logits_BTV.argmax(-1) == wanted_BT,
        )

    model.forward = forward
