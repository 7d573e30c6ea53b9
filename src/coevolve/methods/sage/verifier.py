"""SAGE's verifier: whether a gold answer or tests can judge anything, and what tests say about a program.

The same few programs and tests come again and again, and each run takes milliseconds, so outcomes are remembered; but
never one that may be the machine's fault.
"""

from coevolve.text import verify

SOUND: set[tuple[str, str]] = set()  # kinds and verifiers that can judge
PASSED: dict[tuple[str, str], float] = {}  # by program and tests: the share of the tests that it passes


def valid(kind: str, verifier: str, grading: str) -> bool:
    """Line 6: whether a gold answer can be graded at all, or tests run and fail for an empty solution.

    `grading` is the world's kind of verifier for mathematics.
    """
    from codesandbox import valid_tests

    known = (grading if kind == "math" else kind, verifier)
    if known not in SOUND and (valid_tests(verifier) if kind == "code" else verify.valid(*known)):
        SOUND.add(known)
    return known in SOUND


def tested(program: str, tests: str) -> float | None:
    """Return the share of the tests that a program passes in the sandbox; None when that could not be told."""
    from codesandbox import run_tests

    if (program, tests) not in PASSED:
        result = run_tests(program, tests)
        if result.correct is None:
            return None
        PASSED[program, tests] = result.passed / result.total
    return PASSED[program, tests]
