"""Set-ups at work: scoring with an exact oracle, three lines for a notebook, and the embedded backbone."""

import re
import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pandas
import pytest
from core.conftest import Scripted

from coevolve.engines.loading import load_policy
from coevolve.engines.router import make_engine
from coevolve.evaluation.scoring import gain, score, tally
from coevolve.evaluation.strategies import SETUPS, ask
from coevolve.methods.mae import MAE
from coevolve.models.policy_set import PolicySet
from coevolve.runs.record import SCORE_FIELDS
from coevolve.types import Reply, Turn
from tinyworld import tasks as tiny


def sums(
    question: str, temperature=None, misconception="wrong", level=2
) -> SimpleNamespace:
    """A held-out item whose answer is its first number."""
    given = {"temperature": temperature, "misconception": misconception, "level": level}
    return SimpleNamespace(question=question, family="sums", split="test", **given)


class Sums:
    """A world that knows these answers, and nothing about the question 9+0."""

    def grade(
        self, pairs: Sequence[tuple[SimpleNamespace, str | None]]
    ) -> list[bool | None]:
        return [
            None if item.question == "9+0" else answer == item.question[0]
            for item, answer in pairs
        ]


SIX = [sums(f"{number}+0") for number in range(1, 7)]
ADDS = MAE(world=Sums())


def oracle(wrong: Callable[[Turn], object] = lambda turn: False) -> Scripted:
    """Answers right unless told otherwise, in every form at once, and accepts every solution."""

    def say(turn: Turn) -> Reply:
        (question,) = re.findall(
            r"<question>(.*?)</question>", turn.messages[0]["content"]
        )
        said = "wrong" if wrong(turn) else question[0]
        revised = f"<revised_solution>\nANSWER: {said}\n</revised_solution>"
        return Reply(
            turn,
            f"<answer>{said}</answer> \\boxed{{{said}}}\n{revised}\nverdict: right",
            (1,),
            (2, 3),
        )

    return Scripted(say)


@pytest.mark.parametrize("name", SETUPS)
def test_score_verifies_exactly_under_every_setup(name: str) -> None:
    rows = score(oracle(), ADDS, SIX, name)
    assert tally(rows) == {"k": 6, "n": 6} and [row["item"] for row in rows] == list(
        range(6)
    )
    assert {(row["setup"], row["misconception"]) for row in rows} == {(name, 0)}
    rows = score(oracle(lambda turn: True), ADDS, SIX, name)
    assert tally(rows) == {"k": 0, "n": 6} and {
        row["misconception"] for row in rows
    } == {1}


def test_a_row_says_what_was_asked_and_what_came_back() -> None:
    rows = score(oracle(), ADDS, [sums("9+0", misconception=None, level=None), SIX[0]])
    assert sorted(["stage", *rows[1]]) == sorted(SCORE_FIELDS)
    assert [*rows[1].values()] == [
        "vanilla",
        "sums",
        "test",
        2,
        1,
        "1+0",
        1,
        0,
        "1",
        True,
        1,
        2,
    ]
    assert (rows[0]["correct"], rows[0]["misconception"], rows[0]["level"]) == (
        None,
        0,
        None,
    )
    assert tally(rows) == {"k": 1, "n": 1}


def test_a_gain_has_no_limits_where_all_changed_alike_or_nothing_was_scored() -> None:
    frame = pandas.DataFrame(
        {
            "stage": ["before", "after"] * 2,
            "item": [0, 0, 1, 1],
            "correct": [0, 1, 0, 1],
        }
    )
    frames = [
        made.assign(setup="vanilla")
        for made in (frame, frame.assign(correct=None), frame[:0])
    ]
    assert [repr(gain(made)) for made in frames] == [
        "(100.0, nan, nan)",
        *["(0.0, nan, nan)"] * 2,
    ]


def test_score_deals_items_to_policies_in_turn() -> None:
    rows = score(
        oracle(lambda turn: turn.policy == "b"), ADDS, SIX, policies=("a", "b", "c")
    )
    assert [row["correct"] for row in rows] == [1, 0, 1, 1, 0, 1]
    engine = oracle()
    score(engine, ADDS, SIX[:2], "consistency", policies=("a", "b"))
    assert "".join(turn.policy for turn in engine.asked) == "ababa" + "babab"


