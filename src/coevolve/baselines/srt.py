"""SRT, self-rewarding training by majority vote (CoNL, Appendix E): right is what most agents answer.

SRT-S votes on independent solutions; SRT-M plays CoNL's four rounds and votes on the revised ones. Neither has
a ranking reward, a diagnostic reward or credit by segment.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from coevolve.checks import among
from coevolve.method import Method
from coevolve.papers.conl.method import CoNL
from coevolve.parse import answer_line
from coevolve.setups import majority
from coevolve.shares import mean, number
from coevolve.types import Episode, Outcome, Reply
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

FORMS = ("single", "multi")


class Tabled(Method):
    """CoNL's personas, questions and training configuration, for whoever has CoNL's fields of these names."""

    TRAINING: ClassVar[dict[str, Any]] = CoNL.TRAINING
    PAPER: ClassVar[dict[str, Any]] = {"test_time": True}
    judge_temperature: ClassVar[float | None] = None  # a field of those whose agents rank each other
    read = staticmethod(answer_line)

    def __post_init__(self) -> None:
        self.table = CoNL(
            agents=self.agents,
            test_time=self.test_time,
            prompt=self.prompt,
            prompt_folder=self.prompt_folder,
            world=self.world,
            judge_temperature=self.judge_temperature,
        )
        self.solver = self.table.solver


@dataclass(kw_only=True)
class SRT(Tabled):
    """Majority voting as proxy ground truth, with CoNL's data and training configuration (section 4.1)."""

    form: str = "single"  # SRT-S; multi: SRT-M, the four-round conversation
    agents: int = 4  # N solutions, or agents of the conversation (Appendix E)
    estimator: str = "group_mean"  # over the N agents, as CoNL's segments are centred
    judge_temperature: float | None = None  # of SRT-M's rankings, as CoNL has it; None: as everything else
    test_time: bool = False  # True: train on the test questions, as the paper does (section 4.1)
    setups: tuple[str, ...] = ("vanilla",)  # inference set-ups of the final scoring
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        among("form", self.form, FORMS)
        super().__post_init__()

    def episode(self, rng: Random) -> Episode:
        """Answer one question N times, alone or in conversation, and pay everybody who is with the majority."""
        question = rng.choice(self.table.questions)
        if self.form == "multi":
            talk = yield from self.table.converse(question)
            rounds = [talk.proposals, talk.reviews, talk.revisions, talk.verdicts]
            answers = [answer_line(text) for text in talk.revised]
        else:
            rounds = [(yield solutions(self.table, question))]
            answers = [answer_line(reply.text) for reply in rounds[0]]
        winner, votes = majority(answers)
        rewards = [float(answer is not None and answer == winner) for answer in answers]
        rights = [self.world.right(question, answer) for answer in answers]
        facts = {
            "question": question,
            "answers": answers,
            "majority_share": votes / self.agents,
            "majority_right": number(self.world.right(question, winner)),
            "right_final": mean(rights),
        }
        return Outcome(pay(rounds, rewards), facts | tokens_of(rounds))


def solutions(table: CoNL, question: str) -> list:
    """Ask every persona for an independent solution (CoNL's round 0 alone)."""
    return [table.proposal(persona=persona, query=question) for persona in table.personas]


def pay(rounds: Sequence[Sequence[Reply]], rewards: Sequence[float | None]) -> list:
    """Give agent i its one reward for all it said, none for None; the agents of a round share a baseline."""
    group = rounds[0][0].turn.key[:-1]
    paid = [(reply, reward) for said in rounds for reply, reward in zip(said, rewards, strict=True)]
    return [reply.earns(reward, group) for reply, reward in paid if reward is not None]


def tokens_of(rounds: Sequence[Sequence[Reply]]) -> dict[str, float]:
    """Mean tokens per turn, as CoNL's episodes report them."""
    lengths = [len(reply.ids) for said in rounds for reply in said]
    return {"tokens_turn": sum(lengths) / len(lengths)}
