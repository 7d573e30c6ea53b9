"""Families about numbers: sums, equations, stories, rates, remainders, comparisons."""

import operator
from collections.abc import Callable
from random import Random

from tinyworld.family import DrawQuestion, Family, level_by_limits

Interval = tuple[int, int]  # the lowest and the highest number
Bounds = tuple[Interval, ...]  # one interval per number of a question

DIGIT: Interval = (0, 9)
TENS: Interval = (10, 49)
OPERANDS = ((DIGIT, DIGIT), (TENS, DIGIT), (TENS, TENS))  # by level
PERSONS = ("Al", "Mia", "Tom", "Zoe")
HAS = rf"(?:{'|'.join(PERSONS)}) has (\d{{1,2}})"
STEP = r"\. (Gets|Gives) (\d)"
UNITS_PER_LEVEL = 5
FACTORS = {  # by level
    "wk in d": 7,
    "m in cm": 100,
    "pr in pcs": 2,
    "kg in g": 1000,
    "eur in ct": 100,
    "h in min": 60,
    "doz in pcs": 12,
    "y in mo": 12,
    "min in s": 60,
    "yd in ft": 3,
    "d in h": 24,
    "y in wk": 52,
    "ft in in": 12,
    "gal in qt": 4,
    "lb in oz": 16,
}


def _draw_numbers(rng: Random, bounds: Bounds) -> list[int]:
    return [rng.randint(low, high) for low, high in bounds]


def _fill(template: str, *bounds_by_level: Bounds) -> DrawQuestion:
    """Return a function that fills the template with numbers, uniform within a level's bounds."""

    def draw(rng: Random, level: int) -> str:
        bounds = bounds_by_level[level - 1]
        return template.format(*_draw_numbers(rng, bounds))

    return draw


def _level_by_first(*limits: int) -> Callable[..., int]:
    """Return a function that levels a question by its first number (1 if it is absent)."""

    def level(first: int | None, *rest: int) -> int:
        return level_by_limits(first or 1, *limits)

    return level


def _level_by_largest(*limits: int) -> Callable[..., int]:
    """Return a function that levels a question by its largest number."""

    def level(*numbers: int) -> int:
        return level_by_limits(max(numbers), *limits)

    return level


def _level_by_two_digit_operands(*numbers: int) -> int:
    two_digits = [number for number in numbers[-2:] if number > 9]
    return 1 + len(two_digits)


# Sums and differences


