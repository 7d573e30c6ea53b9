"""Baselines of CoNL: SRT, self-rewarding training by majority vote (Appendix E), and RL with ground truth (figure 3).

SRT-S votes on independent solutions; SRT-M plays CoNL's four rounds and votes on the revised ones. None has a ranking
reward, a diagnostic reward or credit by segment.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, ClassVar, Literal

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method
from coevolve.methods.conl.method import CoNL
from coevolve.methods.facts import as_float, mean_known
from coevolve.rollout.voting import majority
from coevolve.text.parse import answer_line
from coevolve.types import Dialogue, Episode, Outcome, Reply
from coevolve.worlds import World


class AnswerRewards(Method):
    """Agents answer one of CoNL's questions; what an agent's answer earns is paid for all that it said."""

    paper_name: ClassVar[str] = "conl"
    read_answer = staticmethod(answer_line)
    TRAINING: ClassVar[Mapping[str, Any]] = CoNL.TRAINING
    PAPER: ClassVar[Mapping[str, Any]] = {"test_time": True}

    agents: int = 4
    """N, the number of solutions, or of agents in the conversation (Appendix E)."""

    estimator: Estimator = "group_mean"
    """Centred over the N agents, as CoNL's segments are."""

    test_time: bool = False
    """Whether to train on the test questions, as the paper does (section 4.1)."""

    def define_roles(self) -> None:
        """Make CoNL's own method with the same fields, and take its solver."""
        shared = [name for name in CoNL.model_fields if name in type(self).model_fields]
        self.table = CoNL(**{name: getattr(self, name) for name in shared})
        self.solver = self.table.solver

    def episode(self, rng: Random) -> Episode:
        """Have all agents answer one question, and pay them; the agents of a round share a baseline."""
        question = rng.choice(self.table.questions)
        rounds, solutions = yield from self.solve(question)
        answers = [answer_line(solution) for solution in solutions]
        rewards = self.rewards(question, answers)
        said = [pair for replies in rounds for pair in zip(replies, rewards, strict=True)]
        samples = [reply.earns(reward, reply.group_id) for reply, reward in said if reward is not None]
        return Outcome(samples, trace=(question, rounds, answers))

    def solve(self, question: str) -> Dialogue[tuple[list[list[Reply]], list[str]]]:
        """Return the rounds that were said and every agent's solution: one round, each asked plainly (Appendix E).

        Only the full prompts have one without a persona; the others are CoNL's round 0.
        """
        asked = [self.solver(query=question)] * self.agents
        if self.prompt != "full":
            asked = [self.table.proposal(persona=persona, query=question) for persona in self.table.personas]
        replies = yield asked
        return [replies], [reply.text for reply in replies]

    def rewards(self, question: str, answers: Sequence[str | None]) -> list[float | None]:
        """Return what each agent's answer earns; None: nothing, and it is not trained on."""
        raise NotImplementedError

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """What was answered, whether the majority is right, the share of right answers, and mean tokens per turn."""
        question, rounds, answers = outcome.trace
        right = mean_known([world.is_correct(question, answer) for answer in answers])
        voted = as_float(world.is_correct(question, majority(answers)[0]))
        said = {"question": question, "answers": answers, "majority_right": voted, "right_final": right}
        return {**said, "tokens_turn": mean_known([len(reply.completion_ids) for replies in rounds for reply in replies])}


class SRT(AnswerRewards):
    """Majority voting as proxy ground truth, with CoNL's data and training configuration (section 4.1)."""

    form: Literal["single", "multi"] = "single"
    """single: SRT-S; multi: SRT-M, the four-round conversation."""

    judge_temperature: float | None = None
    """Sampling temperature of SRT-M's rankings, as in CoNL; None: the run's."""

    def solve(self, question: str) -> Dialogue[tuple[list[list[Reply]], list[str]]]:
        """Solve alone, or in conversation and then revise."""
        if self.form == "single":
            return (yield from super().solve(question))
        talk = yield from self.table.converse(question)
        return talk.rounds, talk.revised

    def rewards(self, question: str, answers: Sequence[str | None]) -> list[float | None]:
        """Pay everybody who is with the majority."""
        winner, _ = majority(answers)
        return [float(answer is not None and answer == winner) for answer in answers]


class GroundTruth(AnswerRewards):
    """Verifiable rewards with CoNL's data and training configuration (section 4.4).

    The only method of that comparison that is told which answers are right.
    """

    def rewards(self, question: str, answers: Sequence[str | None]) -> list[float | None]:
        """Pay 1 for a right answer, 0 for a wrong one, nothing where no verifier can tell."""
        return [as_float(self.world.is_correct(question, answer)) for answer in answers]
