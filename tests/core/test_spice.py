"""SPICE against the paper, by hand: Algorithm 1, Equations 1 to 4, the ablations, and who reads what."""

import json
import math
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from coevolve import config, policies
from coevolve.advantages import group_mean
from coevolve.driver import Batched, Steps, play
from coevolve.papers.spice.method import SPICE, subsample
from coevolve.papers.spice.reading import ANSWER_TYPES, Question
from coevolve.types import Outcome, Reply, Turn
from coevolve.verify import Verdict
from tinyworld import tasks as tiny

QUARTER = math.exp(-0.1953125)  # Equation 1 at p = 1/4 and 3/4: (3/16 - 1/4)^2 / 0.02
NEVER = math.exp(-3.125)  # at p = 0 and 1: (1/4)^2 / 0.02
FREE = '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer", "reason": "x"}'
CHOICE = '{"suitable_for_mcq": true, "suitable_for_free_form": false, "best_answer_type": null, "reason": "x"}'


def task(question: str, answer: object, kind: str = "Integer") -> str:
    return json.dumps({"question": question, "answer": answer, "answer_type": kind})


def choice(question: str, letter: str) -> str:
    return json.dumps({"multiple_choice_question": question, "multiple_choice_correct": letter})


def box(*answers: object) -> list[str]:
    return [f"so \\boxed{{{answer}}}" for answer in answers]


@pytest.fixture
def text(tmp_path: Path) -> str:
    """A corpus of one document."""
    (tmp_path / "only.txt").write_text("Mars has two small moons and a thin sky.", "utf-8")
    return str(tmp_path)


def begin(text: str, seed: int = 0, **fields) -> Steps:
    fields = {"verifier": "exact", "group": 4} | fields
    return Steps(SPICE(corpus=text, **fields).episode(Random(seed)), Batched(lambda turns: []), (7, 3))


def prompts(turns: list[Turn]) -> list[str]:
    return [turn.messages[0]["content"] for turn in turns]


def earned(outcome: Outcome, role: str) -> list[float]:
    return [sample.reward for sample in outcome.samples if sample.role == role]


def run(say: Callable[[Turn], str], seeds: range, **fields) -> tuple[list[Outcome], list[Turn], SPICE]:
    spice, asked = SPICE(**({"verifier": "exact", "group": 4, "attempts": 8} | fields)), []

    def generate(turns: list[Turn]) -> list[Reply]:
        asked.extend(turns)
        return [Reply(turn, say(turn)) for turn in turns]

    return play([spice.episode(Random(seed)) for seed in seeds], Batched(generate)), asked, spice


def test_a_whole_episode_by_hand(text: str) -> None:
    steps = begin(text)
    assert prompts(steps.asked) == ["<doc>Mars has two small moons and a thin sky.</doc>format"]
    steps.answer([FREE])
    assert prompts(steps.asked) == ["<doc>Mars has two small moons and a thin sky.</doc>ask Integer"] * 4  # 6
    assert len({turn.key for turn in steps.asked}) == 4, "four different samples"
    said = [task("Moons of Mars?", 2), "no json", task("Moons of Earth?", "1"), task("Is it?", 3, "Boolean")]
    steps.answer(said)  # 7: one chunk of G has valid ones, so that all four are kept
    assert prompts(steps.asked) == [f"solve box<question>{q}</question>" for q in ["Moons of Mars?"] * 4
                                    + ["Moons of Earth?"] * 4]  # fmt: skip  # 9
    steps.answer([*box(2, "2.0", 3), "2", *box(1, 2, 0), "none"])
    outcome = steps.outcome
    # the first task is solved twice of four (2.0 is 2, a bare 2 is no answer), the second once
    assert earned(outcome, "challenger") == [1.0, -0.1, pytest.approx(QUARTER), -0.1]  # 10-13
    chosen = outcome.facts["question"]  # 16
    assert earned(outcome, "reasoner") == {"Moons of Mars?": [1, 1, 0, 0], "Moons of Earth?": [1, 0, 0, 0]}[chosen]
    reasoners = [sample for sample in outcome.samples if sample.role == "reasoner"]
    assert {sample.reply.turn.messages[0]["content"] for sample in reasoners} == {
        f"solve box<question>{chosen}</question>"
    }
    assert {sample.group for sample in outcome.samples} == {(7, 3, 0)}
    facts = outcome.facts
    assert (facts["attempts"], facts["valid"], facts["fault/json"], facts["fault/type"]) == (4, 0.5, 0.25, 0.25)
    assert (facts["pass_rate"], facts["mcq"], facts["format_unreadable"]) == (pytest.approx(3 / 8), 0.0, 0.0)
    assert (facts["document"], facts["right"]) == (
        "Mars has two small moons and a thin sky.",
        {"Moons of Mars?": 0.5, "Moons of Earth?": 0.25}[chosen],
    )
    assert facts["questions"] == ["Moons of Mars?", "Moons of Earth?"]


