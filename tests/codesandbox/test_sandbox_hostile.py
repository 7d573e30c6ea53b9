"""Hostile and honest programs in the sandbox: a corpus with its invariants, and single escapes."""

import json
import os
import resource
import select
import shutil
import socket
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from data_files import DATA, tables

from codesandbox import CodeResult, level, pool, run_calls, run_stdio
from codesandbox.guarded import wire

CASES = tables("sandbox")
CORPUS = {path.stem: path for path in (DATA / "hostile_programs").rglob("*.py")}
# One program for each way to fake success (a), exhaust resources (b) or reach the host (c), and
# honest ones (d).
SAMPLE = [
    "a01_eq_true",
    "a03_sys_exit_import",
    "a06_write_all_fds",
    "a07_frames",
    "a12_stdio_marker",
    "a_forged_end",
    "a_reads_ahead",
    "a_rewrites_answers",
    "b01_spin",
    "b03_sleep",
    "b04_list_bomb",
    "b08_fork_bomb",
    "b11_disk_fill",
    "b16_stdio_flood",
    "b_deep_folders",
    "b_deleted_files",
    "c02_kill_parent",
    "c03_read_secrets",
    "c04_network",
    "d01_plain",
    "d04_recursion",
    "d_threads",
]
HARMLESS_UNGUARDED = [name for name in CORPUS if name[0] in "ad"]
# Each level with the programs that it holds; without a guard the others may harm this machine.
HELD_AT_LEVEL = {"kernel": CORPUS, "process": HARMLESS_UNGUARDED}
CORPUS_PORT = "18099"  # that programs of the corpus connect to
SUM_OF_SQUARES = "def solve(xs):\n    return sum(x * x for x in xs)\n"
CALLS = [([1, 2, 3],), ([],), ([-4],), ([10**6] * 3,), (list(range(100)),)]
EXPECTED = [14, 0, 16, 3 * 10**12, 328350]
SECRET = "SECRET-CANARY"
SECRET_FILES = [
    "home/.canary",
    "home/.canary2",
    "home/.netrc",
    "home/.ssh/key",
    "home/.cache/huggingface/token",
    "checkout/canary",
    "checkout/src/canary.py",
]
HOME = Path.home()
needs_bubblewrap = pytest.mark.skipif(
    not shutil.which("bwrap"), reason="no bubblewrap here"
)
x86_64_only = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="numbers of x86_64"
)


def create_secrets(folder: str) -> list[Path]:
    """Create the secret files, which any user may read and write."""
    paths = [Path(folder, name) for name in SECRET_FILES]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SECRET)
        path.chmod(0o666)
    Path(folder).chmod(0o777)
    for subfolder in Path(folder).rglob("*/"):
        subfolder.chmod(0o777)
    return paths


