"""SPICE against the paper, by hand: Algorithm 1, Equations 1 to 5, the ablations, and who reads what."""

import math
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from core.conftest import boxes, by_hand, earned, free, mcq, prompts, scripted, text
from pytest import approx

from coevolve.methods.spice.method import SPICE, subsample
from coevolve.methods.spice.parsing import ANSWER_TYPES, FAULTS, Question
from coevolve.methods.spice.records import Attempt
from coevolve.text.verify import Verdict
from coevolve.types import Reply, Turn
from tinyworld import tasks as tiny

QUARTER = math.exp(-0.1953125)  # Equation 1 at p = 1/4 and 3/4: (3/16 - 1/4)^2 / 0.02
NEVER = math.exp(-3.125)  # at p = 0 and 1: (1/4)^2 / 0.02
FREE = '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer", "reason": "x"}'
CHOICE = '{"suitable_for_mcq": true, "suitable_for_free_form": false, "best_answer_type": null, "reason": "x"}'
DOCUMENT = "Mars has two small moons and a thin sky."


@pytest.fixture
def mars(tmp_path: Path) -> str:
    """A corpus of one document."""
    (tmp_path / "only.txt").write_text(DOCUMENT, "utf-8")
    return str(tmp_path)


def spice(corpus: str = "both", **fields) -> SPICE:
    return SPICE(corpus=corpus, **({"verifier": "exact", "group": 4, "attempts": 8} | fields))


def always(turn: Turn) -> str:
    """A Challenger that asks a new sum each time, and a Reasoner that is right half the time."""
    if turn.role != "reasoner":
        return FREE if turn.role == "format" else free(f"{turn.key[-1]} and {turn.key[-1]}?", 2 * turn.key[-1])
    number = int(text(turn).removeprefix("solve box<question>").split(" ")[0])
    return boxes(2 * number if turn.key[-1] % 2 else 0)[0]


def test_a_whole_episode_by_hand(mars: str) -> None:
    steps = by_hand(spice(mars), key=(7, 3))
    assert prompts(steps.pending_turns) == [f"<doc>{DOCUMENT}</doc>format"]
    steps.answer([FREE])
    assert prompts(steps.pending_turns) == [f"<doc>{DOCUMENT}</doc>ask Integer"] * 4  # 6
    assert len({turn.key for turn in steps.pending_turns}) == 4, "four different samples"
    wrong = free("Is it?", 3, "Boolean")
    steps.answer([free("Moons of Mars?", 2), "no json", free("Moons of Earth?", "1"), wrong])  # 7
    asked = ["Moons of Mars?"] * 4 + ["Moons of Earth?"] * 4
    assert prompts(steps.pending_turns) == [f"solve box<question>{question}</question>" for question in asked]  # 9
    steps.answer([*boxes(2, "2.0", 3), "2", *boxes(1, 2, 0), "none"])
    outcome, facts = steps.outcome, steps.outcome.facts
    # the first task is solved twice of four (2.0 is 2, a bare 2 is no answer), the second once
    assert earned(outcome, "challenger") == [1.0, -0.1, approx(QUARTER), -0.1]  # 10-13
    chosen = facts["question"]  # 16
    paid = {"Moons of Mars?": [1, 1, 0, 0], "Moons of Earth?": [1, 0, 0, 0]}[chosen]
    assert earned(outcome, "reasoner") == paid
    taught = {text(sample.reply.turn) for sample in outcome.samples if sample.role == "reasoner"}
    assert taught == {f"solve box<question>{chosen}</question>"}
    assert {sample.group_id for sample in outcome.samples} == {(7, 3, 0)}, "a baseline per document (and role)"
    assert facts == {f"fault/{name}": 0.0 for name in FAULTS} | {
        "format_unreadable": 0.0, "mcq": 0.0, "attempts": 4, "valid": 0.5, "fault/json": 0.25, "fault/type": 0.25,
        "pass_rate": approx(3 / 8), "unscored": 0.0, "distinct": 1.0, "gold_right": None, "level": None, "grounded": 0.0,
        "document": DOCUMENT, "questions": ["Moons of Mars?", "Moons of Earth?"], "golds": ["2", "1"],
        "question": chosen, "gold": {"Moons of Mars?": "2", "Moons of Earth?": "1"}[chosen], "right": None,
    }  # fmt: skip


