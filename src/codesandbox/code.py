"""Verdicts on programs: a new guarded process runs one, data comes back, and the caller compares.

Expected values never enter the candidate's process. See docs/verifiers.md for levels and limits.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from codesandbox import level, texts
from codesandbox.guarded import wire
from codesandbox.pool import JobResult, Limits, memory_file

MAX_DETAIL_CHARACTERS = 400
MIN_OUTPUT_BYTES = 64 << 10  # of standard output that a script may always print
COMPARISONS = ("numbers", "text")  # of the lines of standard output


@dataclass(frozen=True)
class CodeResult:
    """Verdict on one program: how many of its checks passed, and the isolation it ran under."""

    verdict: str  # pass, wrong, error, timeout, memory, output, unscored
    passed: int
    total: int
    level: int
    detail: str = ""
    answers: tuple = ()  # results of `run_calls` as trees of guarded.wire; text stands for itself

    @property
    def correct(self) -> bool | None:
        """True or False; None if unscored: such a sample is masked out, not rewarded with 0."""
        return None if self.verdict == "unscored" else self.verdict == "pass"


class _Ending(NamedTuple):
    """How a process ended: a verdict and its detail, both empty when it ended in order."""

    verdict: str = ""
    detail: str = ""


def _ending(result: JobResult, child: int = 0) -> _Ending:
    """Return how one process of a job ended."""
    frames = result.frames[child]
    why = result.why if result.child == child else ""
    if result.failed:
        return _Ending("unscored", f"the sandbox gave no answer ({result.why})")
    if why in ("timeout", "output"):
        return _Ending(why, "over the limit")
    for frame in frames:
        if frame[0] == "x":
            return _failure(frame)
    if why or frames[-1:] != [["end"]]:
        return _Ending("error", why or "the program left without an answer")
    return _Ending()


def _failure(frame: list) -> _Ending:
    """Read a failure's frame, ["x", exception, message], which a program may have forged."""
    name = "garbled"
    message = ""
    if [type(part) for part in frame] == [str, str, str]:
        _, name, message = frame
    text = f"{name}: {message}"[:MAX_DETAIL_CHARACTERS]
    printable = "".join(
        c if c.isprintable() else " " for c in text
    )  # it goes into logs
    verdicts = {"MemoryError": "memory", "TooLargeError": "output"}
    return _Ending(verdicts.get(name, "error"), printable)


class _Call(NamedTuple):
    """A call of a function of the program, and the value that it must return."""

    function: str
    arguments: tuple
    expected: object


def _without_tuple(frame: list) -> list:
    """Return an answer's frame with a list in place of a tuple, which nothing else contains."""
    match frame:
        case ["v", ["t", items]]:
            return ["v", ["l", items]]
    return frame


def _judge_calls(
    program: str,
    calls: list[_Call],
    strict: bool,
    limits: Limits,
    tuple_is_list: bool = False,
) -> CodeResult:
    """Make the calls in one process, and compare each answer with the expected value."""
    loose = not strict
    comparable = _without_tuple if tuple_is_list else list
    expected_frames = []
    for call in calls:
        expected_frames.append(comparable(["v", wire.encode(call.expected, loose)]))
    job = [["calls", program, loose]]
    for call in calls:
        arguments = wire.encode((call.arguments, {}), carry=True)
        job.append(["call", call.function, arguments])
    pool = level.programs()
    result = pool.run(limits, job)
    verdict, detail = _ending(result)
    answer_frames = result.frames[0][1:-1]  # between `ready` and `end`
    passed = 0
    for expected_frame, frame in zip(expected_frames, answer_frames, strict=False):
        if comparable(frame) == expected_frame:
            passed += 1
    total = len(calls)
    if not verdict and len(answer_frames) != total:
        verdict = "error"
    elif not verdict:
        verdict = "pass" if passed == total else "wrong"
    answers = tuple(frame[-1] for frame in answer_frames if frame[0] == "v")
    return CodeResult(verdict, passed, total, pool.reported, detail, answers)


