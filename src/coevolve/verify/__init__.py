"""Exact verifiers behind one call: math, choice, exact, float, code. Nothing a model wrote is evaluated here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coevolve.verify import code, maths, plain
from coevolve.verify.pool import SandboxError, cores, spread

__all__ = ["KINDS", "SandboxError", "Verdict", "valid", "verify", "verify_many"]
KINDS = ("math", "choice", "exact", "float", "code")


@dataclass(frozen=True)
class Verdict:
    """What a verifier says: pass, wrong, error, timeout, memory, output or unscored."""

    verdict: str
    detail: str = ""
    level: int | None = None  # isolation a program ran under; None where none ran

    @property
    def correct(self) -> bool | None:
        """True or False; None where nothing can be said: such a sample is masked out, never paid 0."""
        return None if self.verdict == "unscored" else self.verdict == "pass"


def _known(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: allowed is {', '.join(KINDS)}")


def _program(answer: str, gold: str | Mapping) -> Verdict:
    if isinstance(gold, str):
        result = code.run_tests(answer, gold)
    else:
        run = code.run_stdio if "stdin" in gold else code.run_calls
        result = run(answer, **gold)
    return Verdict(result.verdict, result.detail, result.level)


def verify(kind: str, answer: str | None, gold: str | float | Sequence[str] | Mapping, *,
           tolerance: float = 1e-6) -> Verdict:  # fmt: skip
    """Compare a model's answer with the gold answer; an answer of None (it did not parse) is wrong.

    `math`: formulas, bounded in time and memory; `choice`: an option's letter; `exact`: text or a list of aliases;
    `float`: a number within `tolerance`, absolute or relative; `code`: a program, with gold as tests (text) or as the
    arguments of `code.run_calls` or `code.run_stdio`. Raises ValueError on an unknown kind, SandboxError where
    programs may not run.
    """
    _known(kind)
    if answer is None:
        return Verdict("wrong", "no answer")
    if kind == "code":
        return _program(answer, gold)
    if kind == "math":
        return Verdict(*maths.compare(answer, str(gold)))
    if kind == "float":
        near = plain.near(answer, gold, tolerance)
        return Verdict("unscored", "the gold answer is no number") if near is None else _said(near)
    return _said(plain.choice(answer, str(gold)) if kind == "choice" else plain.exact(answer, gold))


def _said(right: bool) -> Verdict:
    return Verdict("pass" if right else "wrong")


def valid(kind: str, gold: str | Mapping) -> bool:
    """Whether a gold answer can judge anything, SAGE's rule: a formula parses, tests run and fail for an empty program.

    Other kinds only have to be there.
    """
    _known(kind)
    if kind == "math":
        return maths.valid(str(gold))
    return code.valid_tests(gold) if kind == "code" and isinstance(gold, str) else bool(gold)


def verify_many(items: Sequence[tuple[str, str | None, object]]) -> list[Verdict]:
    """Verify many (kind, answer, gold) at once, as many as there are cores; the same order comes back."""
    return spread(lambda item: verify(*item), items, cores())
