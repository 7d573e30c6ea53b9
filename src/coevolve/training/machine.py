"""What a GPU machine must have before a model loads; each thing that it lacks is one line.

Loads torch only to ask it for the GPU.
"""

import math
import os
import platform
import re
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coevolve.training.config import Run

GIB = 2**30
DRIVER_FILE = Path("/proc/driver/nvidia/version")
RAM_FILE = Path("/proc/meminfo")
# The limits of the container, in the files of cgroup v2.
CONTAINER = Path("/sys/fs/cgroup")
# The oldest driver for each major version of CUDA that wheels of torch are built with.
OLDEST_DRIVER = {12: 525, 13: 580}
# bfloat16, which the learner computes in, and our kernels need an Ampere card or later.
LOWEST_CAPABILITY = (8, 0)
# GiB on a disk: a model of 3 billion parameters, or the checkpoints of its run.
DISK_GIB = 15
# What `accelerate launch` sets for FSDP and for DeepSpeed.
SHARDING = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
# The share of the GPU that others may hold.
MOST_IN_USE = 0.25


@dataclass(frozen=True)
class Machine:
    """Facts about a machine; the defaults are those of one that lacks nothing."""

    system: str = "Linux"
    driver: str = "580.65.06"
    """Version of NVIDIA's driver, "" without one."""
    torch_version: str = "2.13.0"
    torch_cuda: str = "13.0"
    """The CUDA that torch is built with, "" for a CPU build."""
    sees_gpu: bool = True
    """Whether torch finds a GPU."""
    gpu: str = "NVIDIA GeForce RTX 4090"
    capability: tuple[int, int] = (8, 9)
    gpu_free_gib: float = 23.0
    gpu_total_gib: float = 24.0
    compiler: str = "gcc"
    """The C compiler that Triton would call, "" without one."""
    python_header: bool = True
    """Whether Python.h is there."""
    disk_free_gib: float = 100.0
    disk: Path = Path()
    """The folder whose disk that is."""


def this_machine(out: Path) -> Machine:
    """Return the facts of this machine, whose run writes to `out`."""
    import torch

    disk = existing_folder(out)
    facts = Machine(
        system=platform.system(),
        driver=driver_version(),
        torch_version=torch.__version__,
        torch_cuda=torch.version.cuda or "",
        sees_gpu=torch.cuda.is_available(),
        compiler=shutil.which("gcc") or shutil.which("clang") or "",
        python_header=Path(sysconfig.get_path("include"), "Python.h").is_file(),
        disk_free_gib=free_disk_gib(disk),
        disk=disk.resolve(),
    )
    if not facts.sees_gpu:
        return facts
    if "LOCAL_RANK" in os.environ:
        # Each of several processes has a card of its own, and must not touch the first one.
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    gpu = {
        "gpu": torch.cuda.get_device_name(),
        "capability": torch.cuda.get_device_capability(),
        "gpu_free_gib": free_bytes / GIB,
        "gpu_total_gib": total_bytes / GIB,
    }
    return Machine(**(vars(facts) | gpu))


def existing_folder(path: Path) -> Path:
    """Return the first folder on the way up from a path that exists.

    Raises ValueError if there is none, as on a drive of Windows that is missing.
    """
    on_the_way = (folder for folder in (path, *path.parents) if folder.exists())
    existing = next(on_the_way, None)
    if existing is None:
        raise ValueError(
            f"{path} must be on a drive that exists, and {path.anchor} does not"
        )
    return existing


def free_disk_gib(folder: Path) -> float:
    """Return the free GiB of the disk on which a folder is, or will be made."""
    return shutil.disk_usage(existing_folder(folder)).free / GIB


def free_ram_gib(ram_file: Path = RAM_FILE, container: Path = CONTAINER) -> float:
    """Return the GiB of the host's memory that are free within the limit of a container.

    Infinite on a system that does not say.
    """
    free = math.inf
    if ram_file.is_file():
        free = _numbers(ram_file)["MemAvailable:"] * 1024
    limit = container / "memory.max"
    if limit.is_file() and limit.read_text("utf-8").strip() != "max":
        in_use = int((container / "memory.current").read_text("utf-8"))
        # Files that were read once leave the cache when a program needs the memory.
        in_use -= _numbers(container / "memory.stat")["inactive_file"]
        free = min(free, int(limit.read_text("utf-8")) - in_use)
    return free / GIB


def _numbers(file: Path) -> dict[str, int]:
    """Return the number in every line of a file of the kernel, by the word before it."""
    numbers = {}
    for line in file.read_text("utf-8").splitlines():
        name, number, *_ = line.split()
        numbers[name] = int(number)
    return numbers