def test_the_task_for_the_reasoner_is_any_valid_one(text: str) -> None:
    chosen = Counter()
    for seed in range(60):
        steps = begin(text, seed)
        for wave in ([FREE], [task("A?", 1), "x", task("B?", 1), task("C?", 1)], box(*[1] * 12)):
            steps.answer(wave)
        chosen[steps.outcome.facts["question"]] += 1
    assert set(chosen) == {"A?", "B?", "C?"} and min(chosen.values()) > 8


def test_multiple_choice_by_hand(text: str) -> None:
    steps = begin(text)
    steps.answer([CHOICE])
    assert prompts(steps.asked) == ["<doc>Mars has two small moons and a thin sky.</doc>ask mcq"] * 4
    question = "Moons? A) 1 B) 2 C) 3 D) 4"
    steps.answer([choice(question, "B"), choice(question, "E"), choice("Moons? A) 1 B) 1 C) 3 D) 4", "B"), ""])
    assert prompts(steps.asked) == [f"solve box<question>{question}</question>"] * 4
    steps.answer(box("B", "2", "(b)", "C"))
    assert earned(steps.outcome, "challenger") == [1.0, -0.1, -0.1, -0.1], "the letter counts, not the option"
    assert earned(steps.outcome, "reasoner") == [1.0, 0.0, 1.0, 0.0]
    assert steps.outcome.facts["mcq"] == 1.0


def test_equations_3_and_4_are_taken_per_document_and_role(text: str) -> None:
    def say(turn: Turn) -> str:
        episode, number = turn.key
        if turn.role == "format":
            return FREE
        if turn.role == "challenger":
            return task(f"Q{episode}?", 1) if number == 1 else "x"
        return box(1 if number - 5 < (1, 4)[episode] else 2)[0]

    outcomes, _, _ = run(say, range(2), corpus=text)
    samples = [
        Reply(s.reply.turn, s.reply.text, ids=(1, 2)).earns(s.reward, s.group) for o in outcomes for s in o.samples
    ]
    advantages = [values[0] for values in group_mean(samples)]
    # document 0: tasks [QUARTER, -.1, -.1, -.1], answers [1, 0, 0, 0]; document 1: [NEVER, ...], answers all right
    for first, paid in ((0, QUARTER), (8, NEVER)):
        mean = (paid - 0.3) / 4
        assert advantages[first : first + 4] == pytest.approx([paid - mean] + [-0.1 - mean] * 3)
    assert advantages[4:8] == pytest.approx([0.75, -0.25, -0.25, -0.25]) and advantages[12:] == [0.0] * 4


def test_attempts_come_in_chunks_until_one_is_valid(text: str) -> None:
    steps = begin(text, attempts=10)
    steps.answer([FREE])
    steps.answer(["x"] * 4)
    assert len(steps.asked) == 4
    steps.answer(["y"] * 4)
    assert len(steps.asked) == 2, "N is reached"
    steps.answer(["z", task("Moons?", 2)])
    assert len(steps.asked) == 4 and steps.asked[0].role == "reasoner"
    steps.answer(box(2, 2, 3, 3))
    # 1 of 10 valid: 0.4 of four rounds to none, and at least one is kept
    assert sorted(earned(steps.outcome, "challenger")) == [-0.1, -0.1, -0.1, 1.0]
    assert steps.outcome.facts["attempts"] == 10 and steps.outcome.facts["valid"] == pytest.approx(0.1)


