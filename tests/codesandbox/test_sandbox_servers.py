"""The servers behind the code verifier: levels, faults, what a dying trainer leaves behind, what goes over the wire."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from codesandbox import code, level, pool
from codesandbox.code import run_calls
from codesandbox.guarded import wire
from coevolve.verify import verify

SRC = Path(__file__).parents[2] / "src"
SQUARE = "def f(x):\n    return x * x\n"


pytestmark = pytest.mark.usefixtures("landlock")


def judged(program, expected):
    return run_calls(program, "f", [(3,)], [expected])


class Broken:
    """A pool whose processes all say the same."""

    level = 2

    def __init__(self, why, frames):
        self.why, self.frames = why, frames

    def run(self, *args, **kwargs):
        return self


@pytest.mark.parametrize("why", ["lost", "starved", "orphan"])
def test_a_fault_of_the_machine_is_unscored(monkeypatch, why):
    broken = Broken(why, [["guarded"], ["ready"]])
    broken.reported, broken.detail = 2, ""
    monkeypatch.setattr(level, "programs", lambda: broken)
    said = judged(SQUARE, 9)
    assert said.verdict == "unscored" and said.correct is None and why in said.detail


def test_a_child_that_could_not_be_guarded_is_unscored(monkeypatch):
    broken = Broken("", [])
    broken.reported, broken.detail = 2, ""
    monkeypatch.setattr(level, "programs", lambda: broken)
    assert judged(SQUARE, 9).verdict == "unscored"


def test_the_self_test_believes_nothing():
    assert level.reached(Broken("", [["guarded"], ["ready"], ["v", "anything"], ["end"]])) == 0
    bare = pool.Pool(1)
    try:
        assert level.reached(bare) == 1
        bare.level = 2  # claims more than its servers give
        assert level.reached(bare) == 1
    finally:
        bare.close()


def test_the_self_test_leaves_nothing_behind(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("COEVOLVE_SANDBOX", "process")
    monkeypatch.setattr(level, "_pools", {})
    assert judged(SQUARE, 9).level == 1 and level.programs().idle
    assert all(path.name.startswith("coevolve-sandbox-") for path in tmp_path.iterdir())  # servers, still there
    level.close()
    assert list(tmp_path.iterdir()) == []


def waiting(server: pool.Server) -> list[int]:
    """The children of a server, once there is one."""
    path = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for _ in range(100):
        if found := path.read_text().split():
            return list(map(int, found))
        time.sleep(0.05)
    return []


def test_a_child_that_dies_while_it_waits_is_replaced(monkeypatch):
    monkeypatch.setattr(level, "_pools", {})
    assert judged(SQUARE, 9).verdict == "pass"
    (server,) = level.programs().idle
    (child,) = waiting(server)
    os.kill(child, signal.SIGKILL)
    said = [judged(SQUARE, right).verdict for right in (9, 8)]
    assert said == ["pass", "wrong"] and level.programs().idle == [server]
    assert waiting(server) != [child]
    level.close()


def test_a_child_that_waits_ends_with_its_server(monkeypatch):
    monkeypatch.setattr(level, "_pools", {})
    assert judged(SQUARE, 9).verdict == "pass"
    (server,) = level.programs().idle
    (child,) = waiting(server)
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{child}").exists()
    assert [judged(SQUARE, 9).verdict for _ in range(2)] == ["unscored", "pass"], "lost, then another server"
    level.close()


@pytest.mark.parametrize(("name", "reported"), [("process", 1), ("kernel", 2), ("namespaces", 3), ("external", 4)])
def test_a_level_is_asked_for_by_name(monkeypatch, name, reported):
    if name == "namespaces" and not shutil.which("bwrap"):
        pytest.skip("no bubblewrap here")
    monkeypatch.setenv("COEVOLVE_SANDBOX", name)
    said = judged(SQUARE, 9)
    assert (said.verdict, said.level) == ("pass", reported)


@pytest.mark.parametrize("name", ["refuse", "strong", "2"])
def test_other_names_refuse_in_one_line(monkeypatch, name):
    monkeypatch.setenv("COEVOLVE_SANDBOX", name)
    with pytest.raises(code.SandboxError, match=f"COEVOLVE_SANDBOX='{name}'.*kernel") as raised:
        judged(SQUARE, 9)
    assert "\n" not in str(raised.value)


def test_below_the_kernel_guard_nothing_runs_unasked(monkeypatch):
    monkeypatch.delenv("COEVOLVE_SANDBOX", raising=False)
    monkeypatch.setattr(level, "_pools", {})
    monkeypatch.setattr(level, "reached", lambda servers: 1)
    with pytest.raises(code.SandboxError, match="reached level 1 of 2"):
        judged(SQUARE, 9)


def test_another_system_refuses(monkeypatch):
    monkeypatch.setattr(level, "_pools", {})
    monkeypatch.setattr(level.sys, "platform", "darwin")
    for ask in (partial(judged, SQUARE, 9), partial(verify, "math", "x+1", "1+x")):
        with pytest.raises(code.SandboxError, match="Linux only"):
            ask()


def test_a_server_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr(pool, "START", "raise ValueError('no such luck')")
    with pytest.raises(code.SandboxError, match="did not start: ValueError: no such luck"):
        pool.Server(2)


def test_a_killed_server_is_replaced():
    (server, *_) = level.programs().idle
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert [judged(SQUARE, 9).verdict for _ in range(4)].count("pass") >= 3
    assert judged(SQUARE, 9).verdict == "pass"


def test_a_forked_process_starts_servers_of_its_own():
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if judged(SQUARE, 9).verdict == "pass" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert judged(SQUARE, 9).verdict == "pass"


TRAINER = """
import json, os, threading, time
from coevolve.verify import verify
from codesandbox import level
from codesandbox import code
assert code.run_calls("def f(): return 1", "f", [()], [1]).verdict == "pass" and verify("math", "x+1", "1+x").correct
servers = [server for pool in level._pools.values() for server in pool.idle]
spin = "def f():\\n    while True: pass"
long = {"cpu_seconds": 50, "wall_seconds": 60}
threading.Thread(target=code.run_calls, args=(spin, "f", [()], [1]), kwargs=long).start()
time.sleep(0.3)
holder = os.fork()  # keeps our ends of the sockets open, as a data loader would
if holder == 0:
    time.sleep(30)
    os._exit(0)