def test_right_is_by_the_oracle_and_the_pass_rate_by_the_gold(mars: str) -> None:
    facts = by_hand(spice(mars), [FREE], [free("2+3", 6), "x", "x", "x"], boxes(6, 6, 6, 5)).outcome.facts
    assert (facts["pass_rate"], facts["right"], facts["gold_right"]) == (0.75, 0.25, 0.0)


def test_the_task_for_the_reasoner_is_any_valid_one(mars: str) -> None:
    waves = [FREE], [free("A?", 1), "x", free("B?", 1), free("C?", 1)], boxes(*[1] * 12)
    chosen = Counter(by_hand(spice(mars), *waves, seed=seed).outcome.facts["question"] for seed in range(60))
    assert set(chosen) == {"A?", "B?", "C?"} and min(chosen.values()) > 8


def test_multiple_choice_by_hand(mars: str) -> None:
    steps = by_hand(spice(mars), [CHOICE])
    assert prompts(steps.pending_turns) == [f"<doc>{DOCUMENT}</doc>ask mcq"] * 4
    question = "Moons? A) 1 B) 2 C) 3 D) 4"
    steps.answer([mcq(question, "B"), mcq(question, "E"), mcq("Moons? A) 1 B) 1 C) 3 D) 4", "B"), ""])
    assert prompts(steps.pending_turns) == [f"solve box<question>{question}</question>"] * 4
    steps.answer(boxes("B", "2", "(b)", "C"))
    assert earned(steps.outcome, "challenger") == [1.0, -0.1, -0.1, -0.1], "the letter counts, not the option"
    assert earned(steps.outcome, "reasoner") == [1.0, 0.0, 1.0, 0.0] and steps.outcome.facts["mcq"] == 1.0


def test_attempts_come_in_chunks_until_one_is_valid_or_none_is_left(mars: str) -> None:
    steps = by_hand(spice(mars, attempts=10), [FREE], ["x"] * 4, ["y"] * 4)
    assert len(steps.pending_turns) == 2, "N is reached"
    steps.answer(["z", free("Moons?", 2)])
    steps.answer(boxes(2, 2, 3, 3))
    # 1 of 10 valid: 0.4 of four rounds to none, and at least one is kept
    assert sorted(earned(steps.outcome, "challenger")) == [-0.1, -0.1, -0.1, 1.0]
    assert steps.outcome.facts["attempts"] == 10 and steps.outcome.facts["valid"] == approx(0.1)
    outcome = by_hand(spice(mars), [FREE], ["x"] * 4, ["x"] * 4).outcome
    assert earned(outcome) == [("challenger", -0.1)] * 4, "no valid task, no Reasoner group"
    assert "question" not in outcome.facts and outcome.facts["pass_rate"] is None


KEPT = [  # valid ones among so many attempts, how many are drawn, how many valid ones are kept
    (1, 8, 8, 1), (8, 8, 8, 8), (0, 8, 8, 0), (1, 16, 8, 1), (3, 16, 8, 2), (8, 16, 8, 4), (1, 1024, 8, 1), (5, 24, 8, 2),
    (0, 32, 8, 0), (2, 3, 8, 2), (4, 8, 4, 2), (7, 9, 8, 6), (8, 9, 8, 7),
]  # fmt: skip


@pytest.mark.parametrize(("valid", "count", "size", "kept"), KEPT)
def test_subsampling_keeps_the_ratio_and_one_valid(valid: int, count: int, size: int, kept: int) -> None:
    replies = [Reply(Turn("challenger", ()), str(i)) for i in range(count)]
    attempts = [Attempt(r, Question("Q", "1", "Integer") if i < valid else None) for i, r in enumerate(replies)]
    seen = set()
    for seed in range(20):
        taken = subsample(attempts, size, Random(seed))
        assert len(taken) == min(size, count) and sum(attempt.task is not None for attempt in taken) == kept
        numbers = [int(attempt.reply.text) for attempt in taken]
        assert numbers == sorted(set(numbers)), "no attempt twice, and their order kept"
        seen.add(tuple(numbers))
    assert len(seen) == 1 if count <= size else len(seen) > 1


def test_an_unreadable_choice_of_the_form_is_random_and_counted(mars: str) -> None:
    outcomes, asked = scripted(spice(mars), lambda turn: "hm", range(300))
    forms = Counter(text(turn).rpartition("ask ")[2] for turn in asked if turn.key[1] == 1)
    assert set(forms) == {"mcq", *ANSWER_TYPES} and 110 < forms["mcq"] < 190 and min(forms.values()) > 8
    assert all(outcome.facts["format_unreadable"] == 1.0 for outcome in outcomes)


