"""The batch runner on a toy repository: caching, resuming, isolation of failures, nothing left behind."""

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest
from jupyter_client import KernelManager
from jupyter_client.kernelspec import KernelSpecManager
from toy_repository import Toy, gone, snapshot, states

from reproduce import warm


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Build the toy repository in a folder with a blank and an umlaut."""
    return Toy(tmp_path / "ein Bäumchen {x}")


def test_run_cache_and_invalidation(toy: Toy) -> None:
    out = toy()
    assert "ran 6, cached 0, failed 0, blocked 0, skipped 1, unclaimed 2" in out
    assert "skipped toy_fig1: drawn by hand" in out
    table = toy.result("toy_table1/table.csv").read_text().splitlines()
    assert table == ["run,seed,value", "plain,0,60.0", "plain,1,70.0"]
    assert sorted(p.name for p in toy.result("toy_table1").iterdir()) == [
        "done.json",
        "notebook.html",
        "provenance.json",
        "table.csv",
    ]
    first = snapshot(toy.result(""))

    out = toy(JOBS="1")
    assert "ran 0, cached 6, failed 0" in out
    assert re.search(r"\[\d/6\] toy_table1 ok \d+\.\ds \(cached\)", out)
    assert "ran 3, cached 2" in toy("--force", "--only", "toy_table1,odd")
    assert snapshot(toy.result("")) == first

    assert toy("--why", "toy_table1") == "toy_table1: is up to date\n"
    toy.edit("reproduce/toy.toml", "scale = 10.0", "scale = 1.0")
    assert "parameters.scale: 10.0 -> 1.0" in toy("--why", "toy_table1")
    assert states(toy)["toy_table1"] == "stale" and states(toy)["toy_table2"] == "done"
    assert toy("--dry-run") == "would run toy_table1 (parameters.scale: 10.0 -> 1.0)\n"
    assert "ran 1, cached 5" in toy()
    (toy.root / "reproduce/paper_numbers/toy_table1.csv").write_text("value\n2\n")
    assert "inputs.reproduce/paper_numbers/toy_table1.csv: changed" in toy("--why", "toy_table1")
    toy.result("toy_table2/table.csv").write_text("forged")
    assert "output table.csv is missing or was changed" in toy("--why", "toy_table2")
    toy.edit("src/coevolve/toy.py", "3", "4")
    assert "sources.src/coevolve/toy.py: changed" in toy("--why", "runs/odd-s0")
    toy.edit("notebooks/train.ipynb", "import sys;", "import  sys;")
    assert "notebook: changed" in toy("--why", "runs/odd-s0")
    assert "ran 3, cached 0" in toy("--only", "toy_table2")
    assert toy.result("toy_table2/table.csv").read_text().splitlines()[1] == "odd,0,4.0"
    assert toy.result("runs/odd-s0/resumed_from").read_text() == "0"


def test_list_and_page_and_provenance(toy: Toy) -> None:
    canary = "canary-4711"
    assert states(toy) == {
        "runs/plain-s0": "todo",
        "runs/plain-s1": "todo",
        "runs/odd-s0": "todo",
        "runs/odd-s1": "todo",
        "toy_table1": "todo",
        "toy_table2": "todo",
        "toy_fig1": "skipped",
        "toy_fig2": "unclaimed",
        "late_table1": "unclaimed",
    }
    skips = {row["id"]: row["skip"] for row in json.loads(toy("--list", "--json"))}
    assert skips["late_table1"] == "belongs to a method that is not built yet: LATE"
    assert skips["toy_fig2"] == "not claimed in reproduce/toy.toml" and skips["toy_table1"] is None
    assert not (toy.root / "results").exists()
    assert "ran 3, cached 0" in toy("--only", "toy_table2", HF_TOKEN=canary)
    assert "ran 0, cached 2" in toy("--only", "ablation")
    page = toy.result("toy_table2/notebook.html").read_text()
    assert "<script>window.PWNED" not in page and "&lt;script&gt;window.PWNED" in page
    assert "default-src &#x27;none&#x27;" in page and "cdnjs" not in page and str(toy.root) not in page
    facts = json.loads(toy.result("toy_table2/provenance.json").read_text())
    assert facts["configuration"] == {"runs": {"odd": [0, 1]}} and facts["seeds"] == [0, 1]
    assert facts["peak_rss_mib"] > 10 and facts["source"] == {"commit": None, "dirty": None}
    for path in toy.root.rglob("*"):
        assert not path.is_file() or canary.encode() not in path.read_bytes()


FAULTS = {
    "raise": r"RuntimeError: injected\\x1b\[31m failure",
    "exit": "left early",
    "last": "left early",
    "die": "died",
    "worker": r"its process died \(exit code -9\)",
    "silent": "did not write summary.json",
    "hang": "timed out after 6 s",
}


def test_failures_are_isolated(toy: Toy) -> None:
    runs = "".join(
        f'[runs.{fault}]\nprotocol = "toy"\noverrides = {{ fault = "{fault}" }}\n'
        f"{'timeout = 6' if fault == 'hang' else ''}\n"
        for fault in FAULTS
    )
    toy.edit("reproduce/toy.toml", "[artefacts.toy_table1]", f"{runs}[artefacts.toy_table1]")
    toy.edit("reproduce/toy.toml", 'runs = ["odd"]', 'runs = ["odd", "exit"]')
    toy.edit("reproduce/presets.toml", "seeds = [0, 1]", "seeds = [0]")
    out = toy(code=1)
    for fault, message in FAULTS.items():
        assert re.search(f"^failed runs/{fault}-s0: .*{message}", out, re.MULTILINE), out
        assert toy.result(f"runs/{fault}-s0/notebook.failed.ipynb").exists()
        assert not toy.result(f"runs/{fault}-s0/done.json").exists()
    assert "ran 3, cached 0, failed 7, blocked 1" in out
    assert "blocked toy_table2: needs runs/exit-s0, which failed" in out
    assert toy.result("toy_table1/done.json").exists() and not toy.result("toy_table2").exists()
    gone(toy)
    failed = {id for id, state in states(toy).items() if state == "failed"}
    assert failed == {f"runs/{fault}-s0" for fault in FAULTS}
    toy.edit("notebooks/train.ipynb", 'if fault == \\"raise\\"', 'if fault == \\"never\\"')
    assert "ran 1, cached 0, failed 0" in toy("--only", "runs/raise-s0")
    assert not toy.result("runs/raise-s0/notebook.failed.ipynb").exists()


@pytest.mark.parametrize("preset", ["quick", "warm"])
def test_killed_runner_leaves_nothing_and_resumes(toy: Toy, preset: str) -> None:
    toy.hold()
    process = toy.start("--preset", preset, "--only", "toy_table2", "--jobs", "1")
    toy.wait_for_hold(process, preset)
    other = toy("--preset", preset, code=2)
    assert "another command is at work" in other
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone(toy)
    process.communicate()
    assert not toy.result("runs/odd-s0/done.json", preset).exists()
    assert "will resume" in toy("--preset", preset, "--why", "runs/odd-s0")
    toy.release()
    assert "failed 0" in toy("--preset", preset, "--only", "toy_table2")
    assert toy.result("runs/odd-s0/resumed_from", preset).read_text() == "3"
    assert toy.result("toy_table2/table.csv", preset).read_text().splitlines()[1] == "odd,0,45.0"
    assert [path.name for path in toy.result("", preset).glob(".*")] == [".lock"]
    if preset == "warm":
        facts = json.loads(toy.result("toy_table2/provenance.json", preset).read_text())
        assert facts["kernel"] == "coevolve-warm"
        warm_files = snapshot(toy.result("toy_table2", preset))
        toy.edit("reproduce/presets.toml", 'seeds = [0]\nkernel = "warm"', 'seeds = [0]\nkernel = "python3"')
        assert "ran 1, cached 1" in toy("--preset", "warm", "--only", "toy_table2", "--force")
        assert snapshot(toy.result("toy_table2", preset)) == warm_files


def test_interrupt_is_one_line(toy: Toy) -> None:
    toy.edit("reproduce/toy.toml", "overrides = { steps = 1 }", 'overrides = { steps = 1, fault = "hang" }')
    process = toy.start("--only", "odd")
    limit = time.monotonic() + 300
    while not toy.result("runs/odd-s0/checkpoints/state.json").exists():
        assert time.monotonic() < limit
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[1].count("\n") == 1 and process.returncode == 130
    gone(toy)


def test_client_without_server_is_an_ordinary_kernel(tmp_path: Path) -> None:
    warm.write_spec(tmp_path)
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path / "kernels")])
    kernels = KernelManager(kernel_name=warm.SPEC, kernel_spec_manager=specs)
    kernels.start_kernel(env={**os.environ, warm.SERVER: str(tmp_path / "nobody")})
    client = kernels.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=60)
        assert client.execute_interactive("1 + 1", timeout=60)["content"]["status"] == "ok"
    finally:
        client.stop_channels()
        kernels.shutdown_kernel(now=True)
