"""What a GPU machine is and has: `python -m tools.gpu_machine`.

Prints card, driver, memory and versions, then what keeps vLLM and Unsloth from working, and writes
all of it as JSON to the file of `--out`.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.loss import installed_versions
from coevolve.training.machine import Machine, faults, this_machine
from coevolve.validation import user_path

PACKAGES = (
    "torch",
    "triton",
    "transformers",
    "trl",
    "peft",
    "liger-kernel",
    "unsloth",
    "unsloth-zoo",
    "vllm",
    "bitsandbytes",
)

# Machines on which a run is refused: what is wrong, and one that has only this fault.
WRONG = {
    "an old driver": Machine(driver="550.54.15", sees_gpu=False),
    "no driver": Machine(driver="", sees_gpu=False),
    "torch for CPUs": Machine(
        torch_version="2.13.0+cpu", torch_cuda="", sees_gpu=False
    ),
    "an old card": Machine(gpu="Tesla T4", capability=(7, 5)),
    "a card in use": Machine(gpu_free_gib=9.0),
    "no compiler": Machine(compiler=""),
    "no Python.h": Machine(python_header=False),
    "a full disk": Machine(disk_free_gib=3.2, disk=Path("/data")),
    "not Linux": Machine(system="Windows"),
}


def facts(machine: Machine) -> dict[str, Any]:
    """Return what is known about a machine, with versions and faults."""
    described = asdict(machine)
    described["disk"] = str(machine.disk)
    if not machine.sees_gpu:
        for name in ("gpu", "capability", "gpu_free_gib", "gpu_total_gib"):
            described[name] = None
    described["versions"] = installed_versions(PACKAGES)
    described["faults"] = list(faults(machine))
    return described


def summary(machine: Machine) -> str:
    """Describe a machine in one line, with its faults."""
    words = ["no CUDA device"]
    if machine.sees_gpu:
        capability = ".".join(map(str, machine.capability))
        free = f"{machine.gpu_free_gib:.0f} of {machine.gpu_total_gib:.0f} GiB free"
        words = [machine.gpu, f"compute capability {capability}", free]
    words.append(f"driver {machine.driver or 'none'}")
    words.append(f"torch {machine.torch_version}")
    words.append(f"CUDA {machine.torch_cuda or 'none'}")
    sentences = [", ".join(words)]
    sentences += [f"FAULT: {fault}" for fault in faults(machine)]
    return "; ".join(sentences)


def main() -> None:
    """Print versions and a summary; write the facts if there is a file for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=user_path)
    options = parser.parse_args()
    machine = this_machine(Path.cwd())
    for name, version in installed_versions(PACKAGES).items():
        print(f"{name} {version or 'not installed'}")
    if options.out:
        options.out.write_text(json.dumps(facts(machine), indent=1) + "\n")
    print(summary(machine))


if __name__ == "__main__":
    main()
