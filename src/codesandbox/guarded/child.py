"""The untrusted side of the wire: loads one program, calls it, sends back data. Runs guarded, in a process of its own.

This is the only place where a model's text is executed.
"""

import atexit
import builtins
import os
import random
import resource
import sys
from _thread import allocate_lock  # importing threading would make every fork dearer
from types import ModuleType

from . import wire

CHANGED = (list, dict, set, bytearray)  # arguments that a call may change in place


class Channel:
    """Blocking frames over the socket to the trainer; what comes from there is trusted."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.frames = wire.Frames(wire.INPUT)
        self.waiting: list[list] = []
        self.lock = allocate_lock()

    def read(self) -> list:
        """Next frame."""
        while not self.waiting:
            data = os.read(self.fd, 1 << 16)
            if not data:
                os._exit(0)
            self.waiting += self.frames.feed(data)
        return self.waiting.pop(0)

    def write(self, *frame: object) -> None:
        """Send one frame."""
        data = memoryview(wire.pack(list(frame)))
        while data:
            data = data[os.write(self.fd, data) :]

    def fail(self, error: BaseException) -> None:
        """Send the exception's name and the start of its message."""
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))  # a MemoryError must still fit into a message
        try:
            text = str(error)[:300]
        except BaseException:  # noqa: BLE001 a model's exception may do anything
            text = ""
        self.write("x", type(error).__name__, text)


def _load(program: str, name: str, names: dict[str, object]) -> dict[str, object]:
    module = ModuleType(name)
    module.__dict__.update(names, __file__=f"{name}.py")
    sys.modules[name] = module  # dataclasses, typing and pickle look modules up
    exec(compile(program, f"{name}.py", "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def _finish() -> None:
    """What the interpreter does when a script ends: wait for threads, run atexit functions, flush."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.__stdout__.flush()  # the same file, unless the script put another one in its place


def _script(channel: Channel, program: str, name: str, names: dict[str, object]) -> None:
    """Run the text as a script; ends with the frame `end` or with an exception."""
    try:
        _load(program, name, names)
    except SystemExit as leave:
        if leave.code not in (None, 0):
            raise
    _finish()
    channel.write("end")


def _changes(sent: list, args: tuple, kwargs: dict) -> dict:
    """Arguments that a call has changed in place, by position or name. Raises TypeError on what is no data now."""
    (_, ((_, before), (_, named))) = sent
    pairs = [*enumerate(args), *kwargs.items()]
    trees = [*before, *(tree for _, tree in named)]
    encode = wire.Encoder(wire.INPUT, carry=True)

    def changed(value: object, tree: list) -> bool:  # the size first: what has grown beyond measure costs nothing
        return (type(value) is not bytearray and len(value) != len(tree[1])) or encode(value) != tree

    return {
        key: value
        for (key, value), tree in zip(pairs, trees, strict=True)
        if type(value) in CHANGED and changed(value, tree)
    }


def _calls(channel: Channel, program: str, encode: wire.Encoder) -> None:
    """Load the program, then answer calls until told to end. A failing call does not stop the next one.

    Answers that are carried on, to tests, have the changed arguments with them.
    """
    names = _load(program, "candidate", {})
    channel.write("ready")
    while (frame := channel.read())[0] == "call":
        try:
            args, kwargs = wire.decode(frame[2])
            answer = [encode(names[frame[1]](*args, **kwargs))]
            if encode.carry and (changes := _changes(frame[2], args, kwargs)):
                answer.append(encode(changes))
            channel.write("v", *answer)
        except BaseException as error:  # noqa: BLE001 whatever the program raises is its answer
            channel.fail(error)
    channel.write("end")


def _restore(old: object, new: object) -> None:
    """Give an argument of the tests the content that the candidate left in its copy."""
    if isinstance(old, (list, bytearray)):
        old[:] = new
    elif isinstance(old, (dict, set)):
        old.clear()
        old.update(new)


def _ask(channel: Channel, name: str):
    """Stand in for a function of the candidate, which lives in another process."""

    def function(*args: object, **kwargs: object) -> object:
        with channel.lock:
            channel.write("call", name, wire.encode((args, kwargs), carry=True))
            frame = channel.read()
        if frame[0] == "v":
            for key, value in wire.decode(frame[2]).items() if len(frame) > 2 else ():
                _restore(kwargs[key] if isinstance(key, str) else args[key], value)
            return wire.decode(frame[1])
        kind = getattr(builtins, frame[1], RuntimeError)
        raise (kind if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError)(frame[2])

    function.__name__ = name
    return function


def play(channel: Channel, job: list) -> None:
    """Do one job.

    ["calls", program, loose], ["asked", program], ["stdio", program], ["tests", tests, names], ["math", gold, answer].
    """
    random.seed(0)
    builtins.exit = builtins.quit = sys.exit
    sys.argv = ["candidate.py"]
    try:
        if job[0] == "calls":
            _calls(channel, job[1], wire.Encoder(loose=job[2]))
        elif job[0] == "asked":
            _calls(channel, job[1], wire.Encoder(carry=True))
        elif job[0] == "stdio":
            sys.stdin = sys.__stdin__ = open(0, closefd=False)  # files of this run; otherwise they are /dev/null
            sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
            _script(channel, job[1], "__main__", {})
        elif job[0] == "tests":
            _script(channel, job[1], "__main__", {name: _ask(channel, name) for name in job[2]})
        else:
            from . import equal

            channel.write("gold", equal.readable(job[1], tried=job[2] is None))
            if job[2] is not None:
                channel.write("v", equal.equal(job[1], job[2]))
            channel.write("end")
    except BaseException as error:  # noqa: BLE001 whatever the program raises is its answer
        channel.fail(error)
