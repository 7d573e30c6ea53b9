"""What MAE reads in replies: the paper's reading, and that of the authors' released code.

A reading says which question a proposal holds, which score a judgement gives, and what the form of
a reply earns. `docs/authors-code.md` compares the second one with the released code itself.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from coevolve.methods.format_reward import format_reward
from coevolve.text.parse import judge_score, tag

QUESTION = re.compile(r"<question>(.*?)</question>", re.DOTALL)
SCORE = re.compile(r"<score>(.*?)</score>", re.DOTALL | re.IGNORECASE)
# In a score tag a fraction precedes a decimal, and a decimal a whole number. Signs are left out.
FRACTION = re.compile(r"\b(\d+)/(\d+)\b")
DECIMAL = re.compile(r"\b\d+\.\d+\b")
WHOLE = re.compile(r"\b\d+\b")
ANY_NUMBER = re.compile(r"\b\d+/\d+\b|\b\d+\.\d+\b|\b\d+\b")

# How many pairs of a tag earn the full format reward; more earn one half. The released code counts
# the tags of prompt and reply together, and its prompts for questions allow two pairs too many.
MOST_PAIRS = {
    "question": 3,
    "score": 1,
    "answer": 1,
    "type": 1,
}


@dataclass(frozen=True)
class Reading:
    """How replies are read.

    `question` returns the question of a proposal, `score` that of a judgement in [0, 1]; None if
    there is none. `format` returns the format reward of a reply whose tag has the given name.
    """

    question: Callable[[str], str | None]
    score: Callable[[str], float | None]
    format: Callable[[str, str], float]


def only_question(text: str) -> str | None:
    """Return the text's one question; None without exactly one filled pair of tags."""
    return tag(text, "question")


def last_question(text: str) -> str | None:
    """Return the content of the last pair of question tags; None without a pair or content."""
    contents = QUESTION.findall(text)
    if not contents:
        return None
    return contents[-1].strip() or None


def lenient_score(text: str) -> float | None:
    """Return (s - 1) / 9, clipped to [0, 1], for the first number in a pair of score tags.

    Without such a pair s is the last number anywhere in the text; None if there is none.
    """
    for content in SCORE.findall(text):
        score = number_in(content)
        if score is not None:
            return clipped(score)
    numbers = ANY_NUMBER.findall(text)
    if not numbers:
        return None
    last = number_in(numbers[-1])
    if last is None:
        return None
    return clipped(last)


def number_in(text: str) -> float | None:
    """Return the first fraction in a text, else its first decimal, else its first whole number.

    None without a number, and for a fraction that divides by zero or is beyond the largest float.
    """
    fraction = FRACTION.search(text)
    if fraction is not None:
        try:
            return int(fraction[1]) / int(fraction[2])
        # ValueError: more digits than Python reads.
        except (ArithmeticError, ValueError):
            return None
    number = DECIMAL.search(text) or WHOLE.search(text)
    if number is None:
        return None
    return float(number[0])


def clipped(score: float) -> float:
    """Map a score from 1 to 10 to [0, 1]; scores out of range to the nearer end."""
    fraction = (score - 1) / 9
    return min(1.0, max(0.0, fraction))


def counted_format(text: str, name: str) -> float:
    """Return the released code's format reward: by the numbers of tags, in whatever order.

    A proposal that also has answer or type tags earns the mean over all kinds. Answers must then
    number one more than the questions, as the released code counts.
    """
    term = counted_pairs(text, name)
    if name != "question":
        return term
    terms = [term]
    if has_tag(text, "answer"):
        terms.append(float(has_an_answer_more_than_questions(text)))
    if has_tag(text, "type"):
        terms.append(counted_pairs(text, "type"))
    return fmean(terms)


def has_tag(text: str, name: str) -> bool:
    """Whether a text has an opening or a closing tag."""
    return f"<{name}>" in text or f"</{name}>" in text


def counted_pairs(text: str, name: str) -> float:
    """Return 1.0 for few enough pairs of a tag, 0.5 for more, 0.0 for none or unequal numbers."""
    opened = text.count(f"<{name}>")
    closed = text.count(f"</{name}>")
    if opened != closed:
        return 0.0
    if opened == 0:
        return 0.0
    if opened > MOST_PAIRS[name]:
        return 0.5
    return 1.0


def has_an_answer_more_than_questions(text: str) -> bool:
    """Whether a proposal has as many closed answers as questions, and one more."""
    answers = text.count("<answer>")
    if answers != text.count("</answer>"):
        return False
    return answers == text.count("<question>") + 1


PAPER = Reading(only_question, judge_score, format_reward)
OFFICIAL = Reading(last_question, lenient_score, counted_format)
READINGS = {"paper": PAPER, "official": OFFICIAL}
