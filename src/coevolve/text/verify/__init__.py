"""Exact verifiers behind one call, for answers of each of KINDS.

Nothing that a model wrote is evaluated here; `codesandbox` runs programs.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from coevolve.text.verify import exact, math
from coevolve.validation import check_choice

KINDS = ("math", "choice", "exact", "float")
VERDICTS = {True: "pass", False: "wrong", None: "unscored"}


@dataclass(frozen=True)
class Verdict:
    """A verifier's verdict: pass, wrong, error, timeout, memory, output or unscored."""

    verdict: str
    detail: str = ""

    @property
    def correct(self) -> bool | None:
        """True or False; None if unscored: such a sample is masked, its reward is not 0."""
        return None if self.verdict == "unscored" else self.verdict == "pass"


def verify(
    kind: str,
    answer: str | None,
    gold: str | Sequence[str],
    *,
    tolerance: float = 1e-6,
) -> Verdict:
    """Compare a model's answer with the gold answer; None (it did not parse) is wrong.

    The kinds are `math`, formulas, bounded in time and memory; `choice`, the letter of an option;
    `exact`, a text; `float`, a number within `tolerance`, absolute or relative. If several gold
    answers are given, `exact` accepts any of them; the other kinds use the first. Raises ValueError
    for an unknown kind, SandboxError if the guarded process of a formula cannot run.
    """
    check_choice("kind", kind, KINDS)
    if answer is None:
        return Verdict("wrong", "no answer")
    golds = [gold] if isinstance(gold, str) else gold
    if kind == "math":
        return Verdict(*math.compare(answer, golds[0]))
    if kind == "exact":
        return Verdict(VERDICTS[exact.exact(answer, golds)])
    if kind == "choice":
        return Verdict(VERDICTS[exact.choice(answer, golds[0])])
    return Verdict(VERDICTS[exact.near(answer, golds[0], tolerance)])


def valid(kind: str, gold: str) -> bool:
    """Whether a gold answer can be used (SAGE): a formula must parse, others must not be empty."""
    check_choice("kind", kind, KINDS)
    return math.valid(gold) if kind == "math" else bool(gold)


def verify_many(
    items: Sequence[tuple[str, str | None, str | Sequence[str]]],
) -> list[Verdict]:
    """Verify many (kind, answer, gold) in parallel, in order."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda item: verify(*item), items))
