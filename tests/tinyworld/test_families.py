"""The families of the tiny world, against solutions that are written independently of it."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from random import Random

import pytest
from data_files import tables

from tinyworld import facts, symbols, tasks
from tinyworld.tasks import LEVELS, NAMES, Task

CASES = tables("world")
TRUE_CLAIMS = {(entity, value) for (entity, _), value in facts.TRUTH.items()}
FACTORS = {
    "wk d": 7,
    "m cm": 100,
    "h min": 60,
    "doz pcs": 12,
    "d h": 24,
    "min s": 60,
    "pr pcs": 2,
    "kg g": 1000,
    "eur ct": 100,
    "y mo": 12,
    "yd ft": 3,
    "y wk": 52,
    "ft in": 12,
    "gal qt": 4,
    "lb oz": 16,
}


each_family = pytest.mark.parametrize("family", NAMES)


def draw_tasks(family: str, per_level: int = 150) -> list[Task]:
    rng = Random(f"tests {family}")
    drawn = []
    for level in LEVELS:
        for _ in range(per_level):
            drawn.append(tasks.draw(rng, family, level))
    return drawn


# Independent solutions, question -> answer


def numbers(text: str, separator: str) -> list[int]:
    return [int(number) for number in text.split(separator)]


def solve_sum(question: str) -> str:
    return str(sum(numbers(question, "+")))


def solve_difference(question: str) -> str:
    a, b = numbers(question, "-")
    return str(a - b)


def product(text: str) -> int:
    return math.prod(numbers(text, "*"))


def solve_product(question: str) -> str:
    return str(product(question))


def solve_precedence(question: str) -> str:
    terms = question.split("+")
    return str(sum(map(product, terms)))


def solve_equation(question: str) -> str:
    left, total = question.removesuffix(" x?").split("=")
    factor, offset = left.split("x+")
    a = int(factor or 1)
    for x in range(100):
        if a * x + int(offset) == int(total):
            return str(x)
    raise AssertionError(f"{question} has no solution")


def solve_sequence(question: str) -> str:
    a, b, c = numbers(question.removeprefix("next "), " ")
    assert b - a == c - b
    return str(c + b - a)


def solve_story(question: str) -> str:
    signs = {"has": 1, "Gets": 1, "Gives": -1}
    tokens = question.replace(".", "").split()
    total = 0
    for verb, number in zip(tokens[1::2], tokens[2::2], strict=False):
        total += signs[verb] * int(number)
    return str(total)


def exact_quotient(a: int | str, b: int | str) -> str:
    """Return the decimal digits of a quotient that has few."""
    quotient = Decimal(a) / Decimal(b)
    return f"{quotient.normalize():f}"


def solve_rate(question: str) -> str:
    count, _, cost, new_count, _ = question.replace(".", "").split()
    return exact_quotient(int(cost) * int(new_count), count)


def solve_unit(question: str) -> str:
    number, source, _, target = question.rstrip("?").split(" ")
    return str(int(number) * FACTORS[f"{source} {target}"])


def solve_quotient(question: str) -> str:
    return exact_quotient(*question.split("/"))


def solve_remainder(question: str) -> str:
    dividend, divisor = question.split(" mod ")
    return str(product(dividend) % int(divisor))


def solve_comparison(question: str) -> str:
    word, *numbers = question.split()
    extreme = max if word == "bigger" else min
    return extreme(numbers, key=int)


def solve_sort(question: str) -> str:
    digits = question.removeprefix("sort ")
    return "".join(digit * digits.count(digit) for digit in "0123456789")


def solve_reversal(question: str) -> str:
    return " ".join(reversed(question.split()[1:]))


def solve_count(question: str) -> str:
    _, counted_letter, _, *letters = question.split()
    return str(letters.count(counted_letter))


def solve_swap(question: str) -> str:
    tokens = question.split()
    letters = dict(zip("123", tokens[1:4], strict=True))
    for i, j in tokens[4:]:
        letters[i], letters[j] = letters[j], letters[i]
    return " ".join(letters[place] for place in "123")


def solve_fact(question: str) -> str:
    words = question.rstrip("?").split()
    entity, attribute = words if len(words) == 2 else (words[2], words[0])
    return facts.TRUTH[entity, attribute]


def solve_claim(question: str) -> str:
    entity, value = question.rstrip("?").split()
    return "yes" if (entity, value) in TRUE_CLAIMS else "no"


def solve_choice(question: str) -> str:
    stem, *options = re.split(r" [ABCD]\)", question)
    family = tasks.read(stem).family
    answer = SOLUTIONS[family](stem)
    return "ABCD"[options.index(answer)]


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "add": solve_sum,
    "sub": solve_difference,
    "mul": solve_product,
    "prec": solve_precedence,
    "eq": solve_equation,
    "next": solve_sequence,
    "word": solve_story,
    "word2": solve_story,
    "rate": solve_rate,
    "unit": solve_unit,
    "div": solve_quotient,
    "mod": solve_remainder,
    "cmp": solve_comparison,
    "sort": solve_sort,
    "rev": solve_reversal,
    "count": solve_count,
    "swap": solve_swap,
    "fact": solve_fact,
    "yn": solve_claim,
    "mc": solve_choice,
}


# Answers


@pytest.mark.parametrize("family", SOLUTIONS)
def test_the_oracle_agrees_with_an_independent_solution(family: str) -> None:
    for task in draw_tasks(family):
        assert task.family == family
        assert task.answer == SOLUTIONS[family](task.question), task.question
        assert is_right(task, task.answer)


def is_right(task: Task, answer: str | None) -> bool:
    return tasks.is_correct(task.question, answer)


def run_function(program: str, x: str) -> str:
    return str(symbols.evaluate(program, int(x)))


@pytest.mark.parametrize(
    ("family", "run_program"), [("code", run_function), ("ops", symbols.run_operations)]
)
def test_a_program_fits_its_examples(
    family: str, run_program: Callable[[str, str], str]
) -> None:
    for task in draw_tasks(family):
        for example in task.question.split(" ")[:2]:  # f(x)=value or g(text)=value
            test_input, value = example[2:].split(")=")
            assert run_program(task.answer, test_input) == value, task.question


def values_of(program: str, inputs: list[str] | tuple[str, ...]) -> tuple[str, ...]:
    values = [symbols.run_operations(program, text) for text in inputs]
    return tuple(values)


def all_texts(
    alphabet: tuple[str, ...] | str, lengths: range, separator: str
) -> list[str]:
    texts = []
    for length in lengths:
        for parts in itertools.product(alphabet, repeat=length):
            texts.append(separator.join(parts))
    return texts


def test_hidden_inputs_tell_every_program_from_those_of_another_function() -> None:
    programs = all_texts(tuple(symbols.OPERATIONS), range(1, 5), " ")
    # Four digits are at most four different ones, so 0 to 3 stand for every order.
    inputs = all_texts("0123", range(2, 5), "")
    values_on_all_inputs = {gold: values_of(gold, inputs) for gold in symbols.PROGRAMS}
    alike = {}  # values on the hidden inputs -> values on all inputs
    for gold, values in values_on_all_inputs.items():
        hidden_values = values_of(gold, symbols.HIDDEN_STRINGS)
        assert alike.setdefault(hidden_values, values) == values, gold
    for program in programs:
        hidden_values = values_of(program, symbols.HIDDEN_STRINGS)
        if hidden_values in alike:
            assert values_of(program, inputs) == alike[hidden_values], program


def test_a_program_that_fits_both_examples_by_chance_is_wrong() -> None:
    question = "g(204)=0 g(381)=1 g="
    assert not tasks.is_correct(question, "tail min")
    assert tasks.is_correct(question, "sort first")


SAME_FUNCTION = (
    "x*2+3",
    "3+x*2",
    "x+x+3",
    "(x+1)*2+1",
)
OTHER_TEXTS = (
    "x+4",
    "x*5",
    "5",
    "",
    "x*2+3;",
    "9**9**9",
)


def test_code_is_verified_by_value_and_not_by_text() -> None:
    question = "f(1)=5 f(2)=7 f="
    for answer in SAME_FUNCTION:
        assert tasks.is_correct(question, answer), answer
    for answer in OTHER_TEXTS:
        assert not tasks.is_correct(question, answer), answer


VALUES = {
    **CASES["expressions"],
    "(" * 19 + "x" + ")" * 19: 7,
    "-" * 39 + "x": -7,
}
NOT_EXPRESSIONS = [
    *CASES["no_expressions"],
    "x+" * 20 + "x",
    "x" * 10**6,
    "(" * 40,
]


@pytest.mark.parametrize(("expression", "value"), VALUES.items())
def test_an_expression_has_its_value_where_x_is_7(expression: str, value: int) -> None:
    assert symbols.evaluate(expression, 7) == value


@pytest.mark.parametrize("text", NOT_EXPRESSIONS, ids=lambda text: repr(text[:40]))
def test_text_that_is_no_expression_has_no_value(text: str) -> None:
    assert symbols.evaluate(text, 7) is None


# Levels


@each_family
@pytest.mark.parametrize("level", LEVELS)
def test_a_drawn_question_mostly_has_its_level_and_never_a_higher_one(
    family: str, level: int
) -> None:
    rng = Random(f"levels {family} {level}")
    levels = Counter(tasks.draw(rng, family, level).level for _ in range(200))
    assert max(levels) == level
    assert levels.most_common(1)[0][0] == level, "small numbers may make it easier"


def test_facts_of_level_three_are_open_and_everything_else_is_closed() -> None:
    for family in NAMES:
        for task in draw_tasks(family, 40):
            is_open = family in ("fact", "yn") and task.level == 3
            assert tasks.closed(task) == (not is_open)


def test_a_quarter_of_the_facts_has_level_three() -> None:
    assert Counter(facts.LEVEL.values()) == {1: 100, 2: 80, 3: 60}


def test_a_fact_has_two_wordings() -> None:
    assert tasks.read("color of Ka?").answer == tasks.read("Ka color?").answer
    for text in ("color of Ka color?", "Ka?", "of Ka color?", "Ka of color?"):
        assert tasks.read(text) is None


# Wrong answers and ill-formed questions


@each_family
def test_wrong_answers_are_wrong(family: str) -> None:
    rng = Random(f"wrong {family}")
    for task in draw_tasks(family):
        if task.misconception != task.answer:
            assert not is_right(task, task.misconception)
        wrong_answer = tasks.wrong(rng, task)
        assert not is_right(task, wrong_answer)
        assert not is_right(task, None)
        assert not is_right(task, "")


@each_family
def test_spoilt_questions_are_ill_formed(family: str) -> None:
    rng = Random(f"spoilt {family}")
    for task in draw_tasks(family):
        spoilt = tasks.spoil(rng, task.question)
        assert tasks.read(spoilt) is None
        assert spoilt.strip() == spoilt
        assert spoilt != ""
        assert not tasks.is_correct(spoilt, task.answer)


def test_a_stereotype_is_never_the_truth() -> None:
    for (entity, attribute), truth in facts.TRUTH.items():
        assert facts.stereotype(entity, attribute) != truth


def test_every_short_function_question_can_be_read() -> None:
    """A Proposer may invent questions that are never drawn: none makes the oracle fail."""
    examples = list(itertools.product(range(4), range(13)))
    for (x, y), (x_2, y_2) in itertools.product(examples, examples):
        task = tasks.read(f"f({x})={y} f({x_2})={y_2} f=")
        if task is not None:
            assert not is_right(task, task.misconception)


def test_every_short_program_question_can_be_read() -> None:
    inputs = ("12", "21", "33", "123", "0000")
    outputs = ("1", "2", "3", "12", "21", "0", "0000")
    examples = list(itertools.product(inputs, outputs))
    for (text, result), (text_2, result_2) in itertools.product(examples, examples):
        task = tasks.read(f"g({text})={result} g({text_2})={result_2} g=")
        if task is not None:
            assert is_right(task, task.answer)


def test_text_built_to_be_slow_is_refused_at_once() -> None:
    assert tasks.read(" A)x B)y C)z" * 5000) is None
    assert tasks.read("9" * 10**6) is None


@each_family
def test_drawn_questions_are_shorter_than_the_limit(family: str) -> None:
    assert all(len(task.question) < tasks.LONGEST for task in draw_tasks(family))


# Multiple choice


def stem_and_options(task: Task) -> tuple[str, list[str]]:
    match = tasks.CHOICE_PATTERN.fullmatch(task.question)
    stem, *options = match.groups()
    return stem, options


def test_a_choice_has_four_options_and_exactly_one_is_correct() -> None:
    for task in draw_tasks(tasks.CHOICE):
        stem, options = stem_and_options(task)
        correct_letters = []
        for letter, option in zip("ABCD", options, strict=True):
            if tasks.is_correct(stem, option):
                correct_letters.append(letter)
        assert correct_letters == [task.answer]
        assert len(set(options)) == 4


def test_a_choice_offers_the_misconception() -> None:
    for task in draw_tasks(tasks.CHOICE):
        stem, options = stem_and_options(task)
        misconception = tasks.read(stem).misconception
        assert misconception in options or tasks.is_correct(stem, misconception)


def test_the_answer_of_a_choice_is_the_letter() -> None:
    for task in draw_tasks(tasks.CHOICE):
        _, options = stem_and_options(task)
        verdicts = [is_right(task, letter) for letter in "ABCD"]
        assert verdicts.count(True) == 1
        correct_option = options["ABCD".index(task.answer)]
        assert not is_right(task, correct_option)
