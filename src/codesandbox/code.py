"""Programs that a model wrote, judged: a fresh guarded process runs them, data comes back, the caller compares.

Expected values never enter the process of the candidate. See docs/verifiers.md for levels and limits.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from codesandbox import level, texts
from codesandbox.guarded import wire
from codesandbox.pool import Limits, Ran, memory_file


@dataclass(frozen=True)
class CodeResult:
    """Outcome of one program: how many of its checks passed, and the isolation it really ran under."""

    verdict: str  # pass, wrong, error, timeout, memory, output, unscored
    passed: int
    total: int
    level: int
    detail: str = ""
    answers: tuple = ()  # what the calls of `run_calls` returned, as trees of guarded.wire, in which text is itself

    @property
    def correct(self) -> bool | None:
        """True or False; None where nothing can be said: such a sample is masked out, never paid 0."""
        return None if self.verdict == "unscored" else self.verdict == "pass"


def _ending(ran: Ran, child: int = 0) -> tuple[str, str]:
    """Verdict and detail when a process of the run went wrong; an empty verdict when it ended in order."""
    frames, why = ran.frames[child], ran.why if ran.child == child else ""
    if ran.failed:
        return "unscored", f"the sandbox gave no answer ({ran.why})"
    if why in ("timeout", "output"):
        return why, "over the limit"
    failed = next((frame for frame in frames if frame[0] == "x"), None)
    if failed is not None:
        name, text = failed[1:3] if [type(part) for part in failed] == [str] * 3 else ("garbled", "")
        shown = "".join(c if c.isprintable() else " " for c in f"{name}: {text}"[:400])  # it goes into logs
        return {"MemoryError": "memory", "TooLargeError": "output"}.get(name, "error"), shown
    if why or frames[-1:] != [["end"]]:
        return "error", why or "the program left without an answer"
    return "", ""


def _calls(program: str, calls: list, expected: Sequence, strict: bool, limits: Limits) -> CodeResult:
    """Judge calls, each a function's name and a tuple of arguments."""
    wanted = [wire.encode(value, not strict) for value in expected]
    questions = [["call", entry, wire.encode((args, {}), carry=True)] for entry, args in calls]
    pool = level.programs()
    ran = pool.run(limits, [["calls", program, not strict], *questions])
    verdict, detail = _ending(ran)
    found = ran.frames[0][1:-1]
    passed = sum(frame == ["v", want] for want, frame in zip(wanted, found, strict=False))
    if not verdict:
        verdict = "error" if len(found) != len(wanted) else "pass" if passed == len(wanted) else "wrong"
    answers = tuple(frame[-1] for frame in found if frame[0] == "v")
    return CodeResult(verdict, passed, len(wanted), pool.reported, detail, answers)


def run_calls(
    program: str, entry: str, calls: Sequence[tuple], expected: Sequence, *, strict: bool = True, **limits: float
) -> CodeResult:
    """Call the function `entry` of the program with each tuple of arguments; compare with the expected values.

    `strict` asks for the same builtin types all the way down, otherwise Python's == decides. `limits` are
    `cpu_seconds`, `wall_seconds` and `memory_mb` of all calls together (see `Limits`). Raises SandboxError where
    programs may not run, TypeError when arguments or expected values are not plain data.
    """
    if len(calls) != len(expected) or not calls:
        raise ValueError(f"{len(calls)} calls and {len(expected)} expected values: allowed is one each, at least one")
    return _calls(program, [(entry, tuple(args)) for args in calls], expected, strict, Limits(**limits))


def _lines(text: str) -> list[str]:
    """Lines without white space at their ends; one final newline does not count."""
    return [line.rstrip(" \t\r\f\v") for line in text.removesuffix("\n").split("\n")]


