"""How much GPU memory a run will want at least, from its configuration alone, before a weight is loaded."""

from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from coevolve.engines.limits import VLLM_SHARE
from coevolve.models.names import SERVERS, find
from coevolve.models.policy_set import CHECKPOINTING_MIN_PARAMETERS
from coevolve.training.config import assign_models
from coevolve.training.preflight import base_of

if TYPE_CHECKING:
    from coevolve.training.config import Run

GIB = 2**30


def estimate(run: "Run") -> float:
    """Return the GiB of weights, gradients, optimiser states and activations that a run wants on one GPU.

    Full fine-tuning keeps 16 bytes a parameter (float32 weights, gradients and two moments of AdamW); LoRA keeps the
    base in bfloat16 and 16 bytes for each parameter of an adapter. A frozen policy is a bfloat16 model of its own.
    Activations are a rule of thumb: 2 bytes for 10 times the width and 3 times the inner width, per token of a
    micro-batch and layer; large models compute one layer at a time. Not counted: copies for KL penalties, the
    sampler's cache, and the share of the GPU that vLLM takes (`check` does).
    """
    models, trained = assign_models(run.protocol, run.model)
    total = activations = 0.0
    for model in {name for name in models.values() if not name.startswith(SERVERS)}:
        config = AutoConfig.from_pretrained(find(base_of(model)), trust_remote_code=False)
        with torch.device("meta"):
            empty = AutoModelForCausalLM.from_config(config)
        count, learners = empty.num_parameters(), [name for name in trained if models[name] == model]
        total += 2 * count * (list(models.values()).count(model) - len(learners))
        if not learners:
            continue
        head = empty.get_output_embeddings()
        linear = [part for part in empty.modules() if isinstance(part, torch.nn.Linear) and part is not head]
        adapter = sum(run.lora[0] * (part.in_features + part.out_features) for part in linear) if run.lora else 0
        total += 2 * count + 16 * adapter * len(learners) if run.lora else 16 * count * len(learners)
        inner = getattr(config, "intermediate_size", 4 * config.hidden_size)
        layer = 2 * run.micro_tokens * (10 * config.hidden_size + 3 * inner)
        layers = 1 if count > CHECKPOINTING_MIN_PARAMETERS else config.num_hidden_layers
        activations = max(activations, layer * layers)
    return (total + activations) / GIB


def check(run: "Run") -> None:
    """Raise ValueError in one line when the GPU that is here is too small; without a GPU nothing is checked.

    Where vLLM samples, the learner has what vLLM's share of the GPU leaves.
    """
    if not torch.cuda.is_available():
        return
    wanted, room = estimate(run), torch.cuda.mem_get_info()[1] / GIB * (1 - VLLM_SHARE * run.engine.endswith("vllm"))
    if wanted > room:
        raise ValueError(f"model: it wants about {wanted:.0f} GiB and has {room:.0f}; set lora or lower micro_tokens")
