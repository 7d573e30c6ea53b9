"""Families about numbers: sums, equations, stories, rates, remainders, comparisons."""

from collections.abc import Callable
from operator import add, floordiv, mul, sub
from random import Random

from tinyworld.family import Draw, Family, band

Bounds = tuple[tuple[int, int], ...]  # (low, high) of each number
NAMES = ("Al", "Mia", "Tom", "Zoe")
STEP = r"\. (Gets|Gives) (\d)"
RATIO = r"(\d{1,2})/([245])"
COMPARISON = r"(bigger|smaller) (\d{1,2}) (\d{1,2})"
STORY = rf"(?:{'|'.join(NAMES)}) has (\d{{1,2}}){STEP}"
EQUATION = r"([2-9])?x\+(\d)=(\d{1,2}) x\?"
PRICE = r"([1-9]) cost (\d{1,2})\. (\d) cost\?"
UNITS = {"wk in d": 7, "m in cm": 100, "h in min": 60, "doz in pcs": 12, "d in h": 24, "min in s": 60}  # two of a level
DIGIT, TENS = (0, 9), (10, 49)
OPERANDS = ((DIGIT, DIGIT), (TENS, DIGIT), (TENS, TENS))  # by level


def _numbers(rng: Random, bounds: Bounds) -> list[int]:
    return [rng.randint(low, high) for low, high in bounds]


def _uniform(template: str, *levels: Bounds) -> Draw:
    """Draw questions that fill the template with numbers, uniform within the bounds of their level."""
    return lambda rng, level: template.format(*_numbers(rng, levels[level - 1]))


def _first(*limits: int) -> Callable[..., int]:
    """Level by the first number of a question; one that is left out is 1."""
    return lambda first, *rest: band(first or 1, *limits)


def _largest(*limits: int) -> Callable[..., int]:
    """Level by the largest number of a question."""
    return lambda *numbers: band(max(numbers), *limits)


_sum = _uniform("{}+{}", *OPERANDS)
_product = _uniform("{}*{}", ((0, 5), (0, 5)), ((2, 9), (2, 9)), ((10, 15), (2, 9)))
_precedence = _uniform("{}+{}*{}", *(((1, high), (1, high), (2, high)) for high in (3, 5, 9)))


def _difference(rng: Random, level: int) -> str:
    small, large = sorted(_numbers(rng, OPERANDS[level - 1]))
    return f"{large}-{small}"


def _two_digits(*operands: int) -> int:
    """Level by how many of the last two operands have two digits."""
    return 1 + sum(number > 9 for number in operands[-2:])


