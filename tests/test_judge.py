"""The judge of MAE's evaluation: four prompts, the last tag counts, failures never become wrong."""

import json
from pathlib import Path

import pytest

from coevolve.evaluate.judge import PROMPTS, Judged, judge, verdict
from coevolve.play import Batched
from coevolve.types import Reply, Turn
from coevolve.worlds.rows import Item

SAMPLES = Path(__file__).parent / "data" / "hostile_strings.jsonl"
TRUE, FALSE = "<answer>TRUE</answer>", "<answer>FALSE</answer>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRUE, True),
        (FALSE, False),
        ("<think>it is <answer>FALSE</answer>?</think>\n<answer>TRUE</answer>", True),  # the last tag counts
        (f"{TRUE}{FALSE}", False),
        (f"{TRUE} or {FALSE} <answer>maybe</answer>", None),  # also when it is the last that cannot be read
        ("<answer> true\n</answer>", True),
        ("<answer>TRUE.</answer>", None),
        ("<answer>TRUE or FALSE</answer>", None),
        ("<answer></answer>", None),
        (f"{TRUE}<answer>FALSE", True),  # cut off: the last complete pair
        ("TRUE", None),
        ("", None),
    ],
)
def test_the_last_tag_counts(text: str, expected: bool | None) -> None:
    assert verdict(text) is expected


def test_no_text_breaks_it() -> None:
    for line in SAMPLES.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["input"]
        assert verdict(text) is None if isinstance(text, str) else True
    assert verdict("<answer>" * 100_000) is None


def item(n: int, kind: str = "math", gold: str | tuple[str, ...] = "7") -> Item:
    return Item("zork", f"{n}", f"Question {n}?", gold, "judge", judge=kind)


def engine(say, seen: list[Turn] | None = None) -> Batched:
    def generate(turns: list[Turn]) -> list[Reply]:
        if seen is not None:
            seen.extend(turns)
        return [Reply(turn, say(turn.messages[0]["content"])) for turn in turns]

    return Batched(generate)


def test_answer_and_gold_stand_in_their_own_places() -> None:
    seen: list[Turn] = []
    judge(engine(lambda text: TRUE, seen), [item(1, gold=("GOLD", "other"))], ["MINE"])
    (turn,) = seen
    text = turn.messages[0]["content"]
    assert "Question: Question 1?" in text
    assert "Ground truth: GOLD" in text and "model's answer: MINE" in text
    assert (turn.role, turn.policy, turn.temperature) == ("eval", "judge", 1.0)


@pytest.mark.parametrize("kind", PROMPTS)
def test_each_kind_has_its_own_prompt(kind: str) -> None:
    seen: list[Turn] = []
    judge(engine(lambda text: TRUE, seen), [item(1, kind), item(2, "general")], ["a", "b"])
    judge(engine(lambda text: TRUE, seen), [item(1, "general")], ["a"], kind=kind)
    own, general, chosen = (turn.messages[0]["content"] for turn in seen)
    assert chosen == own
    bare = [
        text.replace(f"Question {n}?", "").replace(f": {a}\n", "") for text, n, a in ((own, 1, "a"), (general, 2, "b"))
    ]
    assert (bare[0] == bare[1]) == (kind == "general")


def test_failures_are_counted_apart() -> None:
    replies = {"Question 1?": TRUE, "Question 2?": FALSE, "Question 3?": "I cannot say", "Question 4?": TRUE}
    said = engine(lambda text: next(reply for question, reply in replies.items() if question in text))
    judged = judge(said, [item(n) for n in range(1, 6)], ["a", "b", "c", "d", None])
    assert judged.correct == [True, False, None, True, False]  # nothing in the answer tags is wrong, and not asked
    assert judged.failures == 1
    summary = judged.summary()
    assert (summary["k"], summary["n"], summary["failures"], summary["accuracy"]) == (2, 4, 1, 0.5)
    assert 0 < summary["low"] < 0.5 < summary["high"] < 1
    assert judged.swapped is None


def test_a_judge_that_always_fails_has_no_accuracy() -> None:
    summary = judge(engine(lambda text: "hm"), [item(1)], ["a"]).summary()
    assert summary == {"k": 0, "n": 0, "failures": 1, "accuracy": None, "low": None, "high": None}
    assert Judged([]).summary()["n"] == 0


def test_the_swap_test_asks_again_with_answer_and_gold_exchanged() -> None:
    def partial(text: str) -> str:  # calls 7 and 7.0 the same in one direction only
        return TRUE if "Ground truth: 7\n" in text else FALSE

    items = [item(1), item(2), item(3, gold="8")]
    judged = judge(engine(partial), items, ["7", "7.0", "9"], swap=True)
    assert judged.correct == [True, True, False]
    assert judged.swapped == pytest.approx(2 / 3)
    assert judge(engine(lambda text: "?"), items, ["7", "7.0", "9"], swap=True).swapped is None


def test_an_item_without_a_kind_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"^judge must be one of math, choice, truthfulness, general, got ''$"):
        judge(engine(lambda text: TRUE), [item(1, "")], ["a"])
