"""Locks what `pip install -e ".[gpu]"` brings: `python -m tools.lock_gpu UV > constraints-gpu.txt`.

UV is the program uv, which resolves for Linux on x86_64 and installs nothing. A package whose
version depends on Python gets one line for each.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12")
# flashinfer asks for any version, and on Python 3.12 the newest without a build is one for CUDA 12.
MORE_CONSTRAINTS = "cuda-python>=13,<14\n"
HEADER = """\
# What `pip install -e ".[gpu]" -c constraints-gpu.txt` installs on Linux x86_64 with Python 3.11 or
# 3.12: CUDA 13, for NVIDIA drivers of version 580 or later. Made by `python -m tools.lock_gpu`:
# resolved, and never installed on a machine with a GPU.
"""


def resolve(uv: str, python: str) -> list[str]:
    """Return the pinned requirements for a version of Python."""
    with tempfile.TemporaryDirectory() as scratch:
        more = Path(scratch, "more.txt")
        more.write_text(MORE_CONSTRAINTS)
        command = [uv, "pip", "compile", "--no-config", "--no-annotate", "--no-header"]
        command += ["--quiet", "--python-version", python, "--extra", "gpu"]
        command += ["--python-platform", "x86_64-manylinux_2_28", "-c", str(more)]
        command.append("pyproject.toml")
        done = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True
        )
    return done.stdout.splitlines()


def merge(locks: dict[str, list[str]]) -> list[str]:
    """Join {Python: its requirements}; one that not all of them share gets a marker."""
    lines = []
    for python, requirements in locks.items():
        for requirement in requirements:
            shared = all(requirement in other for other in locks.values())
            marker = "" if shared else f' ; python_version == "{python}"'
            lines.append(requirement + marker)
    return sorted(set(lines), key=str.lower)


def main() -> None:
    """Print the lock."""
    (uv,) = sys.argv[1:]
    locks = {python: resolve(uv, python) for python in PYTHONS}
    print(HEADER, end="")
    print(*merge(locks), sep="\n")


if __name__ == "__main__":
    main()