def run_stdio(program: str, stdin: str, expected: str, **limits: float) -> CodeResult:
    """Run the program as a script with this standard input; its standard output must be the expected text.

    White space at line ends and the last newline are ignored, nothing else. Limits and errors as for `run_calls`.
    """
    pool = level.programs()
    with memory_file(stdin.encode()) as given, memory_file() as printed:
        ran = pool.run(Limits(**limits), [["stdio", program]], files=(given, printed))
        size = os.fstat(printed.fileno()).st_size
        room = (64 << 10) + 2 * len(expected.encode())
        text = os.pread(printed.fileno(), room, 0).decode(errors="replace")
    verdict, detail = _ending(ran)
    if verdict != "unscored" and size > room:
        verdict, detail = "output", f"{size} bytes on standard output"
    elif not verdict:
        verdict = "pass" if _lines(text) == _lines(expected) else "wrong"
    return CodeResult(verdict, int(verdict == "pass"), 1, pool.reported, detail)


def _tested(program: str, tests: str, names: list[str], limits: Limits) -> CodeResult:
    """Run the tests in one process that asks the program in another."""
    pool = level.programs()
    ran = pool.run(limits, [["tests", tests, names]], [["calls", program, False]])
    verdict, detail = _ending(ran)
    if ["fled"] in ran.frames[0] or ran.child == 1:  # the program left, garbled an answer or broke a limit
        verdict, detail = _ending(ran, child=1)
        verdict = verdict or "error"
    elif ["asked"] not in ran.frames[0]:
        verdict, detail = "unscored", f"the tests are at fault: {detail or 'they call nothing'}"
    elif detail.startswith("AssertionError"):
        verdict = "wrong"
    return CodeResult(verdict or "pass", int(not verdict), 1, pool.reported, detail)


def run_tests(program: str, tests: str, *, entry: str | None = None, **limits: float) -> CodeResult:
    """Judge a program by assert-style tests that may themselves be a model's work.

    Lines `assert f(data) == data` become calls; anything else runs in a second sandboxed process, where `entry`, or
    every name the tests use and do not define, asks the candidate. Lists, dicts, sets and bytearrays that are arguments
    themselves (not parts of one) have afterwards what the candidate made of them, unless it raised; iterators come back
    run to their end. Tests that do not parse, or fail before they ask anything, give `unscored`; from the first answer
    on, what goes wrong counts against the program.

    Objects and functions cannot cross, so tests that need them give `unscored` too, before anything runs. Only the
    tests' text decides that, so no program can choose it. They need one where an answer (a call of a candidate's name,
    a variable or attribute that got one, a part of it) is called, awaited, entered by `with`, given to
    `next`, `islice` or `run`, or asked for an attribute that no plain type has (any, if the name is written LikeThis);
    where an argument or a part of its list is a lambda, a function or class by name, or an object made in place; and
    where a candidate's name has its attributes read or is an exception, a base class, a decorator or the class of an
    `isinstance`.
    """
    bounds = Limits(**limits)
    if asserts := texts.literal_asserts(tests):
        pairs = [(name, args) for name, args, _ in asserts]
        try:
            return _calls(program, pairs, [value for *_, value in asserts], False, bounds)
        except (TypeError, wire.TooLargeError):
            pass  # literals that messages do not carry: complex numbers, a megabyte of text
    names = [entry] if entry else texts.free_names(tests)
    if not names:
        return _unscored("the tests do not parse or use no function of the program")
    if texts.beyond_data(tests, names):
        return _unscored("the tests need more than plain data")
    return _tested(program, tests, names, bounds)


def _unscored(why: str) -> CodeResult:
    return CodeResult("unscored", 0, 1, level.programs().reported, why)


def valid_tests(tests: str) -> bool:
    """SAGE's rule for a Challenger's tests: they parse, run in the sandbox, and fail for an empty solution.

    The empty solution has every function that the tests use, and each returns None.
    """
    names = texts.free_names(tests)
    if not names:
        return False
    empty = "".join(f"def {name}(*args, **kwargs): pass\n" for name in names)
    return run_tests(empty, tests).verdict in ("wrong", "error")
