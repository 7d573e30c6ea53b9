"""Why our value and the authors' differ, class by class, for `benchmarks/authors.py`.

A difference belongs to the first cause that applies to it. Where a cause is arithmetic, it applies
only if the stated rule turns our value into theirs; so a difference of another origin stays
unexplained, and the benchmark fails.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.released import ours as ours_side
from coevolve.methods.mae.reading import OFFICIAL, PAPER
from coevolve.methods.mae.rewards import QUALITY_THRESHOLD
from coevolve.text.parse import number, only, tag, tag_pairs

TOLERANCE = 2e-6  # of their rewards and advantages, which have 32 bits
ROUNDING = 0.1  # of their advantages where all rewards are equal
SCORE_PAIR = re.compile(r"<score>.*?</score>", re.DOTALL | re.IGNORECASE)
# What the answer of Absolute Zero must look like, from the thought that the prompt opens.
THOUGHT_AND_ANSWER = re.compile(r"<think>.*?</think>\s*<answer>.*?</answer>", re.DOTALL)
Applies = Callable[[Any, Any, Any], bool]


@dataclass(frozen=True)
class Cause:
    """A class of differences: its name, what explains it, and to which inputs it applies."""

    name: str
    text: str
    applies: Applies


def close(a: Any, b: Any, tolerance: float = TOLERANCE) -> bool:
    """Whether two values are equal, numbers up to a tolerance and lists element by element."""
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return False
        pairs = zip(a, b, strict=True)
        return all(close(one, other, tolerance) for one, other in pairs)
    if a is None or b is None or isinstance(a, str):
        return a == b
    return math.isclose(a, b, abs_tol=tolerance, rel_tol=0)


# MAE.


def pair_count(name: str, text: str) -> int | None:
    """Return the number of pairs of a tag; None if the tags do not alternate."""
    pairs = tag_pairs(text, name)
    return None if pairs is None else len(pairs)


MAE_SCORE = [
    Cause(
        "no score in tags",
        "Without a pair of tags the released code takes the last number of the whole judgement; "
        "the paper calls an unreadable score neutral, ours is 0.5.",
        lambda text, *_: not SCORE_PAIR.search(text),
    ),
    Cause(
        "tags in capitals",
        "The released code reads tags of scores in either case.",
        lambda text, *_: pair_count("score", text) == 0,
    ),
    Cause(
        "several, nested or stray tags",
        "The released code takes the first pair with a number; ours reads exactly one pair.",
        lambda text, *_: pair_count("score", text) != 1,
    ),
    Cause(
        "other text beside the number",
        "The released code searches the pair for a fraction, a decimal, a whole number without "
        "its sign, and then the whole judgement; ours reads a plain number alone.",
        lambda text, *_: number(only(text, "score")) is None,
    ),
    Cause(
        "out of range",
        "The released code clips to [1, 10]; ours is neutral, 0.5.",
        lambda text, *_: not 1 <= (number(only(text, "score")) or 0) <= 10,
    ),
]


def format_causes(name: str) -> list[Cause]:
    """Return the causes of other format rewards of a tag."""
    causes = [
        Cause(
            "order and nesting are not read",
            "The released code counts opening and closing tags, wherever they stand.",
            lambda text, *_: pair_count(name, text) is None,
        ),
        Cause(
            "content is not read",
            "The released code also pays for tags that hold nothing, a placeholder or no number.",
            lambda text, *_: PAPER.format(text, name) < OFFICIAL.format(text, name),
        ),
    ]
    if name != "question":
        return causes
    other_tags = Cause(
        "answer or type tags in a proposal",
        "The released code averages over the tags of answers and types where a proposal has "
        "them, and wants one answer more than questions: it counts those of the prompt.",
        lambda text, *_: any(f"{mark}>" in text for mark in ("answer", "type")),
    )
    several = Cause(
        "two or three questions",
        "The released code pays in full for up to three pairs: it counts three to five in prompt "
        "and reply. The paper says 0.5.",
        lambda text, *_: pair_count(name, text) in (2, 3),
    )
    return [other_tags, several, *causes]


MAE_QUESTION = [
    Cause(
        "several, nested or stray tags",
        "The released code reads the last pair; ours reads exactly one, as any choice is a guess.",
        lambda text, *_: pair_count("question", text) != 1,
    ),
    Cause(
        "placeholder",
        "The released code takes an unfilled placeholder for a question.",
        lambda text, *_: tag(text, "question") is None,
    ),
]


def scores_differ(judgements: Sequence[str]) -> bool:
    """Whether the two readings give other scores."""
    for text in judgements:
        paper = ours_side.mae_score("paper", text)
        if not close(paper, ours_side.mae_score("official", text)):
            return True
    return False


def is_unreadable(case: Mapping[str, Any], *_: Any) -> bool:
    """Whether neither reading finds a question."""
    return OFFICIAL.question(case["proposal"]) is None


def question_differs(case: Mapping[str, Any], *_: Any) -> bool:
    """Whether the two readings find other questions."""
    proposal = case["proposal"]
    return OFFICIAL.question(proposal) != PAPER.question(proposal)


def judged_otherwise(case: Mapping[str, Any], *_: Any) -> bool:
    """Whether the two readings give other scores to a proposal."""
    return scores_differ([case["quality"], *case["attempts"]])


def format_differs(name: str, text: str) -> bool:
    """Whether the two readings give another format reward."""
    return PAPER.format(text, name) != OFFICIAL.format(text, name)


MAE_PROPOSER = [
    Cause(
        "no question can be read",
        "Algorithm 1 (line 15) pays the format term; the released code pays 0.",
        is_unreadable,
    ),
    Cause(
        "another question is read", "See the reading of questions.", question_differs
    ),
    Cause("another score is read", "See the reading of scores.", judged_otherwise),
    Cause(
        "another format reward",
        "See the format rewards.",
        lambda case, *_: format_differs("question", case["proposal"]),
    ),
    Cause(
        "a question below the quality threshold",
        "Algorithm 1 pays all three terms; the released code drops the difficulty below 0.7.",
        lambda case, *_: (
            ours_side.mae_score("paper", case["quality"]) < QUALITY_THRESHOLD
        ),
    ),
]
MAE_SOLVER_ANSWER = Cause(
    "no answer in tags",
    "The released script reads boxed answers; without a box the Judge reads the whole reply. Its "
    "prompt and the paper ask for tags. Ours reads tags, and an answer without them scores 0.",
    lambda case, *_: tag(case["answer"], "answer") is None,
)
MAE_SOLVER_PAPER = [
    Cause(
        "another score is read",
        "See the reading of scores.",
        lambda case, *_: scores_differ([case["judgement"]]),
    ),
    Cause(
        "another format reward",
        "See the format rewards.",
        lambda case, *_: format_differs("answer", case["answer"]),
    ),
]

# Absolute Zero.


def lacks_a_thought(text: str, *_: Any) -> bool:
    """Whether the released form is broken: the answer must follow the closed thought."""
    whole = "<think>" + text.removeprefix("<think>")
    return THOUGHT_AND_ANSWER.match(whole) is None


AZR_FORMAT = [
    Cause(
        "no closed thought just before the answer",
        "The released prompt opens a thought, and its form is a closed thought and an answer at "
        "once. Prompts of MAE and SPICE, which this baseline uses, ask for the answer alone.",
        lacks_a_thought,
    ),
    Cause(
        "several, unfilled, nested or stray answers",
        "The released code accepts any pair behind the thought; ours reads exactly one filled "
        "pair.",
        lambda text, *_: tag(text, "answer") is None,
    ),
]
AZR_ANSWER = [
    Cause(
        "several, nested, unclosed or stray tags",
        "The released code takes all behind the last opening tag up to a closing one, or to the "
        "end; ours reads exactly one pair.",
        lambda text, *_: pair_count("answer", text) != 1,
    ),
    Cause(
        "placeholder",
        "The released code takes an unfilled placeholder for an answer.",
        lambda text, *_: tag(text, "answer") is None,
    ),
]
AZR_PROPOSER = [
    Cause(
        "always or never solved",
        "The released code pays -0.5 for a learnability of 0; SPICE (Appendix 8) prints 0.",
        lambda case, ours, theirs: ours == 0 and theirs == -0.5,
    ),
    Cause(
        "invalid, but well-formed",
        "The released code sets the format score of an invalid task to 0 and pays -1; SPICE "
        "(Table 5) has -0.5 for what is incorrect but well-formatted.",
        lambda case, *_: not case["is_valid"] and case["is_well_formed"],
    ),
]

# Advantages.


def in_whole_role(factor_of: Callable[[int], float]) -> Applies:
    """Apply where our tokens, times a factor of their number, are their advantages."""

    def applies(batch: Mapping[str, Any], ours: Any, theirs: Any) -> bool:
        tokens = ours_side.whole_role("reinforce_pp_by_role", batch)
        factor = factor_of(sum(batch["lengths"]))
        return close([factor * value for value in tokens], theirs, 1e-4)

    return applies


def in_groups(batch: Mapping[str, Any], ours: Any, theirs: Any) -> bool:
    """Apply where our values, with the unbiased deviation of their group, are theirs."""
    groups = batch["groups"]
    expected = [
        bessel(groups.count(group)) * value
        for value, group in zip(ours, groups, strict=True)
    ]
    return close(expected, theirs, 1e-4)


def bessel(count: int) -> float:
    """Return the population's standard deviation over the unbiased one, of so many numbers."""
    return math.sqrt((count - 1) / count)


