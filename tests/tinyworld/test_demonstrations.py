"""Demonstrations: every role in its compact prompt and form, by the demonstrator's skill."""

import json
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import pytest
from data_files import tables

from coevolve.text import prompts
from tinyworld import programs, tasks
from tinyworld.demonstrations import ROLES, demonstrate, prompt_of, well_formed
from tinyworld.demonstrator import (
    HIGH_SCORES,
    JUDGE_SKILL,
    LOW_SCORES,
    PERFECT_SKILL,
    PLANNER_SKILL,
    SKILL_WITH_PLAN,
    SLIP_RATE,
    SLIPPERY_FAMILIES,
    SLIPPERY_SLIP_RATE,
    SOLVER_SKILL,
    Demonstrator,
    Example,
    slip,
)
from tinyworld.tasks import Task

PAPERS = ("mae", "sage", "comas", "conl", "spice")
CASES = tables("demonstrations")
SHARED = CASES["shared"]
ILL_FORMED = CASES["ill_formed"]


def draw_examples(
    role: str, count: int, seed: str, skill: dict = SOLVER_SKILL
) -> list[Example]:
    rng = Demonstrator(seed)
    rng.skill = skill
    return [ROLES[role].draw(rng) for _ in range(count)]


def shares(rows: Iterable[tuple[Hashable, bool]]) -> dict[Hashable, float]:
    """Return by key the share of rows that are true."""
    values = defaultdict(list)
    for key, value in rows:
        values[key].append(value)
    return {key: sum(column) / len(column) for key, column in values.items()}


# Prompts and forms


def questions_in(text: str) -> set[str]:
    """Return the well-formed questions of a text: what stands between its marks."""
    parts = re.split(r"[<>\n\";]|: ", text)
    return {part.strip() for part in parts if tasks.read(part.strip())}


@pytest.mark.parametrize("variant", ["compact", "plain"])
def test_no_demonstration_shows_a_held_out_question(variant: str) -> None:
    rng = Demonstrator(f"held out {variant}")
    shown: set[str] = set()
    for role in ROLES:
        for _ in range(300):
            _, prompt, completion = demonstrate(rng, role, variant)
            shown |= questions_in(prompt) | questions_in(completion)
    assert len(shown) > 5000
    assert {tasks.split(question) for question in shown} == {"train"}


def test_every_compact_prompt_is_demonstrated_by_one_role() -> None:
    files = set()
    for paper in PAPERS:
        files |= {f"{paper}/{role}" for role in prompts.available(paper, "compact")}
    assert files == {*ROLES, *SHARED}
    assert ROLES.keys().isdisjoint(SHARED)


@pytest.mark.parametrize(("role", "other"), SHARED.items())
def test_roles_that_share_a_demonstration_share_the_prompt(
    role: str, other: str
) -> None:
    text = prompts.read(*role.split("/"), "compact")
    assert text == prompts.read(*other.split("/"), "compact")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "skill", [SOLVER_SKILL, PERFECT_SKILL], ids=["habits", "truth"]
)
def test_every_example_has_the_form_and_the_fields_of_its_role(
    role: str, skill: dict
) -> None:
    for fields, completion in draw_examples(role, 150, f"tests {role}", skill):
        assert well_formed(role, completion), completion
        assert fields.keys() == prompt_of(role).fields


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "skill", [SOLVER_SKILL, PERFECT_SKILL], ids=["habits", "truth"]
)
def test_a_demonstration_is_the_filled_prompt_and_the_reply_with_a_slip(
    role: str, skill: dict
) -> None:
    rng = Demonstrator(f"tests {role}")
    rng.skill = skill
    for _ in range(150):
        state = rng.getstate()
        name, prompt, completion = demonstrate(rng, role)
        rng.setstate(state)
        example = ROLES[role].draw(rng)
        assert name == role
        assert prompt == prompt_of(role)(**example.fields).messages[0]["content"]
        assert completion == slip(rng, example.completion)
        has_braces = "{" in prompt or "}" in prompt
        assert not has_braces or "boxed{" in prompt


@pytest.mark.parametrize("role", ILL_FORMED)
def test_other_text_is_not_well_formed(role: str) -> None:
    for text in ILL_FORMED[role]:
        assert not well_formed(role, text), text


# Solvers


@dataclass(frozen=True)
class Solved:
    task: Task
    answer: str

    @property
    def is_ambiguous(self) -> bool:
        """Whether the misconception happens to be correct."""
        return self.task.misconception == self.task.answer

    @property
    def is_correct(self) -> bool:
        return self.answer == self.task.answer


def draw_solutions(skill: dict) -> list[Solved]:
    solutions = []
    for fields, completion in draw_examples("mae/solver", 2000, "solutions", skill):
        answer = re.search("<answer>(.*)</answer>", completion)[1]
        solutions.append(Solved(tasks.read(fields["question"]), answer))
    return solutions


def test_solutions_of_perfect_skill_are_correct() -> None:
    assert all(solution.is_correct for solution in draw_solutions(PERFECT_SKILL))


