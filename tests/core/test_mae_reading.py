"""How MAE reads replies: as the paper says, and as the authors' released code does."""

import re

import pytest
from pytest import approx

from coevolve.methods.mae.method import MAE
from coevolve.methods.mae.reading import OFFICIAL, PAPER
from coevolve.types import Reply, Turn


class TestOfficialScore:
    """The score of a judgement, mapped from 1 to 10 to [0, 1]."""

    SCORES = {
        "<score>8</score>": 7 / 9,
        "<SCORE>8</SCORE>": 7 / 9,
        "<score>good: 8</score>": 7 / 9,
        "<score>7.5</score>": 6.5 / 9,
        # Of several numbers a fraction counts, then a decimal, then the first whole one.
        "<score>8, not 9</score>": 7 / 9,
        "<score>8 or 9.5</score>": 8.5 / 9,
        "<score>9/2</score>": 3.5 / 9,
        # Scores out of range become the nearer end; signs are not read.
        "<score>12</score>": 1.0,
        "<score>0</score>": 0.0,
        "<score>7/10</score>": 0.0,
        "<score>-8</score>": 7 / 9,
        # The first pair with a number counts, else the last number of the text.
        "<score>8</score><score>2</score>": 7 / 9,
        "<score>X</score><score>2</score>": 1 / 9,
        "I give it 3 of 8": 7 / 9,
        "<score>4": 3 / 9,
        "2 and <score>1/0</score>": None,
        # Beyond the largest float, and with more digits than Python reads.
        f"<score>{'9' * 310}/1</score>": None,
        f"<score>{'9' * 5000}/1</score>": None,
        "<score>good</score>": None,
        "": None,
    }

    @pytest.mark.parametrize(("text", "score"), SCORES.items())
    def test_score(self, text: str, score: float | None) -> None:
        assert OFFICIAL.score(text) == (None if score is None else approx(score))


class TestOfficialQuestion:
    """The question of a proposal."""

    QUESTIONS = {
        "<question> 1+1 </question>": "1+1",
        "<question>1</question> or <question>2</question>": "2",
        "<question>1</question><question> </question>": None,
        "<question>1<question>2</question>": "1<question>2",
        "<question>1": None,
        "": None,
    }

    @pytest.mark.parametrize(("text", "question"), QUESTIONS.items())
    def test_question(self, text: str, question: str | None) -> None:
        assert OFFICIAL.question(text) == question


class TestOfficialFormat:
    """The format reward, by the numbers of opening and closing tags."""

    PAIR = "<question>1</question>"
    ANSWER = "<answer>2</answer>"
    TYPE = "<type>math</type>"
    PROPOSALS = {
        PAIR: 1.0,
        PAIR * 3: 1.0,
        PAIR * 4: 0.5,
        "</question><question>": 1.0,
        "<question>": 0.0,
        "": 0.0,
        # Answers must number one more than the questions.
        PAIR + ANSWER: 0.5,
        PAIR + 2 * ANSWER: 1.0,
        PAIR + 2 * ANSWER + "<answer>": 0.5,
        PAIR + TYPE: 1.0,
        PAIR + 2 * TYPE: 0.75,
        PAIR + ANSWER + "</type>": 1 / 3,
    }

    @pytest.mark.parametrize(("text", "reward"), PROPOSALS.items())
    def test_proposal(self, text: str, reward: float) -> None:
        assert OFFICIAL.format(text, "question") == approx(reward)

    @pytest.mark.parametrize("name", ["answer", "score"])
    def test_other_roles_may_have_one_pair(self, name: str) -> None:
        pair = f"<{name}>1</{name}>"
        assert OFFICIAL.format(pair, name) == 1.0
        assert OFFICIAL.format(pair * 2, name) == 0.5
        assert OFFICIAL.format(f"<{name}>1", name) == 0.0
        assert OFFICIAL.format("1", name) == 0.0


def test_the_paper_reads_more_strictly() -> None:
    assert PAPER.question("<question>1</question><question>2</question>") is None
    assert PAPER.score("<score>12</score>") == 0.5
    assert PAPER.score("8") is None
    assert PAPER.format("</score><score>", "score") == 0.0


class AnyNumber(MAE):
    """MAE with a reader of its own: the last number of a reply is the answer."""

    def read_answer(self, text: str) -> str | None:
        """Return the last number."""
        numbers = re.findall(r"[0-9]+", text)
        return numbers[-1] if numbers else None


def test_training_reads_answers_as_the_method_does() -> None:
    turn = Turn("solver", ())
    (pair,) = AnyNumber().read_pairs(["2+3"], [Reply(turn, "it is 5")])
    assert pair.answer == "5"
