"""The script for a machine's first hour: no part hides another, whatever becomes of it."""

import json
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from coevolve.training import machine
from coevolve.training.machine import Machine
from tools import first_hour
from tools.first_hour import (
    DONE,
    FAILED,
    NOT_MEASURED,
    PARTS,
    TIMED_OUT,
    Part,
    Result,
)

ROOT = Path(__file__).resolve().parents[1]
LONG = 300.0  # seconds that no part here takes, however busy the machine is


def python(source: str) -> tuple[str, str]:
    """Return the arguments of Python that run a source."""
    return ("-c", source)


def of_python(source: str, seconds: float = LONG, **options: Any) -> Part:
    """Make a part that runs a source."""
    return Part(seconds, command=python(source), **options)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "first_hour.json"


@pytest.fixture
def run(out: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that runs parts and returns (exit status, what the file then holds)."""

    def run_parts(is_small: bool = False, **parts: Part) -> tuple[int, dict]:
        monkeypatch.setattr(first_hour, "PARTS", parts)
        status = first_hour.run(list(parts), None, out, is_small)
        return status, json.loads(out.read_text())

    return run_parts


class TestParts:
    def test_one_that_fails_or_hangs_is_recorded_and_the_others_run(self, run) -> None:
        status, results = run(
            breaks=of_python("raise ValueError('no kernel')"),
            hangs=of_python("import time; time.sleep(600)", seconds=0.2),
            works=of_python("print('first'); print('2 passed'); print()"),
        )
        assert status == 1
        states = {name: result["state"] for name, result in results.items()}
        assert states == {"breaks": FAILED, "hangs": TIMED_OUT, "works": DONE}
        assert results["breaks"]["finding"] == "ValueError: no kernel"
        assert "Traceback" in results["breaks"]["errors"]
        assert results["hangs"]["finding"].startswith("stopped after 0 s")
        assert results["works"]["finding"] == "2 passed"
        assert results["works"]["printed"] == "first\n2 passed\n\n"

    def test_the_file_is_written_after_each(self, run, out: Path) -> None:
        show = f"import json; print(*json.load(open({str(out)!r})))"
        status, results = run(
            first=of_python("print(1)"), second=of_python(show), third=of_python(show)
        )
        assert status == 0
        assert results["second"]["finding"] == "first"
        assert results["third"]["finding"] == "first second"

    def test_results_of_parts_that_are_not_repeated_stay(self, run) -> None:
        run(first=of_python("print(1)"), second=of_python("print(2)"))
        _, results = run(second=of_python("print(3)"))
        assert results["first"]["finding"] == "1"
        assert results["second"]["finding"] == "3"

    def test_a_summary_comes_before_warnings_on_standard_error(self, run) -> None:
        source = (
            "import sys; print('1 failed'); print('W: x', file=sys.stderr); exit(1)"
        )
        _, results = run(tests=of_python(source))
        assert results["tests"]["state"] == FAILED
        assert results["tests"]["finding"] == "1 failed"

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_nothing_that_one_started_runs_on(self, run) -> None:
        child = "[sys.executable, '-c', 'import time; time.sleep(600)']"
        source = f"import subprocess, sys; print(subprocess.Popen({child}).pid)"
        _, results = run(leaves=of_python(source))
        pid = results["leaves"]["finding"]
        deadline = time.monotonic() + LONG
        while is_running(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not is_running(pid)


def is_running(pid: str) -> bool:
    """Whether a process is there and has not ended."""
    try:
        stat = Path("/proc", pid, "stat").read_text()
    except FileNotFoundError:
        return False
    state = stat.rpartition(")")[2].split()[0]
    return state not in "ZX"


class TestWhatIsNotMeasured:
    def test_a_part_says_so_itself(self, run) -> None:
        status, results = run(memory=of_python("print('not measured: no GPU')"))
        assert status == 0
        assert results["memory"]["state"] == NOT_MEASURED
        assert results["memory"]["finding"] == "no GPU"

    def test_what_is_not_installed_is_named_with_its_cure(self, run) -> None:
        part = of_python("", needs=("json", "no_such_module"), extra="gpu")
        status, results = run(engine=part)
        assert status == 0
        assert results["engine"]["state"] == NOT_MEASURED
        assert "not installed: no_such_module (pip" in results["engine"]["finding"]
        assert ".[gpu]" in results["engine"]["finding"]

    def test_a_trial_leaves_out_what_has_no_small_form(self, run) -> None:
        small = python("import os; print('small', os.environ['TRITON_INTERPRET'])")
        kernels = of_python(
            "print('large')", small=small, environment={"TRITON_INTERPRET": "1"}
        )
        loss = of_python("print('large')")
        _, results = run(is_small=True, kernels=kernels, loss=loss)
        assert results["kernels"]["finding"] == "small 1"
        assert results["loss"]["state"] == NOT_MEASURED


def test_kernels_are_not_interpreted_on_a_gpu(run, monkeypatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    source = "import os; print('TRITON_INTERPRET' in os.environ)"
    _, results = run(kernels=of_python(source))
    assert results["kernels"]["finding"] == "False"


class TestResultFiles:
    SOURCE = "import sys; open(sys.argv[1], 'w').write('{\"x\": 3}')"

    def test_its_description_is_the_finding(self, run) -> None:
        part = Part(
            LONG,
            command=(*python(self.SOURCE), first_hour.RESULT),
            describe=lambda measured: f"x is {measured['x']}",
        )
        _, results = run(part=part)
        assert results["part"]["finding"] == "x is 3"
        assert results["part"]["measured"] == {"x": 3}

    def test_one_of_an_earlier_day_does_not_count(self, run, tmp_path: Path) -> None:
        file = tmp_path / "loss.json"
        file.write_text('{"x": 3}')
        part = of_python("", result=file, describe=lambda measured: measured["x"])
        status, results = run(part=part)
        assert status == 1
        assert results["part"]["state"] == FAILED
        assert "KeyError 'x'" in results["part"]["finding"]


def test_a_limit_is_shared_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"a": Part(10, ()), "b": Part(20, ()), "c": Part(500, ())}
    monkeypatch.setattr(first_hour, "PARTS", parts)
    assert first_hour.limits(["a", "b"], None) == {"a": 10, "b": 20}
    assert first_hour.limits(["a", "b"], 60) == pytest.approx({"a": 20, "b": 40})


def test_the_table_has_a_line_for_each_part() -> None:
    results = {
        "machine": Result(DONE, "a card", seconds=3.4),
        "loss": Result(TIMED_OUT, first_hour.last_line("x\n| 1 | 2 |\n"), seconds=60),
    }
    lines = first_hour.table(results).splitlines()
    assert lines[0] == "| part | state | seconds | finding |"
    assert lines[2] == "| machine | done | 3 | a card |"
    assert lines[3] == "| loss | timed out | 60 | / 1 / 2 / |"


class TestCommandLine:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--parts", "loss,kernel"], "--parts must be one of .*kernels.*'kernel'"),
            (["--limit", "0"], "--limit must be above 0 seconds, got 0"),
        ],
    )
    def test_a_mistake_is_one_line(self, arguments, message, capsys) -> None:
        assert first_hour.main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert re.search(message, line)

    def test_without_a_gpu_nothing_is_measured(
        self, out: Path, monkeypatch: pytest.MonkeyPatch, capsys
    ) -> None:
        old_driver = Machine(driver="470.57", sees_gpu=False)
        monkeypatch.setattr(machine, "this_machine", lambda folder: old_driver)
        assert first_hour.main(["--out", str(out)]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith("nothing is measured: torch finds no CUDA device")
        assert "470.57" in line
        assert not out.exists()

    def test_parts_run_in_their_own_order(self) -> None:
        assert first_hour.chosen_parts("loss, machine") == ["machine", "loss"]


@pytest.mark.parametrize("name", PARTS)
def test_a_part_starts_a_module_that_exists(name: str) -> None:
    part = PARTS[name]
    for command in (part.command, part.small):
        if command:
            assert command[0] == "-m"
            assert find_spec(command[1]) is not None
        for word in command:
            if word.endswith(".py"):
                assert (ROOT / word).is_file()


class TestFindings:
    def test_of_the_loss(self) -> None:
        measured = json.loads((ROOT / "benchmarks" / "loss.json").read_text())
        finding = first_hour.loss_finding(measured)
        assert "32,768 tokens" in finding
        assert "times the floor" in finding
        assert "TRL 1." in finding

    def test_of_a_whole_step(self) -> None:
        phases = [
            {"phase": "load", "seconds": 2.0, "tokens_per_s": None},
            {"phase": "play", "seconds": 41.0, "tokens_per_s": 1234.5},
        ]
        finding = first_hour.tokens_finding({"phases": phases})
        assert finding.startswith("load 2.0 s, play 41.0 s (1,234 tokens/s); vllm")
