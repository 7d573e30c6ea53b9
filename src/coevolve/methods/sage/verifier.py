"""SAGE's verifier: whether a gold answer or tests can judge anything, and how a program does.

Programs run in the sandbox; where there is none, the world may read them itself. The same few
programs and tests recur, and each run takes milliseconds, so results are remembered, except those
that may be the machine's fault.
"""

from coevolve.text import verify
from coevolve.worlds import World

SOUND: set[tuple[str, str]] = set()  # (kind, verifier) of those that can judge
PASS_RATES: dict[tuple[str, str], float] = {}  # by (program, tests)
NOTHING = "None"  # the answer of an empty solution


def can_judge(world: World, kind: str, verifier: str) -> bool:
    """Whether a gold answer can be graded, or tests run and fail for an empty solution (line 6)."""
    key = (world.grading if kind == "math" else kind, verifier)
    if key not in SOUND and _try_out(world, *key):
        SOUND.add(key)
    return key in SOUND


def _try_out(world: World, kind: str, verifier: str) -> bool:
    from codesandbox import SandboxError, valid_tests

    if kind != "code":
        return verify.valid(kind, verifier)
    try:
        return valid_tests(verifier)
    except SandboxError:
        if not world.has_interpreter:
            raise
        rate_of_nothing = world.interpret(NOTHING, verifier)
        return rate_of_nothing is not None and rate_of_nothing < 1


def pass_rate(world: World, question: str, answer: str, tests: str) -> float | None:
    """Return the fraction of the tests that an answer passes as a program.

    None if nothing could tell.
    """
    from codesandbox import SandboxError, run_tests

    program = world.program(question, answer)
    key = (program, tests)
    if key in PASS_RATES:
        return PASS_RATES[key]
    try:
        result = run_tests(program, tests)
        rate = None if result.correct is None else result.passed / result.total
    except SandboxError:
        if not world.has_interpreter:
            raise
        rate = world.interpret(answer, tests)
    if rate is not None:
        PASS_RATES[key] = rate
    return rate
