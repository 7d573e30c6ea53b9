"""Qwen2 as plain functions over the module's own weights, with a key and value cache of fixed shape.

The same numbers as `transformers` with fewer calls per token, which is what a small model's time goes into.
Knows tensors only.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM


def supports(model: nn.Module) -> bool:
    """Say whether `Decoder` computes this model: Qwen2, with LoRA or not, without quantisation or windows."""
    if type(model) is not Qwen2ForCausalLM:
        return False
    parts = [part for layer in model.model.layers for part in _projections(layer)]
    plain = all(type(part) is nn.Linear or _is_lora(part) for part in parts)
    config = model.config
    windows = any(kind != "full_attention" for kind in config.layer_types)
    static_rope = config.rope_parameters["rope_type"] == "default"
    return plain and not windows and static_rope and config.hidden_act == "silu"


@dataclass(frozen=True)
class _Layer:
    """One decoder layer's weights, those that read the same input joined."""

    norm_attention: Tensor
    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    norm_mlp: Tensor
    gate_up: Tensor
    down: Tensor


def _projections(layer: nn.Module) -> list[nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    return [
        *(attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj),
        *(mlp.gate_proj, mlp.up_proj, mlp.down_proj),
    ]


def _is_lora(part: nn.Module) -> bool:
    """Whether a module is PEFT's plain LoRA on a linear layer (told by its parts, so PEFT need not be loaded)."""
    if type(part).__module__ != "peft.tuners.lora.layer" or type(part.base_layer) is not nn.Linear:
        return False
    return not any(part.use_dora.get(name) or part.lora_bias.get(name) for name in part.active_adapters)


def _weight(part: nn.Module) -> Tensor:
    """Weight of a linear layer, its active adapters added."""
    if type(part) is nn.Linear:
        return part.weight
    weight = part.base_layer.weight
    if part.disable_adapters or part.merged:
        return weight
    return weight + sum(part.get_delta_weight(name) for name in part.active_adapters if name in part.lora_A)


def _joined(layer: nn.Module) -> _Layer:
    q, k, v, out, gate, up, down = _projections(layer)
    return _Layer(
        layer.input_layernorm.weight,
        torch.cat([_weight(q), _weight(k), _weight(v)]),
        torch.cat([q.bias, k.bias, v.bias]),
        _weight(out),
        layer.post_attention_layernorm.weight,
        torch.cat([_weight(gate), _weight(up)]),
        _weight(down),
    )


@dataclass(frozen=True)
class Decoder:
    """The functional form of the model: layer weights and head counts."""

    model: Qwen2ForCausalLM
    layers: list[_Layer]
    heads: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, model: Qwen2ForCausalLM) -> "Decoder":
        """Read the weights of a model that `supports` accepts, as they are now."""
        config, attention = model.config, model.model.layers[0].self_attn
        layers = [_joined(layer) for layer in model.model.layers]
        return cls(model, layers, config.num_attention_heads, config.num_key_value_heads, attention.head_dim)

    def rotary(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of positions 0 .. count - 1, each (count, head_dim)."""
        weight = self.model.lm_head.weight
        positions = torch.arange(count, device=weight.device)[None]
        cos, sin = self.model.model.rotary_emb(weight, positions)
        return cos[0], sin[0]

    def cache(self, rows: int, length: int) -> Tensor:
        """Return a cache for keys and values, not yet written: layers x 2 x rows x kv heads x length x head_dim."""
        shape = (len(self.layers), 2, rows, self.kv_heads, length, self.head_dim)
        return self.model.lm_head.weight.new_empty(shape)

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the root-mean-square norm."""
        return F.rms_norm(x, weight.shape, weight, self.model.config.rms_norm_eps)

    def forward(
        self, ids_BS: Tensor, rotary: tuple[Tensor, Tensor], cache: Tensor, at: int, mask: Tensor | None,
        last_B: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Return hidden states (B, H) of each row's last token, writing keys and values to the cache from `at` on.

        Without a mask this is a prefill: causal attention among the S new tokens, of which `last_B` is the last that
        counts. With one (B, 1, 1, at + 1), S is 1 and the token attends to every cached position that the mask
        leaves open.
        """
        (B, S), queries, kv = ids_BS.shape, self.heads, self.kv_heads
        cos, sin = (part[:, None] for part in rotary)
        x = F.embedding(ids_BS, self.model.model.embed_tokens.weight)
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            qkv = F.linear(self.norm(x, layer.norm_attention), layer.qkv, layer.qkv_bias)
            qkv = qkv.view(B, S, queries + 2 * kv, self.head_dim).transpose(1, 2)
            q, k = _rotate(qkv[:, : queries + kv], cos, sin).split([queries, kv], dim=1)
            v = qkv[:, queries + kv :]
            keys[:, :, at : at + S], values[:, :, at : at + S] = k, v
            if mask is None:
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=queries != kv)
            else:  # the queries that share a key head become its query positions
                q, seen = q.reshape(B, kv, queries // kv, self.head_dim), slice(0, at + 1)
                k, v = keys[:, :, seen], values[:, :, seen]
                mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
                mixed = mixed.reshape(B, queries, S, self.head_dim)
            mixed = mixed.transpose(1, 2).reshape(B, S, -1)
            if last_B is not None and layer is self.layers[-1]:  # nobody asks for the other tokens any more
                x, mixed = (part[torch.arange(B, device=part.device), last_B][:, None] for part in (x, mixed))
            x = x + F.linear(mixed, layer.out)
            gate, up = F.linear(self.norm(x, layer.norm_mlp), layer.gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return x[:, 0]

    def logits(self, x_BH: Tensor) -> Tensor:
        """Return next-token logits (B, V)."""
        return F.linear(self.norm(x_BH, self.model.model.norm.weight), self.model.lm_head.weight)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat([-right, left], -1) * sin