def run_calls(
    program: str,
    entry: str,
    calls: Sequence[tuple],
    expected: Sequence,
    *,
    strict: bool = True,
    tuple_is_list: bool = False,
    **limits: float,
) -> CodeResult:
    """Call the function `entry` with each tuple of arguments; compare with the expected values.

    `strict` requires equal builtin types at every depth, otherwise Python's == decides. With
    `tuple_is_list`, a tuple that is returned counts as a list; tuples inside of it do not. `limits`
    are `cpu_seconds`, `wall_seconds` and `memory_mb` of all calls together (see `Limits`). Raises
    SandboxError where programs may not run, TypeError when arguments or expected values are not
    plain data, ValueError unless there is one expected value for each of at least one call.
    """
    if len(calls) != len(expected) or not calls:
        raise ValueError(
            f"{len(calls)} calls and {len(expected)} expected values: "
            "allowed is one each, at least one"
        )
    judged_calls = []
    for arguments, value in zip(calls, expected, strict=True):
        judged_calls.append(_Call(entry, tuple(arguments), value))
    return _judge_calls(program, judged_calls, strict, Limits(**limits), tuple_is_list)


def _lines(text: str) -> list[str]:
    """Return the lines of a text without white space at its ends and behind its lines."""
    return [line.rstrip() for line in text.strip().split("\n")]


def _decimals(line: str) -> list[Decimal] | None:
    """Return the words of a line as exact numbers; None if one is not a number."""
    try:
        return [Decimal(word) for word in line.split()]
    except (ArithmeticError, ValueError):
        return None


def _is_equal_line(line: str, expected: str) -> bool:
    """Whether two lines are equal, as text or as numbers word for word."""
    if line.strip() == expected.strip():
        return True
    numbers = _decimals(line)
    expected_numbers = _decimals(expected)
    if numbers is None or expected_numbers is None:
        return False
    if len(numbers) != len(expected_numbers):
        return False
    pairs = zip(numbers, expected_numbers, strict=True)
    return all(_is_equal_number(*pair) for pair in pairs)


def _is_equal_number(number: Decimal, expected: Decimal) -> bool:
    """Whether two numbers are equal; a NaN equals nothing, and a signalling one raises nothing."""
    return not number.is_nan() and not expected.is_nan() and number == expected


def _is_equal_output(output: str, expected: str, compare: str) -> bool:
    """Whether standard output is the expected one (see `run_stdio`)."""
    lines = _lines(output)
    expected_lines = _lines(expected)
    if compare == "text":
        return lines == expected_lines
    if len(lines) != len(expected_lines):
        return False
    return all(map(_is_equal_line, lines, expected_lines))


def run_stdio(
    program: str,
    stdin: str,
    expected: str,
    *,
    compare: str = "numbers",
    any_exit_code: bool = False,
    **limits: float,
) -> CodeResult:
    """Run the program as a script, and compare its standard output with the expected text.

    White space at the start, at the end and at line ends is ignored, blank lines included.
    `compare` says how lines are compared: `text` accepts equal text only; `numbers` also ignores
    white space before a line, and accepts words that are numbers of exactly the expected values
    (`0.50` for `0.5`, `1e3` for `1000`, not `0.51`). A script must end with exit code 0, unless
    `any_exit_code`. Limits and errors are those of `run_calls`; ValueError for another `compare`.
    """
    if compare not in COMPARISONS:
        allowed = " or ".join(COMPARISONS)
        raise ValueError(f"compare must be {allowed}, got {compare!r}")
    pool = level.programs()
    with memory_file(stdin.encode()) as stdin_file, memory_file() as stdout_file:
        files = (stdin_file, stdout_file)
        job = [["stdio", program, any_exit_code]]
        result = pool.run(Limits(**limits), job, files=files)
        stdout = stdout_file.fileno()
        size = os.fstat(stdout).st_size
        max_size = MIN_OUTPUT_BYTES + 2 * len(expected.encode())
        text = os.pread(stdout, max_size, 0).decode(errors="replace")
    verdict, detail = _ending(result)
    if verdict != "unscored" and size > max_size:
        verdict = "output"
        detail = f"{size} bytes on standard output"
    elif not verdict:
        is_equal = _is_equal_output(text, expected, compare)
        verdict = "pass" if is_equal else "wrong"
    passed = int(verdict == "pass")
    return CodeResult(verdict, passed, 1, pool.reported, detail)


