"""Machines on which vLLM and Unsloth cannot work: each fault is one line with its cure."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from coevolve.training import config, machine, preflight
from coevolve.training.machine import (
    GIB,
    Machine,
    cached_gib,
    driver_version,
    existing_folder,
    faults,
    free_disk_gib,
    free_ram_gib,
)
from tools import gpu_machine

LINES = {
    "an old driver": (
        "torch finds no GPU: its CUDA 13.0 needs driver 580 or later, and 550.54.15 is "
        "loaded; update the driver, or unset CUDA_VISIBLE_DEVICES"
    ),
    "no driver": (
        "no NVIDIA driver is loaded; install one of version 580 or later, and start a "
        "container with --gpus all"
    ),
    "torch for CPUs": (
        "torch 2.13.0+cpu is the build for CPUs, beside the NVIDIA driver 580.65.06; install "
        "the packages of constraints-gpu.txt into a new environment"
    ),
    "an old card": (
        "Tesla T4 has compute capability 7.5, and bfloat16 needs 8.0 (Ampere) or later; rent "
        "an A10, L4, RTX 3090 or newer card"
    ),
    "a card in use": (
        "other processes hold 15 of 24 GiB of the GPU; nvidia-smi lists them, often a "
        "notebook's kernel that still runs"
    ),
    "no compiler": "Triton needs gcc, which is not installed; apt-get install gcc",
    "no Python.h": (
        "Triton needs Python.h, which is not there; apt-get install python3-dev, or use the "
        "image of docker/Dockerfile"
    ),
    "a full disk": (
        "3 GiB are free on the disk of /data, and a run takes about 15; choose another --out,"
        " and another HF_HOME for models"
    ),
    "not Linux": "vLLM and Unsloth run on Linux, and this is Windows; on Windows use WSL 2",
}


@pytest.mark.parametrize("name", gpu_machine.WRONG)
def test_a_fault_is_one_line_with_its_cure(name: str) -> None:
    assert list(faults(gpu_machine.WRONG[name])) == [LINES[name]]


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


def test_bitsandbytes_must_be_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    fields = {"optimizer": "adamw_8bit"}
    run = config.build("mae", "quick", out=tmp_path / "run", overrides=fields)
    line = "^optimizer 'adamw_8bit' needs the package bitsandbytes, which is not"
    with pytest.raises(ValueError, match=line):
        preflight.check(run)


@pytest.mark.parametrize("name", machine.SHARDING)
def test_weights_of_4_bits_are_not_sharded(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setattr(preflight, "find_spec", lambda package: package)
    fields = {"quantize": "4bit", "lora": [4, 8, 0.0], "trainer": "trl"}
    run = config.build("mae", "quick", out=tmp_path / "run", overrides=fields)
    preflight.check(run)
    monkeypatch.setenv(name, "true")
    with pytest.raises(
        ValueError, match="^quantize must be '' where weights are shard"
    ):
        preflight.check(run)


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    here = machine.this_machine(tmp_path / "not" / "yet")
    assert here.disk == tmp_path
    assert here.disk_free_gib > 0
    assert here.torch_version


class Cards:
    """Four GPUs: which one is current, and those that a process has touched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.current = 0
        self.touched: set[int] = set()
        answers = {
            "is_available": lambda: True,
            "device_count": lambda: 4,
            "set_device": self.set_device,
            "mem_get_info": lambda: self.touch((22 * GIB, 24 * GIB)),
            "get_device_name": lambda: self.touch("NVIDIA L4"),
            "get_device_capability": lambda: self.touch((8, 9)),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, answer)

    def set_device(self, index: int) -> None:
        self.current = index

    def touch(self, answer: object) -> object:
        self.touched.add(self.current)
        return answer


@pytest.mark.parametrize(
    ("local_rank", "card"),
    [("0", 0), ("2", 2), ("5", 1)],
    ids=["first", "third", "wraps"],
)
def test_each_process_looks_at_its_own_card(
    local_rank: str, card: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = Cards(monkeypatch)
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    assert machine.this_machine(tmp_path).gpu_free_gib == 22
    assert cards.touched == {card}


def test_a_single_process_keeps_the_card_that_a_notebook_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = Cards(monkeypatch)
    cards.set_device(3)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    machine.this_machine(tmp_path)
    assert cards.touched == {3}


class TestRAM:
    """Free memory of the host, from the files of the kernel."""

    @pytest.fixture
    def host(self, tmp_path: Path) -> Path:
        lines = f"MemTotal: {64 * 2**20} kB\nMemAvailable: {40 * 2**20} kB\n"
        (tmp_path / "meminfo").write_text(lines + "HugePages_Total: 0\n")
        return tmp_path

    def free(self, host: Path) -> float:
        return free_ram_gib(host / "meminfo", host)

    def test_what_the_kernel_calls_available_is_free(self, host: Path) -> None:
        assert self.free(host) == 40

    def test_a_container_may_take_less_than_its_host_has(self, host: Path) -> None:
        (host / "memory.max").write_text(f"{16 * GIB}\n")
        (host / "memory.current").write_text(f"{10 * GIB}\n")
        (host / "memory.stat").write_text(f"anon {6 * GIB}\ninactive_file {4 * GIB}\n")
        assert self.free(host) == 10

    def test_a_container_without_a_limit_has_its_hosts(self, host: Path) -> None:
        (host / "memory.max").write_text("max\n")
        assert self.free(host) == 40

    def test_other_systems_do_not_say(self, tmp_path: Path) -> None:
        assert self.free(tmp_path / "nowhere") == float("inf")


def test_the_disk_of_a_folder_to_be_made_is_that_above_it(tmp_path: Path) -> None:
    assert free_disk_gib(tmp_path / "not" / "yet") > 0


def test_a_folder_on_a_drive_that_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Path, "exists", lambda path: False)  # as on Windows
    with pytest.raises(ValueError, match="^/runs/mae must be on a drive that exists"):
        existing_folder(Path("/runs/mae"))


def test_files_in_the_cache_need_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert cached_gib("ORG/NAME") == 0
    blobs = tmp_path / "models--ORG--NAME" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / "part").write_bytes(bytes(2**20))
    (blobs / "rest.incomplete").write_bytes(bytes(2**20))
    assert cached_gib("ORG/NAME") == 2 / 1024
