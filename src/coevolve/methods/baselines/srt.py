"""Baselines of CoNL: SRT, self-rewarding by majority vote (Appendix E), and RL with ground truth.

SRT-S votes on independent solutions; SRT-M plays CoNL's four rounds and votes on the revised ones.
Figure 3 compares with ground truth. None has a ranking reward, a diagnostic reward or credit by
segment. After training each policy is asked in CoNL's conversation, as CoNL's own is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from coevolve.advantages.estimators import Estimator
from coevolve.methods.base import Method
from coevolve.methods.conl.method import CoNL
from coevolve.methods.facts import as_float, mean_known
from coevolve.rollout.engine import Engine
from coevolve.rollout.voting import majority
from coevolve.runs.record import Recorder
from coevolve.text.parse import answer_line, tag
from coevolve.text.verify.exact import spelling
from coevolve.types import Dialogue, Episode, Outcome, Reply
from coevolve.worlds import World


@dataclass(frozen=True)
class Solutions:
    """The replies of every round, and every agent's solution in the end."""

    rounds: list[list[Reply]]  # by agent within a round
    texts: list[str]


@dataclass(frozen=True)
class EpisodeTrace:
    """What an episode leaves behind, for `observe`."""

    question: str
    rounds: list[list[Reply]]
    answers: list[str | None]


class AnswerRewardMethod(Method):
    """Agents answer one of CoNL's questions; an answer's reward goes to all its agent's replies."""

    paper_name: ClassVar[str] = "conl"
    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = CoNL.PAPER_RUN_VALUES
    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = {
        "estimator": "gae",  # "the same training configuration" (section 4.1)
        "test_time": True,
    }

    agents: int = 4
    """N, the number of solutions, or of agents in the conversation (Appendix E)."""

    estimator: Estimator = "group_mean"
    """Rewards are centred over the N agents, as CoNL's segments are; `gpu` has CoNL's GAE."""

    test_time: bool = False
    """Whether to train on the test questions, as the paper does (section 4.1)."""

    # The conversation is CoNL's, in SRT-M's training and after everybody's.

    judge_temperature: NonNegativeFloat | None = None
    """Sampling temperature of rankings, as in CoNL; None: the run's."""

    own_votes: bool = True
    """Whether votes on one's own solution count, as in CoNL."""

    examined: NonNegativeInt = 20
    """Test questions per family that are discussed after training, as in CoNL."""

    def define_roles(self) -> None:
        """Make a CoNL method with the same values of the shared fields, and use its solver."""
        shared: dict[str, Any] = {"w_consensus": 0.0}  # no reward of CoNL is paid
        for name in CoNL.model_fields:
            if name in type(self).model_fields:
                shared[name] = getattr(self, name)
        self.conl = CoNL(**shared)
        self.solver = self.conl.solver

    def episode(self, rng: Random) -> Episode:
        """Let all agents answer one question and reward them; a round shares a baseline."""
        question = rng.choice(self.conl.questions)
        solutions = yield from self.solve(question)
        answers = [self.read_answer(text) for text in solutions.texts]
        rewards = self.rewards(question, answers)
        samples = []
        for replies in solutions.rounds:
            for reply, reward in zip(replies, rewards, strict=True):
                if reward is not None:
                    samples.append(reply.earns(reward, reply.group_id))
        trace = EpisodeTrace(question, solutions.rounds, answers)
        return Outcome(samples, trace=trace)

    def solve(self, question: str) -> Dialogue[Solutions]:
        """Return one round of independent solutions (Appendix E).

        The full prompts have one without a persona; the others use CoNL's round 0.
        """
        if self.prompt == "full":
            turns = [self.solver(query=question)] * self.agents
        else:
            turns = []
            for persona in self.conl.personas:
                turns.append(self.conl.proposal(persona=persona, query=question))
        replies = yield turns
        return Solutions(rounds=[replies], texts=[reply.text for reply in replies])

    def read_answer(self, text: str) -> str | None:
        """Return the answer line of a solution, or of the revised solution in a reply."""
        revised = tag(text, "revised_solution")
        return answer_line(text if revised is None else revised)

    def rewards(
        self, question: str, answers: Sequence[str | None]
    ) -> list[float | None]:
        """Return the reward of each agent's answer; None: the agent is not trained on."""
        raise NotImplementedError

    def observe(self, outcome: Outcome, world: World) -> dict[str, Any]:
        """Return the answers, whether they and their majority are correct, and tokens per turn."""
        trace: EpisodeTrace = outcome.trace
        winner, _ = majority(trace.answers, spelling)
        majority_verdict = world.is_correct(trace.question, winner)
        verdicts = [world.is_correct(trace.question, one) for one in trace.answers]
        lengths: list[float] = []
        for replies in trace.rounds:
            lengths += [len(reply.completion_ids) for reply in replies]
        return {
            "question": trace.question,
            "answers": trace.answers,
            "majority_correct": as_float(majority_verdict),
            "correct_final": mean_known(verdicts),
            "tokens_turn": mean_known(lengths),
        }

    def after_run(
        self, engine: Engine, key: tuple[int, ...], log: Recorder
    ) -> dict[str, Any]:
        """Discuss test questions with the trained policy in CoNL's conversation, as CoNL does.

        Writes conversations.jsonl, so that the policies compare in one conversation.
        """
        return self.conl.after_run(engine, key, log)


class SRT(AnswerRewardMethod):
    """Majority voting as proxy ground truth, with CoNL's data and training (section 4.1)."""

    form: Literal["single", "multi"] = "single"
    """single: SRT-S; multi: SRT-M, the four-round conversation."""

    def solve(self, question: str) -> Dialogue[Solutions]:
        """Return independent solutions (SRT-S), or those revised in CoNL's conversation (SRT-M)."""
        if self.form == "single":
            return (yield from super().solve(question))
        conversation = yield from self.conl.converse(question)
        return Solutions(conversation.rounds, conversation.revised)

    def rewards(
        self, question: str, answers: Sequence[str | None]
    ) -> list[float | None]:
        """Return 1 for the answers that equal the majority's, 0 for the others."""
        winner, _ = majority(answers, spelling)
        return [float(_agree(answer, winner)) for answer in answers]


def _agree(answer: str | None, winner: str | None) -> bool:
    """Whether an answer is the winner, in any spelling."""
    if answer is None or winner is None:
        return False
    return spelling(answer) == spelling(winner)


class GroundTruth(AnswerRewardMethod):
    """Verifiable rewards with CoNL's data and training configuration (section 4.4, figure 3).

    The only method of that comparison that learns which answers are correct.
    """

    def rewards(
        self, question: str, answers: Sequence[str | None]
    ) -> list[float | None]:
        """Return the verdicts as 1 or 0; None where no verifier can tell."""
        verdicts = [self.world.is_correct(question, answer) for answer in answers]
        return [as_float(is_correct) for is_correct in verdicts]