def _judge_by_tests(
    program: str, tests: str, names: list[str], limits: Limits
) -> CodeResult:
    """Run the tests in one process that asks the program in another for the functions `names`."""
    pool = level.programs()
    result = pool.run(limits, [["tests", tests, names]], [["calls", program, False]])
    test_frames = result.frames[0]
    verdict, detail = _ending(result)
    if ["fled"] in test_frames or result.child == 1:
        # The program left, garbled an answer or exceeded a limit.
        verdict, detail = _ending(result, child=1)
        verdict = verdict or "error"
    elif ["asked"] not in test_frames:
        verdict = "unscored"
        detail = f"the tests are at fault: {detail or 'they call nothing'}"
    elif detail.startswith("AssertionError"):
        verdict = "wrong"
    passed = int(not verdict)
    return CodeResult(verdict or "pass", passed, 1, pool.reported, detail)


def run_tests(
    program: str, tests: str, *, entry: str | None = None, **limits: float
) -> CodeResult:
    """Judge a program by assert-style tests that may themselves be a model's work.

    Lines `assert f(data) == data` become calls. Any other test runs in a second sandboxed process,
    where `entry`, or every name that the tests use and do not define, asks the candidate. A list,
    dict, set or bytearray that is itself an argument (not part of one) afterwards has the content
    that the candidate gave it, unless the call raised; iterators arrive run to their end. Tests
    that do not parse, or fail before their first question, give `unscored`; from the first answer
    on, every failure counts against the program.

    Objects and functions cannot cross between the processes, so tests that need them also give
    `unscored`, before anything runs. Only the text of the tests decides that, so no program can
    choose it. An answer is a call of a candidate's name, a variable or attribute that was assigned
    one, or a part of one. Tests need an object or a function where
    - an answer is called, awaited, entered by `with`, given to `next`, `islice` or `run`, or has an
      attribute read that no plain type has (any attribute, if the name is written LikeThis);
    - an argument, or an item of a list that is one, is a lambda, a function or class by name, or
      an object created in place;
    - a candidate's name has an attribute read, or is an exception, a base class, a decorator or
      the class in an `isinstance`.
    """
    job_limits = Limits(**limits)
    asserts = texts.literal_asserts(tests)
    if asserts:
        calls = [_Call(*literal_assert) for literal_assert in asserts]
        try:
            return _judge_calls(program, calls, strict=False, limits=job_limits)
        except (TypeError, wire.TooLargeError):
            pass  # literals that messages cannot carry: complex numbers, a megabyte of text
    names = [entry] if entry else texts.free_names(tests)
    if not names:
        return _unscored("the tests do not parse or use no function of the program")
    if texts.needs_more_than_data(tests, names):
        return _unscored("the tests need more than plain data")
    return _judge_by_tests(program, tests, names, job_limits)


def _unscored(reason: str) -> CodeResult:
    return CodeResult("unscored", 0, 1, level.programs().reported, reason)


def valid_tests(tests: str) -> bool:
    """Whether a Challenger's tests are valid by SAGE's rule.

    They must parse, run in the sandbox, and fail for an empty solution: one that has every function
    that the tests use, each returning None.
    """
    names = texts.free_names(tests)
    if not names:
        return False
    empty_solution = "".join(f"def {name}(*args, **kwargs): pass\n" for name in names)
    return run_tests(empty_solution, tests).verdict in ("wrong", "error")
