"""What every training run imports. The server of forks imports this once, so that no run has to."""

from contextlib import suppress
from importlib import import_module

MODULES = "coevolve.training.trainer safetensors.torch transformers.models.auto.modeling_auto transformers.models.qwen2".split()

with suppress(Exception):  # whatever is wrong, each run that needs it says so
    for name in MODULES:
        import_module(name)
