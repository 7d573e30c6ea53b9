"""The tiny backbone as the same function with twice the width, for vLLM's CPU attention (heads of 32 or more).

Every added weight is zero and stays zero in training: what the wide model samples and learns, the tiny one does.
"""

import math
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoTokenizer, Qwen2ForCausalLM

from coevolve.policies import find


def pad(weight: Tensor, *shape: int) -> Tensor:
    """Fill up with zeros at the end of every dimension."""
    wide = weight.new_zeros(shape)
    wide[tuple(slice(0, size) for size in weight.shape)] = weight
    return wide


def heads(weight: Tensor, dim: int, width: int) -> Tensor:
    """Spread each head's rows over twice as many, so that rotary frequencies stay what they were."""
    half = torch.arange(dim // 2) * 2
    rows = torch.cat([half, half + dim])
    split = weight.view(-1, dim, *weight.shape[1:])
    wide = weight.new_zeros(split.shape[0], 2 * dim, *([width] if weight.dim() == 2 else []))
    index = (slice(None), rows, slice(0, weight.shape[1])) if weight.dim() == 2 else (slice(None), rows)
    wide[index] = split
    return wide.flatten(0, 1)


def widen(name: str, folder: Path) -> Path:
    """Write the wide copy of an embedded backbone and return its folder."""
    source = find(name)
    model = Qwen2ForCausalLM.from_pretrained(source, dtype="float32")
    config = model.config
    hidden, dim = config.hidden_size, config.hidden_size // config.num_attention_heads
    config.hidden_size, config.rms_norm_eps = 2 * hidden, config.rms_norm_eps / 2
    if getattr(config, "head_dim", None):
        config.head_dim = 2 * dim
    wide, state = Qwen2ForCausalLM(config), {}
    for key, weight in model.state_dict().items():
        if "norm" in key:
            state[key] = pad(weight, 2 * hidden) / math.sqrt(2)
        elif "q_proj" in key or "k_proj" in key:
            state[key] = heads(weight, dim, 2 * hidden) * (math.sqrt(2) if "q_proj" in key else 1)
        elif "v_proj" in key:
            state[key] = heads(weight, dim, 2 * hidden)
        elif "o_proj" in key:
            state[key] = pad(heads(weight.T.contiguous(), dim, hidden).T, 2 * hidden, 2 * weight.shape[1])
        elif "down_proj" in key:
            state[key] = pad(weight, 2 * hidden, weight.shape[1])
        else:
            state[key] = pad(weight, weight.shape[0], 2 * hidden)
    wide.load_state_dict(state)
    wide.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder
