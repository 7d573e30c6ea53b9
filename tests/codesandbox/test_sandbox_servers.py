"""The servers of the sandbox: levels, faults, trusted calls, a dying caller, and messages."""

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
from typing import NamedTuple
from unittest.mock import Mock

import psutil
import pytest
from data_files import tables

from codesandbox import CodeResult, SandboxError, Trusted, level, pool, run_calls
from codesandbox.guarded import wire
from codesandbox.pool import Limits
from codesandbox.worker import WorkerPool

CASES = tables("sandbox")
SRC = Path(__file__).parents[2] / "src"
pytestmark = pytest.mark.usefixtures("landlock")
needs_bubblewrap = pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap")


def judge_square() -> CodeResult:
    """Judge a correct program by one call."""
    return run_calls(CASES["SQUARE"], "f", [(3,)], [9])


def pool_that_answers(why: str, frames: list) -> Mock:
    """Return a pool every job of which ends like this."""
    result = pool.JobResult(why, 0, [frames])
    return Mock(level=2, reported=2, run=Mock(return_value=result))


@pytest.mark.parametrize("why", ["lost", "starved", "orphan", "unguarded"])
def test_a_fault_of_the_machine_is_unscored(monkeypatch, why):
    frames_of_a_pass = [["ready"], ["v", ["i", "0x9"]], ["end"]]
    faulty = pool_that_answers(why, frames_of_a_pass)
    monkeypatch.setattr(level, "programs", lambda: faulty)
    result = judge_square()
    assert (result.verdict, result.correct) == ("unscored", None)
    assert why in result.detail


def test_the_self_test_gives_level_0_to_servers_that_answer_nonsense():
    nonsense = pool_that_answers("", [["ready"], ["v", "anything"], ["end"]])
    assert level.measured_level(nonsense) == 0


def test_the_self_test_gives_level_1_to_servers_that_only_claim_level_2():
    unguarded = pool.Pool(1)
    assert level.measured_level(unguarded) == 1
    unguarded.level = 2
    assert level.measured_level(unguarded) == 1
    unguarded.close()


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("process", 1),
        ("kernel", 2),
        pytest.param("namespaces", 3, marks=needs_bubblewrap),
        ("external", 4),
    ],
)
def test_a_level_is_selected_by_name(monkeypatch, name, reported):
    monkeypatch.setenv(level.VARIABLE, name)
    result = judge_square()
    assert (result.verdict, result.level) == ("pass", reported)


@pytest.mark.parametrize("name", ["refuse", "strong", "2"])
def test_other_names_are_refused_with_one_line(monkeypatch, name):
    monkeypatch.setenv(level.VARIABLE, name)
    message = f"{level.VARIABLE}='{name}'.*kernel"
    with pytest.raises(SandboxError, match=message) as raised:
        judge_square()
    assert "\n" not in str(raised.value)


def test_an_unguarded_machine_runs_no_program_by_default(monkeypatch):
    monkeypatch.delenv(level.VARIABLE, raising=False)
    monkeypatch.setattr(level, "_pools", {})
    monkeypatch.setattr(level, "measured_level", lambda pool: 1)
    with pytest.raises(SandboxError, match="reached level 1 of 2"):
        judge_square()


def test_other_systems_than_linux_run_no_program(monkeypatch):
    monkeypatch.delenv(level.VARIABLE, raising=False)
    monkeypatch.setattr(level, "_pools", {})
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SandboxError, match="Linux only"):
        judge_square()


def test_a_server_that_does_not_start_says_why():
    message = "did not start: ModuleNotFoundError: No module named 'nowhere'"
    with pytest.raises(SandboxError, match=message):
        Trusted("nowhere:function")()


class TrustedCall(NamedTuple):
    """A call of a function of the trusted module, and the answer that it must give."""

    function: str
    args: tuple
    value: str | None
    why: str


TRUSTED_CALLS = [
    TrustedCall("echo", ("text",), value="text", why=""),
    TrustedCall("echo", (None,), value=None, why=""),
    TrustedCall("echo", ([],), value=None, why="error"),
    TrustedCall("spin", (), value=None, why="timeout"),
    TrustedCall("grow", (), value=None, why="memory"),
    TrustedCall("leave", (), value=None, why="error"),
    TrustedCall("write", ("/tmp/pwned_trusted",), value=None, why="error"),
]


@pytest.mark.parametrize("call", TRUSTED_CALLS)
def test_a_trusted_function_is_bounded_and_guarded(tmp_path, monkeypatch, call):
    (tmp_path / "trusted_module.py").write_text(CASES["TRUSTED"])
    monkeypatch.syspath_prepend(tmp_path)
    tmp_path.chmod(0o755)
    limits = {"cpu_seconds": 0.5, "wall_seconds": 1.0, "memory_mb": 512}
    function = Trusted(f"trusted_module:{call.function}", **limits)
    answer = function(*call.args)
    assert (answer.value, answer.why) == (call.value, call.why), answer
    with pytest.raises(TypeError, match="only plain data"):
        function(object())


