"""Quantities: a number with its unit or with the noun that it counts.

The table of units is closed (units.toml), and every unit has its dimensions. A word that is no
unit is a noun that is counted, unless it changes the number: `5 million`, `7 squared`, `at most`.
"""

import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from coevolve.text.verify import numbers
from coevolve.text.verify.normal import FONTS
from coevolve.text.verify.tables import UNITS, WORDS

Dimensions = tuple[tuple[str, int], ...]  # base units and their exponents, sorted
MAX_CHARACTERS = 160  # of a quantity; a longer text is a sentence
MAX_NOUNS = 6
MIN_NOUN_CHARACTERS = 3

SCALES: dict[str, int] = WORDS["scales"]
NOT_NOUNS = frozenset(WORDS["not_nouns"])
NOT_IN_SUBJECTS = NOT_NOUNS - set(WORDS["in_subjects"])
GLUE = frozenset(WORDS["glue"])
PER = frozenset(WORDS["per"])
OPEN_ENDS = frozenset(WORDS["open_ends"])
VERBS = "|".join(WORDS["verbs"])
SENTENCE = re.compile(
    rf"(?P<subject>(?:[A-Za-z][A-Za-z']*,?\s+){{1,10}}?)(?:{VERBS})\s+(?=[-$€£0-9\\])",
    re.IGNORECASE,
)
FRACTION_PARTS = (
    r"\\[dtc]?frac\s*(?:\{[+-]?[0-9]{1,60}\}|[0-9])\s*(?:\{[0-9]{1,60}\}|[0-9])"
)
DECIMAL_PART = (
    r"(?:[0-9][0-9,.]{0,60}|\.[0-9]{1,60})(?:[eE][+-]?[0-9]{1,3}(?![0-9A-Za-z]))?"
)
GROUPED_PART = numbers.GROUPED.pattern.replace("mark", "separator")
NUMERAL = re.compile(
    r"(?:(?:negative|minus)\s+)?[+-]?\s*"
    rf"(?:[0-9]{{1,60}}\s*{FRACTION_PARTS}"
    r"|[0-9]{1,60}\s+(?:and\s+)?[0-9]{1,60}/[0-9]{1,60}"
    rf"|{FRACTION_PARTS}"
    r"|[0-9]{1,60}\s*/\s*[0-9]{1,60}"
    rf"|(?:{GROUPED_PART}(?:\.[0-9]{{0,60}})?|{DECIMAL_PART})"
    rf"(?:{numbers.POWER_OF_TEN.pattern})?)",
    re.IGNORECASE,
)
CURRENCY = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<mark>\\?\$|[€£¥₹])\s*(?P<rest>[-+0-9.\\].*)", re.DOTALL
)
TEMPERATURE = re.compile(
    r"(?:degrees?|°)\s*(?P<scale>[FC])(?:ahrenheit|elsius)?(?![A-Za-z])", re.IGNORECASE
)
DEGREES = re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\(?:degree|circ)(?![A-Za-z])")
SPACE = re.compile(r"\\[,;!: ]|\\q?quad(?![A-Za-z])|~")
TOKEN = re.compile(
    r"(?P<blank>\s+)|(?P<word>°\s?[CF](?![A-Za-z])|[A-Za-zµÅΩ]+(?:'s)?|[°$%€£¥₹¢])\.?"
    r"|\^\s*\{?(?P<power>-?[0-9])\}?|(?P<over>/)|(?P<dot>\\cdot|\\times|[*·-])"
)
POWERS_BEFORE = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
POWERS_BEHIND = {"squared": 2, "cubed": 3}


@dataclass(frozen=True)
class Unit:
    """A unit: `factor` times the product of base units; `nouns` for what is only counted."""

    factor: Fraction = Fraction(1)
    dimensions: Dimensions = ()
    nouns: tuple[str, ...] = ()

    @property
    def is_percent(self) -> bool:
        """Whether the unit is percent."""
        return self.dimensions == (("percent", 1),)


@dataclass(frozen=True)
class Quantity:
    """A number and its unit; `unit` is None for a bare number."""

    value: Fraction
    unit: Unit | None = None


@functools.cache
def table() -> dict[str, Unit]:
    """Return the units by name."""
    units = {}
    for section, definitions in UNITS.items():
        for definition, names in definitions.items():
            is_base = section == "base"
            unit = (
                Unit(dimensions=((definition, 1),)) if is_base else _defined(definition)
            )
            for name in names.split():
                units[name] = unit
    return units


def _defined(definition: str) -> Unit:
    """Read a definition such as `metre second^-1 5/18`."""
    factor = Fraction(1)
    dimensions = []
    for part in definition.split():
        if part[0].isdigit():
            factor = Fraction(part)
            continue
        base, _, exponent = part.partition("^")
        dimensions.append((base, int(exponent or 1)))
    return Unit(factor, tuple(sorted(dimensions)))


