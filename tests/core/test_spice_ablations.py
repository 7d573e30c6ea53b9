"""SPICE's arguments by hand: forms of task, Tables 2 to 4, Figure 4a, and who reads what."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from core.conftest import boxes, by_hand, earned, free, prompts, scripted, text
from core.spice_cases import (
    FREE_FORM,
    MULTIPLE_CHOICE,
    REWARD_AT_A_QUARTER,
    REWARD_AT_ZERO,
    make_spice,
    suitable,
    write_corpus,
)
from pytest import approx

from coevolve.methods.spice.method import SPICE
from coevolve.methods.spice.parsing import ANSWER_TYPES
from coevolve.types import Turn


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """A corpus of one document."""
    return write_corpus(tmp_path)


def half_solved(turn: Turn) -> str:
    """Ask a new sum each time, and solve half of them."""
    number = turn.key[-1]
    if turn.role == "format":
        return FREE_FORM
    if turn.role == "challenger":
        return free(f"{number} and {number}?", 2 * number)
    question = text(turn).removeprefix("solve box<question>")
    addend, _, _ = question.partition(" ")
    answer = 2 * int(addend) if number % 2 else 0
    (boxed,) = boxes(answer)
    return boxed


def turns_of(turns: list[Turn], role: str) -> list[Turn]:
    """Return the turns of one role."""
    return [turn for turn in turns if turn.role == role]


def test_an_unreadable_choice_of_the_form_is_random_and_counted(corpus: str) -> None:
    outcomes, turns = scripted(make_spice(corpus), lambda turn: "hm", range(300))
    forms = Counter()
    for turn in turns:
        if turn.key[1] == 1:
            _, _, form = text(turn).rpartition("ask ")
            forms[form] += 1
    assert set(forms) == {"mcq", *ANSWER_TYPES}
    assert 110 < forms["mcq"] < 190
    assert min(forms.values()) > 8
    unreadable = {outcome.facts["format_unreadable"] for outcome in outcomes}
    assert unreadable == {1.0}


@dataclass(frozen=True)
class Form:
    """The allowed types of task, the Challenger's choice, and the form that it must write."""

    task_types: tuple[str, ...]
    choice: str
    form: str


UNTYPED = suitable(mcq=False, answer_type=None)
FORMS = {
    "free form alone": Form(("free",), FREE_FORM, "Integer"),
    "multiple choice is not allowed": Form(("free",), MULTIPLE_CHOICE, "String"),
    "multiple choice": Form(("mcq", "free"), MULTIPLE_CHOICE, "mcq"),
    "no answer type": Form(("mcq", "free"), UNTYPED, "String"),
}


@pytest.mark.parametrize("case", FORMS.values(), ids=FORMS)
def test_the_task_types_of_table_3(corpus: str, case: Form) -> None:
    spice = make_spice(corpus, task_types=case.task_types)
    turns = by_hand(spice, [case.choice]).pending_turns
    assert text(turns[0]).endswith(f"ask {case.form}")


def test_multiple_choice_alone_leaves_nothing_to_select(corpus: str) -> None:
    spice = make_spice(corpus, task_types=("mcq",))
    turns = by_hand(spice).pending_turns
    assert turns[0].role == "challenger"


@pytest.mark.parametrize(
    ("task_types", "share"), [(("mcq", "free"), 0.0), (("free",), None)]
)
def test_a_choice_of_one_type_is_no_choice(
    corpus: str, task_types: tuple[str, ...], share: float | None
) -> None:
    spice = make_spice(corpus, task_types=task_types)
    attempts = [free("A?", 1)] * 4
    outcome = by_hand(spice, [FREE_FORM], attempts, boxes(*[1, 0] * 8)).outcome
    assert outcome.facts["mcq"] == share


def test_multiple_choice_without_documents_is_refused() -> None:
    with pytest.raises(ValueError, match='task_types must include "free"'):
        make_spice("none", task_types=("mcq",))


@dataclass(frozen=True)
class Table4:
    """What a row of Table 4 pays for pass rates of 1/4 and 0."""

    kind: str
    at_a_quarter: float
    at_zero: float


TABLE_4 = [
    Table4("variance", REWARD_AT_A_QUARTER, REWARD_AT_ZERO),
    Table4("absolute_zero", 0.75, 0.0),
    Table4("threshold", 1.0, 0.0),
    Table4("rzero", 0.5, 0.0),
]


@pytest.mark.parametrize("row", TABLE_4, ids=lambda row: row.kind)
def test_the_rewards_of_table_4_change_what_the_challenger_earns(
    corpus: str, row: Table4
) -> None:
    spice = make_spice(corpus, reward=row.kind, penalty=-0.5)
    attempts = [free("A?", 1), free("B?", 1), "x", "x"]
    answers = boxes(1, 0, 0, 0, 0, 0, 0, 0)
    outcome = by_hand(spice, [FREE_FORM], attempts, answers).outcome
    rewards = [row.at_a_quarter, row.at_zero, -0.5, -0.5]
    assert earned(outcome, "challenger") == approx(rewards)