def _add_without_carry(a: int, b: int) -> int:
    tens = (a // 10 + b // 10) % 10
    return tens * 10 + (a + b) % 10


ADDITION = Family(
    name="add",
    pattern=r"(\d{1,2})\+(\d{1,2})",
    draw=_fill("{}+{}", *OPERANDS),
    answer=operator.add,
    level=_level_by_two_digit_operands,
    misconception=_add_without_carry,
    plan="add and carry",
)


def _draw_difference(rng: Random, level: int) -> str:
    small, large = sorted(_draw_numbers(rng, OPERANDS[level - 1]))
    return f"{large}-{small}"


def _subtract_smaller_digit(a: int, b: int) -> int:
    tens = abs(a // 10 - b // 10)
    ones = abs(a % 10 - b % 10)
    return tens * 10 + ones


SUBTRACTION = Family(
    name="sub",
    pattern=r"(\d{1,2})-(\d{1,2})",
    draw=_draw_difference,
    answer=operator.sub,
    level=_level_by_two_digit_operands,
    misconception=_subtract_smaller_digit,
    plan="subtract and borrow",
)


# Products


PRODUCT_BOUNDS = (((0, 5), (0, 5)), ((2, 9), (2, 9)), ((10, 24), (2, 9)))  # by level


def _draw_product(rng: Random, level: int) -> str:
    a, b = _draw_numbers(rng, PRODUCT_BOUNDS[level - 1])
    if rng.random() < 0.5:
        a, b = b, a
    return f"{a}*{b}"


MULTIPLICATION = Family(
    name="mul",
    pattern=r"(\d{1,2})\*(\d{1,2})",
    draw=_draw_product,
    answer=operator.mul,
    level=_level_by_largest(5, 9),
    misconception=operator.add,
    plan="multiply",
)


def _product_first(a: int, b: int, c: int) -> int:
    return a + b * c


def _left_to_right(a: int, b: int, c: int) -> int:
    return (a + b) * c


PRECEDENCE = Family(
    name="prec",
    pattern=r"(\d)\+(\d)\*(\d)",
    draw=_fill(
        "{}+{}*{}",
        ((1, 3), (1, 3), (2, 3)),
        ((1, 5), (1, 5), (2, 5)),
        ((1, 9), (1, 9), (2, 9)),
    ),
    answer=_product_first,
    level=_level_by_largest(3, 5),
    misconception=_left_to_right,
    plan="multiply first",
)


# Equations and sequences


def _draw_equation(rng: Random, level: int) -> str:
    lowest, highest = ((1, 1), (2, 3), (4, 6))[level - 1]
    a = rng.randint(lowest, highest)
    x = rng.randint(0, 9) if level == 1 else rng.randint(1, 6)
    b = rng.randint(1, 5) if level == 2 else rng.randint(1, 9)
    factor = a if a > 1 else ""
    return f"{factor}x+{b}={a * x + b} x?"


def _solve_equation(a: int | None, b: int, total: int) -> int | None:
    x, remainder = divmod(total - b, a or 1)
    return x if x >= 0 and remainder == 0 else None


def _solve_half(a: int | None, b: int, total: int) -> int:
    """Forget to divide or, without a factor, take the wrong sign."""
    return total - b if a else total + b


EQUATION = Family(
    name="eq",
    pattern=r"([2-9])?x\+(\d)=(\d{1,2}) x\?",
    draw=_draw_equation,
    answer=_solve_equation,
    level=_level_by_first(1, 3),
    misconception=_solve_half,
    plan="subtract, divide",
)


def _draw_sequence(rng: Random, level: int) -> str:
    step = rng.randint(1, (3, 5, 9)[level - 1])
    start = rng.randint(0, (9, 20, 30)[level - 1])
    return f"next {start} {start + step} {start + 2 * step}"


def _next_term(a: int, b: int, c: int) -> int | None:
    return 2 * c - b if b - a == c - b else None


def _sequence_level(a: int, b: int, c: int) -> int:
    return max(level_by_limits(a, 9, 20), level_by_limits(b - a, 3, 5))


def _last_term(a: int, b: int, c: int) -> int:
    return c


SEQUENCE = Family(
    name="next",
    pattern=r"next (\d{1,2}) (\d{1,2}) (\d{1,2})",
    draw=_draw_sequence,
    answer=_next_term,
    level=_sequence_level,
    misconception=_last_term,
    plan="add the step",
)


# Stories


def _change(verb: str, amount: int) -> int:
    return amount if verb == "Gets" else -amount


def _draw_story(rng: Random, level: int) -> str:
    low, high = ((2, 9), (10, 19), (20, 49))[level - 1]
    start = rng.randint(low, high)
    person = rng.choice(PERSONS)
    verb = rng.choice(["Gets", "Gives"])
    amount = rng.randint(1, min(start, 9))
    return f"{person} has {start}. {verb} {amount}. Has?"


def _end_of_story(
    start: int, verb: str, amount: int, verb_2: str = "Gets", amount_2: int = 0
) -> int | None:
    end = start + _change(verb, amount) + _change(verb_2, amount_2)
    return end if end >= 0 else None


def _opposite_verb(start: int, verb: str, amount: int) -> int:
    return abs(start - _change(verb, amount))


STORY = Family(
    name="word",
    pattern=HAS + STEP + r"\. Has\?",
    draw=_draw_story,
    answer=_end_of_story,
    level=_level_by_first(9, 19),
    misconception=_opposite_verb,
    plan="follow the verb",
)


def _draw_long_story(rng: Random, level: int) -> str:
    start = rng.randint(2, 9) if level == 1 else rng.randint(10, 19)
    bounds = ((6, 9), (1, 9)) if level == 3 else ((1, 5), (1, 5))
    amount, amount_2 = _draw_numbers(rng, bounds)
    verb, verb_2 = rng.choice([("Gets", "Gives"), ("Gets", "Gets"), ("Gives", "Gets")])
    amount = min(amount, start)
    if verb_2 == "Gives":
        amount_2 = min(amount_2, start + amount)
    person = rng.choice(PERSONS)
    return f"{person} has {start}. {verb} {amount}. {verb_2} {amount_2}. Has?"


def _long_story_level(
    start: int, verb: str, amount: int, verb_2: str, amount_2: int
) -> int:
    if start < 10:
        return 1
    return 1 + level_by_limits(max(amount, amount_2), 5)


def _first_step_only(
    start: int, verb: str, amount: int, verb_2: str, amount_2: int
) -> int:
    return start + _change(verb, amount)


LONG_STORY = Family(
    name="word2",
    pattern=HAS + STEP + STEP + r"\. Has\?",
    draw=_draw_long_story,
    answer=_end_of_story,
    level=_long_story_level,
    misconception=_first_step_only,
    plan="do both steps",
)


# Rates and units


def _draw_price(rng: Random, level: int) -> str:
    lowest, highest = ((1, 1), (2, 2), (3, 5))[level - 1]
    count = rng.randint(lowest, highest)
    new_count = rng.choice([n for n in range(2, 10) if n != count])
    cost = count * rng.randint(2, 10)
    return f"{count} cost {cost}. {new_count} cost?"


def _scale_price(count: int, cost: int, new_count: int) -> int | None:
    if cost == 0 or new_count == 0 or cost % count:
        return None
    return cost // count * new_count


def _add_difference(count: int, cost: int, new_count: int) -> int:
    return cost + new_count - count


RATE = Family(
    name="rate",
    pattern=r"([1-9]) cost (\d{1,2})\. (\d) cost\?",
    draw=_draw_price,
    answer=_scale_price,
    level=_level_by_first(1, 2),
    misconception=_add_difference,
    plan="find the price of one",
)


def _draw_unit(rng: Random, level: int) -> str:
    end = UNITS_PER_LEVEL * level
    units_of_level = list(FACTORS)[end - UNITS_PER_LEVEL : end]
    return f"{rng.randint(1, 25)} {rng.choice(units_of_level)}?"


def _convert(number: int, units: str) -> int | None:
    return number * FACTORS[units] if units in FACTORS else None


def _unit_level(number: int, units: str) -> int:
    return 1 + list(FACTORS).index(units) // UNITS_PER_LEVEL


def _times_ten(number: int, units: str) -> int:
    return number * 10


UNIT = Family(
    name="unit",
    pattern=r"(\d{1,2}) (\w+ in \w+)\?",
    draw=_draw_unit,
    answer=_convert,
    level=_unit_level,
    misconception=_times_ten,
    plan="use the factor",
)


# Quotients, remainders and comparisons


def _draw_quotient(rng: Random, level: int) -> str:
    divisor = 2 if level < 3 else rng.choice([4, 5])
    low, high = ((1, 39), (40, 199), (1, 149))[level - 1]
    dividends = [n for n in range(low, high + 1) if n % divisor]
    return f"{rng.choice(dividends)}/{divisor}"


def _exact_quotient(a: int, b: int) -> str:
    return f"{a / b:g}"


def _quotient_level(a: int, b: int) -> int:
    return level_by_limits(a, 39) if b == 2 else 3


DIVISION = Family(
    name="div",
    pattern=r"(\d{1,3})/([245])",
    draw=_draw_quotient,
    answer=_exact_quotient,
    level=_quotient_level,
    misconception=operator.floordiv,
    plan="divide to the end",
    answer_type="Float",
)


def _dividend(a: int, factor: int | None) -> int:
    return a if factor is None else a * factor


def _remainder(a: int, factor: int | None, divisor: int) -> int:
    return _dividend(a, factor) % divisor


def _whole_quotient(a: int, factor: int | None, divisor: int) -> int:
    return _dividend(a, factor) // divisor


def _remainder_level(a: int, factor: int | None, divisor: int) -> int:
    return level_by_limits(a, 9) if factor is None else 3


_draw_simple_remainder = _fill("{} mod {}", ((5, 9), (2, 4)), ((10, 19), (3, 6)))
_draw_product_remainder = _fill("{}*{} mod {}", ((2, 9), (2, 9), (3, 7)))


def _draw_remainder(rng: Random, level: int) -> str:
    if level == 3:
        return _draw_product_remainder(rng, 1)
    return _draw_simple_remainder(rng, level)


REMAINDER = Family(
    name="mod",
    pattern=r"(\d{1,2})(?:\*(\d))? mod ([2-9])",
    draw=_draw_remainder,
    answer=_remainder,
    level=_remainder_level,
    misconception=_whole_quotient,
    plan="keep the rest",
)


def _draw_comparison(rng: Random, level: int) -> str:
    while True:
        a, b = _draw_numbers(rng, OPERANDS[level - 1])
        if a % 10 != b % 10:  # the misconception compares the last digits
            break
    if rng.random() >= 0.5:
        a, b = b, a
    word = rng.choice(["bigger", "smaller"])
    return f"{word} {a} {b}"


def _compare(word: str, a: int, b: int) -> int | None:
    if a == b:
        return None
    return max(a, b) if word == "bigger" else min(a, b)


def _compare_last_digits(word: str, a: int, b: int) -> int:
    extreme = max if word == "bigger" else min
    return extreme(a, b, key=lambda number: number % 10)


COMPARISON = Family(
    name="cmp",
    pattern=r"(bigger|smaller) (\d{1,2}) (\d{1,2})",
    draw=_draw_comparison,
    answer=_compare,
    level=_level_by_two_digit_operands,
    misconception=_compare_last_digits,
    plan="compare tens first",
)


FAMILIES = (
    ADDITION,
    SUBTRACTION,
    MULTIPLICATION,
    PRECEDENCE,
    EQUATION,
    SEQUENCE,
    STORY,
    LONG_STORY,
    RATE,
    UNIT,
    DIVISION,
    REMAINDER,
    COMPARISON,
)
