"""Exact verifiers behind one call, for answers of each of KINDS; programs are `codesandbox`'s business.

Nothing a model wrote is evaluated here.
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
    """What a verifier says: pass, wrong, error, timeout, memory, output or unscored."""

    verdict: str
    detail: str = ""

    @property
    def correct(self) -> bool | None:
        """True or False; None where nothing can be said: such a sample is masked out, never paid 0."""
        return None if self.verdict == "unscored" else self.verdict == "pass"


def verify(kind: str, answer: str | None, gold: str | Sequence[str], *, tolerance: float = 1e-6) -> Verdict:
    """Compare a model's answer with the gold answer; an answer of None (it did not parse) is wrong.

    `math`: formulas, bounded in time and memory; `choice`: an option's letter; `exact`: a text; `float`: a number
    within `tolerance`, absolute or relative. Of several golds `exact` accepts any, the others compare with the first.
    Raises ValueError on an unknown kind, SandboxError where the guarded process of a formula cannot run.
    """
    check_choice("kind", kind, KINDS)
    if answer is None:
        return Verdict("wrong", "no answer")
    golds = [gold] if isinstance(gold, str) else gold
    if kind == "math":
        return Verdict(*math.compare(answer, golds[0]))
    if kind == "exact":
        return Verdict(VERDICTS[exact.exact(answer, golds)])
    right = exact.choice(answer, golds[0]) if kind == "choice" else exact.near(answer, golds[0], tolerance)
    return Verdict(VERDICTS[right])


def valid(kind: str, gold: str) -> bool:
    """Whether a gold answer can judge anything (SAGE): a formula has to parse, any other only has to be there."""
    check_choice("kind", kind, KINDS)
    return math.valid(gold) if kind == "math" else bool(gold)


def verify_many(items: Sequence[tuple[str, str | None, str | Sequence[str]]]) -> list[Verdict]:
    """Verify many (kind, answer, gold) at once, as many as there are cores; the same order comes back."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda item: verify(*item), items))
