"""Helpers of the core's tests: a scripted engine, a world of sums, hostile text, and more."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from random import Random

from hypothesis import strategies as st

from coevolve.methods.base import Method
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Outcome, Reply, Turn
from tinyworld import programs

SUM = re.compile(r"(?:\w+: )?([0-9])\+([0-9])")
# The only program that the world of sums knows, and tests that accept it.
PROGRAM = "x*3"
TESTS = "assert f(3)==9\nassert f(4)==12"

TAG_NAMES = (
    "question",
    "type",
    "answer",
    "tests",
    "plan",
    "score",
    "think",
    "judgment",
    "revised_solution",
    "initial_ranking",
    "final_ranking",
)
TAGS = [f"<{slash}{name}>" for name in TAG_NAMES for slash in ("", "/")]
CRITIQUES = [
    '<critique target="Agent 2">',
    '<critique target="Agent 0">',
    "</critique>",
    "<critique",
    "Agent 0",
    "Agent 2",
    "Agent 3",
    " > ",
    " = ",
    "\n",
    "- ",
]
ANSWERS = [
    "math",
    "code",
    "correct",
    "assert f(3)==9",
    "8",
    "1",
    "3",
    "2+3",
    "-",
    ".",
    " ",
    "x*3",
    "```python\n",
    "\n```",
    "[Your",
    "\\boxed{",
    "{",
    "}",
    "\\",
    "5",
    "ANSWER:",
    "{question}",
    '{"question": "',
    '", "answer": 5, "answer_type": "Integer"}',
    "A) 1 B) 2 C) 3 D) 4",
]
UNUSUAL_CHARACTERS = ["\ud800", "\x00", "é", "\u200b"]
PIECES = [*TAGS, *CRITIQUES, *ANSWERS, *UNUSUAL_CHARACTERS]
HOSTILE = st.one_of(
    st.text(st.characters()),
    st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
)


class Scripted(BatchedEngine):
    """An engine that replies by a function of the turn, or by the texts of a list in order.

    `asked` keeps the turns that it was sent.
    """

    def __init__(self, say: Callable[[Turn], str | Reply] | Sequence[str] = ()):
        super().__init__(self.answer)
        self.asked: list[Turn] = []
        if callable(say):
            self.say = say
        else:
            texts = iter(say)
            self.say = lambda turn: next(texts)

    def answer(self, turns: list[Turn]) -> list[Reply]:
        """Reply to a wave of turns."""
        self.asked += turns
        replies = []
        for turn in turns:
            reply = self.say(turn)
            if not isinstance(reply, Reply):
                reply = Reply(turn, reply)
            replies.append(reply)
        return replies


class Sums:
    """A world of one-digit sums and of one program; its oracle computes the sums."""

    name = "sums"
    grading = "exact"
    has_interpreter = False

    def __init__(
        self,
        *questions: str,
        held: tuple[str, ...] = (),
        tasks: tuple = (("1+1", "math", "2"),),
    ):
        self.training = list(questions or ("1+1",))
        self.held = held
        self.tasks = list(tasks)

    def seed_questions(self) -> list[str]:
        return self.training

    def zero_questions(self) -> list[str]:
        return ["0+0"]

    def training_questions(self) -> list[tuple[str, str]]:
        return [("sums", question) for question in self.training]

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        return self.tasks

    def questions(self, split: str, families: tuple[str, ...]) -> list[str]:
        return [f"{split}: 2+3"]

    def program(self, question: str, answer: str) -> str:
        return programs.program(question, answer)

    def interpret(self, answer: str, tests: str) -> float | None:
        return programs.interpret(answer, tests)

    def answer(self, question: str) -> str | None:
        """Return the oracle's answer; None for an ill-formed question."""
        match = SUM.fullmatch(question)
        if match is not None:
            return str(int(match[1]) + int(match[2]))
        if question.startswith("f("):
            return PROGRAM
        return None

    def held_out(self, question: str) -> bool:
        return question in self.held

    def valid(self, question: str) -> bool:
        return self.answer(question) is not None

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        if not self.valid(question):
            return None
        return answer == self.answer(question)

    def level(self, question: str) -> int | None:
        """Return 3 for a question that starts with 9, and 1 for any other well-formed one."""
        if not self.valid(question):
            return None
        return 3 if question[0] == "9" else 1

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        if kind == "code":
            return verifier == TESTS
        return self.is_correct(question, verifier)

    def fits(self, question: str, plan: str) -> bool | None:
        if not self.valid(question):
            return None
        return plan == "add"


def text(turn: Turn) -> str:
    """Return the prompt of a turn."""
    return turn.messages[0]["content"]


def prompts(turns: Iterable[Turn]) -> list[str]:
    """Return the prompts of turns."""
    return [text(turn) for turn in turns]


def earned(outcome: Outcome, *roles: str) -> list:
    """Return (role, reward) of all samples; given roles, the rewards of their samples alone."""
    if not roles:
        return [(sample.role, sample.reward) for sample in outcome.samples]
    return [sample.reward for sample in outcome.samples if sample.role in roles]


def free(
    question: object = "How many moons has Mars?",
    answer: object = 2,
    kind: object = "Integer",
) -> str:
    """Write a free-form task as SPICE's Challenger does."""
    return json.dumps({"question": question, "answer": answer, "answer_type": kind})


def mcq(question: object = "Which? A) 1 B) 2 C) 3 D) 4", letter: object = "B") -> str:
    """Write a multiple-choice task as SPICE's Challenger does."""
    return json.dumps(
        {
            "multiple_choice_question": question,
            "multiple_choice_correct": letter,
        }
    )


def boxes(*answers: object) -> list[str]:
    """Put each answer in a LaTeX box."""
    return [rf"\boxed{{{answer}}}" for answer in answers]


def scripted(
    method: Method, say: Callable | Sequence, seeds: Iterable[int] = (0,)
) -> tuple[list[Outcome], list[Turn]]:
    """Play one step of episodes; return their outcomes and the turns of the engine."""
    engine = Scripted(say)
    episodes = [method.observed(Random(seed)) for seed in seeds]
    outcomes = play(episodes, engine)
    return outcomes, engine.asked


def by_hand(
    method: Method, *waves: list[str], seed: int = 0, key: tuple[int, ...] = ()
) -> EpisodeStepper:
    """Start an episode and answer its first waves of turns by hand."""
    episode = method.observed(Random(seed))
    stepper = EpisodeStepper(episode, Scripted(), key)
    for wave in waves:
        stepper.answer(wave)
    return stepper
