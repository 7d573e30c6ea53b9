"""The oracle's dial: how often, and where, its word is right."""

from statistics import fmean

import pytest

from coevolve.training.controls.dial import Dial
from tinyworld import TinyWorld, tasks

WORLD = TinyWorld()
TASKS = tasks.items("train", 60, ("add", "sub", "word"))
HARDER = tasks.items("train", 160, ("word", "word2", "swap"))


@pytest.mark.parametrize("accuracy", [0.5, 0.7, 0.9, 1.0])
@pytest.mark.parametrize("errors", ["random", "question", "level"])
def test_the_dial_is_as_often_right_as_it_says(accuracy, errors):
    dial = Dial(WORLD, accuracy, errors, seed=3)
    verdicts = []
    for number, task in enumerate(TASKS * 6):
        key = (0, 0, number, 0)
        verdict = dial.answer_is_correct(task.question, task.answer, key)
        verdicts.append(verdict)
    # With errors by question there are 180 independent draws, and levels weigh a little unequally.
    tolerance = 0.12 if errors == "question" else 0.05
    share = fmean(verdicts)
    assert share == pytest.approx(accuracy, abs=tolerance)


def test_errors_by_question_are_always_the_same():
    dial = Dial(WORLD, 0.7, "question")
    for task in TASKS[:40]:
        words = set()
        denials = set()
        for i in range(20):
            key = (i,)
            word = dial.answer_is_correct(task.question, task.answer, key)
            denial = dial.answer_is_correct(task.question, "x", key)
            words.add(word)
            denials.add(denial)
        assert len(words) == 1
        assert words != denials


def test_errors_by_level_fall_with_the_level():
    dial = Dial(WORLD, 0.75, "level")
    hits = {1: [], 2: [], 3: []}
    for number, task in enumerate(HARDER):
        for i in range(10):
            key = (number, i)
            verdict = dial.answer_is_correct(task.question, task.answer, key)
            hits[task.level].append(verdict)
    easy = fmean(hits[1])
    middling = fmean(hits[2])
    hard = fmean(hits[3])
    assert easy > middling + 0.1
    assert middling > hard + 0.1


def test_an_ill_formed_question_gets_a_coins_word():
    dial = Dial(WORLD)
    words = []
    for i in range(400):
        word = dial.answer_is_correct("what is it", "2", (i,))
        words.append(word)
    share = fmean(words)
    assert 0.4 < share < 0.6