def test_score_is_greedy_unless_setup_item_or_caller_say_otherwise() -> None:
    # the set-up, the item's own temperature (its paper evaluates it so), the caller's
    heats = {
        ("vanilla", None, None): 0.0,
        ("vanilla", 0.6, None): 0.6,
        ("vanilla", 0.6, 1.0): 1.0,
    }
    heats |= {("consistency", None, None): 0.7, ("debate", None, 0.0): 0.0}
    for (setup, own, told), heat in heats.items():
        engine = oracle()
        score(engine, ADDS, [sums("1+0", own)], setup, temperature=told)
        assert {turn.temperature for turn in engine.asked} == {heat}, (setup, own, told)


def test_maslabs_set_ups_end_with_a_solution_that_sums_up() -> None:
    for setup, turns in (("consistency_summed", 5 + 1), ("debate_summed", 3 + 3 + 1)):
        engine = oracle(
            lambda turn: "solution>" not in turn.messages[0]["content"]
        )  # right once it reads solutions
        assert ask(engine, "3+4", setup)["answer"] == "3" and len(engine.asked) == turns


def test_ask_answers_one_question_or_several_with_one_policy_or_several() -> None:
    one = ask(oracle(), "3+4", setup="debate")
    assert one["answer"] == "3" and one["votes"] == 4
    assert [
        facts["answer"] for facts in ask(oracle(), ["3+4", "2+2"], "consistency")
    ] == ["3", "2"]
    assert ask(oracle(), [], "vanilla") == []
    team = PolicySet({"left": "tiny", "right": "tiny-small"}, ("left", "right"))
    seats = make_engine(team, "torch", 1.0, 64)
    facts = ask(
        seats, ["3+4", "2+2"], setup="debate", agents=2, rounds=1, policies=team.trained
    )
    alone = [ask(team.policies["left"], "3+4"), ask(seats, "3+4", policies=["left"])]
    assert [len(found["answers"]) for found in facts] == [2, 2] and alone[0][
        "answer"
    ] == alone[1]["answer"]


def test_the_limit_of_compact_prompts_grows_with_the_seats() -> None:
    limits = (
        ({}, 64),
        ({"agents": 8}, 320),
        ({"agents": 8, "max_tokens": 9}, 9),
        ({"prompt": "full", "agents": 8}, 4096),
    )
    for options, most in limits:
        engine = Scripted(lambda turn: "")
        ask(engine, "3+4", "top_ranked", **options)
        assert {turn.max_tokens for turn in engine.asked} == {most}


def test_eight_embedded_agents_finish_what_they_say_and_are_ranked() -> None:
    questions = [task.question for task in tiny.items("validation", 1)][:4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = ask(load_policy("tiny"), questions, "top_ranked", agents=8)
    assert all(found["finished"] for found in facts) and any(
        len(set(found["scores"])) > 1 for found in facts
    )


def test_ask_warns_once_of_conversations_with_a_reply_that_was_cut_off() -> None:
    def cut(*questions: int) -> Scripted:
        return Scripted(
            lambda turn: Reply(
                turn, "", finished=turn.key[-2] not in questions or turn.key[-1] > 0
            )
        )

    asked = ["3+4", "2+2", "1+1"]
    with pytest.warns(
        UserWarning,
        match=r"max_tokens=64 in 2 of 3 conversations \(setup 'consistency'\)",
    ) as seen:
        facts = ask(cut(0, 2), asked, "consistency")
    assert len(seen) == 1 and seen[0].filename == __file__
    assert [found["finished"] for found in facts] == [False, True, False]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(cut(), asked, "debate")


@pytest.mark.parametrize("name", SETUPS)
def test_the_embedded_backbone_speaks_every_setup(name: str) -> None:
    policy, questions = (
        load_policy("tiny"),
        [task.question for task in tiny.items("validation", 1)][:8],
    )
    facts = ask(policy, questions, setup=name)
    assert (
        sum(fact["answer"] is not None for fact in facts) >= 5
    )  # it slips now and then, by design
    assert facts == ask(policy, questions, setup=name)  # keyed noise
