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
from coevolve.preflight import base_of
from tinyworld.recipe import find

if TYPE_CHECKING:
    from coevolve.config import Run

GIB = 2**30
LOSS = 2**29  # bytes of logits that the loss holds at once, at most
KEPT = ("weights", "references", "optimiser")  # in both phases
PHASES = {
    "playing": (*KEPT, "sampling", "vllm"),
    "learning": (*KEPT, "gradients", "activations", "loss", "vllm awake"),
}


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
    """GiB that a run wants on one GPU, part by part, by phase, and at most (the key "total").

    Full fine-tuning keeps float32 weights, gradients and two moments of AdamW; LoRA a bfloat16 base (in 4 bits with
    `four_bit`) and those for its adapters alone. A frozen policy is a bfloat16 model of its own. Of several processes
    each keeps its part of what FSDP or DeepSpeed shares out. Activations count one layer at a time where layers are
    computed twice (large models).
    Sampling in process is counted with a copy of the layers, and a cache as if prompts were as long as replies. vLLM
    takes a fixed share of the GPU; a single engine gives it back while the policies learn, several stay awake.
    """
    models, trained = assign(run.protocol, run.model)
    parts = dict.fromkeys((part for its in PHASES.values() for part in its), 0.0)
    engines = 0
    for model in dict.fromkeys(models.values()):
        if model.startswith("http"):
            continue
        config, count, in_layers, per_rank = shape(model)
        names = [name for name, its in models.items() if its == model]
        learners = sum(name in trained for name in names)
        adapted = bool(run.lora and learners)
        own = per_rank * run.lora[0] if adapted else count  # parameters that one of them trains
        base = (0.5 if run.four_bit else 2) * count if adapted else 0
        parts["weights"] += base + 4 * own * learners + 2 * count * (len(names) - learners)
        parts["references"] += 4 * count * learners * bool(getattr(run.protocol, "kl_coef", 0.0) and not adapted)
        gradients, moments = _learning(own * learners, 0 if adapted else in_layers * learners)
        parts["gradients"] += gradients
        parts["optimiser"] += moments
        engines += 1 if adapted else len(names)
        if not run.engine.endswith("vllm"):
            size = 4 if learners and not adapted else 2
            copied = size * in_layers * (config.model_type == "qwen2")  # our sampler joins matrices
            parts["sampling"] = max(parts["sampling"], copied + _cache(config, run.max_tokens, size))
        if learners:
            parts["activations"] = max(parts["activations"], _activations(config, count, run.micro_tokens))
            parts["loss"] = max(parts["loss"], min(LOSS, 4 * run.micro_tokens * config.vocab_size))
    if run.engine.endswith("vllm") and torch.cuda.is_available():
        parts["vllm"] = SHARE * torch.cuda.mem_get_info()[1]
        parts["vllm awake"] = parts["vllm"] * (engines > 1)
    phases = {phase: sum(parts[part] for part in its) for phase, its in PHASES.items()}
    return {name: size / GIB for name, size in (parts | phases | {"total": max(phases.values())}).items()}


def _cache(config: object, max_tokens: int, size: int) -> int:
    """Bytes of the keys and values that the largest batch of the sampler holds; `size` of one number."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    wide = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    positions = min(sampler.POSITIONS, sampler.ROWS * 2 * max_tokens)
    return 2 * config.num_hidden_layers * heads * wide * size * positions


def _learning(count: int, in_layers: int) -> tuple[float, float]:
    """Bytes that one process keeps of the gradients (4 a parameter) and of AdamW's two moments (8)."""
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if zero.wanted():  # which steps on a copy of this rank's part
        return 4 * count / (1 if zero.stage() == 1 else ranks), 12 * count / ranks
    kept = count - (in_layers * (1 - 1 / ranks) if sharding.wanted() else 0)
    return 4 * kept, 8 * kept


def _activations(config: object, count: int, tokens: int) -> float:
    wide = config.hidden_size
    layer = tokens * (10 * wide + 3 * getattr(config, "intermediate_size", 4 * wide)) * 2
    kept = tokens * wide * 2 * config.num_hidden_layers
    return kept + layer if count > LARGE else layer * config.num_hidden_layers


def check(run: "Run") -> None:
    """Raise ValueError in one line when the GPU that is here is too small; without a GPU nothing is checked."""
    if not torch.cuda.is_available():
        return
    wanted = estimate(run)
    total, name = torch.cuda.mem_get_info()[1] / GIB, torch.cuda.get_device_name()
    if wanted["total"] > total:
        phase = max(PHASES, key=wanted.get)
        largest = max(PHASES[phase], key=wanted.get)
        raise ValueError(
            f"model: the run wants about {wanted['total']:.0f} GiB while {phase} and {name} has {total:.0f}; "
            f"most of it is {largest}: set lora, or lower micro_tokens or max_tokens"
        )
