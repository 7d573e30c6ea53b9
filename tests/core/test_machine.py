"""Machines on which vLLM and Unsloth cannot work: each fault is one line with its cure."""

from dataclasses import replace
from pathlib import Path

import pytest

from coevolve.training import config, machine, preflight
from coevolve.training.machine import Machine, driver_version, faults

WRONG = {
    "an old driver": (
        Machine(driver="550.54.15", sees_gpu=False),
        "torch finds no GPU: its CUDA 13.0 needs driver 580 or later, and 550.54.15 is loaded; "
        "update the driver, or unset CUDA_VISIBLE_DEVICES",
    ),
    "no driver": (
        Machine(driver="", sees_gpu=False),
        "no NVIDIA driver is loaded; install one of version 580 or later, and start a container "
        "with --gpus all",
    ),
    "torch for CPUs": (
        Machine(torch_version="2.13.0+cpu", torch_cuda="", sees_gpu=False),
        "torch 2.13.0+cpu is the build for CPUs, beside the NVIDIA driver 580.65.06; install the "
        "packages of constraints-gpu.txt into a new environment",
    ),
    "an old card": (
        Machine(gpu="Tesla T4", capability=(7, 5)),
        "Tesla T4 has compute capability 7.5, and bfloat16 needs 8.0 (Ampere) or later; rent an "
        "A10, L4, RTX 3090 or newer card",
    ),
    "a card in use": (
        Machine(gpu_free_gib=9.0),
        "other processes hold 15 of 24 GiB of the GPU; nvidia-smi lists them, often a notebook's "
        "kernel that still runs",
    ),
    "no compiler": (
        Machine(compiler=""),
        "Triton compiles with gcc, which is not there; apt-get install gcc",
    ),
    "no Python.h": (
        Machine(python_header=False),
        "Triton needs Python.h, which is not there; apt-get install python3-dev, or use the image "
        "of docker/Dockerfile",
    ),
    "a full disk": (
        Machine(disk_free_gib=3.2, disk=Path("/data")),
        "3 GiB are free on the disk of /data, and a run takes about 15; choose another --out, and "
        "another HF_HOME for models",
    ),
    "not Linux": (
        Machine(system="Windows"),
        "vLLM and Unsloth run on Linux, and this is Windows; on Windows use WSL 2",
    ),
}


@pytest.mark.parametrize(("wrong", "line"), WRONG.values(), ids=WRONG)
def test_a_fault_is_one_line_with_its_cure(wrong: Machine, line: str) -> None:
    assert list(faults(wrong)) == [line]


def test_a_machine_that_lacks_nothing_passes() -> None:
    assert list(faults(Machine())) == []


def test_a_laptop_without_a_gpu_passes() -> None:
    laptop = Machine(driver="", torch_cuda="", sees_gpu=False, compiler="")
    assert list(faults(laptop)) == []


def test_all_faults_are_named_at_once() -> None:
    assert len(list(faults(Machine(compiler="", python_header=False)))) == 2


@pytest.mark.parametrize("cuda", ["12.9", "13.0", "14.1"])
def test_every_cuda_names_a_driver(cuda: str) -> None:
    (line,) = faults(Machine(torch_cuda=cuda, driver="470.57", sees_gpu=False))
    assert ("525" if cuda == "12.9" else "580") in line


def test_the_driver_is_read_where_the_kernel_shows_it(tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert driver_version(file) == ""
    file.write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n"
    )
    assert driver_version(file) == "580.65.06"


def test_a_run_is_refused_before_its_model_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(Machine(), driver="535.1", sees_gpu=False)
    monkeypatch.setattr(machine, "this_machine", lambda out: wrong)
    monkeypatch.setattr(preflight, "find_spec", lambda name: name)
    fields = {"engine": "vllm", "model": "no such model"}
    run = config.build("mae", "quick", out=tmp_path / "run", overrides=fields)
    with pytest.raises(
        ValueError, match="^engine 'vllm' cannot work here: torch finds no"
    ):
        preflight.check(run)


@pytest.mark.parametrize(
    ("field", "value"), [("quantize", "4bit"), ("optimizer", "adamw_8bit")]
)
def test_bitsandbytes_needs_a_gpu(
    field: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = Machine(driver="", torch_cuda="", sees_gpu=False)
    monkeypatch.setattr(machine, "this_machine", lambda out: laptop)
    monkeypatch.setattr(preflight, "find_spec", lambda name: name)
    fields = {field: value, "lora": [4, 8, 0.0]}
    run = config.build("mae", "quick", out=tmp_path / "run", overrides=fields)
    line = f"^{field} '{value}' needs an NVIDIA GPU, and torch finds none$"
    with pytest.raises(ValueError, match=line):
        preflight.check(run)


def test_bitsandbytes_must_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    fields = {"optimizer": "adamw_8bit"}
    run = config.build("mae", "quick", out=tmp_path / "run", overrides=fields)
    line = "^optimizer 'adamw_8bit' needs the package bitsandbytes, which is not"
    with pytest.raises(ValueError, match=line):
        preflight.check(run)


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    here = machine.this_machine(tmp_path / "not" / "yet")
    assert here.disk == tmp_path
    assert here.disk_free_gib > 0
    assert here.torch_version
