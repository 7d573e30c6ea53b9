"""SPICE's Algorithm 1 by hand: attempts, pass rates, rewards, verdicts, and what trains whom."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from core.conftest import boxes, by_hand, earned, free, mcq, prompts, text
from core.spice_cases import (
    DOCUMENT,
    FREE_FORM,
    INVALID,
    MULTIPLE_CHOICE,
    REWARD_AT_A_QUARTER,
    REWARD_AT_ZERO,
    make_spice,
    solver_prompt,
    write_corpus,
)
from pytest import approx

from coevolve.methods.spice.method import SPICE, subsample
from coevolve.methods.spice.parsing import FAULTS, Question
from coevolve.methods.spice.records import Attempt
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.text.verify import Verdict
from coevolve.types import Outcome, Reply, Turn
from tinyworld import tasks as tiny

MARS = "Moons of Mars?"
EARTH = "Moons of Earth?"
GOLDS = {MARS: "2", EARTH: "1"}
ATTEMPTS = [
    free(MARS, 2),
    "no json",
    free(EARTH, "1"),
    free("Is it?", 3, "Boolean"),
]
# Of four answers two solve the first task (2.0 is 2, a bare 2 is no answer), one the second.
ANSWERS = [
    *boxes(2, "2.0", 3),
    "2",
    *boxes(1, 2, 0),
    "none",
]
REASONER_REWARDS = {MARS: [1, 1, 0, 0], EARTH: [1, 0, 0, 0]}


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """A corpus of one document."""
    return write_corpus(tmp_path)


@pytest.fixture
def outcome(corpus: str) -> Outcome:
    """A whole episode: two valid tasks of four attempts."""
    spice = make_spice(corpus)
    episode = by_hand(spice, [FREE_FORM], ATTEMPTS, ANSWERS, key=(7, 3))
    return episode.outcome


def test_the_challenger_reads_the_document_and_the_reasoner_the_questions(
    corpus: str,
) -> None:
    episode = by_hand(make_spice(corpus), key=(7, 3))
    assert prompts(episode.pending_turns) == [f"<doc>{DOCUMENT}</doc>format"]
    episode.answer([FREE_FORM])  # line 6
    turns = episode.pending_turns
    assert prompts(turns) == [f"<doc>{DOCUMENT}</doc>ask Integer"] * 4
    keys = {turn.key for turn in turns}
    assert len(keys) == 4, "four different samples"
    episode.answer(ATTEMPTS)  # lines 7 to 9
    expected = [solver_prompt(MARS)] * 4 + [solver_prompt(EARTH)] * 4
    assert prompts(episode.pending_turns) == expected


def test_the_challenger_earns_by_the_pass_rate_of_its_task(outcome: Outcome) -> None:
    rewards = [1.0, INVALID, approx(REWARD_AT_A_QUARTER), INVALID]
    assert earned(outcome, "challenger") == rewards  # lines 10 to 13


def test_the_reasoner_learns_from_one_task(outcome: Outcome) -> None:
    chosen = outcome.facts["question"]  # line 16
    assert earned(outcome, "reasoner") == REASONER_REWARDS[chosen]
    reasoner = [sample for sample in outcome.samples if sample.role == "reasoner"]
    questions = {text(sample.reply.turn) for sample in reasoner}
    assert questions == {solver_prompt(chosen)}


def test_a_document_and_role_have_one_baseline(outcome: Outcome) -> None:
    assert {sample.group_id for sample in outcome.samples} == {(7, 3, 0)}


def test_the_facts_of_an_episode(outcome: Outcome) -> None:
    chosen = outcome.facts["question"]
    expected = {f"fault/{name}": 0.0 for name in FAULTS}
    expected |= {
        "format_unreadable": 0.0,
        "mcq": 0.0,
        "attempts": 4,
        "valid": 0.5,
        "fault/json": 0.25,
        "fault/type": 0.25,
        "pass_rate": approx(3 / 8),
        "unscored": 0.0,
        "distinct": 1.0,
        "gold_correct": None,
        "level": None,
        "grounded": 0.0,
        "document": DOCUMENT,
        "questions": [MARS, EARTH],
        "golds": ["2", "1"],
        "question": chosen,
        "gold": GOLDS[chosen],
        "correct": None,
    }
    assert outcome.facts == expected


def test_right_is_by_the_oracle_and_the_pass_rate_by_the_gold(corpus: str) -> None:
    attempts = [free("2+3", 6), "x", "x", "x"]
    answers = boxes(6, 6, 6, 5)
    episode = by_hand(make_spice(corpus), [FREE_FORM], attempts, answers)
    facts = episode.outcome.facts
    assert facts["pass_rate"] == 0.75
    assert facts["correct"] == 0.25
    assert facts["gold_correct"] == 0.0


def test_the_task_for_the_reasoner_is_any_valid_one(corpus: str) -> None:
    attempts = [free("A?", 1), "x", free("B?", 1), free("C?", 1)]
    answers = boxes(*[1] * 12)
    chosen = Counter()
    for seed in range(60):
        spice = make_spice(corpus)
        episode = by_hand(spice, [FREE_FORM], attempts, answers, seed=seed)
        chosen[episode.outcome.facts["question"]] += 1
    assert set(chosen) == {"A?", "B?", "C?"}
    assert min(chosen.values()) > 8


def test_multiple_choice_by_hand(corpus: str) -> None:
    episode = by_hand(make_spice(corpus), [MULTIPLE_CHOICE])
    assert prompts(episode.pending_turns) == [f"<doc>{DOCUMENT}</doc>ask mcq"] * 4
    question = "Moons? A) 1 B) 2 C) 3 D) 4"
    equal_options = "Moons? A) 1 B) 1 C) 3 D) 4"
    episode.answer(
        [
            mcq(question, "B"),
            mcq(question, "E"),
            mcq(equal_options, "B"),
            "",
        ]
    )
    assert prompts(episode.pending_turns) == [solver_prompt(question)] * 4
    episode.answer(boxes("B", "2", "(b)", "C"))
    outcome = episode.outcome
    assert earned(outcome, "challenger") == [1.0, INVALID, INVALID, INVALID]
    assert earned(outcome, "reasoner") == [1.0, 0.0, 1.0, 0.0], "the letter counts"
    assert outcome.facts["mcq"] == 1.0


def test_attempts_come_in_chunks_until_one_is_valid(corpus: str) -> None:
    spice = make_spice(corpus, attempts=10)
    episode = by_hand(spice, [FREE_FORM], ["x"] * 4, ["y"] * 4)
    assert len(episode.pending_turns) == 2, "N is reached"
    episode.answer(["z", free("Moons?", 2)])
    episode.answer(boxes(2, 2, 3, 3))
    outcome = episode.outcome
    # 1 of 10 is valid: 0.4 of four, which rounds to none, but at least one is kept.
    assert sorted(earned(outcome, "challenger")) == [INVALID, INVALID, INVALID, 1.0]
    assert outcome.facts["attempts"] == 10
    assert outcome.facts["valid"] == approx(0.1)


def test_without_a_valid_task_the_reasoner_learns_nothing(corpus: str) -> None:
    invalid = ["x"] * 4
    spice = make_spice(corpus)
    outcome = by_hand(spice, [FREE_FORM], invalid, invalid).outcome
    assert earned(outcome) == [("challenger", INVALID)] * 4
    assert "question" not in outcome.facts
    assert outcome.facts["pass_rate"] is None


@dataclass(frozen=True)
class Draw:
    """How many of the attempts are valid, how many are drawn, and how many of those are valid."""

    valid: int
    attempts: int
    size: int
    kept_valid: int


DRAWS = [
    Draw(valid=1, attempts=8, size=8, kept_valid=1),
    Draw(valid=8, attempts=8, size=8, kept_valid=8),
    Draw(valid=0, attempts=8, size=8, kept_valid=0),
    Draw(valid=1, attempts=16, size=8, kept_valid=1),
    Draw(valid=3, attempts=16, size=8, kept_valid=2),
    Draw(valid=8, attempts=16, size=8, kept_valid=4),
    Draw(valid=1, attempts=1024, size=8, kept_valid=1),
    Draw(valid=5, attempts=24, size=8, kept_valid=2),
    Draw(valid=0, attempts=32, size=8, kept_valid=0),
    Draw(valid=2, attempts=3, size=8, kept_valid=2),
    Draw(valid=4, attempts=8, size=4, kept_valid=2),
    Draw(valid=7, attempts=9, size=8, kept_valid=6),
    Draw(valid=8, attempts=9, size=8, kept_valid=7),
]


def numbered_attempts(draw: Draw) -> list[Attempt]:
    """Return attempts whose replies are their numbers, the valid ones first."""
    task = Question("Q", "1", "Integer")
    attempts = []
    for number in range(draw.attempts):
        reply = Reply(Turn("challenger", ()), str(number))
        if number < draw.valid:
            attempts.append(Attempt(reply, task))
        else:
            attempts.append(Attempt(reply, None, fault="json"))
    return attempts


@pytest.mark.parametrize("draw", DRAWS, ids=str)
def test_subsampling_keeps_the_ratio_and_one_valid(draw: Draw) -> None:
    attempts = numbered_attempts(draw)
    subsets = set()
    for seed in range(20):
        kept = subsample(attempts, draw.size, Random(seed))
        assert len(kept) == min(draw.size, draw.attempts)
        assert sum(one.task is not None for one in kept) == draw.kept_valid
        numbers = [int(one.reply.text) for one in kept]
        assert numbers == sorted(set(numbers)), "none twice, and in their order"
        subsets.add(tuple(numbers))
    if draw.attempts <= draw.size:
        assert len(subsets) == 1
    else:
        assert len(subsets) > 1


def two_equal_tasks(corpus: str, reuse: bool) -> EpisodeStepper:
    """Play an episode up to the answers: the third task equals the first."""
    attempts = [free("A?", 1), free("B?", 1), free("A?", 1), "x"]
    return by_hand(make_spice(corpus, reuse=reuse), [FREE_FORM], attempts)


def test_equal_tasks_have_their_own_answers(corpus: str) -> None:
    episode = two_equal_tasks(corpus, reuse=False)
    assert len(episode.pending_turns) == 12
    episode.answer(boxes(1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0))
    rewards = [REWARD_AT_A_QUARTER, REWARD_AT_ZERO, 1.0, INVALID]
    assert earned(episode.outcome, "challenger") == approx(rewards)


def test_reused_answers_are_shared_and_save_turns(corpus: str) -> None:
    episode = two_equal_tasks(corpus, reuse=True)
    assert len(episode.pending_turns) == 8
    episode.answer(boxes(1, 0, 0, 0, 1, 1, 1, 1))
    rewards = [REWARD_AT_A_QUARTER, REWARD_AT_ZERO, REWARD_AT_A_QUARTER, INVALID]
    assert earned(episode.outcome, "challenger") == approx(rewards)


@pytest.fixture
def verdicts_by_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the answer alone decide the verdict."""
    verdicts = {
        "1": Verdict("pass"),
        "2": Verdict("wrong"),
        "3": Verdict("timeout"),
        "?": Verdict("unscored"),
    }

    def verify(kind: str, answer: str, gold: str) -> Verdict:
        return verdicts[answer]

    monkeypatch.setattr("coevolve.text.verify.verify", verify)