def test_a_document_without_a_valid_task_gives_no_reasoner_group(text: str) -> None:
    steps = begin(text, attempts=8)
    for wave in ([FREE], ["x"] * 4, ["x"] * 4):
        steps.answer(wave)
    assert earned(steps.outcome, "challenger") == [-0.1] * 4 and earned(steps.outcome, "reasoner") == []
    assert "question" not in steps.outcome.facts and steps.outcome.facts["pass_rate"] is None


@pytest.mark.parametrize(
    ("valid", "count", "size", "kept"),
    [
        (1, 8, 8, 1),
        (8, 8, 8, 8),
        (0, 8, 8, 0),
        (1, 16, 8, 1),
        (3, 16, 8, 2),
        (8, 16, 8, 4),
        (1, 1024, 8, 1),
        (5, 24, 8, 2),
        (0, 32, 8, 0),
        (2, 3, 8, 2),
        (4, 8, 4, 2),
        (7, 9, 8, 6),
        (8, 9, 8, 7),
    ],
)
def test_subsampling_keeps_the_ratio_and_one_valid(valid: int, count: int, size: int, kept: int) -> None:
    attempts = [
        (Reply(Turn("challenger", ()), str(i)), Question("Q", "1", "Integer") if i < valid else "json")
        for i in range(count)
    ]
    seen = set()
    for seed in range(20):
        taken = subsample(attempts, size, Random(seed))
        assert len(taken) == min(size, count)
        assert sum(isinstance(task, Question) for _, task in taken) == kept
        numbers = [int(reply.text) for reply, _ in taken]
        assert numbers == sorted(set(numbers)), "no attempt twice, and their order kept"
        seen.add(tuple(numbers))
    assert len(seen) == 1 if count <= size else len(seen) > 1


def test_an_unreadable_choice_of_the_form_is_random_and_counted(text: str) -> None:
    forms = Counter()
    for seed in range(300):
        steps = begin(text, seed)
        steps.answer(["hm"])
        forms[prompts(steps.asked)[0].rpartition("ask ")[2]] += 1
        while steps.asked:
            steps.answer(["x"] * len(steps.asked))
        assert steps.outcome.facts["format_unreadable"] == 1.0
    assert set(forms) == {"mcq", *ANSWER_TYPES} and 110 < forms["mcq"] < 190
    assert min(forms.values()) > 8


@pytest.mark.parametrize(
    ("types", "reply", "asked"),
    [
        (("free",), FREE, "Integer"),
        (("free",), CHOICE, "String"),
        (("mcq", "free"), FREE.replace('"Integer"', "null"), "String"),
        (("mcq", "free"), CHOICE, "mcq"),
    ],
)
def test_the_task_types_of_table_3(text: str, types: tuple[str, ...], reply: str, asked: str) -> None:
    steps = begin(text, task_types=types)
    steps.answer([reply])
    assert prompts(steps.asked)[0].endswith(f"ask {asked}")


def test_with_multiple_choice_only_nothing_is_selected(text: str) -> None:
    assert [turn.role for turn in begin(text, task_types=("mcq",)).asked] == ["challenger"] * 4


REWARDS = [("variance", QUARTER, NEVER), ("absolute_zero", 0.75, 0.0), ("threshold", 1.0, 0.0), ("rzero", 0.5, 0.0)]


