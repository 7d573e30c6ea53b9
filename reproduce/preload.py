"""The imports of every training run, made once by the fork server so that no run repeats them."""

from contextlib import suppress
from importlib import import_module

MODULES = (
    "coevolve.training.trainer",
    "safetensors.torch",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen2",
)

with suppress(Exception):  # a broken import is reported by each run that needs it
    for name in MODULES:
        import_module(name)
