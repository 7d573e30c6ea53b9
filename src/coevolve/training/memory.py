"""A lower bound on the GPU memory of a run, from its configuration, before any weights load."""

from typing import TYPE_CHECKING, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from coevolve.engines.limits import VLLM_SHARE
from coevolve.models.names import SERVERS, locate
from coevolve.models.policy_set import CHECKPOINTING_MIN_PARAMETERS
from coevolve.training.config import assign_models

if TYPE_CHECKING:
    from coevolve.training.config import Run

GIB = 2**30
BFLOAT16_BYTES = 2
# Float32 weights, gradients and the two moments of AdamW.
TRAINED_BYTES = 16


def estimate(run: "Run") -> float:
    """Return the GiB of weights, gradients, optimiser states and activations on one GPU.

    Full fine-tuning takes 16 bytes per parameter (float32 weights, gradients and two moments of
    AdamW). LoRA keeps the base in bfloat16 and takes 16 bytes per parameter of an adapter. Every
    frozen policy is a separate bfloat16 model. Activations are a rule of thumb: 2 bytes for 10
    times the width plus 3 times the inner width, per token of a micro-batch and per layer; large
    models hold one layer at a time. Not counted: copies for KL penalties, the sampler's cache, and
    vLLM's share of the GPU, which `check` subtracts.
    """
    models, trained = assign_models(run.method, run.model)
    weights = 0
    activations = 0
    for model in dict.fromkeys(models.values()):
        if model.startswith(SERVERS):
            continue
        network = _empty_network(model)
        policies = [name for name in models if models[name] == model]
        trained_policies = [name for name in policies if name in trained]
        frozen_count = len(policies) - len(trained_policies)
        weights += BFLOAT16_BYTES * network.num_parameters() * frozen_count
        if trained_policies:
            weights += _trained_bytes(network, run, len(trained_policies))
            activations = max(
                activations, _activation_bytes(network, run.max_tokens_per_micro_batch)
            )
    return (weights + activations) / GIB


def _empty_network(model: str) -> PreTrainedModel:
    """Return a transformers model of the right shapes, without memory for its weights."""
    config = AutoConfig.from_pretrained(locate(model).base, trust_remote_code=False)
    with torch.device("meta"):
        return cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))


def _trained_bytes(network: PreTrainedModel, run: "Run", policies: int) -> int:
    """Return the bytes of `policies` trained policies: full copies, or adapters on one base."""
    parameters = network.num_parameters()
    if not run.lora:
        return TRAINED_BYTES * parameters * policies
    rank = run.lora[0]
    head = network.get_output_embeddings()
    adapter_parameters = 0
    for module in network.modules():
        if isinstance(module, nn.Linear) and module is not head:
            adapter_parameters += rank * (module.in_features + module.out_features)
    return BFLOAT16_BYTES * parameters + TRAINED_BYTES * adapter_parameters * policies


def _activation_bytes(network: PreTrainedModel, max_tokens_per_micro_batch: int) -> int:
    """Return the bytes of the activations of one micro-batch, by the rule of thumb."""
    config = network.config
    width: int = config.hidden_size
    inner_width: int = getattr(config, "intermediate_size", 4 * width)
    layers: int = config.num_hidden_layers
    if network.num_parameters() > CHECKPOINTING_MIN_PARAMETERS:
        layers = 1  # the others are recomputed in the backward pass
    return (
        BFLOAT16_BYTES
        * max_tokens_per_micro_batch
        * (10 * width + 3 * inner_width)
        * layers
    )


def check(run: "Run") -> None:
    """Raise ValueError in one line if the GPU is too small for the run; pass without a GPU.

    If vLLM samples, the learner has the memory that vLLM leaves.
    """
    if not torch.cuda.is_available():
        return
    required = estimate(run)
    _, total_bytes = torch.cuda.mem_get_info()
    available = total_bytes / GIB
    if run.engine.endswith("vllm"):
        available *= 1 - VLLM_SHARE
    if required > available:
        raise ValueError(
            f"model must fit the GPU: the run needs about {required:.0f} GiB and has "
            f"{available:.0f}; set lora or lower max_tokens_per_micro_batch"
        )
