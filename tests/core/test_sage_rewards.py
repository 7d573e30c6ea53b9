"""SAGE's equations 1 to 13 by hand, and its readers against the corpus of hostile strings."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve import parse
from coevolve.advantages import task_relative
from coevolve.papers.sage import rewards as sage
from coevolve.types import Reply, Sample, Turn

CORPUS = [json.loads(line) for line in (Path(__file__).parents[1] / "data" / "hostile_strings.jsonl").open("rb")]
TAGS = ("question", "type", "answer")
WHOLE = "<question>2+3</question><type>math</type><answer>5</answer>"


def of_kind(kind: str) -> list:
    found = [pytest.param(entry, id=entry["id"]) for entry in CORPUS if entry["kind"] == kind]
    assert found
    return found


@pytest.mark.parametrize(
    ("score", "ours", "printed"),
    [
        (0.0, 0.0, 0.0),
        (0.25, 0.25, 0.25),
        (0.999999, 0.999999, 0.999999),
        (1.0, 0.0, 1.0),  # the worst grade of the prompt's scale
        (1.5, 0.5 / 9, 0.5 / 9),
        (2.0, 1 / 9, 1 / 9),
        (5.5, 0.5, 0.5),
        (7.0, 6 / 9, 6 / 9),
        (8.0, 7 / 9, 7 / 9),
        (10.0, 1.0, 1.0),
        (10.000001, 0.5, 0.5),
        (11.0, 0.5, 0.5),
        (-1.0, 0.5, 0.5),
        (-0.5, 0.5, 0.5),
        (None, 0.5, 0.5),
    ],
)
def test_equation_2(score: float | None, ours: float, printed: float) -> None:
    assert sage.norm(score) == pytest.approx(ours)
    assert sage.norm(score, literal=True) == pytest.approx(printed)


def test_as_printed_the_worst_grade_beats_all_others_and_passes_both_gates() -> None:
    grades = [float(n) for n in range(1, 11)]
    printed = [sage.norm(grade, literal=True) for grade in grades]
    assert printed.index(max(printed)) == 0 and printed[0] == printed[-1] == 1.0
    assert printed[0] >= 0.7 and all(value < 0.7 for value in printed[1:7]), "2 to 7 stay out, 1 gets in"
    ours = [sage.norm(grade) for grade in grades]
    assert ours == sorted(ours) and ours[0] == 0.0 and len(set(ours)) == 10


@pytest.mark.parametrize("entry", of_kind("sage_norm"))
def test_scores_of_the_corpus(entry: dict) -> None:
    read, expected = parse.score_value(entry["input"]), entry["expected"]
    assert (read is not None) == expected["parsed"]
    assert sage.norm(read) == pytest.approx(expected["value"], abs=5e-5)
    assert sage.norm(read, literal=True) == pytest.approx(expected.get("paper_literal", expected["value"]), abs=5e-5)


@pytest.mark.parametrize("entry", of_kind("sage_format_plan"))
def test_plan_formats_of_the_corpus(entry: dict) -> None:
    assert sage.format_reward(entry["input"], ("plan",)) == entry["expected"]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (WHOLE, 1.0),
        (f"Here:\n{WHOLE}\nDone.", 1.0),
        ("<question>2+3</question><type>math</type>", 2 / 3),
        ("<question>2+3</question>", 1 / 3),
        ("2+3 = 5", 0.0),
        ("<question>2+3</question><type>poem</type><answer>5</answer>", 2 / 3),
        (
            "<question>2+3</question><type> code </type><answer>5</answer>",
            1.0,
        ),  # which tag holds it is the caller's affair
        (WHOLE + "<answer>6</answer>", (1 + 1 + 0.5) / 3),
        (WHOLE * 2, 0.5),
        ("<question>2+3</question><type>math</type><answer></answer>", 2 / 3),
        ("<question>[Your generated task goes here]</question><type>math</type><answer>5</answer>", 2 / 3),
        ("<question><question>2+3</question><type>math</type><answer>5</answer>", 2 / 3),
        ("<think></think>", 0.0),
    ],
)
def test_format_reward_is_soft_over_the_required_tags(text: str, reward: float) -> None:
    assert sage.format_reward(text, TAGS) == pytest.approx(reward)


@pytest.mark.parametrize("silence", ["", " ", "\n\t \u00a0"])
def test_an_output_without_text_is_neutral_as_printed_or_unpaid(silence: str) -> None:
    assert sage.format_reward(silence, TAGS) == sage.format_reward(silence, ("score",)) == 0.5
    assert sage.format_reward(silence, TAGS, empty=0.0) == 0.0
    assert sage.format_reward("no tags", ("score",)) == 0.0, "so silence earns more than a wrong format"


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("<score>7</score>", 1.0),
        ("<score>99</score>", 1.0),
        ("<score>high</score>", 0.0),
        ("7", 0.0),
        ("<score>7</score><score>7</score>", 0.5),
        ("<score>7</score><score>x</score>", 0.5),
    ],
)
def test_format_of_a_score_needs_a_number(text: str, reward: float) -> None:
    assert sage.format_reward(text, ("score",)) == reward


def test_equation_4() -> None:
    assert sage.difficulty([1.0, 0.0, 1.0, 1.0, 0.0]) == pytest.approx(2 / 5)
    assert sage.difficulty([1.0, 1.0]) == 0.0 and sage.difficulty([0.0]) == 1.0
    assert sage.difficulty([0.5, 0.25]) == pytest.approx(0.625)
    assert sage.difficulty([1.0, None, 0.0, None]) == 0.5, "what could not be scored is left out"
    assert sage.difficulty([]) is None and sage.difficulty([None]) is None


def test_equations_5_and_6() -> None:
    assert sage.challenger_reward(7 / 9, 0.4, 1.0) == pytest.approx((7 / 9 + 0.4 + 1) / 3)
    assert sage.challenger_reward(1.0, 0.0, 0.5) == pytest.approx(0.5)
    assert sage.challenger_reward(6 / 9, None, 1.0) == pytest.approx((6 / 9 + 1) / 2)
    assert sage.challenger_reward(0.0, None, 0.5) == 0.25


def test_equation_8() -> None:
    assert sage.planner_reward(7 / 9, 1.0) == pytest.approx(7 / 18 + 1 / 2)
    assert sage.planner_reward(0.2, 1.0, (0.75, 0.25)) == pytest.approx(0.4)


@pytest.mark.parametrize(("score", "paid"), [(0.0, 0.0), (0.299, 0.0), (0.3, 0.3), (0.31, 0.31), (1.0, 1.0)])
def test_equation_10(score: float, paid: float) -> None:
    assert sage.gated(score, 0.3) == paid
    assert sage.gated(score, 0.0) == score


def test_equation_11_and_its_fall_back_without_a_plan_score() -> None:
    assert sage.solver_reward(7 / 9, 1.0, 1.0) == pytest.approx(0.2 * 7 / 9 + 0.6 + 0.2)
    assert sage.solver_reward(0.0, 1.0, 0.5) == pytest.approx(0.7)
    assert sage.solver_reward(1.0, 0.0, 0.0) == pytest.approx(0.2)
    assert sage.solver_reward(0.5, 1.0, 0.0, (0.5, 0.25, 0.25)) == pytest.approx(0.5)
    assert sage.solver_reward(None, 1.0, 0.5) == 0.75 and sage.solver_reward(None, 0.0, 1.0) == 0.5


def test_equation_13() -> None:
    assert [sage.critic_reward(value) for value in (0.0, 0.5, 1.0)] == [0.0, 0.5, 1.0]


def test_equation_1_standardises_each_role_by_itself() -> None:
    def sample(role: str, reward: float) -> Sample:
        return Reply(Turn(role, ()), "x", (1,), (2,), (-1.0,), (1,)).earns(reward)

    samples = [
        sample("challenger", 0.2),
        sample("solver", 1.0),
        sample("challenger", 0.8),
        sample("solver", 0.0),
        sample("critic", 1.0),
        sample("critic", 1.0),
        sample("solver", 0.5),
    ]
    # challenger: mean 0.5, sd 0.3; solver: mean 0.5, sd sqrt(1/6); critic: no variance
    third = 0.5 / (1 / 6) ** 0.5
    assert [round(a, 4) for (a,) in task_relative(samples)] == [-1, round(third, 4), 1, round(-third, 4), 0, 0, 0]


@given(st.text(), st.sampled_from([("score",), ("plan",), TAGS]))
def test_format_is_total_and_in_range(text: str, tags: tuple[str, ...]) -> None:
    assert 0 <= sage.format_reward(text, tags) <= 1


@given(st.floats(allow_nan=False), st.booleans())
def test_norm_is_total_and_in_range(score: float, literal: bool) -> None:
    assert 0 <= sage.norm(score, literal) <= 1


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("So:\n```python\ndef f(x):\n    return x\n```\nthat is it", "def f(x):\n    return x\n"),
        ("```py\nx\n```", "x\n"),
        ("```python  \nx\n```  ", "x\n"),
        ("```python\n```", None),
        ("```python\n\n```", None),
        ("```\nx\n```", None),
        ("```python\nx\n```\n```python\ny\n```", None),
        ("```python\nx", None),
        ("```python\nx```", None),
        ("```python\nx\n```\n```python\n", None),
        ("x ```python\nx\n```", None),
        ("```Python\nx\n```", None),
        ("```bash\nls\n```\n```python\nx\n```", "x\n"),
        ("```python\n```python\nx\n```", "```python\nx\n"),
        ("", None),
    ],
)
def test_the_one_program_of_a_reply(text: str, program: str | None) -> None:
    assert parse.code_block(text) == program
    assert (parse.code_block(text.replace("\n", "\r\n")) is None) == (program is None)


@given(st.text())
def test_reading_a_program_is_total(text: str) -> None:
    parse.code_block(text)
    parse.code_block(f"```python\n{text}\n```")
