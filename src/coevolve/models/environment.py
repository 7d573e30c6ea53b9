"""Environment variables of vLLM, Unsloth and torch, which must be set before those are imported.

A variable that the user has set stays as it is.
"""

import getpass
import os
import tempfile
from pathlib import Path


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
