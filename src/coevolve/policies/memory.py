"""How much GPU memory and time a run will want, from its configuration alone, before a weight is loaded.

Parameters are counted exactly on empty weights; activations are a rule of thumb, and measured numbers beat it.
"""

import os
from typing import TYPE_CHECKING

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from coevolve.config import assign
from coevolve.engines.vllm import SHARE
from coevolve.policies import sampler, sharding, zero
from coevolve.policies.team import LARGE
from coevolve.policies.tiny import find
from coevolve.preflight import base_of

if TYPE_CHECKING:
    from coevolve.config import Run

GIB = 2**30
LOSS = 2**29  # bytes of logits that the loss holds at once, at most
PARTS = ("weights", "references", "gradients and optimiser", "activations", "loss", "sampling", "vllm")


def shape(model: str) -> tuple[object, int, int, int]:
    """Return a model's configuration, its parameters, those of its layers, and those that LoRA adds per rank."""
    try:
        config = AutoConfig.from_pretrained(find(base_of(model)), trust_remote_code=False)
    except OSError as error:
        raise ValueError(f"model {model!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from None
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(config)
    head = empty.get_output_embeddings()
    linear = (part for part in empty.modules() if isinstance(part, torch.nn.Linear) and part is not head)
    per_rank = sum(part.in_features + part.out_features for part in linear)
    in_layers = sum(part.numel() for layer in sharding.layers_of(empty) for part in layer.parameters())
    return config, sum(part.numel() for part in empty.parameters()), in_layers, per_rank


def estimate(run: "Run") -> dict[str, float]:
    """GiB that a run wants on one GPU, part by part, and what is wanted at once (the key "total").

    Full fine-tuning keeps float32 weights, gradients and two moments of AdamW; LoRA a bfloat16 base (in 4 bits with
    `four_bit`) and those for its adapters alone. Of several processes each keeps its part of what FSDP or DeepSpeed
    shares out.
    Activations count one layer at a time where layers are computed twice (large models). Sampling in process
    is counted with a copy of the layers, and a cache as if prompts were as long as replies; both are gone when the loss
    and its activations come.
    """
    models, trained = assign(run.protocol, run.model)
    parts = dict.fromkeys(PARTS, 0.0)
    for model in dict.fromkeys(models.values()):
        if model.startswith("http"):
            continue
        config, count, in_layers, per_rank = shape(model)
        names = [name for name, its in models.items() if its == model]
        learners = sum(name in trained for name in names)
        if run.lora:
            own = learners * per_rank * run.lora[0]
            parts["weights"] += (0.5 if run.four_bit and learners else 2) * count + 4 * own
            parts["gradients and optimiser"] += _learning(own, 0)
        else:
            parts["weights"] += 4 * count * len(names)
            parts["gradients and optimiser"] += _learning(count, in_layers) * learners
            parts["references"] += 4 * count * learners * bool(getattr(run.protocol, "kl_coef", 0.0))
        if not run.engine.endswith("vllm"):
            size = 2 if run.lora else 4
            copied = size * in_layers * (config.model_type == "qwen2")  # our sampler joins matrices
            parts["sampling"] = max(parts["sampling"], copied + _cache(config, run.max_tokens, size))
        if learners:
            parts["activations"] = max(parts["activations"], _activations(config, count, run.micro_tokens))
            parts["loss"] = max(parts["loss"], min(LOSS, 4 * run.micro_tokens * config.vocab_size))
    if run.engine.endswith("vllm") and torch.cuda.is_available():
        parts["vllm"] = SHARE * torch.cuda.mem_get_info()[1]
    never_both = min(parts["sampling"], parts["activations"] + parts["loss"])
    total = sum(parts.values()) - never_both
    return {name: size / GIB for name, size in (parts | {"total": total}).items()}


def _cache(config: object, max_tokens: int, size: int) -> int:
    """Bytes of the keys and values that the largest batch of the sampler holds; `size` of one number."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    wide = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    positions = min(sampler.POSITIONS, sampler.ROWS * 2 * max_tokens)
    return 2 * config.num_hidden_layers * heads * wide * size * positions


def _learning(count: int, in_layers: int) -> float:
    """Bytes that one process keeps of the gradients (4 a parameter) and of AdamW's two moments (8)."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if zero.wanted():  # which steps on a copy of this rank's part
        return count * (4 + 12 / ranks if zero.stage() == 1 else 16 / ranks)
    shared = in_layers * (1 - 1 / ranks) if sharding.wanted() else 0
    return 12 * (count - shared)


def _activations(config: object, count: int, tokens: int) -> float:
    wide = config.hidden_size
    layer = tokens * (10 * wide + 3 * getattr(config, "intermediate_size", 4 * wide)) * 2
    kept = tokens * wide * 2 * config.num_hidden_layers
    return kept + layer if count > LARGE else layer * config.num_hidden_layers


def check(run: "Run") -> None:
    """Raise ValueError in one line when the GPU that is here is too small; without a GPU nothing is checked."""
    if not torch.cuda.is_available():
        return
    parts = estimate(run)
    total, name = torch.cuda.mem_get_info()[1] / GIB, torch.cuda.get_device_name()
    if parts["total"] > total:
        largest = max(parts.keys() - {"total"}, key=parts.get)
        raise ValueError(f"model: the run wants about {parts['total']:.0f} GiB and {name} has {total:.0f}; most of it "
                         f"is {largest}: set lora, or lower micro_tokens or max_tokens")
