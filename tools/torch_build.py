"""Install torch for `make setup`, as its small CPU build where that is enough.

PyPI's build for Linux on x86-64 brings CUDA, which is several GB larger and of no use without an
NVIDIA GPU. So without one the CPU build is taken from torch's own index. Where pip was told to use
other indexes, or torch's index does not answer within seconds, pip chooses as before.

Needs the standard library alone, because nothing else is installed yet.
"""

import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PATIENCE = 3.0  # seconds for torch's index to answer
NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
# Settings of pip that say where packages come from: whoever made them has chosen.
SOURCES = ("index-url", "extra-index-url", "find-links", "no-index")


def is_for_cuda() -> bool:
    """Whether PyPI's build of torch for this machine is the one for CUDA."""
    return (platform.system(), platform.machine()) == ("Linux", "x86_64")


def has_gpu() -> bool:
    """Whether an NVIDIA GPU is here, by its driver."""
    return NVIDIA_DRIVER.exists() or shutil.which("nvidia-smi") is not None


def pip(*arguments: str) -> list[str]:
    """Return a command of this environment's pip."""
    return [sys.executable, "-m", "pip", *arguments]


def has_own_sources() -> bool:
    """Whether pip's settings, in files or the environment, name a source of packages."""
    settings = subprocess.run(pip("config", "list"), capture_output=True, text=True)
    for line in settings.stdout.splitlines():
        name = line.partition("=")[0].rpartition(".")[2]  # of global.index-url='...'
        if name in SOURCES:
            return True
    return settings.returncode != 0  # unknown settings may name one


def answers(address: str, seconds: float) -> bool:
    """Whether a server answers within so many seconds, with the look-up of its name."""
    answered = []

    def ask() -> None:
        request = Request(address, method="HEAD")
        with suppress(OSError, HTTPException), urlopen(request, timeout=seconds):
            answered.append(address)

    # No timeout of a socket covers the look-up, which may hang: hence a thread to abandon.
    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return bool(answered)


def takes_cpu_build() -> bool:
    """Whether to install the CPU build from torch's index."""
    if not is_for_cuda() or has_gpu() or has_own_sources():
        return False
    if answers(f"{CPU_INDEX}/torch/", PATIENCE):
        return True
    print(f"{CPU_INDEX} does not answer: pip may fetch the large CUDA build of torch")
    return False


def pinned() -> str:
    """Return the requirement of torch in constraints.txt."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch=="))


def main() -> int:
    """Install torch; return pip's exit status."""
    quietly = ("-q", "--no-compile", "-c", str(CONSTRAINTS))
    install = pip("install", *quietly, pinned())
    if takes_cpu_build():
        print(
            "the CPU build, as no NVIDIA GPU is here (to let pip choose: TORCH_ARGS=)"
        )
        # What torch needs comes later, from pip's usual index.
        if (
            subprocess.run([*install, "--no-deps", "--index-url", CPU_INDEX]).returncode
            == 0
        ):
            return 0
        print("that failed, so pip chooses the build of torch")
    return subprocess.run(install).returncode


if __name__ == "__main__":
    sys.exit(main())
