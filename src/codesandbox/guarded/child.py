"""The untrusted side: load one program, call it, and write down data, in a guarded process.

This is the only module that executes a model's text.
"""

import atexit
import builtins
import os
import random
import resource
import sys
from _thread import allocate_lock  # importing threading would slow down every fork
from collections.abc import Callable
from types import ModuleType
from typing import IO, BinaryIO

from . import wire

MUTABLE = (list, dict, set, bytearray)
BYTE_ORDER_MARK = (
    "\ufeff"  # which Python ignores at the start of a file, but not of a string
)


def _open_to_the_end(fd: int, mode: str) -> IO:
    """Open a file descriptor as a file that lasts as long as this process."""
    return open(fd, mode, closefd=False)


def write_frame(fd: int, *frame: object) -> None:
    """Write one frame to a file descriptor."""
    data = memoryview(wire.encode_frame(*frame))
    while data:
        data = data[os.write(fd, data) :]


def write_failure(fd: int, error: BaseException) -> None:
    """Write the exception's name and the start of its message."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # room to report a MemoryError
    try:
        text = str(error)[:300]
    except BaseException:  # noqa: BLE001 a model's exception may do anything
        text = ""
    write_frame(fd, "x", type(error).__name__, text)


def _load(program: str, name: str, namespace: dict[str, object]) -> dict[str, object]:
    """Execute a program as a module of this name, and return the names that it then has."""
    module = ModuleType(name)
    module.__dict__.update(namespace, __file__=f"{name}.py")
    sys.modules[name] = module  # dataclasses, typing and pickle look modules up
    source = program.removeprefix(BYTE_ORDER_MARK)
    exec(compile(source, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _run_script(
    program: str, namespace: dict[str, object], any_exit_code: bool = False
) -> None:
    """Run a script and shut down as the interpreter does: threads, atexit functions, flush."""
    try:
        _load(program, "__main__", namespace)
    except SystemExit as leave:
        if not any_exit_code and leave.code not in (None, 0):
            raise
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.__stdout__.flush()  # the same file, unless the script has replaced sys.stdout


def _arguments_by_name(args: tuple, kwargs: dict) -> dict[str, object]:
    """Arguments of a call by name, or by position as text."""
    return {str(index): value for index, value in enumerate(args)} | kwargs


def _mutable_arguments(args: tuple, kwargs: dict) -> dict[str, object]:
    """Trees of the arguments that a call may have changed in place."""
    trees = {}
    for name, value in _arguments_by_name(args, kwargs).items():
        if type(value) in MUTABLE:
            trees[name] = wire.encode(value, carry=True)
    return trees


def _answer_calls(
    program: str,
    questions: BinaryIO,
    answer_fd: int,
    result_fd: int,
    encode: wire.Encoder,
) -> None:
    """Load the program and answer every call; a failing call does not stop the next one.

    An answer for tests in another process (`encode.carry`) also returns the mutable arguments.
    """
    functions = _load(program, "candidate", {})
    write_frame(result_fd, "ready")
    for question in questions:
        _, entry, arguments = wire.decode_frame(question)
        try:
            args, kwargs = wire.decode(arguments)
            answer = [encode(functions[entry](*args, **kwargs))]
            if encode.carry:
                answer.append(_mutable_arguments(args, kwargs))
            write_frame(answer_fd, "v", *answer)
        except BaseException as error:  # noqa: BLE001 whatever the program raises is its answer
            write_failure(answer_fd, error)


def _restore(value: list | bytearray | dict | set, tree: object) -> None:
    """Give an argument of the tests the content of the candidate's copy, if that has changed."""
    if wire.encode(value, carry=True) == tree:
        return
    value.clear()
    fill = value.extend if isinstance(value, (list, bytearray)) else value.update
    fill(wire.decode(tree))


class _Candidate:
    """The tests' view of the program, which lives in a process at the other end of `link_fd`.

    The results record the first question, and whether the candidate failed to answer one.
    """

    def __init__(self, link_fd: int, result_fd: int) -> None:
        self.link_fd = link_fd
        self.result_fd = result_fd
        self.answers = _open_to_the_end(link_fd, "rb")
        self.was_asked = False
        self.lock = allocate_lock()

    def ask(self, *question: object) -> list:
        """Send a question and return the answer's frame; without a frame, end this process."""
        with self.lock:
            if not self.was_asked:
                write_frame(self.result_fd, "asked")
            self.was_asked = True
            try:
                write_frame(self.link_fd, *question)
                return wire.decode_frame(self.answers.readline(wire.MAX_INPUT_BYTES))
            except (OSError, ValueError):
                write_frame(self.result_fd, "fled")
                os._exit(0)

    def function(self, name: str) -> Callable:
        """Return a stand-in for the candidate's function of this name."""

        def function(*args: object, **kwargs: object) -> object:
            answer = self.ask("call", name, wire.encode((args, kwargs), carry=True))
            if answer[0] == "v":
                for key, tree in answer[2].items():
                    _restore(_arguments_by_name(args, kwargs)[key], tree)
                return wire.decode(answer[1])
            raise _builtin_exception(answer[1])(answer[2])

        function.__name__ = name
        return function


def _builtin_exception(name: str) -> type[Exception]:
    """Return the builtin exception of this name, or RuntimeError if Python has none."""
    kind = getattr(builtins, name, RuntimeError)
    if isinstance(kind, type) and issubclass(kind, Exception):
        return kind
    return RuntimeError


def run_job(
    trusted: Callable | None, job_fd: int, result_fd: int, link_fd: int
) -> None:
    """Do one job and write frames to `result_fd`; the last one is `end` or a failure.

    The first line of `job_fd` is one of
    ["calls", program, loose]: the calls follow on further lines, or over `link_fd` unless it is -1;
    ["tests", tests, names]: the tests ask for these functions over `link_fd`;
    ["stdio", program, any_exit_code]: a script on files 0 and 1;
    ["trusted", arguments]: a call of the function that the server has imported.
    """
    random.seed(0)
    builtins.exit = builtins.quit = sys.exit
    sys.argv = ["candidate.py"]
    job_file = _open_to_the_end(job_fd, "rb")
    kind, body, *options = wire.decode_frame(job_file.readline())
    try:
        if kind == "calls":
            linked = link_fd >= 0
            questions = _open_to_the_end(link_fd, "rb") if linked else job_file
            answer_fd = link_fd if linked else result_fd
            encode = wire.Encoder(loose=options[0], carry=linked)
            _answer_calls(body, questions, answer_fd, result_fd, encode)
        elif kind == "tests":
            candidate = _Candidate(link_fd, result_fd)
            _run_script(body, {name: candidate.function(name) for name in options[0]})
        elif kind == "stdio":
            # The job's own files; in every other job 0 and 1 are /dev/null.
            sys.stdin = sys.__stdin__ = _open_to_the_end(0, "r")
            sys.stdout = sys.__stdout__ = _open_to_the_end(1, "w")
            _run_script(body, {}, any_exit_code=options[0])
        else:
            answer = trusted(*wire.decode(body))
            write_frame(result_fd, "v", wire.Encoder()(answer))
        write_frame(result_fd, "end")
    except BaseException as error:  # noqa: BLE001 whatever the program raises is its answer
        write_failure(result_fd, error)
