"""The untrusted side: loads one program, calls it, writes down data. Runs guarded, in a process of its own.

This is the only place where a model's text is executed.
"""

import atexit
import builtins
import os
import random
import resource
import sys
from _thread import allocate_lock  # importing threading would make every fork dearer
from collections.abc import Callable
from types import ModuleType
from typing import BinaryIO

from . import wire

MUTABLE = (list, dict, set, bytearray)


def say(fd: int, *frame: object) -> None:
    """Write one frame."""
    data = memoryview(wire.line(*frame))
    while data:
        data = data[os.write(fd, data) :]


def fail(fd: int, error: BaseException) -> None:
    """Write the exception's name and the start of its message."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # a MemoryError must still fit into a message
    try:
        text = str(error)[:300]
    except BaseException:  # noqa: BLE001 a model's exception may do anything
        text = ""
    say(fd, "x", type(error).__name__, text)


def _load(program: str, name: str, names: dict[str, object]) -> dict[str, object]:
    module = ModuleType(name)
    module.__dict__.update(names, __file__=f"{name}.py")
    sys.modules[name] = module  # dataclasses, typing and pickle look modules up
    exec(compile(program, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _script(program: str, names: dict[str, object]) -> None:
    """Run the text as a script to its end, with what the interpreter does then: threads, atexit functions, flush."""
    try:
        _load(program, "__main__", names)
    except SystemExit as leave:
        if leave.code not in (None, 0):
            raise
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.__stdout__.flush()  # the same file, unless the script put another one in its place


def _named(args: tuple, kwargs: dict) -> dict[str, object]:
    """Arguments of a call by name, or by position as text."""
    return {str(index): value for index, value in enumerate(args)} | kwargs


def _calls(program: str, questions: BinaryIO, answers: int, results: int, encode: wire.Encoder) -> None:
    """Load the program, then answer calls while there are any. A failing call does not stop the next one.

    Answers that are carried on, to tests, have the arguments with them that the call may have changed.
    """
    names = _load(program, "candidate", {})
    say(results, "ready")
    for text in questions:
        _, entry, sent = wire.frame(text)
        try:
            args, kwargs = wire.decode(sent)
            answer = [encode(names[entry](*args, **kwargs))]
            if encode.carry:
                mutable = {key: value for key, value in _named(args, kwargs).items() if type(value) in MUTABLE}
                answer.append({key: wire.encode(value, carry=True) for key, value in mutable.items()})
            say(answers, "v", *answer)
        except BaseException as error:  # noqa: BLE001 whatever the program raises is its answer
            fail(answers, error)


def _restore(value: list | bytearray | dict | set, tree: object) -> None:
    """Give an argument of the tests the content that the candidate left in its copy, if that is another."""
    if wire.encode(value, carry=True) != tree:
        value.clear()
        fill = value.extend if isinstance(value, (list, bytearray)) else value.update
        fill(wire.decode(tree))


class _Candidate:
    """The program that tests ask, which lives in another process; `results` learn that it was asked, or has fled."""

    def __init__(self, link: int, results: int) -> None:
        self.link, self.results = link, results
        self.answers = open(link, "rb", closefd=False)
        self.asked = False
        self.lock = allocate_lock()

    def exchange(self, *question: object) -> list:
        """Ask, and return the answer's frame. Ends this process where the answer is none."""
        with self.lock:
            if not self.asked:
                say(self.results, "asked")
            self.asked = True
            try:
                say(self.link, *question)
                return wire.frame(self.answers.readline(wire.INPUT))
            except (OSError, ValueError):
                say(self.results, "fled")
                os._exit(0)

    def function(self, name: str) -> Callable:
        """Return what stands in for the candidate's function of this name."""

        def function(*args: object, **kwargs: object) -> object:
            answer = self.exchange("call", name, wire.encode((args, kwargs), carry=True))
            if answer[0] == "v":
                for key, tree in answer[2].items():
                    _restore(_named(args, kwargs)[key], tree)
                return wire.decode(answer[1])
            kind = getattr(builtins, answer[1], RuntimeError)
            raise (kind if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError)(answer[2])

        function.__name__ = name
        return function


def play(trusted: Callable | None, job: int, results: int, link: int) -> None:
    """Do one job, the first line of the file `job`, and write frames to `results`: in the end `end` or a failure.

    ["calls", program, loose], with calls on further lines, or over `link` where there is one; ["tests", tests, names],
    which asks over `link`; ["stdio", program], on files 0 and 1; ["trusted", arguments], for the function that the
    server is warm with.
    """
    random.seed(0)
    builtins.exit = builtins.quit = sys.exit
    sys.argv = ["candidate.py"]
    given = open(job, "rb")
    kind, text, *rest = wire.frame(given.readline())
    try:
        if kind == "calls":
            questions, answers = (given, results) if link < 0 else (open(link, "rb", closefd=False), link)
            _calls(text, questions, answers, results, wire.Encoder(loose=rest[0], carry=link >= 0))
        elif kind == "tests":
            candidate = _Candidate(link, results)
            _script(text, {name: candidate.function(name) for name in rest[0]})
        elif kind == "stdio":
            sys.stdin = sys.__stdin__ = open(0, closefd=False)  # files of this run; otherwise they are /dev/null
            sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
            _script(text, {})
        else:
            say(results, "v", wire.Encoder()(trusted(*wire.decode(text))))
        say(results, "end")
    except BaseException as error:  # noqa: BLE001 whatever the program raises is its answer
        fail(results, error)