def test_solutions_are_correct_by_skill_and_show_the_misconception_otherwise() -> None:
    solutions = draw_solutions(SOLVER_SKILL)
    for solution in solutions:
        assert solution.answer in (solution.task.answer, solution.task.misconception)
    clear = [solution for solution in solutions if not solution.is_ambiguous]
    rates = shares((solution.task.level, solution.is_correct) for solution in clear)
    assert rates == pytest.approx(SOLVER_SKILL, abs=0.08)


def test_solutions_teach_no_fact_that_only_documents_state() -> None:
    assert all(tasks.closed(solution.task) for solution in draw_solutions(SOLVER_SKILL))


# Judges and planners


@dataclass(frozen=True)
class Judged:
    task: Task
    answer: str
    judge_answer: str
    score: int


@pytest.fixture(scope="module")
def judgements() -> list[Judged]:
    judged = []
    for fields, completion in draw_examples("mae/judge_answer", 3000, "judges"):
        form = re.fullmatch(r"<think>(.*)</think><score>(\d+)</score>", completion)
        task = tasks.read(fields["question"])
        judged.append(Judged(task, fields["answer"], form[1], int(form[2])))
    return judged


def without_choices(judgements: list[Judged]) -> list[Judged]:
    """Leave out multiple choice, where the thought holds more than the answer."""
    return [judged for judged in judgements if judged.task.family != tasks.CHOICE]


def test_a_judge_scores_high_exactly_where_the_answers_agree(
    judgements: list[Judged],
) -> None:
    for judged in without_choices(judgements):
        assert (judged.score in HIGH_SCORES) == (judged.judge_answer == judged.answer)


def test_judges_give_every_score(judgements: list[Judged]) -> None:
    scores = {judged.score for judged in judgements}
    assert scores == {*LOW_SCORES, *HIGH_SCORES}
    assert len(scores) == 8


def test_judges_are_correct_by_skill(judgements: list[Judged]) -> None:
    rows = []
    for judged in without_choices(judgements):
        task = judged.task
        if task.answer != task.misconception:
            rows.append((task.level, judged.judge_answer == task.answer))
    assert shares(rows) == pytest.approx(JUDGE_SKILL, abs=0.05)


@dataclass(frozen=True)
class Planned:
    task: Task
    plan_is_correct: bool
    answer_is_correct: bool


@pytest.fixture(scope="module")
def planned_solutions() -> list[Planned]:
    planned = []
    for fields, completion in draw_examples("sage/solver", 6000, "planners"):
        task = tasks.read(fields["question"])
        plan_is_correct = fields["plan"] == task.plan
        answer_is_correct = f"<answer>{task.answer}</answer>" in completion
        planned.append(Planned(task, plan_is_correct, answer_is_correct))
    return planned


def test_planners_are_correct_by_skill(planned_solutions: list[Planned]) -> None:
    rates = shares(
        (planned.task.level, planned.plan_is_correct) for planned in planned_solutions
    )
    assert rates == pytest.approx(PLANNER_SKILL, abs=0.05)


@pytest.mark.parametrize("plan_is_correct", [True, False])
def test_a_plan_helps_if_correct_and_harms_otherwise(
    planned_solutions: list[Planned], plan_is_correct: bool
) -> None:
    rows = []
    for planned in planned_solutions:
        task = planned.task
        if (
            planned.plan_is_correct == plan_is_correct
            and task.answer != task.misconception
        ):
            rows.append((task.level, planned.answer_is_correct))
    assert shares(rows) == pytest.approx(SKILL_WITH_PLAN[plan_is_correct], abs=0.08)


# Slips


def test_replies_slip_most_about_slippery_families() -> None:
    rng = Demonstrator("slips")
    rows = []
    for _ in range(3000):
        role, _, completion = demonstrate(rng, "mae/solver")
        is_slippery = rng.task.family in SLIPPERY_FAMILIES
        rows.append((is_slippery, not well_formed(role, completion)))
    rates = {True: SLIPPERY_SLIP_RATE, False: SLIP_RATE}
    assert shares(rows) == pytest.approx(rates, abs=0.06)


# Documents and programs


def test_challengers_ask_what_the_document_states_or_decline() -> None:
    declined = 0
    for fields, completion in draw_examples("spice/challenger_free", 300, "documents"):
        task = json.loads(completion)
        assert task["answer_type"] == fields["answer_type"]
        if task["question"] == "":
            assert task["answer"] == ""
            declined += 1
        else:
            assert f"{task['question']}: {task['answer']}" in fields["document"]
    assert 0 < declined < 30


@pytest.mark.parametrize("family", programs.PROGRAMS)
def test_the_verifier_of_a_program_is_one_unit_test_of_its_answer(family: str) -> None:
    rng = Demonstrator("unit tests")
    for _ in range(60):
        task = tasks.draw(rng, family)
        kind, test = programs.verifier_of(task, task.answer)
        assert kind == "code"
        assert test == programs.tests_of(task, task.answer)
        assert re.fullmatch(r'assert f\(\d+\)==-?\d+|assert g\("\d+"\)=="\d+"', test)


def test_the_verifier_of_any_other_task_is_its_gold_answer() -> None:
    assert programs.verifier_of(tasks.read("30+7"), "37") == ("math", "37")