def _no_carry(a: int, b: int) -> int:
    return (a // 10 + b // 10) % 10 * 10 + (a + b) % 10


def _no_borrow(a: int, b: int) -> int:
    return abs(a // 10 - b // 10) * 10 + abs(a % 10 - b % 10)


def _products_first(a: int, b: int, c: int) -> int:
    return a + b * c


def _left_to_right(a: int, b: int, c: int) -> int:
    return (a + b) * c


def _equation(rng: Random, level: int) -> str:
    a = (1, rng.randint(2, 3), rng.randint(4, 6))[level - 1]
    x = rng.randint(0, 9) if level == 1 else rng.randint(1, 6)
    b = rng.randint(1, 9) if level != 2 else rng.randint(1, 5)
    return f"{a if a > 1 else ''}x+{b}={a * x + b} x?"


def _solution(a: int | None, b: int, total: int) -> int | None:
    x, rest = divmod(total - b, a or 1)
    return x if x >= 0 and rest == 0 else None


def _half_solved(a: int | None, b: int, total: int) -> int:
    return total - b if a else total + b


def _terms(rng: Random, level: int) -> str:
    step, start = _numbers(rng, ((1, (3, 5, 9)[level - 1]), (0, (9, 20, 30)[level - 1])))
    return f"next {start} {start + step} {start + 2 * step}"


def _next_term(a: int, b: int, c: int) -> int | None:
    return 2 * c - b if b - a == c - b else None


def _last_term(a: int, b: int, c: int) -> int:
    return c


def _terms_level(a: int, b: int, c: int) -> int:
    return max(band(a, 9, 20), band(b - a, 3, 5))


def _change(verb: str, amount: int) -> int:
    return amount if verb == "Gets" else -amount


def _story(rng: Random, level: int) -> str:
    have = rng.randint(*((2, 9), (10, 19), (20, 49))[level - 1])
    return f"{rng.choice(NAMES)} has {have}. {rng.choice(['Gets', 'Gives'])} {rng.randint(1, min(have, 9))}. Has?"


def _verb_turned(have: int, verb: str, amount: int) -> int:
    return abs(have - _change(verb, amount))


def _two_steps(rng: Random, level: int) -> str:
    have = rng.randint(2, 9) if level == 1 else rng.randint(10, 19)
    first, second = _numbers(rng, ((6, 9), (1, 9)) if level == 3 else ((1, 5), (1, 5)))
    verbs = rng.choice([("Gets", "Gives"), ("Gets", "Gets"), ("Gives", "Gets")])
    first = min(first, have)
    if verbs[1] == "Gives":
        second = min(second, have + first)
    return f"{rng.choice(NAMES)} has {have}. {verbs[0]} {first}. {verbs[1]} {second}. Has?"


def _two_steps_level(have: int, verb: str, amount: int, verb_2: str, amount_2: int) -> int:
    return 1 if have < 10 else 1 + band(max(amount, amount_2), 5)


def _first_step(have: int, verb: str, amount: int, *later: str | int) -> int:
    return have + _change(verb, amount)


def _end(have: int, verb: str, amount: int, verb_2: str = "Gets", amount_2: int = 0) -> int | None:
    end = have + _change(verb, amount) + _change(verb_2, amount_2)
    return end if end >= 0 else None


def _price(rng: Random, level: int) -> str:
    count = (1, 2, rng.randint(3, 4))[level - 1]
    asked = rng.choice([n for n in range(2, 7) if n != count])
    return f"{count} cost {count * rng.randint(2, 5)}. {asked} cost?"


def _scaled(count: int, cost: int, asked: int) -> int | None:
    return cost // count * asked if cost and asked and cost % count == 0 else None


def _added(count: int, cost: int, asked: int) -> int:
    return cost + asked - count


def _unit(rng: Random, level: int) -> str:
    units = rng.choice([units for units in UNITS if _unit_level(0, units) == level])
    return f"{rng.randint(1, 12)} {units}?"


def _converted(number: int, units: str) -> int | None:
    return number * UNITS[units] if units in UNITS else None


def _unit_level(number: int, units: str) -> int:
    return 1 + list(UNITS).index(units) // 2


def _tenfold(number: int, units: str) -> int:
    return number * 10


def _ratio(rng: Random, level: int) -> str:
    divisor = 2 if level < 3 else rng.choice([4, 5])
    low, high = ((1, 19), (20, 59), (1, 39))[level - 1]
    return f"{rng.choice([n for n in range(low, high + 1) if n % divisor])}/{divisor}"


def _exact(a: int, b: int) -> str:
    return f"{a / b:g}"


def _ratio_level(a: int, b: int) -> int:
    return band(a, 19) if b == 2 else 3


def _modulo(rng: Random, level: int) -> str:
    bounds = (((5, 9), (2, 4)), ((10, 19), (3, 6)), ((2, 9), (2, 9), (3, 7)))[level - 1]
    return ("{}*{} mod {}" if level == 3 else "{} mod {}").format(*_numbers(rng, bounds))


def _whole(a: int, factor: int | None, divisor: int) -> int:
    return (a if factor is None else a * factor) // divisor


def _rest(a: int, factor: int | None, divisor: int) -> int:
    return (a if factor is None else a * factor) % divisor


def _modulo_level(a: int, factor: int | None, divisor: int) -> int:
    return band(a, 9) if factor is None else 3


def _comparison(rng: Random, level: int) -> str:
    while True:
        a, b = _numbers(rng, OPERANDS[level - 1])
        if a != b and a % 10 != b % 10:
            pair = [a, b] if rng.random() < 0.5 else [b, a]
            return f"{rng.choice(['bigger', 'smaller'])} {pair[0]} {pair[1]}"


def _compared(word: str, a: int, b: int) -> int | None:
    return (max if word == "bigger" else min)(a, b) if a != b else None


def _by_last_digit(word: str, a: int, b: int) -> int:
    return (max if word == "bigger" else min)(a, b, key=lambda n: n % 10)


FAMILIES = (  # name, pattern, draw, answer, level, misconception, plan
    # forgets the carry
    Family("add", r"(\d{1,2})\+(\d{1,2})", _sum, add, _two_digits, _no_carry, "add and carry"),
    # takes the smaller digit from the larger
    Family("sub", r"(\d{1,2})-(\d{1,2})", _difference, sub, _two_digits, _no_borrow, "subtract and borrow"),
    # adds
    Family("mul", r"(\d{1,2})\*(\d)", _product, mul, _largest(5, 9), add, "multiply"),
    # works from left to right
    Family("prec", r"(\d)\+(\d)\*(\d)", _precedence, _products_first, _largest(3, 5), _left_to_right, "multiply first"),
    # wrong sign, or forgets to divide
    Family("eq", EQUATION, _equation, _solution, _first(1, 3), _half_solved, "subtract, divide"),
    # repeats the last term
    Family("next", r"next (\d{1,2}) (\d{1,2}) (\d{1,2})", _terms, _next_term, _terms_level, _last_term, "add the step"),
    # turns the verb round
    Family("word", STORY + r"\. Has\?", _story, _end, _first(9, 19), _verb_turned, "follow the verb"),
    # stops after the first step
    Family("word2", STORY + STEP + r"\. Has\?", _two_steps, _end, _two_steps_level, _first_step, "do both steps"),
    # adds the difference instead of scaling
    Family("rate", PRICE, _price, _scaled, _first(1, 2), _added, "find the price of one"),
    # takes every factor for ten
    Family("unit", r"(\d{1,2}) (\w+ in \w+)\?", _unit, _converted, _unit_level, _tenfold, "use the factor"),
    # drops the remainder
    Family("div", RATIO, _ratio, _exact, _ratio_level, floordiv, "divide to the end", "Float"),
    # keeps the quotient
    Family("mod", r"(\d{1,2})(?:\*(\d))? mod ([2-9])", _modulo, _rest, _modulo_level, _whole, "keep the rest"),
    # looks at the last digits
    Family("cmp", COMPARISON, _comparison, _compared, _two_digits, _by_last_digit, "compare tens first"),
)