@pytest.mark.parametrize(("kind", "quarter", "never"), REWARDS)
def test_the_rewards_of_table_4_change_what_the_challenger_earns(
    text: str, kind: str, quarter: float, never: float
) -> None:
    steps = begin(text, reward=kind, penalty=-0.5)
    for wave in ([FREE], [task("A?", 1), task("B?", 1), "x", "x"], box(1, 0, 0, 0, 0, 0, 0, 0)):
        steps.answer(wave)
    assert earned(steps.outcome, "challenger") == [pytest.approx(quarter), pytest.approx(never), -0.5, -0.5]


def always(turn: Turn) -> str:
    """A Challenger that asks a new sum each time, and a Reasoner that is right half the time."""
    if turn.role == "format":
        return FREE
    if turn.role == "challenger":
        return task(f"{turn.key[-1]} and {turn.key[-1]}?", 2 * turn.key[-1])
    number = int(turn.messages[0]["content"].removeprefix("solve box<question>").split(" ")[0])
    return box(2 * number if turn.key[-1] % 2 else 0)[0]


def test_an_untrained_challenger_earns_nothing_and_the_reasoner_the_same() -> None:
    full, asked, _ = run(always, range(6), corpus="both")
    less, same, _ = run(always, range(6), corpus="both", challenger="untrained")
    for whole, part in zip(full, less, strict=True):
        assert part.samples == [s for s in whole.samples if s.role == "reasoner"] != whole.samples
        assert part.facts == whole.facts
    assert asked == same


def test_a_fixed_challenger_speaks_with_a_frozen_policy() -> None:
    outcomes, asked, spice = run(always, range(4), challenger="fixed")
    assert (spice.policies, spice.frozen) == (("shared", "challenger"), ("challenger",))
    assert {turn.role: turn.policy for turn in asked} == {
        "format": "challenger",
        "challenger": "challenger",
        "reasoner": "shared",
    }
    assert {sample.policy for outcome in outcomes for sample in outcome.samples} == {"shared"}
    assert (SPICE().policies, SPICE().frozen) == (("shared",), ())


def test_without_a_corpus_nothing_is_read_or_selected() -> None:
    outcomes, asked, spice = run(always, range(40), corpus="none")
    wanted = {f"ask {kind}" for kind in ANSWER_TYPES}
    assert {turn.messages[0]["content"] for turn in asked if turn.role == "challenger"} == wanted
    assert not [turn for turn in asked if turn.role == "format"] and spice.measure() == {}
    assert all(outcome.facts["document"] is None and outcome.facts["grounded"] is None for outcome in outcomes)
    full, _, _ = run(always, range(40), corpus="both")
    assert [o.samples for o in full] != [o.samples for o in outcomes]


@pytest.mark.parametrize("kind", ["math", "general"])
def test_the_corpora_of_table_2_change_what_is_read(kind: str) -> None:
    _, asked, spice = run(always, range(20), corpus=kind)
    read = [
        turn.messages[0]["content"].split("</doc>")[0].removeprefix("<doc>") for turn in asked if turn.role == "format"
    ]
    assert set(read) <= {spice.source.document(i) for i in range(20_000)} and len(set(read)) > 15


def test_reused_answers_are_shared_and_save_turns(text: str) -> None:
    for reuse, turns in ((False, 12), (True, 8)):
        steps = begin(text, reuse=reuse)
        steps.answer([FREE])
        steps.answer([task("A?", 1), task("B?", 1), task("A?", 1), "x"])
        assert len(steps.asked) == turns
        steps.answer(box(1, 0, 0, 0, 1, 1, 1, 1, *[1, 1, 0, 0][: turns - 8]))
        third = QUARTER if reuse else 1.0
        assert earned(steps.outcome, "challenger") == pytest.approx([QUARTER, NEVER, third, -0.1])


