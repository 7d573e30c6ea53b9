"""Where a result comes from: commit, configuration, versions and machine, as a fixed set of fields.

Never reads the environment. Everything that differs between two equal runs (times, memory) is kept
only in this record.
"""

import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reproduce import cores
from reproduce.plan import Item, Plan

PACKAGES = (
    "coevolve",
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "numpy",
    "scipy",
    "pandas",
    "matplotlib",
    "seaborn",
    "math-verify",
    "papermill",
    "nbclient",
    "nbconvert",
    "ipykernel",
    "unsloth",
    "vllm",
    "triton",
)


def git(root: Path, *arguments: str) -> str | None:
    """Return what git prints in the repository; None without git, repository or such a thing."""
    command = ["git", "-C", root, *arguments]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout
    return None


def versions() -> dict[str, str]:
    """Return package -> version for Python and the installed ones of PACKAGES."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def machine() -> dict[str, Any]:
    """Describe this machine: system, processor, cores, memory in GiB and GPUs."""
    gpu_files = Path("/proc/driver/nvidia/gpus").glob("*/information")
    files = [Path("/proc/cpuinfo"), *gpu_files]
    text = "\n".join(
        file.read_text(encoding="utf-8") for file in files if file.exists()
    )
    processor = re.search(r"model name\s*:\s*(.+)", text)
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": processor[1] if processor else None,
        "cores": cores(),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "gpus": re.findall(r"Model:\s*(.+)", text),
    }


def source(root: Path) -> dict[str, Any]:
    """Return the repository's commit, and whether files outside results differ from it."""
    head = git(root, "rev-parse", "HEAD")
    if not head:
        return {"commit": None, "dirty": None}
    changed = git(root, "status", "--porcelain", "--", ".", ":(exclude)results")
    return {"commit": head.strip(), "dirty": bool(changed)}


def record(plan: Plan, item: Item) -> dict[str, Any]:
    """Describe the origin of an item that is about to be made."""
    return {
        "id": item.id,
        "preset": plan.name,
        "notebook": item.notebook,
        "parameters": dict(item.parameters),
        "configuration": dict(item.config),
        "source": source(plan.root),
        "versions": versions(),
        "machine": machine(),
    }
