"""What every training run imports. The server of forks imports this once, so that no run has to."""

import coevolve.loop  # noqa: F401  first: a repository without it needs none of the others

# isort: split
import safetensors.torch  # noqa: F401
import transformers.models.auto.modeling_auto  # noqa: F401
import transformers.models.qwen2  # noqa: F401
