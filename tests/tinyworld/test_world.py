"""The tiny world: its oracle against independent solutions, levels, wrong answers, splits, documents."""

import itertools
import math
import re
import subprocess
import sys
from collections import Counter
from decimal import Decimal
from random import Random

import pytest
from data_files import tables

import tinyworld
from tinyworld import facts, symbols, tasks
from tinyworld.documents import FAMILIES, TinyCorpus, document
from tinyworld.oracle import SOURCES, TinyWorld
from tinyworld.tasks import CHOICE, LEVELS, NAMES, SPLITS, Task, draw, is_correct, items, read, split, wrong

WORLD = TinyWorld()
STATED = {(name, fact) for (name, _), fact in facts.TRUTH.items()}
UNITS = {"wk d": 7, "m cm": 100, "h min": 60, "doz pcs": 12, "d h": 24, "min s": 60}
CASES = tables("world")


def quotient(a: int | str, b: int | str) -> str:
    """Exact decimal digits of a quotient that has few."""
    return f"{(Decimal(a) / Decimal(b)).normalize():f}"


def story(q: str) -> str:
    words, have = q.replace(".", "").split(), 0
    for verb, number in zip(words[1::2], words[2::2], strict=False):
        have += {"has": 1, "Gets": 1, "Gives": -1}[verb] * int(number)
    return str(have)


def swapped(q: str) -> str:
    words = q.split()
    letters = dict(zip("123", words[1:4], strict=True))
    for move in words[4:]:
        letters[move[0]], letters[move[1]] = letters[move[1]], letters[move[0]]
    return " ".join(letters[i] for i in "123")


def unknown(q: str) -> str:
    left, right = q.removesuffix(" x?").split("=")
    factor, offset = left.split("x+")
    return str(next(x for x in range(100) if int(factor or 1) * x + int(offset) == int(right)))


def price(q: str) -> str:
    count, _, cost, asked, _ = q.replace(".", "").split()
    return quotient(int(cost) * int(asked), count)


def remainder(q: str) -> str:
    left, divisor = q.split(" mod ")
    return str(math.prod(map(int, left.split("*"))) % int(divisor))


def measure(q: str) -> str:
    number, source, _, target = q.rstrip("?").split()
    return str(int(number) * UNITS[f"{source} {target}"])


def third(q: str) -> str:
    a, b, c = map(int, q.split()[1:])
    assert b - a == c - b
    return str(c + b - a)


def letter(q: str) -> str:
    stem, *options = re.split(r" [ABCD]\)", q)
    kind = read(stem).family  # a family of numbers or facts, which the solutions below know
    return "ABCD"[options.index(SOLUTIONS[kind](stem))]


SOLUTIONS = {
    "add": lambda q: str(sum(map(int, q.split("+")))),
    "sub": lambda q: str(int(q.split("-")[0]) - int(q.split("-")[1])),
    "mul": lambda q: str(math.prod(map(int, q.split("*")))),
    "prec": lambda q: str(sum(math.prod(map(int, term.split("*"))) for term in q.split("+"))),
    "eq": unknown,
    "next": third,
    "word": story,
    "word2": story,
    "rate": price,
    "unit": measure,
    "div": lambda q: quotient(*q.split("/")),
    "mod": remainder,
    "cmp": lambda q: (max if q.startswith("bigger") else min)(q.split()[1:], key=int),
    "sort": lambda q: "".join(d * q[5:].count(d) for d in "0123456789"),
    "rev": lambda q: " ".join(reversed(q.split()[1:])),
    "count": lambda q: str(sum(letter == q.split()[1] for letter in q.split()[3:])),
    "swap": swapped,
    "fact": lambda q: facts.TRUTH[tuple(q.rstrip("?").split())],
    "yn": lambda q: "yes" if (q[:2], q[3:-1]) in STATED else "no",
    "mc": letter,
}


def drawn(family: str, count: int = 150) -> list[Task]:
    rng = Random(f"tests {family}")
    return [draw(rng, family, level) for level in LEVELS for _ in range(count)]


@pytest.mark.parametrize("family", SOLUTIONS)
def test_the_oracle_agrees_with_an_independent_solution(family: str) -> None:
    for task in drawn(family):
        assert task.family == family
        assert task.answer == SOLUTIONS[family](task.question), task.question
        assert is_correct(task.question, task.answer)


def test_a_program_fits_its_examples() -> None:
    runs = {"code": lambda program, x: str(symbols.evaluate(program, int(x))), "ops": symbols.run_operations}
    for family, run in runs.items():  # an example is f(x)=value or g(text)=value
        shown = [(task.answer, example) for task in drawn(family) for example in task.question.split(" ")[:2]]
        assert [one for one in shown if run(one[0], one[1][2:].split(")=")[0]) != one[1].split(")=")[1]] == []