def quantity(text: str) -> Quantity | None:
    """Read a number with its unit or noun: `72 clips`, `$7`, `3 h 20 min`, `2.4 million`.

    None for a text that is not a quantity, such as `7 squared`, `at most 7`, `5x` or a formula.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    value = numbers.rational(text)
    if value is None:
        value = numbers.read_number_words(text)
    if value is not None:
        return Quantity(value)
    money = CURRENCY.fullmatch(text)
    if money:
        mark = table()[money["mark"]]
        amount = quantity(money["sign"] + money["rest"])
        if amount is None or (amount.unit and amount.unit != mark):
            return amount and _with_rate(amount, mark)
        return Quantity(amount.value, mark)
    total = None
    rest = numbers.with_digits(text)
    while rest:
        part, rest = _first_part(rest)
        if part is None:
            return None
        if rest and (part.unit is None or not part.unit.dimensions):
            return None
        total = part if total is None else _sum(total, part)
        if total is None:
            return None
    return total


def stated(text: str) -> Quantity | None:
    """Read the quantity that a short sentence states: `Janet makes $18 every day`.

    None if a word of the sentence negates, compares or counts.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    sentence = SENTENCE.match(text)
    if sentence is None:
        return None
    subject = re.findall("[a-z']+", sentence["subject"].lower())
    if any(word in NOT_IN_SUBJECTS or word.endswith("n't") for word in subject):
        return None
    return quantity(text[sentence.end() :])


def _with_rate(amount: Quantity, mark: Unit) -> Quantity | None:
    """Return `$5 per day` as a rate; None if the amount has a unit of its own, as in `$5 cents`."""
    unit = amount.unit
    if unit is None:
        return None
    is_rate = all(exponent < 0 for _, exponent in unit.dimensions)
    dimensions = tuple(sorted((*mark.dimensions, *unit.dimensions)))
    return Quantity(amount.value, Unit(unit.factor, dimensions)) if is_rate else None


def _sum(total: Quantity, part: Quantity) -> Quantity | None:
    """Add the next part of a quantity such as `3 hours 20 minutes`; None if it has no such unit."""
    if part.unit is None or total.unit is None:
        return None
    if part.unit.dimensions != total.unit.dimensions or part.value < 0:
        return None
    value = total.value + part.value * part.unit.factor / total.unit.factor
    return Quantity(value, total.unit)


def _first_part(text: str) -> tuple[Quantity | None, str]:
    """Read one number with its unit from the start; return it and what comes behind it."""
    numeral = NUMERAL.match(text)
    if numeral is None or not numeral[0].strip():
        return None, ""
    number_text = numeral[0].strip()
    end = numeral.start() + len(numeral[0].rstrip())
    if number_text.endswith((",", ".")):
        number_text = number_text[:-1]
        end -= 1
    value = numbers.rational(number_text)
    if value is None:
        return None, ""
    phrase = text[end:]
    next_number = re.search(
        r"(?<![\^{_-])(?:,\s*|\band\s+|(?<=[\s}]))(?=[0-9])", phrase
    )
    rest = ""
    if next_number and next_number.start() > 0:
        rest = phrase[next_number.end() :]
        phrase = phrase[: next_number.start()]
    if not phrase.strip(" .,"):
        return Quantity(value), rest
    scale, phrase = _scale(phrase)
    if not phrase.strip():
        return Quantity(value * scale), rest
    unit = read_unit(phrase)
    return (None, "") if unit is None else (Quantity(value * scale, unit), rest)


def _scale(phrase: str) -> tuple[int, str]:
    """Take words such as `million` from the start of what stands behind a number."""
    scale = 1
    while True:
        plain = SPACE.sub(" ", FONTS.sub(r" \1 ", phrase)).strip()
        word, _, others = plain.partition(" ")
        if word.lower() not in SCALES:
            return scale, phrase
        scale *= SCALES[word.lower()]
        phrase = f" {others}" if others else ""


def read_unit(phrase: str) -> Unit | None:
    """Read the unit or the nouns behind a number; None if the words change the number.

    A single letter is a unit only behind a blank or inside `\\text{}`: `5m` is a product.
    """
    plain = FONTS.sub(r" \1 ", phrase)
    plain = SPACE.sub(" ", DEGREES.sub("°", plain)).replace("\\", "")
    plain = TEMPERATURE.sub(lambda degrees: "°" + degrees["scale"].upper(), plain)
    if re.match(r"[A-Za-z](?![A-Za-z])", plain):
        return None
    tokens = []
    position = 0
    while position < len(plain):
        token = TOKEN.match(plain, position)
        if token is None:
            return None
        if token.lastgroup != "blank":
            tokens.append(token)
        position = token.end()
    return _unit(tokens) if tokens else None


def _unit(tokens: list[re.Match[str]]) -> Unit | None:
    """Multiply the units of a phrase; words behind them, or instead of them, are nouns."""
    phrase = _Phrase()
    for index, token in enumerate(tokens):
        is_last = index == len(tokens) - 1
        if token["dot"]:
            is_read = not is_last
        elif token["power"]:
            is_read = phrase.raise_last(int(token["power"]))
        elif token["over"]:
            is_read = phrase.divide()
        else:
            is_read = phrase.read_word(token["word"], _is_preposition(tokens, index))
        if not is_read:
            return None
    last_word = (tokens[-1]["word"] or "").lower()
    return None if last_word in OPEN_ENDS and phrase.is_empty else phrase.unit()


