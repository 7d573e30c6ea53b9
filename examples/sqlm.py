"""Self-Questioning Language Models (Chen et al., 2025, arXiv:2508.03682) in one file.

A proposer invents a question, a solver answers it N times, and the majority stands in for the right
answer. To train it: `coevolve train examples/sqlm.py:SQLM --out runs/sqlm`.
"""

from random import Random
from typing import Any

from pydantic import PositiveInt

from coevolve import Method, Outcome, Role
from coevolve.advantages.estimators import Estimator
from coevolve.rollout.voting import majority
from coevolve.text.parse import tag
from coevolve.types import Episode
from coevolve.worlds import World


class SQLM(Method):
    """Asymmetric self-play: both roles are one policy, and nobody sees a right answer."""

    attempts: PositiveInt = 8
    """N, the answers to each question."""

    estimator: Estimator = "task_relative"
    """Rewards are standardised within a role; the solver's within its question."""

    def define_roles(self) -> None:
        """Make the proposer and the solver, with prompts that the model `tiny` knows."""
        self.proposer = Role("proposer", "propose")
        self.solver = Role("solver", "solve<question>{question}</question>")

    def episode(self, rng: Random) -> Episode:
        """Propose, answer N times, vote, and reward (section 3 of the paper)."""
        proposal = yield self.proposer()
        question = tag(proposal.text, "question")
        if question is None:
            return Outcome([proposal.earns(0.0)])
        if self.world.held_out(question):
            return Outcome()  # well done, but a test question: nobody learns from it
        replies = yield [self.solver(question=question)] * self.attempts
        answers = [self.read_answer(reply.text) for reply in replies]
        winner, votes = majority(answers)
        # Neither too easy, where all agree, nor too hard, where no answer has a vote.
        is_useful = 0 < votes < self.attempts
        samples = [proposal.earns(float(is_useful))]
        for reply, answer in zip(replies, answers, strict=True):
            agrees = answer is not None and answer == winner
            samples.append(reply.earns(float(agrees), reply.group_id))
        return Outcome(samples, trace=(question, winner, votes))

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Ask the oracle what the vote is worth; it pays nobody."""
        if outcome.trace is None:
            return {"parsed": 0.0}
        question, winner, votes = outcome.trace
        return {
            "parsed": 1.0,
            "proposal": question,
            "agreement": votes / self.attempts,
            "valid": world.valid(question),
            "majority_correct": world.is_correct(question, winner),
        }
