"""GGUF files for llama.cpp and Ollama, through Unsloth, which finds or fetches llama.cpp's converter and quantiser.

A llama.cpp of one's own is used when UNSLOTH_LLAMA_CPP_PATH names its folder: a checkout with `llama-quantize` in it.
"""

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from coevolve.checks import among
from coevolve.policies.adapters import unsloth


def check(kind: str) -> None:
    """Raise ValueError in one line when Unsloth is missing or knows no such kind of GGUF (q8_0, q4_k_m, f16, ...).

    To be called before a model loads: Unsloth patches the models' classes when it is imported.
    """
    unsloth("--gguf")
    from unsloth.save import ALLOWED_QUANTS

    among("--gguf", kind, ALLOWED_QUANTS)


def write(folder: str | Path, kind: str) -> list[Path]:
    """Convert a 16-bit checkpoint and return the files, which are put into its folder; ValueError in one line."""
    exact = {"load_in_4bit": False, "max_seq_length": None, "use_exact_model_name": True}
    model, tokenizer = unsloth("--gguf").from_pretrained(str(folder), **exact)
    with tempfile.TemporaryDirectory(prefix=".gguf-", dir=folder) as work:
        target = str(Path(work, Path(folder).resolve().name))
        try:
            made = model.save_pretrained_gguf(target, tokenizer, quantization_method=kind)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[-400:]
            raise ValueError(f"--gguf {kind} failed, the checkpoint in {folder} is whole: {reason}") from None
        files = made["gguf_files"] if isinstance(made, Mapping) else made  # on a GPU, or on a CPU
        return [Path(shutil.move(path, folder)) for path in files]