def hub_cache() -> Path:
    """Return the folder into which models of the hub are downloaded."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def cached_gib(model: str) -> float:
    """Return the GiB of a model of the hub that are in the cache, complete or not."""
    from huggingface_hub.file_download import repo_folder_name

    folder = hub_cache() / repo_folder_name(repo_id=model, repo_type="model")
    sizes = [file.stat().st_size for file in folder.glob("blobs/*")]
    return sum(sizes) / GIB


def driver_version(file: Path = DRIVER_FILE) -> str:
    """Return the version of NVIDIA's driver, "" if none is loaded."""
    if not file.is_file():
        return ""
    match = re.search(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b", file.read_text(encoding="utf-8"))
    return match[1] if match else ""


def faults(machine: Machine) -> Iterator[str]:
    """Yield what keeps vLLM and Unsloth from working, one line each with its cure.

    A machine with torch's CPU build and no NVIDIA driver is meant to work without a GPU.
    """
    if not (machine.torch_cuda or machine.driver):
        return
    if machine.system != "Linux":
        yield f"vLLM and Unsloth run on Linux, and this is {machine.system}; on Windows use WSL 2"
    if not machine.torch_cuda:
        yield (
            f"torch {machine.torch_version} is the build for CPUs, beside the NVIDIA driver "
            f"{machine.driver}; install the packages of constraints-gpu.txt into a new environment"
        )
        return
    yield from _gpu_faults(machine)
    yield from _tool_faults(machine)


def _gpu_faults(machine: Machine) -> Iterator[str]:
    cuda = int(machine.torch_cuda.partition(".")[0])
    oldest = OLDEST_DRIVER.get(cuda, max(OLDEST_DRIVER.values()))
    if not machine.driver and not machine.sees_gpu:
        yield (
            "no NVIDIA driver is loaded; install one of version "
            f"{oldest} or later, and start a container with --gpus all"
        )
    elif not machine.sees_gpu:
        yield (
            f"torch finds no GPU: its CUDA {machine.torch_cuda} needs driver {oldest} or later, "
            f"and {machine.driver} is loaded; update the driver, or unset CUDA_VISIBLE_DEVICES"
        )
    if not machine.sees_gpu:
        return
    if machine.capability < LOWEST_CAPABILITY:
        major, minor = machine.capability
        yield (
            f"{machine.gpu} has compute capability {major}.{minor}, and bfloat16 needs 8.0 "
            "(Ampere) or later; rent an A10, L4, RTX 3090 or newer card"
        )
    in_use = machine.gpu_total_gib - machine.gpu_free_gib
    if in_use > MOST_IN_USE * machine.gpu_total_gib:
        yield (
            f"other processes hold {in_use:.0f} of {machine.gpu_total_gib:.0f} GiB of the GPU; "
            "nvidia-smi lists them, often a notebook's kernel that still runs"
        )


def _tool_faults(machine: Machine) -> Iterator[str]:
    if not machine.compiler:
        yield "Triton needs gcc, which is not installed; apt-get install gcc"
    if not machine.python_header:
        yield (
            "Triton needs Python.h, which is not there; apt-get install python3-dev, "
            "or use the image of docker/Dockerfile"
        )
    if machine.disk_free_gib < DISK_GIB:
        yield (
            f"{machine.disk_free_gib:.0f} GiB are free on the disk of {machine.disk}, and a run "
            f"takes about {DISK_GIB}; choose another --out, and another HF_HOME for models"
        )


def is_sharded() -> bool:
    """Whether FSDP or DeepSpeed divides the weights that TRL trains among processes."""
    return any(os.environ.get(name) == "true" for name in SHARDING)


def shards() -> int:
    """Return how many processes share the weights that TRL trains; 1 if each holds all of them."""
    return int(os.environ.get("WORLD_SIZE", "1")) if is_sharded() else 1


def check(run: "Run") -> None:
    """Raise ValueError in one line if this machine cannot do what a run asks of it.

    The line names all faults of the machine if the engine is vLLM or Unsloth.
    """
    if run.engine == "torch":
        return
    facts = this_machine(run.out)
    found = list(faults(facts))
    if found:
        raise ValueError(f"engine {run.engine!r} cannot work here: {'; '.join(found)}")
    if run.vllm_server and not facts.sees_gpu:
        raise ValueError(
            "vllm_server must be empty without an NVIDIA GPU, from whose memory NCCL sends the "
            f"weights; got {run.vllm_server!r}"
        )
