"""Why our votes, and what R-Zero builds on them, differ from the authors', class by class."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from benchmarks.released import ours as ours_side
from benchmarks.released.causes import Cause, close
from benchmarks.released.theirs import ReleasedRZero, ReleasedTTRL
from coevolve.methods.baselines import rzero
from coevolve.text.parse import boxed

THOUGHT_AND_BOX = re.compile(r"<think>.*</think>.*\\boxed\{.*\}.*", re.DOTALL)
FORM_WEIGHT = 0.1  # of the form in the reward of R-Zero's Solver

# TTRL. Each function says whether a cause applies to an input, our value and theirs.


def same_in_their_normal_form(
    released: ReleasedTTRL, text: str, ours: Any, theirs: Any
) -> bool:
    """Whether our answer, in a box of its own, is theirs."""
    if ours is None:
        return False
    (normal,) = released.answers([f"\\boxed{{{ours}}}"])
    return bool(normal == theirs)


def votes(released: ReleasedTTRL, group: Sequence[str]) -> list[float]:
    """Return 1.0 for the replies with the most frequent of the answers that they extract."""
    answers = [answer or "" for answer in released.answers(group)]
    ((label, _),) = Counter(answers).most_common(1)
    return [float(answer == label) for answer in answers]


def by_their_answers(
    released: ReleasedTTRL, group: Sequence[str], ours: Any, theirs: Any
) -> bool:
    """Whether they reward the majority of the answers that they extract."""
    return close(votes(released, group), theirs)


def more_than_the_votes(
    released: ReleasedTTRL, group: Sequence[str], ours: Any, theirs: Any
) -> bool:
    """Whether they reward that majority and others."""
    pairs = zip(votes(released, group), theirs, strict=True)
    return all(reward >= vote for vote, reward in pairs)


def ttrl_causes(released: ReleasedTTRL) -> dict[str, list[Cause]]:
    """Return the causes of differences from TTRL."""
    answer = [
        Cause(
            "no box",
            'The released code reads what follows "he answer is", else the last number; ours '
            "reads boxes, and the program of a code block.",
            lambda text, *_: "boxed" not in text,
        ),
        Cause(
            "normal form",
            "The released code removes units, signs, blanks and words before the vote, which "
            "can leave nothing, and writes numbers in digits.",
            partial(same_in_their_normal_form, released),
        ),
        Cause(
            "a box that is unclosed, unfilled, nested, unbraced or offers alternatives",
            'The released code splits the text at the last "boxed", with or without a '
            "backslash, and takes what it finds there, even nothing.",
            lambda text, *_: "boxed" in text,
        ),
    ]
    reward = [
        Cause(
            "answers in another normal form",
            "The released code votes on its extracted answers, see above; replies without an "
            "answer can win the vote. Ours votes on the spelling of boxes.",
            partial(by_their_answers, released),
        ),
        Cause(
            "equal in value",
            "The released code also rewards answers that SymPy finds equal to the majority's, "
            "although they did not vote for it.",
            partial(more_than_the_votes, released),
        ),
    ]
    return {"TTRL answer": answer, "TTRL reward": reward}


# R-Zero.


def vote_for_none(group: Sequence[str], ours: Any, theirs: Any) -> bool:
    """Whether a vote of the replies without a box for "None" turns our share into theirs."""
    answers = []
    for text in group:
        answer = boxed(text)
        if answer is None and "\\boxed" not in text:
            answer = "None"
        answers.append(answer)
    return close(rzero.majority(answers).agreement, theirs)


def joined_by_value(
    released: ReleasedRZero, group: Sequence[str], ours: Any, theirs: Any
) -> bool:
    """Whether our reading of the boxes and their comparison give their share."""
    texts = []
    for text in group:
        answer = boxed(text)
        texts.append(text if answer is None else f"\\boxed{{{answer}}}")
    return close(released.agreement(texts), theirs)


def clustered_by_their_distances(
    released: ReleasedRZero, group: Sequence[str], ours: Any, theirs: Any
) -> bool:
    """Whether our clusters of their distances give their shares."""
    distances = squareform(released.distances(group))
    clusters = linkage(distances, "average")
    labels = fcluster(clusters, ours_side.REPETITION, "distance").tolist()
    shares = [labels.count(label) / len(group) for label in labels]
    return close(shares, theirs)


def half_the_uncertainty(
    released: ReleasedRZero, case: Mapping[str, Any], ours: Any, theirs: Any
) -> bool:
    """Whether the formula of the released code gives their rewards."""
    questions = case["questions"]
    penalties = released.penalties(questions)
    rewards = []
    columns = zip(questions, case["agreements"], penalties, strict=True)
    for question, agreement, penalty in columns:
        uncertainty = min(agreement, 1 - agreement) if question else -1
        rewards.append(uncertainty - penalty)
    return close(rewards, theirs)


def lacks_a_thought(text: str, ours: float, theirs: float) -> bool:
    """Whether ours pays for a box, and theirs finds no thought before one."""
    is_well_formed = THOUGHT_AND_BOX.fullmatch(text) is not None
    return not is_well_formed and close(ours - theirs, FORM_WEIGHT)


def holds_no_answer(text: str, ours: float, theirs: float) -> bool:
    """Whether theirs pays for a box in which ours finds no answer."""
    return boxed(text) is None and close(theirs - ours, FORM_WEIGHT)


def is_not_braced(text: str, ours: float, theirs: float) -> bool:
    """Whether ours reads the right answer where no box has braces."""
    return ours > theirs and "\\boxed{" not in text


SOLVER = [
    Cause(
        "no thought before the box",
        "The released form is a closed thought and a box behind it, anywhere in the reply; "
        "SPICE's prompt asks for a box alone, which is ours.",
        lacks_a_thought,
    ),
    Cause(
        "a box that is unfilled, nested or offers alternatives",
        "The released form asks only for braces behind a box.",
        holds_no_answer,
    ),
    Cause(
        "the answer of an unbraced box, or of a code block",
        "The released code reads braced boxes alone.",
        is_not_braced,
    ),
]


def rzero_causes(released: ReleasedRZero) -> dict[str, list[Cause]]:
    """Return the causes of differences from R-Zero."""
    vote = [
        Cause(
            "replies without a box",
            'The released code lets them vote for "None"; ours leaves them out.',
            vote_for_none,
        ),
        Cause(
            "equal in value",
            'The released code joins answers that SymPy finds equal, and all that hold "no "; '
            "ours joins spellings.",
            partial(joined_by_value, released),
        ),
    ]
    repetition = Cause(
        "BLEU of short questions",
        "The released code compares words between blanks, up to four in a row, in one direction; "
        "ours takes digits one by one, no more words in a row than the shorter question has, and "
        "both directions.",
        partial(clustered_by_their_distances, released),
    )
    challenger = Cause(
        "half the uncertainty, no floor, invalid questions repeat",
        "The released code pays min(p, 1 - p) less the penalty, and -1 less the penalty for an "
        "invalid question; invalid ones count in clusters. SPICE (Appendix 8) prints "
        "1 - 2|p - 1/2|, and -1 for an invalid one; ours is at least 0 otherwise.",
        partial(half_the_uncertainty, released),
    )
    return {
        "R-Zero vote": vote,
        "R-Zero repetition": [repetition],
        "R-Zero Challenger": [challenger],
        "R-Zero Solver": SOLVER,
    }
