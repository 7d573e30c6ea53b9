"""The servers behind the sandbox: levels, faults, trusted calls, what a dying caller leaves, what messages are."""

import functools
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import psutil
import pytest
from data_files import tables

from codesandbox import SandboxError, Trusted, level, pool, run_calls
from codesandbox.guarded import wire

CASES = tables("sandbox")
SRC = Path(__file__).parents[2] / "src"
pytestmark = pytest.mark.usefixtures("landlock")


def judged(program=CASES["SQUARE"], expected=9):
    return run_calls(program, "f", [(3,)], [expected])


def broken(why, frames):
    """A pool whose processes all say the same."""
    return Mock(level=2, reported=2, run=Mock(return_value=pool.Ran(why, 0, [frames])))


@pytest.mark.parametrize("why", ["lost", "starved", "orphan", "unguarded"])
def test_a_fault_of_the_machine_is_unscored(monkeypatch, why):
    monkeypatch.setattr(level, "programs", lambda: broken(why, [["ready"], ["v", ["i", "0x9"]], ["end"]]))
    said = judged()
    assert (said.verdict, said.correct) == ("unscored", None) and why in said.detail


def test_the_self_test_believes_nothing():
    assert level.reached(broken("", [["ready"], ["v", "anything"], ["end"]])) == 0
    bare = pool.Pool(1)
    assert level.reached(bare) == 1
    bare.level = 2  # claims more than its servers give
    assert level.reached(bare) == 1
    bare.close()


NAMESPACES = pytest.param("namespaces", 3, marks=pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap"))


@pytest.mark.parametrize(("name", "reported"), [("process", 1), ("kernel", 2), NAMESPACES, ("external", 4)])
def test_a_level_is_asked_for_by_name(monkeypatch, name, reported):
    monkeypatch.setenv(level.VARIABLE, name)
    assert (judged().verdict, judged().level) == ("pass", reported)


@pytest.mark.parametrize("name", ["refuse", "strong", "2"])
def test_other_names_refuse_in_one_line(monkeypatch, name):
    monkeypatch.setenv(level.VARIABLE, name)
    with pytest.raises(SandboxError, match=f"{level.VARIABLE}='{name}'.*kernel") as raised:
        judged()
    assert "\n" not in str(raised.value)


def test_where_nothing_can_be_guarded_nothing_runs_unasked(monkeypatch):
    monkeypatch.delenv(level.VARIABLE, raising=False)
    monkeypatch.setattr(level, "_pools", {})
    monkeypatch.setattr(level, "reached", lambda servers: 1)
    with pytest.raises(SandboxError, match="reached level 1 of 2"):
        judged()
    monkeypatch.setattr(sys, "platform", "darwin")
    for ask in (judged, Trusted("os.path:isabs")):
        with pytest.raises(SandboxError, match="Linux only"):
            ask("/")


def test_a_server_that_does_not_start_says_why():
    with pytest.raises(SandboxError, match="did not start: ModuleNotFoundError: No module named 'nowhere'"):
        Trusted("nowhere:function")()


CALLS = [(("echo", "text"), "text", ""), (("echo", None), None, ""), (("echo", []), None, "error")]
CALLS += [(("spin",), None, "timeout"), (("grow",), None, "memory"), (("leave",), None, "error")]
CALLS += [(("write", "/tmp/pwned_trusted"), None, "error")]


@pytest.mark.parametrize(("call", "value", "why"), CALLS)
def test_a_trusted_function_is_bounded_and_guarded(tmp_path, monkeypatch, call, value, why):
    (tmp_path / "trusted_module.py").write_text(CASES["TRUSTED"])
    monkeypatch.syspath_prepend(tmp_path)
    tmp_path.chmod(0o755)
    name, *args = call
    function = Trusted(f"trusted_module:{name}", cpu_seconds=0.5, wall_seconds=1.0, memory_mb=512)
    said = function(*args)
    assert (said.value, said.why) == (value, why), said
    with pytest.raises(TypeError, match="only plain data"):
        function(object())


def test_a_killed_server_is_replaced():
    servers = level.programs()
    judged()
    os.killpg(servers.idle[-1].process.pid, signal.SIGKILL)
    servers.idle[-1].process.wait()
    assert judged().verdict == "pass"


def test_a_forked_process_starts_servers_of_its_own():
    judged()
    with multiprocessing.get_context("fork").Pool(1) as other:
        assert other.apply(judged).verdict == "pass"
    assert judged().verdict == "pass"


def processes() -> dict[int, int]:
    """Parent of every process."""
    return {process.pid: process.info["ppid"] for process in psutil.process_iter(["ppid"])}


def test_a_killed_caller_leaves_no_process_and_no_folder():
    line = [sys.executable, "-c", CASES["CALLER"]]
    with subprocess.Popen(line, env=os.environ | {"PYTHONPATH": str(SRC)}, stdout=subprocess.PIPE) as caller:
        holder, servers, folders = json.loads(caller.stdout.readline())
        caller.kill()
    while set(servers) & processes().keys() or any(map(os.path.exists, filter(None, folders))):
        time.sleep(0.05)  # the test's own time limit ends this; the holder still lives
    assert holder in processes() and not set(servers) & set(processes().values())
    os.kill(holder, signal.SIGKILL)


def test_the_server_is_a_fresh_interpreter_without_the_package():
    ours = "[name for name in sys.modules if name.startswith(('torch', 'coev', 'codes'))]"
    assert judged(f"import sys\ndef f(x): return {ours}", []).verdict == "pass"


def test_lines_are_refused_unless_they_are_frames():
    assert wire.frames(b'["v", ["a"]]\n["end"]\n') == [["v", ["a"]], ["end"]]
    numbers = (b'["v", 1]', b'["v", 1.5]', b'["v", NaN]')
    for bad in (*numbers, b"{}", b"[]", b"[1]", b"\xff", b"x", b'[["v"]]', b"[" * 10**5, b'["v"', b"\x00" * 9):
        assert wire.frames(b'["v", "a"]\n' + bad + b'\n["end"]\n') == [["v", "a"], ["x", "garbled", ""]]


def test_values_cross_as_trees_of_bounded_size():
    assert wire.encode({8, 0}) == wire.encode({0, 8}) != wire.encode(frozenset({0, 8}))  # they iterate differently
    assert wire.encode([True, 1.0], loose=True) == wire.encode([1, 1]) and wire.encode(1.5, loose=True)[0] == "r"
    value = {"k": [-1, (2.5, {3}), None, True], (1, frozenset({2})): b"z\x01"}
    assert wire.decode(wire.encode(value)) == value
    for big in ("x" * 101, b"x" * 101, 1 << 404, [0] * 30, list("x" * 30), {i: i for i in range(30)}):
        with pytest.raises(wire.TooLargeError):
            wire.Encoder(room=100)(big)
    with pytest.raises(wire.TooLargeError):
        wire.encode(functools.reduce(lambda deep, _: [deep], range(70), []))
    with pytest.raises(TypeError, match="not Path"):
        wire.encode(type("Path", (int,), {})(3))