@pytest.mark.usefixtures("verdicts_by_answer")
def test_what_could_not_be_scored_is_masked(corpus: str) -> None:
    attempts = [free("A?", 1), free("B?", 1), "x", "x"]
    answers = boxes("?", "?", "?", "?", 1, 2, "?", "?")
    outcome = by_hand(make_spice(corpus), [FREE_FORM], attempts, answers).outcome
    rewards = earned(outcome, "challenger")
    assert rewards == [1.0, INVALID, INVALID], "no sample of the task without a verdict"
    assert outcome.facts["question"] == "B?"
    assert earned(outcome, "reasoner") == [1.0, 0.0]
    assert outcome.facts["unscored"] == approx(6 / 8)


@pytest.mark.usefixtures("verdicts_by_answer")
def test_an_answer_that_times_out_the_verifier_is_wrong(corpus: str) -> None:
    attempts = [free("A?", 1), "x", "x", "x"]
    answers = boxes(1, 3, 3, 3)
    outcome = by_hand(make_spice(corpus), [FREE_FORM], attempts, answers).outcome
    assert earned(outcome, "reasoner") == [1.0, 0.0, 0.0, 0.0]


@dataclass(frozen=True)
class Spelling:
    """A gold answer of a type, an answer that equals it, and one that does not."""

    kind: str
    gold: str
    correct: str
    wrong: str


SPELLINGS = [
    Spelling("Integer", gold="42", correct="42.0", wrong="24"),
    Spelling("Float", gold="3.14", correct="3.14", wrong="3.2"),
    Spelling("Expression", gold="x^2-1", correct="(x-1)(x+1)", wrong="x^2+1"),
    Spelling("String", gold="Cat", correct="a cat", wrong="a dog"),
    Spelling("Boolean", gold="yes", correct="Yes", wrong="no"),
    Spelling("List", gold="a, b", correct="a,b", wrong="b, a"),
]


def verdicts(spice: SPICE, spelling: Spelling) -> list[bool | None]:
    """Return the verdicts on the correct answer, the wrong one, and none."""
    task = Question("Q?", spelling.gold, spelling.kind)
    answers = (spelling.correct, spelling.wrong, None)
    return spice.verify([(task, answer) for answer in answers])


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.kind)
def test_each_answer_type_has_its_verifier(spelling: Spelling) -> None:
    expected = [True, False, False]
    assert verdicts(SPICE(), spelling) == expected
    if spelling.kind != "Expression":  # exact verification compares no formulas
        assert verdicts(make_spice(), spelling) == expected


HELD_OUT = [item.question for item in tiny.items("test", 3, ("add",))]
CANDIDATES = ("30+7", "31+7", "32+7", "33+7")
TRAINABLE = next(question for question in CANDIDATES if tiny.split(question) == "train")


@pytest.mark.parametrize(
    ("questions", "trained"),
    [
        (HELD_OUT[:2], None),
        ([HELD_OUT[0], TRAINABLE], TRAINABLE),
        (["what is it?"], "what is it?"),
    ],
)
def test_a_held_out_task_measures_its_challenger_and_trains_no_reasoner(
    corpus: str, questions: list[str], trained: str | None
) -> None:
    count = len(questions)
    attempts = [free(question, 1) for question in questions]
    attempts += ["x"] * (4 - count)
    answers = boxes(*[1, 0] * (2 * count))
    outcome = by_hand(make_spice(corpus), [FREE_FORM], attempts, answers).outcome
    assert earned(outcome, "challenger")[:count] == [1.0] * count
    assert outcome.facts.get("question") == trained


def test_a_held_out_question_with_options_is_held_out(corpus: str) -> None:
    question = HELD_OUT[0]
    answer = tiny.read(question).answer
    attempt = mcq(f"{question} A)1 B)2 C)3 D){answer}", "D")
    spice = make_spice(corpus, task_types=("mcq",))
    outcome = by_hand(spice, [attempt] * 4, boxes(*"DDAA" * 4)).outcome
    assert earned(outcome) == [("challenger", 1.0)] * 4
