"""Hostile and honest programs against the sandbox: a corpus with its invariants, and every door one by one."""

import json
import os
import resource
import select
import shutil
import socket
import tempfile
from pathlib import Path

import pytest
from data_files import DATA, tables

from codesandbox import level, pool, run_calls, run_stdio
from codesandbox.guarded import wire

CASES = tables("sandbox")
CORPUS = {path.stem: path for path in (DATA / "hostile_programs").rglob("*.py")}
# One program for each way to fake success (a), use up resources (b) or reach the host (c), and honest ones (d).
SAMPLE = """a01_eq_true a03_sys_exit_import a06_write_all_fds a07_frames a12_stdio_marker a_forged_end a_reads_ahead
    a_rewrites_answers b01_spin b03_sleep b04_list_bomb b08_fork_bomb b11_disk_fill b16_stdio_flood b_deep_folders
    b_deleted_files c02_kill_parent c03_read_secrets c04_network d01_plain d04_recursion d_threads""".split()
BOUNDED = {"kernel": CORPUS, "process": [name for name in CORPUS if name[0] in "ad"]}  # the rest may harm this machine
PLAIN = "def solve(xs):\n    return sum(x * x for x in xs)\n"
CALLS = [([1, 2, 3],), ([],), ([-4],), ([10**6] * 3,), (list(range(100)),)]
EXPECTED = [14, 0, 16, 3 * 10**12, 328350]
SECRETS = """home/.canary home/.canary2 home/.netrc home/.ssh/key home/.cache/huggingface/token
    checkout/canary checkout/src/canary.py""".split()
HOME = Path.home()
BWRAP = pytest.mark.skipif(not shutil.which("bwrap"), reason="no bubblewrap here")


@pytest.fixture(scope="module", autouse=True)
def places(landlock):
    """A home folder and a checkout with secrets in them, which programs are told of and only the guard protects."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        found = [Path(folder, name) for name in SECRETS]
        for path in found:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("SECRET-CANARY")
            path.chmod(0o666)
        for path in (Path(folder), *Path(folder).rglob("*/")):
            path.chmod(0o777)
        patch.setenv(level.VARIABLE, "kernel")
        patch.setenv("HOME", f"{folder}/home")
        patch.setenv("HF_TOKEN", "SECRET-CANARY")
        patch.setitem(pool.ENVIRONMENT, "HOME", f"{folder}/home")
        patch.setattr(level, "_pools", {})  # servers of these tests' own, with that home
        patch.chdir(f"{folder}/checkout")
        yield found
        for servers in level._pools.values():
            servers.close()


def seals(paths, renew=False) -> list[tuple]:
    """When each file was read and written, and its mode and size; from times that any reading changes, if renewed."""
    for path in paths if renew else ():
        os.utime(path, (1, 2))
    return [(at.st_atime, at.st_mtime, at.st_mode, at.st_size) for at in map(os.stat, paths)]


@pytest.fixture(scope="module")
def listeners():
    """TCP and UDP on one free port, which programs get for the one that the corpus names; they must hear nothing."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        udp.bind(tcp.getsockname())
        yield tcp, udp


def judge(program: str, **limits):
    """Run one program as the corpus asks."""
    if '"kind": "stdio"' in program:
        return run_stdio(program, "1 2 3\n", "14", **limits)
    return run_calls(program, "solve", CALLS, EXPECTED, **limits)


def left() -> list[str]:
    """Children of the servers, and what is left in their folders: nothing, while no program runs."""
    servers = level.programs().idle
    children = [Path(f"/proc/{s.process.pid}/task/{s.process.pid}/children").read_text() for s in servers]
    return [*filter(None, children), *(str(path) for s in servers for path in Path(s.folder).iterdir())]


def state() -> tuple:
    """What a program might change about this process."""
    limits = [resource.getrlimit(which) for which in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS)]
    return limits, os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0), sorted(os.environ)


def test_the_corpus_is_there():
    assert len(CORPUS) >= 83 and CORPUS.keys() >= {*SAMPLE}
    assert CORPUS["c04_network"].read_text().count("18099))") == 3, "the port that the listeners take the place of"


def held(name, listeners, places):
    """Run a program of the corpus: its verdict is allowed and nothing of it is left or known anywhere."""
    program = CORPUS[name].read_text().replace("18099", str(listeners[0].getsockname()[1]))
    must = json.loads(program.partition("\n")[0].removeprefix("# MUST "))
    limits = {} if must["verdict"] == ["pass"] else {"cpu_seconds": 1.0, "wall_seconds": 2.0}
    before, sealed, around = state(), seals(places, renew=True), sorted(places[0].parents[1].rglob("*"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    said = judge(program, **limits)
    assert said.verdict in must["verdict"] and "SECRET" not in repr(said), said
    assert left() == [] and state() == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 64 << 10
    assert select.select(listeners, [], [], 0)[0] == []
    assert seals(places) == sealed and sorted(places[0].parents[1].rglob("*")) == around
    assert not [*Path("/tmp").glob("pwned*"), *HOME.glob("pwned*")]
    assert judge(PLAIN).verdict == "pass"


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_the_corpus_is_held(name, listeners, places):
    held(name, listeners, places)


@pytest.mark.thorough
@pytest.mark.parametrize(("asked", "name"), [(asked, name) for asked in BOUNDED for name in sorted(BOUNDED[asked])])
def test_the_whole_corpus_is_held(asked, name, listeners, places, monkeypatch):
    monkeypatch.setenv(level.VARIABLE, asked)
    held(name, listeners, places)


@pytest.mark.parametrize("asked", ["kernel", pytest.param("namespaces", marks=BWRAP)])
@pytest.mark.parametrize("name", CASES["escapes"])
def test_escapes_are_refused(name, asked, places, monkeypatch):
    monkeypatch.setenv(level.VARIABLE, asked)
    program = CASES["ESCAPE"].format(path=str(places[0]), doors=CASES["escapes"][name])
    assert run_calls(program, "solve", [([],)], [[]]).verdict == "pass"


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
def test_system_calls_off_the_list_are_refused():
    program, numbers = CASES["SYSCALL"], CASES["syscalls"]
    refused = [38 if name == "clone3" else 1 for name in numbers]  # ENOSYS sends libc to clone, which is looked at
    assert run_calls(program, "solve", [(number,) for number in numbers.values()], refused).verdict == "pass"
    assert run_calls(program, "solve", [(0x40000000 + 57,)], [1]).verdict == "pass"  # fork by its x32 number


def test_no_state_is_left_for_the_next_program():
    spoil = "import builtins, json, sys\nbuiltins.sum = lambda xs: 14\njson.dumps = sys.modules['math'] = None\n"
    assert judge(spoil + "open('m.py', 'w').write('x')").verdict == "error"
    program = "import json, math, os\njson.dumps(math.pi)\nassert os.listdir('.') == []\n" + PLAIN
    assert judge(program).verdict == "pass"


def test_programs_are_repeatable():
    program = "import random\ndef solve(xs): return [random.random(), list({'a', 'b', 'c', 'd'})]"
    job = [["calls", program, False], ["call", "solve", wire.encode((([],), {}))]]
    first, second = (level.programs().run(pool.Limits(), job).frames for _ in range(2))
    assert first == second and first[0][1][0] == "v"
