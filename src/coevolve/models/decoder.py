"""Llama, Qwen2 and Qwen3 as plain functions over the modules' own weights, with a key-value cache.

The results are those of `transformers`, with fewer calls per token; calls dominate a small model's
time. Knows only tensors. Shapes: N rows, L positions, H hidden size, D head size, V vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM

SUPPORTED_MODELS = (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)

# Attention of one layer: takes the layer's index and the heads of queries, keys and values, stores
# the last two in the cache and returns the mixed values (tokens, query heads * D).
Attend = Callable[[int, Tensor], Tensor]


def supports(model: Any) -> bool:
    """Return whether `Decoder` computes this model.

    It computes SUPPORTED_MODELS with or without LoRA, but no quantised weights, no sliding windows,
    and no biases except on queries, keys and values, as in Qwen2.
    """
    if type(model) not in SUPPORTED_MODELS:
        return False
    if not _supports_config(model.config):
        return False
    return all(_supports_layer(layer) for layer in model.model.layers)


def _supports_config(config: Any) -> bool:
    layer_types = getattr(config, "layer_types", None) or ()
    has_windows = any(kind != "full_attention" for kind in layer_types)
    # These two change the rotary embedding with the length of the text.
    rotary_type = config.rope_parameters["rope_type"]
    rotary_varies = rotary_type in ("dynamic", "longrope")
    if has_windows or rotary_varies:
        return False
    return bool(config.hidden_act == "silu")


def _supports_layer(layer: Any) -> bool:
    attention = layer.self_attn
    mlp = layer.mlp
    unbiased = [attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    projections = [attention.q_proj, attention.k_proj, attention.v_proj, *unbiased]
    if not all(_supports_projection(projection) for projection in projections):
        return False
    return all(projection.bias is None for projection in unbiased)


def _supports_projection(projection: Any) -> bool:
    # The layer that a LoRA adapter adapts.
    base = getattr(projection, "base_layer", projection)
    variant = getattr(projection, "lora_variant", {})  # DoRA, for example
    return type(base) is nn.Linear and not variant


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer; matrices are (inputs, outputs), joined where they read one input."""

    input_norm: Tensor
    qkv: Tensor
    """Queries, keys and values: (H, (query heads + 2 * kv heads) * D)."""
    qkv_bias: Tensor
    """Zeros where the model has no bias."""
    q_norm: Tensor | None
    """Norm of each query head (D,); Qwen3 only."""
    k_norm: Tensor | None
    """Norm of each key head (D,); Qwen3 only."""
    out: Tensor
    post_attention_norm: Tensor
    gate_up: Tensor
    down: Tensor

    @classmethod
    def read(cls, layer: Any) -> "LayerWeights":
        """Return the weights of a layer of `transformers`, with its active LoRA adapter added."""
        attention = layer.self_attn
        mlp = layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        qkv = _joined_weights(projections)
        if attention.q_proj.bias is None:
            qkv_bias = qkv.new_zeros(qkv.shape[1])
        else:
            qkv_bias = torch.cat([projection.bias for projection in projections])
        q_norm = getattr(attention, "q_norm", None)
        k_norm = getattr(attention, "k_norm", None)
        return cls(
            input_norm=layer.input_layernorm.weight,
            qkv=qkv,
            qkv_bias=qkv_bias,
            q_norm=None if q_norm is None else q_norm.weight,
            k_norm=None if k_norm is None else k_norm.weight,
            out=_weight(attention.o_proj).T,
            post_attention_norm=layer.post_attention_layernorm.weight,
            gate_up=_joined_weights([mlp.gate_proj, mlp.up_proj]),
            down=_weight(mlp.down_proj).T,
        )


def _weight(projection: Any) -> Tensor:
    """Return a linear layer's weight with its active LoRA adapter added, in the weight's dtype."""
    weight: Tensor = projection.weight  # PEFT's layers return the base layer's weight
    if type(projection) is nn.Linear or projection.disable_adapters:
        return weight
    (adapter,) = projection.active_adapters
    delta: Tensor = projection.get_delta_weight(adapter)
    # The sum of float32 adapters and a bfloat16 base is rounded only once.
    return (weight + delta).to(weight.dtype)