ASKED = [
    (("free",), FREE, "Integer"), (("free",), CHOICE, "String"), (("mcq", "free"), CHOICE, "mcq"),
    (("mcq", "free"), FREE.replace('"Integer"', "null"), "String"),
]  # fmt: skip


@pytest.mark.parametrize(("types", "reply", "asked"), ASKED)
def test_the_task_types_of_table_3(mars: str, types: tuple[str, ...], reply: str, asked: str) -> None:
    steps = by_hand(spice(mars, task_types=types), [reply])
    assert text(steps.pending_turns[0]).endswith(f"ask {asked}")
    assert by_hand(spice(mars, task_types=("mcq",))).pending_turns[0].role == "challenger", "there is nothing to select"


TABLE_4 = {"variance": (QUARTER, NEVER), "absolute_zero": (0.75, 0.0), "threshold": (1.0, 0.0), "rzero": (0.5, 0.0)}


@pytest.mark.parametrize(("kind", "paid"), TABLE_4.items())
def test_the_rewards_of_table_4_change_what_the_challenger_earns(mars: str, kind: str, paid: tuple) -> None:
    waves = [FREE], [free("A?", 1), free("B?", 1), "x", "x"], boxes(1, 0, 0, 0, 0, 0, 0, 0)
    outcome = by_hand(spice(mars, reward=kind, penalty=-0.5), *waves).outcome
    assert earned(outcome, "challenger") == approx([*paid, -0.5, -0.5])


def test_an_untrained_or_fixed_challenger_earns_nothing_and_the_reasoner_the_same() -> None:
    full, asked = scripted(spice(), always, range(6))
    for kind, speaks in (("untrained", "shared"), ("fixed", "challenger")):
        method = spice(challenger=kind)
        less, same = scripted(method, always, range(6))
        for whole, part in zip(full, less, strict=True):
            assert earned(part) == [("reasoner", reward) for reward in earned(whole, "reasoner")] != earned(whole)
            assert part.facts == whole.facts
        assert prompts(asked) == prompts(same)
        assert {turn.policy for turn in same if turn.role != "reasoner"} == {speaks}
        assert {sample.policy for outcome in less for sample in outcome.samples} == {"shared"}
        assert method.policies == ("shared", *method.frozen)
    assert method.frozen == ("challenger",) and spice().frozen == ()


def test_the_corpora_of_table_2_change_what_is_read() -> None:
    for kind in ("math", "general"):
        method = spice(kind)
        _, asked = scripted(method, always, range(20))
        read = {text(t).split("</doc>")[0].removeprefix("<doc>") for t in asked if t.role == "format"}
        assert read <= {method.source.document(i) for i in range(20_000)} and len(read) > 15
    outcomes, asked = scripted(spice("none"), always, range(40))
    assert {text(turn) for turn in asked if turn.role == "challenger"} == {f"ask {kind}" for kind in ANSWER_TYPES}
    assert not [turn for turn in asked if turn.role == "format"] and spice("none").measure() == {}
    assert all(outcome.facts["document"] is None and outcome.facts["grounded"] is None for outcome in outcomes)


def test_reused_answers_are_shared_and_save_turns(mars: str) -> None:
    for reuse, turns in ((False, 12), (True, 8)):
        steps = by_hand(spice(mars, reuse=reuse), [FREE], [free("A?", 1), free("B?", 1), free("A?", 1), "x"])
        assert len(steps.pending_turns) == turns
        steps.answer(boxes(1, 0, 0, 0, 1, 1, 1, 1, *[1, 1, 0, 0][: turns - 8]))
        assert earned(steps.outcome, "challenger") == approx([QUARTER, NEVER, QUARTER if reuse else 1.0, -0.1])


