"""What every training run imports. The server of forks imports this once, so that no run has to."""

from contextlib import suppress

with suppress(Exception):  # whatever is wrong, each run that needs it says so
    import safetensors.torch  # noqa: F401
    import transformers.models.auto.modeling_auto  # noqa: F401
    import transformers.models.qwen2  # noqa: F401

    import coevolve.loop  # noqa: F401
