"""What every training run needs, made once by the fork server so that no run repeats it.

That is the imports, and the tiny world's questions, whose drawing takes one to two seconds.
"""

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
    tasks = import_module("tinyworld.tasks")
    for split in ("validation", "test"):
        tasks.items(split, tasks.FULL_LIST)