def rewards_are_equal(batch: Mapping[str, Any], ours: Any, theirs: Any) -> bool:
    """Apply where all rewards are equal, and theirs are rounding errors."""
    return len(set(batch["rewards"])) == 1 and close(ours, theirs, ROUNDING)


EQUAL = Cause(
    "all rewards are equal",
    "Ours are exactly 0. In 32 bits the mean is not quite the reward, and the released code "
    "divides the error by almost nothing: a deviation of 1e-4 for REINFORCE++, 1e-6 for GRPO.",
    rewards_are_equal,
)
UNBIASED = "The released code divides by the unbiased standard deviation"
REINFORCE = {
    "REINFORCE++, reinforce_pp_by_role": [
        EQUAL,
        Cause(
            "unbiased standard deviation",
            f"{UNBIASED} of the batch's tokens; ours by the population's. The factor is "
            "sqrt((T - 1) / T) for T tokens.",
            in_whole_role(bessel),
        ),
    ],
    "REINFORCE++, task_relative": [
        EQUAL,
        Cause(
            "over tokens, not completions",
            f"{UNBIASED} of the batch's tokens, so that long completions weigh more. The papers "
            "standardise rewards, as ours does; `reinforce_pp_by_role` standardises tokens.",
            in_whole_role(bessel),
        ),
    ],
}
GRPO = [
    EQUAL,
    Cause(
        "unbiased standard deviation",
        f"{UNBIASED} of the group; ours by the population's. The factor is sqrt((n - 1) / n) "
        "for n samples. Its epsilon is 1e-6, ours 1e-8.",
        in_groups,
    ),
]


def general_causes() -> dict[str, list[Cause]]:
    """Return the causes of each comparison that may have differences.

    Those of votes and questions are in `vote_causes.py`.
    """
    found = {
        "MAE score, paper": MAE_SCORE,
        "MAE question, paper": MAE_QUESTION,
        "MAE Proposer, paper": MAE_PROPOSER,
        "MAE Solver, paper": [MAE_SOLVER_ANSWER, *MAE_SOLVER_PAPER],
        "MAE Solver, official": [MAE_SOLVER_ANSWER],
        "AZR format": AZR_FORMAT,
        "AZR answer": AZR_ANSWER,
        "AZR Solver": AZR_FORMAT,
        "AZR Proposer": AZR_PROPOSER,
        "GRPO of TTRL": GRPO,
        "GRPO of R-Zero": GRPO,
        **REINFORCE,
    }
    for name in ("question", "answer", "score"):
        found[f"MAE format of {name}, paper"] = format_causes(name)
    return found