# "grow" and "write" need limits that only Linux enforces.
@pytest.mark.parametrize(
    "call", [call for call in TRUSTED_CALLS if call.function not in ("grow", "write")]
)
def test_elsewhere_a_trusted_function_is_bounded_in_time(tmp_path, monkeypatch, call):
    (tmp_path / "trusted_module.py").write_text(CASES["TRUSTED"])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "platform", "darwin")
    function = Trusted(f"trusted_module:{call.function}", wall_seconds=1.0)
    answer = function(*call.args)
    assert (answer.value, answer.why) == (call.value, call.why), answer


def test_elsewhere_a_worker_serves_many_calls_and_a_stopped_one_is_replaced(
    tmp_path, monkeypatch
):
    (tmp_path / "trusted_module.py").write_text(CASES["TRUSTED"])
    monkeypatch.syspath_prepend(tmp_path)
    pool = WorkerPool("trusted_module:echo", warm=[("text",)])
    limits = Limits(wall_seconds=60.0)
    job = [["trusted", wire.encode(("text",))]]
    first = pool.run(limits, job)
    (worker,) = pool.idle
    assert pool.run(limits, job) == first
    assert pool.idle == [worker]
    worker.stop()
    assert pool.run(limits, job) == first
    assert pool.idle != [worker]
    pool.close()


def test_elsewhere_a_function_that_does_not_exist_is_one_line():
    with pytest.raises(SandboxError, match="^nowhere:function: the process"):
        WorkerPool("nowhere:function", warm=()).run(Limits(), [["trusted", None]])


def test_a_killed_server_is_replaced():
    judge_square()
    server = level.programs().idle[-1]
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()
    assert judge_square().verdict == "pass"


def test_a_forked_process_starts_its_own_servers():
    judge_square()
    with multiprocessing.get_context("fork").Pool(1) as other_process:
        assert other_process.apply(judge_square).verdict == "pass"
    assert judge_square().verdict == "pass"


def parent_ids() -> dict[int, int]:
    """Return the parent's id of every process."""
    processes = psutil.process_iter(["ppid"])
    return {process.pid: process.info["ppid"] for process in processes}


def test_a_killed_caller_leaves_no_process_and_no_folder():
    command = [sys.executable, "-c", CASES["CALLER"]]
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as caller:
        holder, server_pids, folders = json.loads(caller.stdout.readline())
        caller.kill()
    servers = set(server_pids)
    folders = [folder for folder in folders if folder]
    while servers & parent_ids().keys() or any(map(os.path.exists, folders)):
        time.sleep(0.05)  # the test's own time limit ends this; the holder still lives
    parents = parent_ids()
    assert holder in parents
    assert not servers & set(parents.values())
    os.kill(holder, signal.SIGKILL)


def test_the_server_is_a_fresh_interpreter_without_the_package():
    prefixes = ("torch", "coev", "codes")
    loaded = f"[name for name in sys.modules if name.startswith({prefixes})]"
    program = f"import sys\ndef f(x): return {loaded}"
    assert run_calls(program, "f", [(3,)], [[]]).verdict == "pass"


def test_lines_of_frames_are_read():
    data = b'["v", ["a"]]\n["end"]\n'
    assert wire.decode_frames(data) == [["v", ["a"]], ["end"]]


@pytest.mark.parametrize(
    "line",
    [
        b'["v", 1]',  # bare numbers: 1 would be equal to True
        b'["v", 1.5]',
        b'["v", NaN]',
        b"{}",
        b"[]",
        b"[1]",
        b"\xff",
        b"x",
        b'[["v"]]',
        b"[" * 10**5,
        b'["v"',
        b"\x00" * 9,
    ],
)
def test_a_line_that_is_no_frame_ends_the_answers_as_garbled(line):
    data = b'["v", "a"]\n' + line + b'\n["end"]\n'
    assert wire.decode_frames(data) == [["v", "a"], ["x", "garbled", ""]]


def test_equal_sets_give_one_tree_and_frozensets_another():
    iterated_one_way = {8, 0}
    iterated_the_other_way = {0, 8}
    tree = wire.encode(iterated_one_way)
    assert tree == wire.encode(iterated_the_other_way)
    assert tree != wire.encode(frozenset({0, 8}))


def test_loose_trees_are_equal_where_python_calls_values_equal():
    assert wire.encode([True, 1.0], loose=True) == wire.encode([1, 1])
    assert wire.encode(1.5, loose=True)[0] == "r"


def test_values_come_back_from_their_trees():
    value = {"k": [-1, (2.5, {3}), None, True], (1, frozenset({2})): b"z\x01"}
    assert wire.decode(wire.encode(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 101,
        b"x" * 101,
        1 << 404,
        [0] * 30,
        list("x" * 30),
        {i: i for i in range(30)},
    ],
)
def test_a_value_larger_than_the_room_is_refused(value):
    with pytest.raises(wire.TooLargeError):
        wire.Encoder(room=100)(value)


def test_a_value_nested_too_deep_is_refused():
    nested = functools.reduce(lambda inner, _: [inner], range(70), [])
    with pytest.raises(wire.TooLargeError):
        wire.encode(nested)


def test_an_object_of_a_class_derived_from_a_plain_type_is_refused_by_its_name():
    derived_class = type("Path", (int,), {})
    with pytest.raises(TypeError, match="not Path"):
        wire.encode(derived_class(3))
