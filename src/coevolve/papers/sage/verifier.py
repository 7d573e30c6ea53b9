"""SAGE's verifier: whether a gold answer or tests can judge anything, and what tests say about a program.

Outcomes that may be the machine's fault are never remembered.
"""

from functools import lru_cache

from coevolve import verify


def valid(kind: str, verifier: str, grading: str) -> bool:
    """Line 6: whether a gold answer can be graded at all, or tests run and fail for an empty solution.

    `grading` is the world's kind of verifier for mathematics.
    """
    try:
        return _surely_valid(grading if kind == "math" else kind, verifier)
    except _Unsure:
        return False


def tested(program: str, tests: str) -> float | None:
    """Return the share of the tests that a program passes in the sandbox; None when that could not be told."""
    try:
        return _share_passed(program, tests)
    except _Unsure:
        return None


class _Unsure(Exception):
    """Raised so that an outcome which may have been the machine's fault is not remembered."""


@lru_cache(maxsize=100_000)  # the same few programs and tests come again and again, and each run takes milliseconds
def _share_passed(program: str, tests: str) -> float:
    from codesandbox import run_tests

    result = run_tests(program, tests)
    if result.correct is None:
        raise _Unsure
    return result.passed / result.total


@lru_cache(maxsize=100_000)
def _surely_valid(kind: str, verifier: str) -> bool:
    if not verify.valid(kind, verifier):
        raise _Unsure
    return True
