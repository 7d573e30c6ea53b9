"""The tiny backbone as the same function with twice the width, for vLLM's CPU attention (heads of 32 or more).

Every added weight is zero and stays zero in training: what the wide model samples and learns, the tiny one does.
"""

import math
import re
from pathlib import Path

import torch
from transformers import AutoTokenizer, Qwen2ForCausalLM

from coevolve.policies import find


def widen(name: str, folder: Path) -> Path:
    """Write the wide copy of an embedded backbone and return its folder."""
    source = find(name)
    model = Qwen2ForCausalLM.from_pretrained(source, dtype="float32")
    config, narrow = model.config, model.state_dict()
    dim = config.hidden_size // config.num_attention_heads
    config.hidden_size, config.rms_norm_eps = 2 * config.hidden_size, config.rms_norm_eps / 2
    # The rows of a head go to every other row of a wide one, so that rotary frequencies stay what they were.
    half = 2 * torch.arange(dim // 2)
    first = 2 * dim * torch.arange(config.num_attention_heads)
    spread = (first[:, None] + torch.cat([half, half + dim])).flatten()
    wide = Qwen2ForCausalLM(config)
    for key, weight in wide.state_dict().items():
        known = narrow[key]
        rows = (spread if re.search("[qkv]_proj", key) else torch.arange(len(known)))[: len(known)]
        columns = spread if "o_proj" in key else torch.arange(known.shape[-1])
        exponent = ("q_proj" in key) - ("norm" in key)  # of what keeps norms and products of heads as they were
        weight.zero_()
        weight[rows if known.dim() == 1 else (rows[:, None], columns)] = known * math.sqrt(2) ** exponent
    wide.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder
