"""SRLM (self-rewarding language models) as CoMAS's Table 1 uses it: the model grades its own answers, DPO by TRL.

Every iteration samples candidates, lets the same model judge each of them several times, and prefers the best
to the worst. Knows no verifier.
"""

import copy
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from coevolve.baselines.tuning import arguments, message
from coevolve.checks import at_least
from coevolve.driver import Batched, play
from coevolve.papers.comas.method import Table1, quoted
from coevolve.papers.comas.rewards import extract_score
from coevolve.parse import boxed
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome
from coevolve.worlds import World

if TYPE_CHECKING:
    from coevolve.config import Run
    from coevolve.policies.causal import Policy


@dataclass(kw_only=True)
class SRLM(Table1):
    """Iterated DPO on self-graded pairs; `fit` takes the place of the training loop."""

    iterations: int = 2  # DPO iterations (M2 and M3 of the original)
    questions: int = 2000  # asked per iteration
    candidates: int = 4  # answers per question, of the original
    judgements: int = 3  # scores averaged per answer, of the original
    dpo_beta: float = 0.1  # of the original
    dpo_batch: int = 16  # pairs a step, of the original

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, iterations=1, questions=1, candidates=2, judgements=1, dpo_batch=1)
        if not self.dpo_beta > 0:
            raise ValueError(f"dpo_beta must be above 0, got {self.dpo_beta}")
        self.solver, self.judge = self.role("solver"), self.role("scoring_alone", "judge")

    def episode(self, rng: Random) -> Episode:
        """Answer one question several times, judge each answer, and pair the best with the worst."""
        _, question = rng.choice(self.training)
        replies = yield [self.solver(question=question)] * self.candidates
        judges = [self.judge(problem=question, solution=quoted(reply)) for reply in replies]
        verdicts = yield [judge for judge in judges for _ in range(self.judgements)]
        scores = [extract_score(verdict.text) for verdict in verdicts]
        means = [mean(scores[i : i + self.judgements]) for i in range(0, len(scores), self.judgements)]
        rated = [(score, reply.text) for score, reply in zip(means, replies, strict=True) if score is not None]
        return Outcome(trace=(question, preference(rated)))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Whether there is a pair, and which of the two answers are right."""
        question, pair = outcome.trace
        rights = [number(world.right(question, boxed(text))) for text in pair or ()]
        return {
            "question": question,
            "paired": float(pair is not None),
            "pair": pair,
            "chosen_right": rights[0] if rights else None,
            "rejected_right": rights[1] if rights else None,
        }

    def pairs(self, policy: "Policy", run: "Run", iteration: int) -> list[dict[str, list[dict[str, str]]]]:
        """Play one iteration's episodes with the model as it is now; return the pairs as TRL reads them."""
        engine = Batched(partial(policy.generate, temperature=run.temperature, max_tokens=run.max_tokens))
        episodes = [self.episode(Random(f"{run.seed}/{iteration}/{i}")) for i in range(self.questions)]
        graded = [outcome.trace for outcome in play(episodes, engine, (run.seed, iteration))]
        return [
            {
                "prompt": list(self.solver(question=question).messages),
                "chosen": [message("assistant", pair[0])],
                "rejected": [message("assistant", pair[1])],
            }
            for question, pair in graded
            if pair
        ]

    def fit(self, policy: "Policy", run: "Run") -> int:
        """Train the policy's model in place, iteration by iteration; return the optimiser steps taken."""
        steps = 0
        for iteration in range(1, self.iterations + 1):
            pairs = self.pairs(policy, run, iteration)
            if pairs:
                steps += self._prefer(policy, run, pairs)
        return steps

    def _prefer(self, policy: "Policy", run: "Run", pairs: list[dict[str, list[dict[str, str]]]]) -> int:
        from datasets import Dataset
        from peft import PeftModel
        from trl.trainer.dpo_config import DPOConfig
        from trl.trainer.dpo_trainer import DPOTrainer

        model, reference = copy.deepcopy(policy.model), copy.deepcopy(policy.model)
        if isinstance(reference, PeftModel):  # TRL makes a reference only of an adapter called "default"
            reference = reference.merge_and_unload()
        with tempfile.TemporaryDirectory() as scratch:
            numbers = arguments(run, scratch, self.dpo_batch)
            on_gpu = policy.head_VH.is_cuda
            trainer = DPOTrainer(
                model,
                reference,
                DPOConfig(
                    **numbers, num_train_epochs=1, beta=self.dpo_beta, max_length=None, dataloader_pin_memory=on_gpu
                ),
                train_dataset=Dataset.from_list(pairs),
                processing_class=policy.tokenizer,
            )
            if not on_gpu:
                _plain_head(model.get_base_model() if isinstance(model, PeftModel) else model)
                _plain_head(reference)
            trainer.train()
        policy.model.load_state_dict(model.state_dict())
        return trainer.state.global_step


def preference(rated: Sequence[tuple[float, str]]) -> tuple[str, str] | None:
    """Return the best and the worst of (score, text), the earliest of equals; None if they score or read the same."""
    if not rated:
        return None
    best, worst = max(rated, key=itemgetter(0)), min(rated, key=itemgetter(0))
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
