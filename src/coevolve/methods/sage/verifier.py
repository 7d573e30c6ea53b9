"""SAGE's verifier: whether a gold answer or tests can judge anything, and how a program does.

The same few programs and tests recur, and each run takes milliseconds, so results are remembered,
except those that may be the machine's fault.
"""

from coevolve.text import verify

SOUND: set[tuple[str, str]] = set()  # (kind, verifier) of those that can judge
PASS_RATES: dict[tuple[str, str], float] = {}  # by (program, tests)


def can_judge(kind: str, verifier: str, grading: str) -> bool:
    """Whether a gold answer can be graded, or tests run and fail for an empty solution (line 6).

    `grading` is the world's kind of verifier for mathematics.
    """
    key = (grading if kind == "math" else kind, verifier)
    if key not in SOUND and _try_out(*key):
        SOUND.add(key)
    return key in SOUND


def _try_out(kind: str, verifier: str) -> bool:
    from codesandbox import valid_tests

    if kind == "code":
        return valid_tests(verifier)
    return verify.valid(kind, verifier)


def pass_rate(program: str, tests: str) -> float | None:
    """Return the fraction of the tests that a program passes in the sandbox.

    None if the sandbox could not tell.
    """
    from codesandbox import run_tests

    key = (program, tests)
    if key not in PASS_RATES:
        result = run_tests(program, tests)
        if result.correct is None:
            return None
        PASS_RATES[key] = result.passed / result.total
    return PASS_RATES[key]