class _Phrase:
    """What stands behind a number, word by word; each method says whether the word fits."""

    def __init__(self) -> None:
        self.factor = Fraction(1)
        self.dimensions: dict[str, int] = {}
        self.nouns: list[str] = []
        self.sign = 1  # -1 behind "per"
        self.power = 1  # of the next unit: 2 behind "square"
        self.last: Unit | None = None  # the unit that an exponent raises
        self.last_power = 1

    @property
    def is_empty(self) -> bool:
        """Whether no unit and no noun was read."""
        return not self.dimensions and not self.nouns

    def read_word(self, text: str, is_preposition: bool) -> bool:
        word = text.lower()
        named = None if is_preposition or self.nouns else _named(text)
        if text in PER:
            return self.divide()
        if word in POWERS_BEFORE:
            self.power = POWERS_BEFORE[word]
            return True
        if word in POWERS_BEHIND:
            return self.raise_last(POWERS_BEHIND[word])
        if named is not None:
            return self.multiply(named)
        self.last = None
        if word in GLUE:
            return True
        if len(word) < MIN_NOUN_CHARACTERS or word in NOT_NOUNS:
            return False
        self.nouns.append(_singular(word))
        return len(self.nouns) <= MAX_NOUNS

    def divide(self) -> bool:
        self.sign = -1
        return True

    def multiply(self, unit: Unit) -> bool:
        self.last = unit
        self.last_power = self.sign * self.power
        self.power = 1
        self._multiply(unit, self.last_power)
        return True

    def raise_last(self, exponent: int) -> bool:
        """Raise the unit before, which counts once already."""
        if self.last is None:
            return False
        self._multiply(self.last, (exponent - 1) * self.last_power)
        self.last = None
        return True

    def _multiply(self, unit: Unit, exponent: int) -> None:
        self.factor *= unit.factor**exponent
        for base, power in unit.dimensions:
            self.dimensions[base] = self.dimensions.get(base, 0) + power * exponent

    def unit(self) -> Unit:
        kept = [(base, power) for base, power in self.dimensions.items() if power]
        if kept:
            return Unit(self.factor, tuple(sorted(kept)))
        return Unit(nouns=tuple(self.nouns))


def _is_preposition(tokens: list[re.Match[str]], index: int) -> bool:
    """Whether `in` does not mean inch, because another word follows, as in `in total`."""
    follows = tokens[index + 1]["word"] if index + 1 < len(tokens) else None
    return tokens[index]["word"] == "in" and follows is not None


def _named(word: str) -> Unit | None:
    """Return the unit of a name; only names of more than three letters may change their case."""
    names = table()
    word = word.replace(" ", "")
    if word in names:
        return names[word]
    return names.get(word.lower()) if len(word) > 2 else None


def _singular(word: str) -> str:
    """Return a noun in lower case without the ending of its plural."""
    word = word.lower().removesuffix("'s")
    for ending, singular in (("ies", "y"), ("ses", "s"), ("xes", "x"), ("s", "")):
        if (
            word.endswith(ending)
            and len(word) > len(ending) + 1
            and not word.endswith("ss")
        ):
            return word.removesuffix(ending) + singular
    return word


Comparison = Callable[[Fraction, Fraction], bool]


def same(answer: Quantity, gold: Quantity, compare: Comparison = operator.eq) -> bool:
    """Whether a quantity is the gold one; `compare` takes the answer's and the gold number.

    A unit may be missing on one side. Otherwise units must have the same dimensions, and the
    answer's number is converted. Nouns agree if one side's are among the other's. A bare number of
    at least 1 may stand for percent, `60` for `60 %`, as may its hundredth.
    """
    if answer.unit is None or gold.unit is None:
        unit = answer.unit or gold.unit
        if unit is not None and unit.is_percent:
            return _same_percent(answer, gold, compare)
        return compare(answer.value, gold.value)
    if answer.unit.dimensions != gold.unit.dimensions:
        is_sterling = {answer.unit, gold.unit} == {table()["£"], table()["pounds"]}
        return is_sterling and compare(answer.value, gold.value)
    answer_nouns = set(answer.unit.nouns)
    gold_nouns = set(gold.unit.nouns)
    if not (answer_nouns <= gold_nouns or gold_nouns <= answer_nouns):
        return False
    converted = answer.value * answer.unit.factor / gold.unit.factor
    return compare(converted, gold.value)


def _same_percent(answer: Quantity, gold: Quantity, compare: Comparison) -> bool:
    """Compare a percentage with a bare number, which may be its hundredth."""
    hundredth = Fraction(1, 100)
    if answer.unit is None:
        as_percent = answer.value / hundredth
        is_bare_percent = abs(answer.value) >= 1 and compare(answer.value, gold.value)
        return compare(as_percent, gold.value) or is_bare_percent
    is_bare_percent = abs(gold.value) >= 1 and compare(answer.value, gold.value)
    return compare(answer.value * hundredth, gold.value) or is_bare_percent
