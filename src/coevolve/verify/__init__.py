"""Exact verifiers behind one call, for answers of each of KINDS. Nothing a model wrote is evaluated here."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from coevolve.checks import among
from coevolve.verify import maths, plain

KINDS = ("math", "choice", "exact", "float", "code")
VERDICTS = {True: "pass", False: "wrong", None: "unscored"}


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


def _text(value: object) -> str:
    """Text of an answer or a gold; empty where Python refuses to write it, an integer of thousands of digits."""
    try:
        return str(value)
    except ValueError:
        return ""


def _texts(gold: object) -> list[str]:
    """Texts that a gold answer accepts: of a collection every one, of anything else its own."""
    return [_text(one) for one in (gold if isinstance(gold, (list, tuple, set, frozenset)) else [gold])]


def _program(answer: str, gold: str | Mapping[str, Any]) -> Verdict:
    from codesandbox import run_calls, run_stdio, run_tests

    if isinstance(gold, str):
        result = run_tests(answer, gold)
    else:
        result = (run_stdio if "stdin" in gold else run_calls)(answer, **gold)
    return Verdict(result.verdict, result.detail, result.level)


def verify(kind: str, answer: object, gold: Any, *, tolerance: float = 1e-6) -> Verdict:
    """Compare a model's answer with the gold answer; an answer of None (it did not parse) is wrong.

    `math`: formulas, bounded in time and memory; `choice`: an option's letter; `exact`: a text or any of a list of
    them; `float`: a number within `tolerance`, absolute or relative; `code`: a program, with gold as tests (text) or
    as the arguments of `run_calls` or `run_stdio`. Other types are compared as their str(). Raises ValueError on an
    unknown kind, SandboxError where programs may not run.
    """
    among("kind", kind, KINDS)
    if answer is None:
        return Verdict("wrong", "no answer")
    said = _text(answer)
    if kind == "code":
        return _program(said, gold)
    if kind == "math":
        return Verdict(*maths.compare(said, _text(gold)))
    if kind == "exact":
        return Verdict(VERDICTS[plain.exact(said, _texts(gold))])
    if kind == "choice":
        return Verdict(VERDICTS[plain.choice(said, _text(gold))])
    return Verdict(VERDICTS[plain.near(said, _text(gold), tolerance)])


def valid(kind: str, gold: Any) -> bool:
    """Whether a gold answer can judge anything, SAGE's rule: a formula parses, tests run and fail for an empty program.

    Other kinds only have to be there.
    """
    among("kind", kind, KINDS)
    if kind == "math":
        return maths.valid(_text(gold))
    if kind == "code" and isinstance(gold, str):
        from codesandbox import valid_tests

        return valid_tests(gold)
    return gold is not None and any(_texts(gold))


def verify_many(items: Sequence[tuple[str, object, object]]) -> list[Verdict]:
    """Verify many (kind, answer, gold) at once, as many as there are cores; the same order comes back."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda item: verify(*item), items))