def _joined_weights(projections: list[Any]) -> Tensor:
    """Return the weights of projections of one input side by side: (inputs, all outputs)."""
    return torch.cat([_weight(projection) for projection in projections]).T


class Decoder:
    """The functional form of one model."""

    def __init__(self, model: Any):
        """Read the current weights of a model that `supports` accepts."""
        config = model.config
        self.model = model
        self.layers = [LayerWeights.read(layer) for layer in model.model.layers]
        self.embedding_VH: Tensor = model.model.embed_tokens.weight
        self.final_norm: Tensor = model.model.norm.weight
        self.head_HV: Tensor = model.lm_head.weight.T
        self.query_heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        first_layer = model.model.layers[0]
        self.head_dim: int = first_layer.self_attn.head_dim
        # How rows of heads are split into queries with keys, and values; into queries and keys.
        self.qk_and_v = [self.query_heads + self.kv_heads, self.kv_heads]
        self.q_and_k = [self.query_heads, self.kv_heads]
        self.device = self.head_HV.device
        self.epsilon = torch.tensor(config.rms_norm_eps, device=self.device)

    def rotary(self, count: int) -> Tensor:
        """Return cosines and signed sines (count, 2, D) of positions 0 .. count - 1."""
        positions = torch.arange(count, device=self.device)[None]
        cos, sin = self.model.model.rotary_emb(self.head_HV, positions)
        cos = cos[0]
        sin = sin[0]
        first_half, second_half = sin.chunk(2, -1)
        signed_sin = torch.cat([-first_half, second_half], -1)
        return torch.stack([cos, signed_sin], 1)

    def cache(self, rows: int, length: int) -> Tensor:
        """Return an uninitialised cache: (layers, keys and values, rows, kv heads, length, D)."""
        return self.head_HV.new_empty(
            len(self.layers),
            2,  # keys and values
            rows,
            self.kv_heads,
            length,
            self.head_dim,
        )

    def prefill(
        self, ids_NL: Tensor, rotary: Tensor, cache: Tensor, last_N: Tensor
    ) -> Tensor:
        """Fill the cache with prompts; return the hidden states (N, H) at positions `last_N`.

        Attention is causal, so padding on the right has no effect.
        """
        N, L = ids_NL.shape
        cos, sin = rotary[:L].unbind(1)

        def attend(layer: int, qkv: Tensor) -> Tensor:
            qkv = qkv.view(N, L, -1, self.head_dim)
            qkv = qkv.transpose(1, 2)
            qk, v = qkv.split(self.qk_and_v, dim=1)
            rotated = _rotate(qk, cos, sin)
            q, k = rotated.split(self.q_and_k, dim=1)
            cache[layer, 0] = k
            cache[layer, 1] = v
            queries_share_keys = self.query_heads != self.kv_heads
            mixed = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=queries_share_keys
            )
            mixed = mixed.transpose(1, 2)
            return mixed.reshape(N * L, -1)

        row_N = torch.arange(N, device=last_N.device)
        return self._run_layers(ids_NL, attend, row_N * L + last_N)

    def step(
        self,
        ids_N: Tensor,
        rotary_N: Tensor,
        cache: Tensor,
        position: int,
        mask: Tensor,
    ) -> Tensor:
        """Add one token per row at a position of the cache; return the hidden states (N, H).

        The tokens attend to the cached positions that the additive mask (N, 1, 1, position + 1)
        leaves open.
        """
        N = len(ids_N)
        end = position + 1
        rotary_of_heads = rotary_N[:, :, None]
        cos, sin = rotary_of_heads.unbind(1)
        mask = mask.expand(N, self.kv_heads, 1, end)
        mask = mask.flatten(0, 1)
        cache = cache.flatten(2, 3)
        in_use = cache[..., :end, :]
        keys, values = in_use.unbind(1)
        keys_of_layer = keys.unbind()
        values_of_layer = values.unbind()
        queries_per_key = self.query_heads // self.kv_heads

        def attend(layer: int, qkv: Tensor) -> Tensor:
            k = keys_of_layer[layer]
            v = values_of_layer[layer]
            qk, new_v = qkv.split(self.qk_and_v, dim=1)
            rotated = _rotate(qk, cos, sin)
            q, new_k = rotated.split(self.q_and_k, dim=1)
            _write(k, position, new_k)
            _write(v, position, new_v)
            # Queries that share a key head become its query positions.
            q = q.reshape(len(k), queries_per_key, self.head_dim)
            mixed = _attention(q, k, v, mask)
            return mixed.view(N, -1)

        return self._run_layers(ids_N, attend)

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """Return next-token logits (N, V)."""
        normed_NH = self._rms_norm(hidden_NH, self.final_norm)
        return normed_NH @ self.head_HV

    def _run_layers(
        self, ids: Tensor, attend: Attend, last_N: Tensor | None = None
    ) -> Tensor:
        """Run all layers on the tokens; with `last_N`, return only the states at these indices."""
        x = F.embedding(ids.flatten(), self.embedding_VH)
        last_layer = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            normed = self._rms_norm(x, layer.input_norm)
            qkv = torch.addmm(layer.qkv_bias, normed, layer.qkv)
            heads = qkv.unflatten(-1, (-1, self.head_dim))
            self._norm_heads(heads, layer)
            mixed = attend(index, heads)
            if last_N is not None and index == last_layer:
                # No later attention reads the other tokens.
                x = x[last_N]
                mixed = mixed[last_N]
            x = torch.addmm(x, mixed, layer.out)
            x = self._add_mlp(x, layer)
        return x

    def _add_mlp(self, x: Tensor, layer: LayerWeights) -> Tensor:
        """Return the residual stream after the layer's gated perceptron."""
        normed = self._rms_norm(x, layer.post_attention_norm)
        gate_up = normed @ layer.gate_up
        gate, up = gate_up.chunk(2, -1)
        activated = F.silu(gate)
        activated *= up
        return torch.addmm(x, activated, layer.down)

    def _norm_heads(self, heads: Tensor, layer: LayerWeights) -> None:
        """Apply the norms of query and key heads in place, where the model has them."""
        if layer.q_norm is not None:
            queries = heads[:, : self.query_heads]
            queries[:] = self._rms_norm(queries, layer.q_norm)
        if layer.k_norm is not None:
            end = self.query_heads + self.kv_heads
            keys = heads[:, self.query_heads : end]
            keys[:] = self._rms_norm(keys, layer.k_norm)

    def _rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Apply the root-mean-square norm; torch's own makes three times as many calls on a CPU."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        size = x.shape[-1]
        mean_square = torch.addcmul(self.epsilon, norm, norm, value=1 / size)
        normed = x * mean_square.rsqrt_()
        return normed.to(x.dtype).mul_(weight)


def _write(layer_cache: Tensor, position: int, heads: Tensor) -> None:
    """Write heads (N, kv heads, D) at a position of a layer's cache (N * kv heads, L, D)."""
    destination = layer_cache.select(1, position)
    destination.view(heads.shape).copy_(heads)


def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Attend from few queries (M, G, D) to a long cache (M, L, D) under an additive mask (M, 1, L).

    Two batched products read a float32 cache faster than torch's attention, which is built for many
    queries; for lower precisions torch's attention keeps the sums in float32.
    """
    if q.dtype != torch.float32 or q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    head_dim = q.shape[-1]
    scale = head_dim**-0.5
    scores = torch.baddbmm(mask, q, k.mT, alpha=scale)
    weights = scores.softmax(-1)
    return torch.bmm(weights, v)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate each pair (x_i, x_{i + D/2}) by its angle; the first half of `sin` is negative."""
    half = x.shape[-1] // 2
    partner = x.roll(half, -1)
    return torch.addcmul(x * cos, partner, sin)