print(json.dumps([holder, [server.process.pid for server in servers], [server.folder for server in servers]]), flush=True)
time.sleep(60)
"""


def descendants(pid: int) -> set[int]:
    """Processes below this one."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        found |= new
    return found


def test_a_killed_trainer_leaves_no_process_and_no_folder():
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER], env=os.environ | {"PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE
    )
    holder, servers, folders = json.loads(trainer.stdout.readline())
    below = descendants(trainer.pid) - {holder}
    assert set(servers) <= below and len(below) > len(servers)  # one of them runs a program
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    for _ in range(100):  # the holder still lives
        alive = [pid for pid in below if Path(f"/proc/{pid}").exists()]
        left = [folder for folder in folders if folder and Path(folder).exists()]
        if not alive and not left:
            break
        time.sleep(0.1)
    os.kill(holder, signal.SIGKILL)
    assert not alive and not left


def test_the_server_is_a_fresh_interpreter_without_the_package():
    program = "import sys\ndef f(x): return [name for name in sys.modules if name.startswith(('torch', 'coev'))]"
    assert judged(program, []).verdict == "pass"


def test_frames_are_refused_unless_they_are_frames():
    def frame(text: bytes) -> bytes:
        return len(text).to_bytes(4, "big") + text

    good = frame(b'["v", [1.5]]'.replace(b"1.5", b'"a"'))
    frames = wire.Frames()
    assert list(frames.feed(good[:5])) == [] and list(frames.feed(good[5:] + good)) == [["v", ["a"]]] * 2
    numbers = (b'["v", 1]', b'["v", 1.5]', b'["v", NaN]')
    for bad in (*numbers, b"{}", b"[]", b"[1]", b"\xff", b"x", b'[["v"]]', b"[" * 10**5):
        with pytest.raises(ValueError):
            list(wire.Frames().feed(frame(bad)))
    with pytest.raises(ValueError, match="too large"):
        list(wire.Frames().feed(b"\xff\xff\xff\xff"))
    found = []
    with pytest.raises(ValueError):
        found.extend(wire.Frames().feed(good + frame(b"x")))
    assert found == [["v", ["a"]]]  # what came in order before the fault counts


def test_trees_by_hand():
    assert wire.encode([None, True, -5, (1.5,), "x", b"\x01"]) == [
        "l",
        [None, True, ["i", "-0x5"], ["t", [["r", "0x1.8000000000000p+0"]]], "x", ["b", "01"]],
    ]
    assert wire.encode({"b": 1, "a": 2}) == ["d", [["a", ["i", "0x2"]], ["b", ["i", "0x1"]]]]
    assert wire.encode({8, 0}) == wire.encode({0, 8}) != wire.encode(frozenset({0, 8}))  # they iterate differently
    assert wire.encode([True, 1.0], loose=True) == wire.encode([1, 1]) and wire.encode(1.5, loose=True)[0] == "r"
    value = {"k": [1, (2.5, {3}), None], (1, frozenset({2})): b"z"}
    assert wire.decode(wire.encode(value)) == value
    for big in ("x" * 101, b"x" * 101, 1 << 404, [0] * 30, list("x" * 30), {i: i for i in range(30)}):
        with pytest.raises(wire.TooLargeError):
            wire.Encoder(room=100)(big)
    deep = []
    for _ in range(70):
        deep = [deep]
    with pytest.raises(wire.TooLargeError):
        wire.encode(deep)
    with pytest.raises(TypeError, match="not Path"):
        wire.encode(type("Path", (int,), {})(3))