@pytest.mark.parametrize(
    ("challenger", "policy", "frozen"),
    [
        ("untrained", "shared", ()),
        ("fixed", "challenger", ("challenger",)),
    ],
)
def test_an_untrained_or_fixed_challenger_earns_nothing_and_the_reasoner_the_same(
    challenger: str, policy: str, frozen: tuple[str, ...]
) -> None:
    outcomes, turns = scripted(make_spice(), half_solved, range(6))
    ablation = make_spice(challenger=challenger)
    ablated_outcomes, ablated_turns = scripted(ablation, half_solved, range(6))
    for outcome, ablated in zip(outcomes, ablated_outcomes, strict=True):
        reasoner_rewards = earned(outcome, "reasoner")
        assert earned(ablated) == [("reasoner", reward) for reward in reasoner_rewards]
        assert earned(ablated) != earned(outcome)
        assert ablated.facts == outcome.facts
        assert {sample.policy for sample in ablated.samples} == {"shared"}
    assert prompts(turns) == prompts(ablated_turns)
    challenger_turns = [turn for turn in ablated_turns if turn.role != "reasoner"]
    assert {turn.policy for turn in challenger_turns} == {policy}
    assert ablation.policies == ("shared", *ablation.frozen)
    assert ablation.frozen == frozen


def test_a_trained_challenger_freezes_no_policy() -> None:
    assert make_spice().frozen == ()


@pytest.mark.parametrize("corpus_name", ["math", "general"])
def test_the_corpora_of_table_2_change_what_is_read(corpus_name: str) -> None:
    spice = make_spice(corpus_name)
    _, turns = scripted(spice, half_solved, range(20))
    read = set()
    for turn in turns_of(turns, "format"):
        document, _, _ = text(turn).partition("</doc>")
        read.add(document.removeprefix("<doc>"))
    documents = {spice.source.document(i) for i in range(20_000)}
    assert read <= documents
    assert len(read) > 15


def test_without_a_corpus_nothing_is_read() -> None:
    spice = make_spice("none")
    outcomes, turns = scripted(spice, half_solved, range(40))
    challenges = set(prompts(turns_of(turns, "challenger")))
    assert challenges == {f"ask {kind}" for kind in ANSWER_TYPES}
    assert turns_of(turns, "format") == []
    assert spice.measure() == {}
    for outcome in outcomes:
        assert outcome.facts["document"] is None
        assert outcome.facts["grounded"] is None


@pytest.mark.parametrize("prompt", ["compact", "full"])
def test_who_reads_what_by_script(prompt: str) -> None:
    def leak(turn: Turn) -> str:
        return "SECRET 77" if turn.role == "format" else free("QUESTION?", 77)

    spice = make_spice(prompt=prompt)
    outcomes, turns = scripted(spice, leak, range(20))
    documents = {outcome.facts["document"] for outcome in outcomes}
    reasoner_prompt = spice.solver.prompt.replace("{question}", "QUESTION?")
    for turn in turns:
        seen = text(turn)
        reads_a_document = any(document in seen for document in documents)
        if turn.role == "reasoner":
            assert seen == reasoner_prompt, "and nothing else"
            assert "77" not in seen
            assert not reads_a_document
        else:  # the template, the document and the answer type, but no reply
            assert "SECRET" not in seen
            assert "QUESTION?" not in seen
            assert reads_a_document


def test_the_templates_have_the_same_role_and_other_prompts() -> None:
    chat = SPICE(prompt="full")
    conversation = SPICE(prompt="full", template="conversation")
    assert chat.solver.prompt != conversation.solver.prompt
    assert conversation.solver.prompt.endswith("Assistant:")
    assert chat.solver.name == "reasoner"
    assert conversation.solver.name == "reasoner"


def test_the_last_box_is_the_answer() -> None:
    assert SPICE(prompt="full").read_answer("a \\boxed{1} b \\boxed{2}") == "2"


def test_documents_are_cut_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 10_000, "utf-8")
    folder = str(tmp_path)
    cut = make_spice(folder, document_tokens=10, bytes_per_token=2.5)
    for seed in range(20):
        segment = cut.source.sample(Random(seed))
        assert 0 < len(segment) <= 25
    assert make_spice(folder).source.limit == 5992 * 3


def test_policies_are_saved_after_the_steps_of_the_snapshots() -> None:
    saved = []
    for step in range(1, 5):
        make_spice(snapshots=(2, 4)).after_step(step, saved.append)
    assert saved == ["snapshots/2", "snapshots/4"]