def test_hidden_inputs_tell_every_program_from_those_of_another_function() -> None:
    programs = [" ".join(p) for n in (1, 2, 3, 4) for p in itertools.product(symbols.OPERATIONS, repeat=n)]
    inputs = ["".join(digits) for n in (2, 3, 4) for digits in itertools.product("0123", repeat=n)]
    hidden, exact = {}, {}  # four digits are at most four different ones: 0 to 3 stand for every order
    for program in programs:
        hidden[program] = tuple(symbols.run_operations(program, text) for text in symbols.HIDDEN_STRINGS)
        if hidden[program] in {hidden.get(gold) for gold in symbols.PROGRAMS}:
            exact[program] = tuple(symbols.run_operations(program, text) for text in inputs)
    for gold in symbols.PROGRAMS:
        alike = [program for program in exact if hidden[program] == hidden[gold]]
        assert all(exact[program] == exact[gold] for program in alike), gold
    assert not is_correct("g(204)=0 g(381)=1 g=", "tail min") and is_correct("g(204)=0 g(381)=1 g=", "sort first")


@pytest.mark.parametrize("family", NAMES)
def test_levels(family: str) -> None:
    rng = Random(f"levels {family}")
    for level in LEVELS:
        found = Counter(draw(rng, family, level).level for _ in range(200))
        assert max(found) == level and found.most_common(1)[0][0] == level, "small numbers may make it easier"


@pytest.mark.parametrize("family", NAMES)
def test_wrong_answers_are_wrong_and_ill_formed_questions_ill_formed(family: str) -> None:
    rng = Random(f"wrong {family}")
    for task in drawn(family):
        assert not is_correct(task.question, task.misconception) or task.misconception == task.answer
        assert not is_correct(task.question, wrong(rng, task))
        assert not is_correct(task.question, None) and not is_correct(task.question, "")
        spoilt = tasks.spoil(rng, task.question)
        assert read(spoilt) is None and spoilt == spoilt.strip() != ""
        assert not is_correct(spoilt, task.answer)


@pytest.mark.parametrize("question", [*CASES["no_questions"], "\ud800"])
def test_questions_that_are_none(question: str) -> None:
    assert read(question) is None
    assert not is_correct(question, "2")
    assert split(question) in SPLITS
    assert (WORLD.valid(question), WORLD.is_correct(question, "2"), WORLD.level(question)) == (False, None, None)


def test_every_short_program_question_can_be_read() -> None:
    """What a Proposer may invent beyond what is drawn: no numbers make the oracle fail."""
    for x, y, x2, y2 in itertools.product(range(4), range(13), range(4), range(13)):
        task = read(f"f({x})={y} f({x2})={y2} f=")
        assert task is None or not is_correct(task.question, task.misconception)
    for a, b in itertools.product(("12", "21", "33", "123", "0000"), repeat=2):
        for c, d in itertools.product(("1", "2", "3", "12", "21", "0", "0000"), repeat=2):
            task = read(f"g({a})={c} g({b})={d} g=")
            assert task is None or is_correct(task.question, task.answer)


def test_text_built_to_be_slow_is_refused_at_once() -> None:
    assert read(" A)x B)y C)z" * 5000) is None
    assert read("9" * 10**6) is None
    assert max(len(task.question) for family in NAMES for task in drawn(family)) < tasks.LONGEST


EXPRESSIONS = CASES["expressions"] | {"(" * 19 + "x" + ")" * 19: 7, "-" * 39 + "x": -7}
EXPRESSIONS |= dict.fromkeys([*CASES["no_expressions"], "x+" * 20 + "x", "x" * 10**6, "(" * 40])  # without a value


@pytest.mark.parametrize(("expression", "value"), EXPRESSIONS.items())
def test_expressions(expression: str, value: int | None) -> None:
    assert symbols.evaluate(expression, 7) == value


def test_code_is_right_by_value_and_not_by_text() -> None:
    question = "f(1)=5 f(2)=7 f="
    assert [is_correct(question, text) for text in ("x*2+3", "3+x*2", "x+x+3", "(x+1)*2+1")] == [True] * 4
    assert not any(is_correct(question, text) for text in ("x+4", "x*5", "5", "", "x*2+3;", "9**9**9"))


def test_splits_are_stable_and_disjoint() -> None:
    assert {question: split(question) for question in CASES["splits"]} == CASES["splits"]
    questions = {f"{a}+{b}" for a in range(100) for b in range(100)}
    shares = Counter(split(question) for question in questions)
    assert shares["test"] == pytest.approx(2000, abs=150) and shares["validation"] == pytest.approx(1000, abs=120)
    assert WORLD.held_out("x+2=9 x?") and WORLD.held_out("sort 312") and not WORLD.held_out("30+7")


