"""What core's tests share: a scripted engine, a world of sums, pieces of hostile text, and playing by hand."""

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
TESTS = "assert f(3)==9\nassert f(4)==12"  # of the program x*3, the only one that the world of sums knows
PIECES = [
    "<question>", "</question>", "<type>", "</type>", "<answer>", "</answer>", "<tests>", "</tests>", "<plan>", "</plan>",
    "<score>", "</score>", "<think>", "</think>", "<judgment>", "</judgment>", "<revised_solution>", "</revised_solution>",
    "<initial_ranking>", "</initial_ranking>", "<final_ranking>", "</final_ranking>", '<critique target="Agent 2">',
    '<critique target="Agent 0">', "</critique>", "<critique", "Agent 0", "Agent 2", "Agent 3", " > ", " = ", "\n", "- ",
    "math", "code", "correct", "assert f(3)==9", "8", "1", "3", "2+3", "-", ".", " ", "x*3", "```python\n", "\n```", "[Your",
    "\\boxed{", "{", "}", "\\", "5", "ANSWER:", "{question}", '{"question": "', '", "answer": 5, "answer_type": "Integer"}',
    "A) 1 B) 2 C) 3 D) 4", "\ud800", "\x00", "é", "\u200b",
]  # fmt: skip
HOSTILE = st.one_of(
    st.text(st.characters()),
    st.lists(st.sampled_from(PIECES), max_size=20).map("".join),
)


class Scripted(BatchedEngine):
    """An engine that says what `say` makes of a turn, or the texts of a list in order; `asked` keeps the turns."""

    def __init__(self, say: Callable[[Turn], str | Reply] | Sequence[str] = ()):
        super().__init__(self.answer)
        texts = iter(() if callable(say) else say)
        self.say = say if callable(say) else lambda turn: next(texts)
        self.asked: list[Turn] = []

    def answer(self, turns: list[Turn]) -> list[Reply]:
        """Answer a wave."""
        self.asked += turns
        said = [(turn, self.say(turn)) for turn in turns]
        return [
            reply if isinstance(reply, Reply) else Reply(turn, reply)
            for turn, reply in said
        ]


class Sums:
    """A world of one-digit sums and of one program, whose oracle is these lines."""

    name, grading = "sums", "exact"

    def __init__(
        self,
        *questions: str,
        held: tuple[str, ...] = (),
        tasks: tuple = (("1+1", "math", "2"),),
    ):
        self.known_questions, self.held, self.starts = (
            list(questions or ("1+1",)),
            held,
            list(tasks),
        )

    def seed_questions(self) -> list[str]:
        return self.known_questions

    def zero_questions(self) -> list[str]:
        return ["0+0"]

    def training_questions(self) -> list[tuple[str, str]]:
        return [("sums", question) for question in self.known_questions]

    def verifiable_tasks(self) -> list[tuple[str, str, str]]:
        return self.starts

    def questions(self, split: str, families: tuple[str, ...]) -> list[str]:
        return [f"{split}: 2+3"]

    def program(self, question: str, answer: str) -> str:
        return programs.program(question, answer)

    def answer(self, question: str) -> str | None:
        found = SUM.fullmatch(question)
        return (
            str(int(found[1]) + int(found[2]))
            if found
            else "x*3"
            if question.startswith("f(")
            else None
        )

    def held_out(self, question: str) -> bool:
        return question in self.held

    def valid(self, question: str) -> bool:
        return self.answer(question) is not None

    def is_correct(self, question: str, answer: str | None) -> bool | None:
        return answer == self.answer(question) if self.valid(question) else None

    def level(self, question: str) -> int | None:
        return (3 if question[0] == "9" else 1) if self.valid(question) else None

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        return (
            verifier == TESTS if kind == "code" else self.is_correct(question, verifier)
        )

    def fits(self, question: str, plan: str) -> bool | None:
        return plan == "add" if self.valid(question) else None


def text(turn: Turn) -> str:
    """What a turn asks."""
    return turn.messages[0]["content"]


def prompts(turns: Iterable[Turn]) -> list[str]:
    """What turns ask."""
    return [text(turn) for turn in turns]


def earned(outcome: Outcome, *roles: str) -> list:
    """(role, reward) of the samples; of the roles named the rewards alone."""
    pairs = [(sample.role, sample.reward) for sample in outcome.samples]
    return [reward for role, reward in pairs if role in roles] if roles else pairs


def free(
    question: object = "How many moons has Mars?",
    answer: object = 2,
    kind: object = "Integer",
) -> str:
    """A free-form task as SPICE's Challenger writes it."""
    return json.dumps({"question": question, "answer": answer, "answer_type": kind})


def mcq(question: object = "Which? A) 1 B) 2 C) 3 D) 4", letter: object = "B") -> str:
    """A multiple-choice task as SPICE's Challenger writes it."""
    return json.dumps(
        {"multiple_choice_question": question, "multiple_choice_correct": letter}
    )


def boxes(*answers: object) -> list[str]:
    """Answers in boxes."""
    return [rf"\boxed{{{answer}}}" for answer in answers]


def scripted(
    method: Method, say: Callable | Sequence, seeds: Iterable[int] = (0,)
) -> tuple[list[Outcome], list[Turn]]:
    """Play one step of episodes; return their outcomes and every turn that was asked."""
    engine = Scripted(say)
    return play([method.observed(Random(seed)) for seed in seeds], engine), engine.asked


def by_hand(
    method: Method, *waves: list[str], seed: int = 0, key: tuple[int, ...] = ()
) -> EpisodeStepper:
    """Answer an episode by hand, wave after wave."""
    steps = EpisodeStepper(method.observed(Random(seed)), Scripted(), key)
    for wave in waves:
        steps.answer(wave)
    return steps
