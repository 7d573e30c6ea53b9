"""Families about numbers: sums, equations, stories, rates, remainders, comparisons."""

import re
from random import Random

from tinyworld.family import Family, band, ints

NAMES = ("Al", "Mia", "Tom", "Zoe")
UNITS = {  # (from, to): (factor, level)
    ("wk", "d"): (7, 1),
    ("m", "cm"): (100, 1),
    ("h", "min"): (60, 2),
    ("doz", "pcs"): (12, 2),
    ("d", "h"): (24, 3),
    ("min", "s"): (60, 3),
}


def _operands(rng: Random, level: int) -> tuple[int, int]:
    return (
        rng.randint(10, 49) if level > 1 else rng.randint(0, 9),
        rng.randint(10, 49) if level > 2 else rng.randint(0, 9),
    )


def _digitwise(a: int, b: int, combine) -> str:
    pairs = zip(f"{a:02d}", f"{b:02d}", strict=True)
    return str(int("".join(str(combine(int(x), int(y))) for x, y in pairs)))


def _plain(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")


def _subtraction(rng: Random, level: int) -> str:
    a, b = _operands(rng, level)
    return f"{max(a, b)}-{min(a, b)}"


def _product(rng: Random, level: int) -> str:
    (low, high), top = [((0, 5), 5), ((2, 9), 9), ((10, 15), 9)][level - 1]
    return f"{rng.randint(low, high)}*{rng.randint(low if level == 1 else 2, top)}"


def _precedence(rng: Random, level: int) -> str:
    high = (3, 5, 9)[level - 1]
    return f"{rng.randint(1, high)}+{rng.randint(1, high)}*{rng.randint(2, high)}"


def _equation(rng: Random, level: int) -> str:
    a = (1, rng.randint(2, 3), rng.randint(4, 6))[level - 1]
    x = rng.randint(0, 9) if level == 1 else rng.randint(1, 6)
    b = rng.randint(1, 9) if level != 2 else rng.randint(1, 5)
    return f"{a if a > 1 else ''}x+{b}={a * x + b} x?"


def _solve_equation(m: re.Match[str]) -> str | None:
    a, rest = int(m[1] or 1), int(m[3]) - int(m[2])
    return str(rest // a) if rest >= 0 and rest % a == 0 else None


def _progression(rng: Random, level: int) -> str:
    step, start = rng.randint(1, (3, 5, 9)[level - 1]), rng.randint(0, (9, 20, 30)[level - 1])
    return f"next {start} {start + step} {start + 2 * step}"


def _next(m: re.Match[str]) -> str | None:
    a, b, c = ints(m)
    return str(2 * c - b) if b - a == c - b else None


def _progression_level(m: re.Match[str]) -> int:
    start, second, _ = ints(m)
    step = second - start
    return 1 if start <= 9 and step <= 3 else 2 if start <= 20 and step <= 5 else 3


def _signed(verb: str, amount: str) -> int:
    return int(amount) if verb == "Gets" else -int(amount)


def _story(rng: Random, level: int) -> str:
    have = rng.randint(*[(2, 9), (10, 19), (20, 49)][level - 1])
    return f"{rng.choice(NAMES)} has {have}. {rng.choice(['Gets', 'Gives'])} {rng.randint(1, min(have, 9))}. Has?"


def _long_story(rng: Random, level: int) -> str:
    have = rng.randint(2, 9) if level == 1 else rng.randint(10, 19)
    first, second = (rng.randint(6, 9), rng.randint(1, 9)) if level == 3 else (rng.randint(1, 5), rng.randint(1, 5))
    verbs = rng.choice([("Gets", "Gives"), ("Gets", "Gets"), ("Gives", "Gets")])
    first = min(first, have)
    if verbs[1] == "Gives":
        second = min(second, have + first)
    return f"{rng.choice(NAMES)} has {have}. {verbs[0]} {first}. {verbs[1]} {second}. Has?"


def _story_end(m: re.Match[str]) -> str | None:
    end = int(m[1]) + _signed(m[2], m[3]) + (_signed(m[4], m[5]) if m.re.groups > 3 else 0)
    return str(end) if end >= 0 else None


def _price(rng: Random, level: int) -> str:
    count = (1, 2, rng.randint(3, 4))[level - 1]
    asked = rng.choice([n for n in range(2, 7) if n != count])
    return f"{count} cost {count * rng.randint(2, 5)}. {asked} cost?"


def _price_answer(m: re.Match[str]) -> str | None:
    count, cost, asked = ints(m)
    return str(cost // count * asked) if cost and asked and cost % count == 0 else None


def _price_misconception(m: re.Match[str]) -> str:
    count, cost, asked = ints(m)  # adds the difference instead of scaling
    return str(cost + asked - count)


def _unit(rng: Random, level: int) -> str:
    source, target = rng.choice([pair for pair, (_, unit_level) in UNITS.items() if unit_level == level])
    return f"{rng.randint(1, 12)} {source} in {target}?"


def _unit_answer(m: re.Match[str]) -> str | None:
    known = UNITS.get((m[2], m[3]))
    return str(int(m[1]) * known[0]) if known else None


def _division(rng: Random, level: int) -> str:
    divisor = 2 if level < 3 else rng.choice([4, 5])
    low, high = ((1, 19), (20, 59), (1, 39))[level - 1]
    return f"{rng.choice([n for n in range(low, high + 1) if n % divisor])}/{divisor}"


def _remainder(rng: Random, level: int) -> str:
    if level == 3:
        return f"{rng.randint(2, 9)}*{rng.randint(2, 9)} mod {rng.randint(3, 7)}"
    low, high = ((5, 9), (10, 19))[level - 1]
    return f"{rng.randint(low, high)} mod {rng.randint(2, 4) if level == 1 else rng.randint(3, 6)}"


def _comparison(rng: Random, level: int) -> str:
    while True:
        a, b = _operands(rng, level)
        if a != b and a % 10 != b % 10:
            pair = [a, b] if rng.random() < 0.5 else [b, a]
            return f"{rng.choice(['bigger', 'smaller'])} {pair[0]} {pair[1]}"


def _compare(m: re.Match[str], key=lambda n: n) -> str | None:
    a, b = int(m[2]), int(m[3])
    return str((max if m[1] == "bigger" else min)(a, b, key=key)) if a != b else None


def _dividend(m: re.Match[str]) -> tuple[int, int]:
    return int(m[1]) * int(m[2] or 1), int(m[3])


def _both_above(m: re.Match[str]) -> int:
    return 1 + sum(n > 9 for n in ints(m))


_NAME = f"(?:{'|'.join(NAMES)})"
FAMILIES = (
    Family(
        "add",
        re.compile(r"(\d{1,2})\+(\d{1,2})"),
        lambda r, n: "{}+{}".format(*_operands(r, n)),
        lambda m: str(sum(ints(m))),
        _both_above,
        lambda m: _digitwise(*ints(m), lambda x, y: (x + y) % 10),
        "add and carry",
    ),  # forgets the carry
    Family(
        "sub",
        re.compile(r"(\d{1,2})-(\d{1,2})"),
        _subtraction,
        lambda m: str(int(m[1]) - int(m[2])),
        _both_above,
        lambda m: _digitwise(*ints(m), lambda x, y: abs(x - y)),
        "subtract and borrow",
    ),  # smaller from larger
    Family(
        "mul",
        re.compile(r"(\d{1,2})\*(\d)"),
        _product,
        lambda m: str(int(m[1]) * int(m[2])),
        lambda m: band(max(ints(m)), 5, 9),
        lambda m: str(sum(ints(m))),
        "multiply",
    ),  # adds
    Family(
        "prec",
        re.compile(r"(\d)\+(\d)\*(\d)"),
        _precedence,
        lambda m: str(int(m[1]) + int(m[2]) * int(m[3])),
        lambda m: band(max(ints(m)), 3, 5),
        lambda m: str((int(m[1]) + int(m[2])) * int(m[3])),
        "multiply first",
    ),  # works from left to right
    Family(
        "eq",
        re.compile(r"([2-9]?)x\+(\d)=(\d{1,2}) x\?"),
        _equation,
        _solve_equation,
        lambda m: band(int(m[1] or 1), 1, 3),  # wrong sign, or forgets to divide
        lambda m: str(int(m[3]) - int(m[2]) if m[1] else int(m[3]) + int(m[2])),
        "subtract, divide",
    ),
    Family(
        "next",
        re.compile(r"next (\d{1,2}) (\d{1,2}) (\d{1,2})"),
        _progression,
        _next,
        _progression_level,
        lambda m: m[3],
        "add the step",
    ),  # repeats the last term
    Family(
        "word",
        re.compile(_NAME + r" has (\d{1,2})\. (Gets|Gives) (\d)\. Has\?"),
        _story,
        _story_end,
        lambda m: band(int(m[1]), 9, 19),
        lambda m: str(abs(int(m[1]) - _signed(m[2], m[3]))),
        "follow the verb",
    ),  # turns the verb round
    Family(
        "word2",
        re.compile(_NAME + r" has (\d{1,2})\. (Gets|Gives) (\d)\. (Gets|Gives) (\d)\. Has\?"),
        _long_story,
        _story_end,
        lambda m: 1 if int(m[1]) < 10 else 2 if max(int(m[3]), int(m[5])) <= 5 else 3,
        lambda m: str(int(m[1]) + _signed(m[2], m[3])),
        "do both steps",
    ),  # stops after step one
    Family(
        "rate",
        re.compile(r"([1-9]) cost (\d{1,2})\. (\d) cost\?"),
        _price,
        _price_answer,
        lambda m: min(3, int(m[1])),
        _price_misconception,
        "find the price of one",
    ),
    Family(
        "unit",
        re.compile(r"(\d{1,2}) (\w+) in (\w+)\?"),
        _unit,
        _unit_answer,
        lambda m: UNITS[m[2], m[3]][1],
        lambda m: str(int(m[1]) * 10),
        "use the factor",
    ),  # always ten to one
    Family(
        "div",
        re.compile(r"(\d{1,2})/([245])"),
        _division,
        lambda m: _plain(int(m[1]) / int(m[2])),
        lambda m: 3 if m[2] != "2" else band(int(m[1]), 19),
        lambda m: str(int(m[1]) // int(m[2])),
        "divide to the end",
        answer_type="Float",
        seeded=False,
    ),  # drops the remainder
    Family(
        "mod",
        re.compile(r"(\d{1,2})(?:\*(\d))? mod ([2-9])"),
        _remainder,
        lambda m: str(_dividend(m)[0] % _dividend(m)[1]),
        lambda m: 3 if m[2] else band(int(m[1]), 9),
        lambda m: str(_dividend(m)[0] // _dividend(m)[1]),
        "keep the rest",
        seeded=False,
    ),  # keeps the quotient
    Family(
        "cmp",
        re.compile(r"(bigger|smaller) (\d{1,2}) (\d{1,2})"),
        _comparison,
        _compare,
        _both_above,
        lambda m: _compare(m, key=lambda n: n % 10),
        "compare tens first",
        seeded=False,
    ),  # looks at last digits
)