def test_items_are_distinct_closed_and_of_their_split() -> None:
    everything = set()
    for part in SPLITS:
        found = items(part)
        questions = {task.question for task in found}
        assert len(questions) == len(found) >= 600
        assert all(task.split == split(task.question) == part and tasks.closed(task) for task in found)
        counts = Counter(task.family for task in found)
        assert list(counts) == list(NAMES) and max(counts.values()) == 40 and min(counts.values()) >= 5
        assert everything.isdisjoint(questions)
        everything |= questions
    for some in (items, WORLD.items):
        assert {task.family for task in some("test", 2, ("add", "mc"))} == {"add", "mc"}
    with pytest.raises(ValueError, match="split must be one of train, validation, test, got 'dev'"):
        items("dev")


def test_the_world_grades_its_items() -> None:
    found = WORLD.items("validation", 2)
    assert [task.temperature for task in found] == [None] * len(found)
    assert all(WORLD.grade([(task, task.answer) for task in found]))
    lured = [is_correct(task.question, task.misconception) for task in found]
    assert WORLD.grade([(task, task.misconception) for task in found]) == lured and lured.count(True) <= 5
    assert WORLD.grade([(task, None) for task in found]) == [False] * len(found)


def test_documents_state_train_questions_and_their_answers() -> None:
    rng, levels = Random(1), set()
    for _ in range(400):
        text, stated = document(rng)
        assert text.split("; ") == [f"{task.question}: {task.answer}" for task in stated] and 4 <= len(stated) <= 6
        assert {task.split for task in stated} == {"train"}
        levels |= {(task.family, task.level) for task in stated}
    assert ("fact", 3) in levels, "facts that nothing else states"
    assert {family for family, _ in levels} == {family for half in FAMILIES.values() for family in half}


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_corpus_has_documents_of_one_half(kind: str) -> None:
    source, rng = TinyCorpus(kind, 400), Random(2)
    texts = [source.document(number) for number in range(400)]
    assert texts == [TinyCorpus(kind, 9999).document(number) for number in range(400)]
    assert len(source) == 400 and len(set(texts)) > 300
    stated = [fact.rpartition(": ") for text in texts for fact in text.split("; ")]
    assert all(is_correct(question, answer) and split(question) == "train" for question, _, answer in stated)
    assert {read(question).family for question, *_ in stated} == set(FAMILIES[kind])
    assert {source.sample(rng) for _ in range(50)} <= set(texts)


def test_facts_of_level_three_are_open() -> None:
    for family in NAMES:
        for task in drawn(family, 40):
            assert tasks.closed(task) == (family not in ("fact", "yn") or task.level < 3)
    assert Counter(facts.LEVEL.values()) == {1: 44, 2: 32, 3: 32}
    assert all(facts.stereotype(*key) != truth for key, truth in facts.TRUTH.items())


def test_choices_have_exactly_one_right_letter() -> None:
    for task in drawn(CHOICE):
        stem, *options = tasks.CHOICE_PATTERN.fullmatch(task.question).groups()
        rights = [letter for letter, option in zip("ABCD", options, strict=True) if is_correct(stem, option)]
        assert rights == [task.answer] and len(set(options)) == 4
        assert read(stem).misconception in options or is_correct(stem, read(stem).misconception)
        assert [is_correct(task.question, letter) for letter in "ABCD"].count(True) == 1
        assert not is_correct(task.question, options["ABCD".index(task.answer)]), "the letter is the answer"


def test_seed_questions() -> None:
    rows, zero = WORLD.seed_rows(), WORLD.zero_questions()
    assert Counter(source for source, _ in rows) == {source: count for source, (count, _) in SOURCES["mae"].items()}
    assert len(rows) == 1000, "what Table 5 sums to; the text says 967"
    assert all(task.family in SOURCES["mae"][source][1] for source, task in rows)
    seeded = {name for paper in ("mae", "sage") for _, names in SOURCES[paper].values() for name in names}
    assert {task.family for _, task in rows} == seeded == {*tasks.FAMILIES} - {*tasks.OUTSIDE}
    assert WORLD.seed_questions() == list(dict.fromkeys(task.question for _, task in rows))
    assert len(zero) == len(set(zero)) == 16 and all(WORLD.level(question) == 1 for question in zero)
    assert {read(question).family for question in zero} == {*tasks.FAMILIES} - {*tasks.OUTSIDE}
    assert not any(WORLD.held_out(question) for question in [*WORLD.seed_questions(), *zero])


def test_the_package_offers_names_without_loading_a_model_library() -> None:
    code = "import sys, tinyworld; tinyworld.TinyWorld().zero_questions(); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
    assert {path.name for path in tinyworld.BACKBONES.iterdir() if path.is_dir()} == set(tinyworld.NAMES)
    assert tinyworld.backbone("tiny") == tinyworld.BACKBONES / "tiny" and tinyworld.backbone("../tiny") is None
