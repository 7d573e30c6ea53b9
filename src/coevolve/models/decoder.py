"""Llama, Qwen2 and Qwen3 as plain functions over the modules' own weights, with a key and value cache of fixed shape.

The numbers are those of `transformers`, with fewer calls per token, which take most of a small model's time. Knows
tensors only.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

MODELS = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)


def supports(model: Any) -> bool:
    """Say whether `Decoder` computes this model: one of MODELS, with LoRA or not, without quantisation or windows.

    Biases may stand on queries, keys and values alone, as in Qwen2.
    """
    if type(model) not in MODELS:
        return False
    config, layers = model.config, [_projections(layer) for layer in model.model.layers]
    # What a LoRA adapter adapts is its base layer; a variant of it is DoRA, say.
    linear = all(type(getattr(part, "base_layer", part)) is nn.Linear for layer in layers for part in layer)
    variants = any(getattr(part, "lora_variant", {}) for layer in layers for part in layer)
    biases = any(part.bias is not None for layer in layers for part in layer[3:])
    windows = any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ())
    varying = config.rope_parameters["rope_type"] in ("dynamic", "longrope")  # with the length of the text
    return linear and not (variants or biases or windows or varying) and config.hidden_act == "silu"


def _projections(layer: Any) -> list[Any]:
    attn, mlp = layer.self_attn, layer.mlp
    return [attn.q_proj, attn.k_proj, attn.v_proj, attn.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]


def _weight(part: Any) -> Tensor:
    """Weight of a linear layer, its active LoRA adapter added; of the layer's own type."""
    weight: Tensor = part.weight  # of PEFT's layers as well: the base's
    if type(part) is nn.Linear or part.disable_adapters:
        return weight
    (adapter,) = part.active_adapters
    delta: Tensor = part.get_delta_weight(adapter)
    return (weight + delta).to(weight.dtype)  # float32 adapters on a bfloat16 base: the sum is rounded once


def _joined(layer: Any) -> tuple[Any, ...]:
    """Return one decoder layer's weights, those that read the same input joined; matrices are inputs x outputs."""
    q, k, v, out, gate, up, down = _projections(layer)
    qkv, gate_up = torch.cat([_weight(q), _weight(k), _weight(v)]).T, torch.cat([_weight(gate), _weight(up)]).T
    qkv_bias = qkv.new_zeros(qkv.shape[1]) if q.bias is None else torch.cat([q.bias, k.bias, v.bias])
    # Qwen3's norms of query and key heads come before those of the layer.
    *norm_heads, norm, norm_mlp = (part.weight for name, part in layer.named_modules() if name.endswith("norm"))
    return norm, qkv, qkv_bias, norm_heads, _weight(out).T, norm_mlp, gate_up, _weight(down).T