def test_what_could_not_be_scored_is_masked_and_never_paid_nothing(text: str, monkeypatch) -> None:
    verdicts = {"1": Verdict("pass"), "2": Verdict("wrong"), "3": Verdict("timeout"), "?": Verdict("unscored")}
    monkeypatch.setattr("coevolve.papers.spice.method.verify", lambda kind, answer, gold: verdicts[answer])
    steps = begin(text)
    for wave in ([FREE], [task("A?", 1), task("B?", 1), "x", "x"], box("?", "?", "?", "?", 1, 2, "?", "?")):
        steps.answer(wave)
    assert earned(steps.outcome, "challenger") == [1.0, -0.1, -0.1], "the task without a verdict earns nothing at all"
    assert steps.outcome.facts["question"] == "B?" and earned(steps.outcome, "reasoner") == [1.0, 0.0]
    assert steps.outcome.facts["unscored"] == pytest.approx(6 / 8)
    steps = begin(text)
    for wave in ([FREE], [task("A?", 1), "x", "x", "x"], box(1, 3, 3, 3)):
        steps.answer(wave)
    assert earned(steps.outcome, "reasoner") == [1.0, 0.0, 0.0, 0.0], "a time-out of the answer is wrong"


@pytest.mark.parametrize(
    ("kind", "gold", "right", "wrong"),
    [
        ("Integer", 42, ("42", "42.0"), ("41", "24")),
        ("Float", 3.14, ("3.14",), ("3.2", "pi")),
        ("Expression", "x^2-1", ("(x-1)(x+1)",), ("x^2+1",)),
        ("String", "Cat", ("cat",), ("act", "a cat")),
        ("Boolean", "yes", ("Yes",), ("no",)),
        ("List", "a, b", ("a,b",), ("b, a",)),
    ],
)
def test_each_answer_type_has_its_verifier(
    kind: str, gold: object, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    spice, question = SPICE(), Question("Q?", str(gold), kind)
    pairs = [(question, answer) for answer in (*right, *wrong, None)]
    assert spice._verify(pairs) == [True] * len(right) + [False] * (len(wrong) + 1)
    if kind != "Expression":
        assert SPICE(verifier="exact")._verify(pairs) == spice._verify(pairs)


def test_a_held_out_task_measures_its_challenger_and_trains_no_reasoner(text: str) -> None:
    held = [task_.question for task_ in tiny.items("test", 3, ("add",))]
    open_ = next(q for q in ("30+7", "31+7", "32+7", "33+7") if tiny.split(q) == "train")
    mixed = f"{held[0]} A)1 B)2 C)3 D){tiny.read(held[0]).answer}"
    for said, trained in (([held[0], held[1]], None), ([held[0], open_], open_), (["what is it?"], "what is it?")):
        steps = begin(text)
        steps.answer([FREE])
        steps.answer([task(q, 1) for q in said] + ["x"] * (4 - len(said)))
        steps.answer(box(*[1, 0] * (2 * len(said))))
        assert earned(steps.outcome, "challenger")[: len(said)] == [1.0] * len(said)
        assert steps.outcome.facts.get("question") == trained
    steps = begin(text, task_types=("mcq",))
    steps.answer([choice(mixed, "D")] * 4)
    steps.answer(box(*"DDAA" * 4))
    assert earned(steps.outcome, "challenger") == [1.0] * 4 and earned(steps.outcome, "reasoner") == []


@pytest.mark.parametrize("form", ["compact", "full"])
def test_who_reads_what_by_script(form: str) -> None:
    outcomes, asked, spice = run(
        lambda turn: "SECRET 77" if turn.role == "format" else task("QUESTION?", 77),
        range(20),
        prompt=form,
        corpus="both",
    )
    documents = {outcome.facts["document"] for outcome in outcomes}
    for turn in asked:
        prompt = turn.messages[0]["content"]
        if turn.role == "reasoner":
            assert prompt == spice.solver.prompt.replace("{question}", "QUESTION?"), "the question and nothing else"
            assert "77" not in prompt and not any(document in prompt for document in documents)
        else:  # the template, the document and the answer type: nothing that anybody has said
            assert "SECRET" not in prompt and "QUESTION?" not in prompt
            assert any(document in prompt for document in documents)


@pytest.mark.parametrize("model", ["tiny"])
def test_who_reads_what_of_a_real_model(model: str) -> None:
    policy, sent = policies.load(model), []

    def generate(turns: list[Turn]) -> list[Reply]:
        replies = policy.generate(turns, max_tokens=96)
        sent.extend(zip(turns, replies, strict=True))
        return replies

    spice = SPICE(group=4, attempts=8, verifier="exact", reuse=True)
    outcomes = play([spice.episode(Random(seed)) for seed in range(12)], Batched(generate), (0, 1))
    read = {turn.role: {t.messages[0]["content"] for t, _ in sent if t.role == turn.role} for turn, _ in sent}
    assert set(read) == {"format", "challenger", "reasoner"}
    for outcome in outcomes:
        assert not any(outcome.facts["document"] in prompt for prompt in read["reasoner"])
    asked = {question for outcome in outcomes for question in outcome.facts["questions"]}
    assert read["reasoner"] <= {spice.solver.prompt.replace("{question}", question) for question in asked}
    ids = [reply.prompt_ids for turn, reply in sent if turn.role == "reasoner"]
    decoded = {policy.tokenizer.decode(tokens) for tokens in ids}
    assert len(decoded) == len(read["reasoner"]) and not any("<doc>" in prompt for prompt in decoded)


def test_the_templates_of_figure_8() -> None:
    chat, talk = SPICE(prompt="full"), SPICE(prompt="full", template="conversation")
    assert chat.solver.prompt != talk.solver.prompt and talk.solver.prompt.endswith("Assistant:")
    assert all("\\boxed{}" in spice.solver.prompt and spice.solver.name == "reasoner" for spice in (chat, talk))
    assert SPICE.read("a \\boxed{1} b \\boxed{2}") == "2"


def test_a_folder_is_cut_to_the_token_limit(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("word " * 10_000, "utf-8")
    spice = SPICE(corpus=str(tmp_path), document_tokens=10, bytes_per_token=2.5)
    assert all(0 < len(spice.source.sample(Random(seed))) <= 25 for seed in range(20))
    assert SPICE(corpus=str(tmp_path)).source.limit == 5992 * 3
    assert spice.measure() == {"corpus_documents": 1, "corpus_unreadable": 0}


def test_a_corpus_that_cannot_be_had_is_said_before_a_model_loads(tmp_path: Path, monkeypatch) -> None:
    def load(*args, **options):
        raise FileNotFoundError("no such data set")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("datasets.load_dataset", load)
    train = import_module("coevolve.loop")
    monkeypatch.setattr(train, "Team", lambda *args, **options: pytest.fail("a model was loaded"))
    with pytest.raises(ValueError, match="^corpus 'owner/gone' .*: no such data set$"):
        train.Trainer(config.build("spice", "quick", out=tmp_path / "run", overrides={"corpus": "owner/gone"}))


def test_the_papers_numbers() -> None:
    spice = SPICE()
    assert (spice.documents, spice.document_tokens, spice.group, spice.attempts) == (20_000, 5992, 8, 1024)
    assert (spice.penalty, spice.reward, spice.challenger, spice.estimator) == (
        -0.1,
        "variance",
        "trained",
        "group_mean",
    )
    run_ = config.Run(method="spice", protocol=spice, out=Path("x"), **SPICE.TRAINING)
    assert (run_.steps, run_.batch_size, run_.learning_rate, run_.temperature) == (640, 128, 1e-6, 1.0)
    assert run_.length_norm == "constant"
    assert [name for name, *_ in config.differences(run_)] == ["model", "corpus", "prompt", "world"], "the tiny world's"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("corpus", "somewhere"),
        ("reward", "gauss"),
        ("challenger", "strong"),
        ("verifier", "llm"),
        ("template", "base"),
        ("task_types", ()),
        ("task_types", ("mcq", "open")),
        ("group", 0),
        ("attempts", 0),
        ("documents", 0),
        ("document_tokens", 0),
        ("bytes_per_token", 0.0),
        ("snapshots", (0,)),
        ("snapshots", ("last",)),
        ("prompt", "short"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field) as error:
        SPICE(**{field: value})
    assert "\n" not in str(error.value)
