"""Where a result came from: commit, configuration, versions and machine, as a fixed list of fields.

Never reads the environment. What differs between two equal runs (times, memory) is kept only here.
"""

import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reproduce.plan import Item, Plan

PACKAGES = """coevolve torch transformers trl peft datasets numpy scipy pandas matplotlib seaborn math-verify
    papermill nbclient nbconvert ipykernel unsloth vllm triton""".split()


def git(root: Path, *arguments: str) -> str | None:
    """Run git in the repository; None if there is no git, no repository or no such thing in it."""
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout
    return None


def versions() -> dict[str, str]:
    """List the installed versions of the packages that matter."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def machine() -> dict[str, Any]:
    """Describe processor, cores, memory and graphics processors."""
    files = [Path("/proc/cpuinfo"), *Path("/proc/driver/nvidia/gpus").glob("*/information")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": next(iter(re.findall(r"model name\s*:\s*(.+)", text)), None),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": re.findall(r"Model:\s*(.+)", text),
    }


def record(plan: Plan, item: Item) -> dict[str, Any]:
    """Describe where an item comes from that is about to be made."""
    head = git(plan.root, "rev-parse", "HEAD")
    changes = git(plan.root, "status", "--porcelain", "--", ".", ":(exclude)results")
    return {
        "id": item.id,
        "preset": plan.name,
        "notebook": item.notebook,
        "parameters": dict(item.parameters),
        "configuration": dict(item.config),
        "source": {"commit": head.strip() if head else None, "dirty": bool(changes) if head else None},
        "versions": versions(),
        "machine": machine(),
    }