class Decoder:
    """The functional form of one model."""

    def __init__(self, model: Any):
        """Read the weights of a model that `supports` accepts, as they are now."""
        config = model.config
        self.model, self.layers = model, [_joined(layer) for layer in model.model.layers]
        self.embedding, self.norm_last = model.model.embed_tokens.weight, model.model.norm.weight
        self.head_HV: Tensor = model.lm_head.weight.T
        self.heads = config.num_attention_heads, config.num_key_value_heads, model.model.layers[0].self_attn.head_dim
        self.eps = torch.tensor(config.rms_norm_eps, device=self.head_HV.device)

    def rotary(self, count: int) -> Tensor:
        """Return cosines and signed sines (count, 2, head_dim) of positions 0 .. count - 1."""
        positions = torch.arange(count, device=self.head_HV.device)[None]
        cos, sin = (part[0] for part in self.model.model.rotary_emb(self.head_HV, positions))
        half = sin.shape[-1] // 2
        return torch.stack([cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)], 1)

    def cache(self, rows: int, length: int) -> Tensor:
        """Return a cache for keys and values, not yet written: layers x 2 x rows x kv heads x length x head_dim."""
        return self.head_HV.new_empty(len(self.layers), 2, rows, self.heads[1], length, self.heads[2])

    def prefill(self, ids_NS: Tensor, rotary: Tensor, cache: Tensor, last_N: Tensor) -> Tensor:
        """Return hidden states (N, H) of each row's last token, which `last_N` points to; fill the cache.

        Attention is causal, so padding on the right is not seen.
        """
        (N, S), (queries, kv, size) = ids_NS.shape, self.heads
        cos, sin = rotary[:S].unbind(1)

        def attend(index: int, qkv: Tensor) -> Tensor:
            qkv = qkv.view(N, S, queries + 2 * kv, size).transpose(1, 2)
            q, k = _rotate(qkv[:, : queries + kv], cos, sin).split([queries, kv], dim=1)
            v = qkv[:, queries + kv :]
            cache[index, 0], cache[index, 1] = k, v
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=queries != kv)
            return mixed.transpose(1, 2).reshape(N * S, -1)

        return self._run(ids_NS, attend, torch.arange(N, device=last_N.device) * S + last_N)

    def step(self, ids_N: Tensor, rotary_N: Tensor, cache: Tensor, at: int, mask: Tensor) -> Tensor:
        """Return hidden states (N, H) of one new token per row, at position `at` of the cache.

        It attends to every cached position that the mask (N, 1, 1, at + 1) leaves open.
        """
        N, (queries, kv, size) = len(ids_N), self.heads
        cos, sin = rotary_N[:, :, None].unbind(1)
        mask = mask.expand(N, kv, 1, at + 1).flatten(0, 1)
        caches = list(zip(*cache.flatten(2, 3).unbind(1), strict=True))

        def attend(index: int, qkv: Tensor) -> Tensor:
            keys, values = caches[index]
            turned = _rotate(qkv[:, : queries + kv], cos, sin)
            keys.select(1, at).view(N, kv, size).copy_(turned[:, queries:])
            values.select(1, at).view(N, kv, size).copy_(qkv[:, queries + kv :])
            # The queries that share a key head become its query positions.
            q = turned[:, :queries].reshape(N * kv, queries // kv, size)
            return _attention(q, keys[:, : at + 1], values[:, : at + 1], mask).view(N, -1)

        return self._run(ids_N, attend)

    def logits(self, x_NH: Tensor) -> Tensor:
        """Return next-token logits (N, V)."""
        return self._norm(x_NH, self.norm_last) @ self.head_HV

    def _run(self, ids: Tensor, attend: Callable[[int, Tensor], Tensor], last_N: Tensor | None = None) -> Tensor:
        """Run all layers on the tokens, of which only those at `last_N` go through the last one's end."""
        x, (queries, kv, size) = F.embedding(ids.flatten(), self.embedding), self.heads
        for index, (norm, qkv, qkv_bias, norm_heads, out, norm_mlp, gate_up, down) in enumerate(self.layers):
            heads = torch.addmm(qkv_bias, self._norm(x, norm), qkv).unflatten(-1, (-1, size))
            for weight, own in zip(norm_heads, (slice(queries), slice(queries, queries + kv)), strict=False):
                heads[:, own] = self._norm(heads[:, own], weight)
            mixed = attend(index, heads)
            if last_N is not None and index == len(self.layers) - 1:  # nobody asks for the other tokens any more
                x, mixed = x[last_N], mixed[last_N]
            x = torch.addmm(x, mixed, out)
            gate, up = (self._norm(x, norm_mlp) @ gate_up).chunk(2, -1)
            x = torch.addmm(x, F.silu(gate).mul_(up), down)
        return x

    def _norm(self, x_NH: Tensor, weight: Tensor) -> Tensor:
        """Apply the root-mean-square norm; on a CPU torch's own makes three times as many calls."""
        size = torch.linalg.vector_norm(x_NH, dim=-1, keepdim=True, dtype=torch.float32)
        size = torch.addcmul(self.eps, size, size, value=1 / x_NH.shape[-1]).rsqrt_()
        return (x_NH * size).to(x_NH.dtype).mul_(weight)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attend from few queries (M, G, D) to a long cache (M, L, D) under an additive mask (M, 1, L).

    Two batched products read a float32 cache faster than torch's attention, which is made for many queries; the
    latter keeps sums in float32 when the cache is less precise.
    """
    if q.dtype != torch.float32 or q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    scores = torch.baddbmm(mask, q, k.mT, alpha=q.shape[-1] ** -0.5)
    return torch.bmm(scores.softmax(-1), v)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (x_i, x_{i + D/2}) by its angle; the first half of `sin` is negative."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