def test_what_could_not_be_scored_is_masked_and_never_paid_nothing(mars: str, monkeypatch) -> None:
    verdicts = {"1": Verdict("pass"), "2": Verdict("wrong"), "3": Verdict("timeout"), "?": Verdict("unscored")}
    monkeypatch.setattr("coevolve.methods.spice.method.verify", lambda kind, answer, gold: verdicts[answer])
    said = [free("A?", 1), free("B?", 1), "x", "x"]
    outcome = by_hand(spice(mars), [FREE], said, boxes("?", "?", "?", "?", 1, 2, "?", "?")).outcome
    assert earned(outcome, "challenger") == [1.0, -0.1, -0.1], "the task without a verdict earns nothing at all"
    assert outcome.facts["question"] == "B?" and earned(outcome, "reasoner") == [1.0, 0.0]
    assert outcome.facts["unscored"] == approx(6 / 8)
    outcome = by_hand(spice(mars), [FREE], [free("A?", 1), "x", "x", "x"], boxes(1, 3, 3, 3)).outcome
    assert earned(outcome, "reasoner") == [1.0, 0.0, 0.0, 0.0], "a time-out of the answer is wrong"


VERIFIED = [
    ("Integer", "42", "42.0", "24"), ("Float", "3.14", "3.14", "3.2"), ("Expression", "x^2-1", "(x-1)(x+1)", "x^2+1"),
    ("String", "Cat", "cat", "a cat"), ("Boolean", "yes", "Yes", "no"), ("List", "a, b", "a,b", "b, a"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "gold", "right", "wrong"), VERIFIED)
def test_each_answer_type_has_its_verifier(kind: str, gold: str, right: str, wrong: str) -> None:
    pairs = [(Question("Q?", gold, kind), answer) for answer in (right, wrong, None)]
    assert SPICE().verify(pairs) == [True, False, False]
    assert kind == "Expression" or spice().verify(pairs) == [True, False, False]


def test_a_held_out_task_measures_its_challenger_and_trains_no_reasoner(mars: str) -> None:
    held = [item.question for item in tiny.items("test", 3, ("add",))]
    taught = next(q for q in ("30+7", "31+7", "32+7", "33+7") if tiny.split(q) == "train")
    for said, trained in ((held[:2], None), ([held[0], taught], taught), (["what is it?"], "what is it?")):
        tasks = [free(question, 1) for question in said] + ["x"] * (4 - len(said))
        outcome = by_hand(spice(mars), [FREE], tasks, boxes(*[1, 0] * (2 * len(said)))).outcome
        assert earned(outcome, "challenger")[: len(said)] == [1.0] * len(said)
        assert outcome.facts.get("question") == trained
    mixed = mcq(f"{held[0]} A)1 B)2 C)3 D){tiny.read(held[0]).answer}", "D")
    outcome = by_hand(spice(mars, task_types=("mcq",)), [mixed] * 4, boxes(*"DDAA" * 4)).outcome
    assert earned(outcome) == [("challenger", 1.0)] * 4


@pytest.mark.parametrize("form", ["compact", "full"])
def test_who_reads_what_by_script(form: str) -> None:
    said = {"format": "SECRET 77"}
    method = spice(prompt=form)
    outcomes, asked = scripted(method, lambda turn: said.get(turn.role, free("QUESTION?", 77)), range(20))
    documents = {outcome.facts["document"] for outcome in outcomes}
    for turn in asked:
        if turn.role == "reasoner":
            assert text(turn) == method.solver.prompt.replace("{question}", "QUESTION?"), "and nothing else"
            assert "77" not in text(turn) and not any(document in text(turn) for document in documents)
        else:  # the template, the document and the answer type: nothing that anybody has said
            assert "SECRET" not in text(turn) and "QUESTION?" not in text(turn)
            assert any(document in text(turn) for document in documents)


def test_templates_and_the_limits_of_documents(tmp_path: Path) -> None:
    chat, talk = SPICE(prompt="full"), SPICE(prompt="full", template="conversation")
    assert chat.solver.prompt != talk.solver.prompt and talk.solver.prompt.endswith("Assistant:")
    assert chat.solver.name == talk.solver.name == "reasoner" and chat.read_answer("a \\boxed{1} b \\boxed{2}") == "2"
    (tmp_path / "long.txt").write_text("word " * 10_000, "utf-8")
    cut = spice(str(tmp_path), document_tokens=10, bytes_per_token=2.5)
    assert all(0 < len(cut.source.sample(Random(seed))) <= 25 for seed in range(20))
    assert spice(str(tmp_path)).source.limit == 5992 * 3
    kept = []
    for step in range(1, 5):
        spice(snapshots=(2, 4)).after_step(step, kept.append)
    assert kept == ["snapshots/2", "snapshots/4"]