@pytest.fixture(scope="module", autouse=True)
def secrets(landlock):
    """A home folder and a checkout with secrets: programs know of them, only the guard protects."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        paths = create_secrets(folder)
        patch.setenv(level.VARIABLE, "kernel")
        patch.setenv("HOME", f"{folder}/home")
        patch.setenv("HF_TOKEN", SECRET)
        patch.setitem(pool.ENVIRONMENT, "HOME", f"{folder}/home")
        patch.setattr(level, "_pools", {})  # new servers, which get this home folder
        patch.chdir(f"{folder}/checkout")
        yield paths
        for servers in level._pools.values():
            servers.close()


@pytest.fixture(scope="module")
def listeners():
    """TCP and UDP sockets on one free port, which replaces CORPUS_PORT; they must hear nothing."""
    udp = socket.socket(type=socket.SOCK_DGRAM)
    with socket.create_server(("127.0.0.1", 0)) as tcp, udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        udp.bind(tcp.getsockname())
        yield tcp, udp


class FileState(NamedTuple):
    """When a file was last read and written, its mode and its size."""

    read_at: float
    written_at: float
    mode: int
    size: int


def file_states(paths: list[Path]) -> list[FileState]:
    states = []
    for path in paths:
        status = path.stat()
        state = FileState(
            status.st_atime, status.st_mtime, status.st_mode, status.st_size
        )
        states.append(state)
    return states


def reset_times(paths: list[Path]) -> None:
    """Set times that any reading or writing changes."""
    for path in paths:
        os.utime(path, (1, 2))


class ProcessState(NamedTuple):
    """What a program might change about the process that runs the tests."""

    limits: list[tuple[int, int]]
    priority: int
    processors: set[int]
    variables: list[str]


def process_state() -> ProcessState:
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS)
    return ProcessState(
        limits=[resource.getrlimit(kind) for kind in kinds],
        priority=os.getpriority(os.PRIO_PROCESS, 0),
        processors=os.sched_getaffinity(0),
        variables=sorted(os.environ),
    )


def peak_memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def judge(program: str, **limits) -> CodeResult:
    """Run one program as the corpus specifies: as a script or by calls."""
    if '"kind": "stdio"' in program:
        return run_stdio(program, "1 2 3\n", "14", **limits)
    return run_calls(program, "solve", CALLS, EXPECTED, **limits)


def remains() -> list[str]:
    """Return the children and scratch files of idle servers; none while no program runs."""
    children = []
    files = []
    for server in level.programs().idle:
        pid = server.process.pid
        child_pids = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        if child_pids:
            children.append(child_pids)
        files += map(str, Path(server.folder).iterdir())
    return children + files


def test_the_corpus_is_complete():
    assert len(CORPUS) >= 83
    assert CORPUS.keys() >= set(SAMPLE)


def test_the_network_program_names_the_port_that_the_listeners_replace():
    assert CORPUS["c04_network"].read_text().count(f"{CORPUS_PORT}))") == 3


def check_program_is_held(name, listeners, secrets):
    """Run a program: its verdict is allowed, it leaves nothing behind and learns no secret."""
    _, port = listeners[0].getsockname()
    program = CORPUS[name].read_text().replace(CORPUS_PORT, str(port))
    first_line, _, _ = program.partition("\n")
    allowed_verdicts = json.loads(first_line.removeprefix("# MUST "))["verdict"]
    is_honest = allowed_verdicts == ["pass"]
    limits = {} if is_honest else {"cpu_seconds": 1.0, "wall_seconds": 2.0}
    secrets_folder = secrets[0].parents[1]
    process_before = process_state()
    reset_times(secrets)
    secrets_before = file_states(secrets)
    folder_before = sorted(secrets_folder.rglob("*"))
    peak_before = peak_memory_kib()

    result = judge(program, **limits)

    assert result.verdict in allowed_verdicts, result
    assert "SECRET" not in repr(result), result
    assert remains() == []
    assert process_state() == process_before
    assert peak_memory_kib() - peak_before < 64 << 10
    readable_sockets, _, _ = select.select(listeners, [], [], 0)
    assert readable_sockets == []
    assert file_states(secrets) == secrets_before
    assert sorted(secrets_folder.rglob("*")) == folder_before
    assert not list(Path("/tmp").glob("pwned*"))
    assert not list(HOME.glob("pwned*"))
    assert judge(SUM_OF_SQUARES).verdict == "pass"


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_corpus_is_held(name, listeners, secrets):
    check_program_is_held(name, listeners, secrets)


def levels_and_programs() -> list[tuple[str, str]]:
    pairs = []
    for level_name, programs in HELD_AT_LEVEL.items():
        pairs += [(level_name, name) for name in sorted(programs)]
    return pairs


@pytest.mark.thorough
@pytest.mark.parametrize(("level_name", "name"), levels_and_programs())
def test_the_whole_corpus_is_held(level_name, name, listeners, secrets, monkeypatch):
    monkeypatch.setenv(level.VARIABLE, level_name)
    check_program_is_held(name, listeners, secrets)


@pytest.mark.parametrize(
    "level_name", ["kernel", pytest.param("namespaces", marks=needs_bubblewrap)]
)
@pytest.mark.parametrize("name", CASES["escapes"])
def test_escapes_are_refused(name, level_name, secrets, monkeypatch):
    monkeypatch.setenv(level.VARIABLE, level_name)
    attempts = CASES["escapes"][name]
    program = CASES["ESCAPE"].format(path=str(secrets[0]), doors=attempts)
    no_attempt_succeeds = []
    result = run_calls(program, "solve", [([],)], [no_attempt_succeeds])
    assert result.verdict == "pass"


def errno_of_syscalls(numbers: list[int], expected: list[int]) -> CodeResult:
    """Make system calls by number, and compare the errors with the expected ones."""
    return run_calls(
        CASES["SYSCALL"], "solve", [(number,) for number in numbers], expected
    )


@x86_64_only
def test_system_calls_off_the_list_are_refused():
    numbers = CASES["syscalls"]
    expected = dict.fromkeys(numbers, 1)  # EPERM
    expected["clone3"] = (
        38  # ENOSYS makes libc fall back to clone, whose flags are checked
    )
    result = errno_of_syscalls(list(numbers.values()), list(expected.values()))
    assert result.verdict == "pass"


@x86_64_only
def test_system_calls_by_their_x32_numbers_are_refused():
    fork = 0x40000000 + 57
    assert errno_of_syscalls([fork], [1]).verdict == "pass"


def test_no_state_is_left_for_the_next_program():
    spoiler = """
import builtins, json, sys
builtins.sum = lambda xs: 14
json.dumps = sys.modules['math'] = None
open('m.py', 'w').write('x')
"""
    assert judge(spoiler).verdict == "error"
    needs_clean_state = (
        "import json, math, os\njson.dumps(math.pi)\nassert os.listdir('.') == []\n"
    )
    assert judge(needs_clean_state + SUM_OF_SQUARES).verdict == "pass"


def test_programs_are_repeatable():
    program = "import random\ndef solve(xs): return [random.random(), list({'a', 'b', 'c', 'd'})]"
    arguments = wire.encode((([],), {}))
    job = [["calls", program, False], ["call", "solve", arguments]]
    first = level.programs().run(pool.Limits(), job).frames
    second = level.programs().run(pool.Limits(), job).frames
    assert first == second
    assert first[0][1][0] == "v"
