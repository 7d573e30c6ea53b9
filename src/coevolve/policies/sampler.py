"""Samples completions of a Qwen2 model fast on a CPU: equal prompts prefilled once, finished rows leave.

Noise hangs on a row's key alone. Knows token ids and keys, but neither text nor turns.
"""

import hashlib
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import Qwen2ForCausalLM

from coevolve.policies.qwen2 import Decoder

ROWS = 512  # most rows decoded together
POSITIONS = 2**18  # most cache positions (rows x length) held together
CHUNK = 4096  # padded prompt tokens that a CPU runs at a time: what they make stays in its cache
GROWTH = 16  # cache positions reserved for new tokens at first; doubled when they are used up
DENSE = 0.75  # the batch is compacted when fewer of its rows than this share are still running

Completion = tuple[list[int], list[float]]


def noise(key: Hashable, count: int) -> np.ndarray:
    """Return `count` uniform numbers in [0, 1) that hang on `key` alone; fewer are a prefix of more."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little"))).random(count)


def choose(logits_BV: Tensor, temperatures_B: Tensor, uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """Choose one token per row by inverting its cumulative distribution, and return (tokens_B, logprobs_B).

    The log-probability is under the distribution sampled from. A row of temperature 0 takes the most
    probable token and reports its log-probability at temperature 1.
    """
    greedy_B = temperatures_B == 0
    logits_BV = logits_BV.float() / torch.where(greedy_B, 1.0, temperatures_B)[:, None]
    logprobs_BV = logits_BV.log_softmax(-1)
    tokens_B = logits_BV.argmax(-1) if greedy_B.any() else greedy_B.long()
    if not greedy_B.all():
        cumulative_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
        total_B1 = cumulative_BV[:, -1:].contiguous()
        # Rounding may carry u * total up to total itself: stay at the last token that has any probability.
        last_B1 = torch.searchsorted(cumulative_BV, total_B1)
        drawn_B1 = torch.searchsorted(cumulative_BV, uniforms_B[:, None] * total_B1, right=True)
        drawn_B = torch.minimum(drawn_B1, last_B1)[:, 0].clamp(max=logits_BV.shape[-1] - 1)
        tokens_B = torch.where(greedy_B, tokens_B, drawn_B)
    return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]


@torch.no_grad()
def sample(
    model: Qwen2ForCausalLM,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[Hashable],
    temperatures: Sequence[float],
    max_tokens: Sequence[int],
    eos: int | Collection[int],
) -> list[Completion]:
    """Return (ids, logprobs) per prompt; ids end with an end token or at that row's `max_tokens`.

    Row i draws its noise from `keys[i]` alone, so what else is in the batch does not change its sample.
    Raises ValueError on an empty prompt, FloatingPointError when the model's output is not finite.
    """
    _check(prompts, keys, temperatures, max_tokens)
    ends = torch.tensor([eos] if isinstance(eos, int) else sorted(eos), device=model.device)
    decoder = Decoder.of(model)
    done: list[Completion] = [([], [])] * len(prompts)
    for rows in _batches(prompts, max_tokens):
        batch = _Rows(
            [tuple(prompts[row]) for row in rows],
            np.stack([noise(keys[row], max(max_tokens[row] for row in rows)) for row in rows]),
            [temperatures[row] for row in rows],
            [max_tokens[row] for row in rows],
        )
        for row, completion in zip(rows, _decode(decoder, batch, ends), strict=True):
            done[row] = completion
    if not all(np.isfinite(logprobs).all() for _, logprobs in done):
        raise FloatingPointError(f"the model's output is not finite; check {_first_bad(model)}")
    return done


@dataclass(frozen=True)
class _Rows:
    """What one batch of rows needs: prompts, noise_BT, temperatures and limits, in row order."""

    prompts: list[tuple[int, ...]]
    noise: np.ndarray
    temperatures: list[float]
    limits: list[int]


def _prefill(decoder: Decoder, prompts: list[tuple[int, ...]], room: int) -> tuple[Tensor, Tensor]:
    """Run each distinct prompt once; return its last hidden state per row and a cache with `room` to spare.

    Prompts come sorted by length. They are padded on the right, which keeps attention plainly causal; decoding masks
    the gap.
    """
    device, width = decoder.model.device, max(map(len, prompts))
    cos, sin = (part[None] for part in decoder.rotary(width))
    cache, states = decoder.cache(len(prompts), width + room), []
    for first, last in _chunks(prompts, CHUNK if device.type == "cpu" else POSITIONS):
        its = prompts[first:last]
        distinct, S = list(dict.fromkeys(its)), len(its[-1])
        ids_US = torch.tensor([[*prompt, *[0] * (S - len(prompt))] for prompt in distinct], device=device)
        last_U = torch.tensor([len(prompt) - 1 for prompt in distinct], device=device)
        narrow = decoder.cache(len(distinct), S)
        x_UH = decoder.forward(ids_US, (cos[:, :S], sin[:, :S]), narrow, 0, None, last_U)
        place = {prompt: row for row, prompt in enumerate(distinct)}
        source_B = torch.tensor([place[prompt] for prompt in its], device=device)
        cache[:, :, first:last, :, :S] = narrow[:, :, source_B]
        cache[:, :, first:last, :, S:width] = 0.0  # masked, but it must be finite
        states.append(x_UH[source_B])
    return torch.cat(states), cache


def _chunks(prompts: list[tuple[int, ...]], most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of runs of sorted prompts that make up at most `most` padded tokens, or one prompt."""
    first = distinct = 0
    for row, prompt in enumerate(prompts):
        new = row == first or prompt != prompts[row - 1]
        if row > first and new and (distinct + 1) * len(prompt) > most:
            yield first, row
            first, distinct = row, 0
        distinct += new
    yield first, len(prompts)


def _decode(decoder: Decoder, rows: _Rows, ends: Tensor) -> list[Completion]:
    """Sample every row of one batch, letting rows go as they finish."""
    device, width, room = decoder.model.device, max(map(len, rows.prompts)), max(rows.limits)
    x_BH, cache = _prefill(decoder, rows.prompts, min(room, GROWTH))
    cos, sin = decoder.rotary(width + room)
    lengths_B = torch.tensor([len(prompt) for prompt in rows.prompts], device=device)
    limits_B = torch.tensor(rows.limits, device=device)
    heat_B = torch.tensor(rows.temperatures, dtype=torch.float32, device=device)
    noise_BT = torch.from_numpy(rows.noise).to(device)
    live_B = torch.arange(len(rows.prompts), device=device)
    ids_BT = torch.zeros(noise_BT.shape, dtype=torch.long, device=device)
    logprobs_BT = torch.zeros(noise_BT.shape, device=device)
    counts_B = limits_B.clone()
    running_B = torch.ones_like(live_B, dtype=torch.bool)
    mask = _mask(lengths_B, width, room, x_BH.dtype)
    for t in range(room):
        tokens_B, logprobs_B = choose(decoder.logits(x_BH), heat_B[live_B], noise_BT[live_B, t])
        ids_BT[live_B, t], logprobs_BT[live_B, t] = tokens_B, logprobs_B
        stopped_B = running_B & (torch.isin(tokens_B, ends) | (limits_B[live_B] == t + 1))
        counts_B[live_B[stopped_B]] = t + 1
        running_B = running_B & ~stopped_B
        running = int(running_B.sum())
        if not running:
            break
        if running < DENSE * len(running_B):
            live_B, tokens_B, mask = live_B[running_B], tokens_B[running_B], mask[running_B]
            cache, running_B = cache[:, :, running_B], running_B[running_B]
        at, position_B = width + t, lengths_B[live_B] + t
        if at == cache.shape[-2]:
            cache = F.pad(cache, (0, 0, 0, min(t, room - t)))
        rotary = cos[position_B][:, None], sin[position_B][:, None]
        x_BH = decoder.forward(tokens_B[:, None], rotary, cache, at, mask[..., : at + 1])
    ids, logprobs = ids_BT.tolist(), logprobs_BT.tolist()
    return [(ids[row][:count], logprobs[row][:count]) for row, count in enumerate(counts_B.tolist())]


def _mask(lengths_B: Tensor, width: int, room: int, dtype: torch.dtype) -> Tensor:
    """Return the additive attention mask (B, 1, 1, width + room) that closes the gap behind each prompt."""
    position_T = torch.arange(width + room, device=lengths_B.device)
    gap_BT = (position_T >= lengths_B[:, None]) & (position_T < width)
    open_BT = torch.zeros(gap_BT.shape, dtype=dtype, device=gap_BT.device)
    return open_BT.masked_fill(gap_BT, -torch.inf)[:, None, None]


def _batches(prompts: Sequence[Sequence[int]], max_tokens: Sequence[int]) -> Iterator[list[int]]:
    """Yield row indices sorted by prompt, equal prompts together, in batches that keep within memory."""
    batch, room = [], 0
    for row in sorted(range(len(prompts)), key=lambda row: (len(prompts[row]), tuple(prompts[row]))):
        longer = max(room, max_tokens[row])
        if batch and (len(batch) == ROWS or (len(batch) + 1) * (len(prompts[row]) + longer) > POSITIONS):
            yield batch
            batch, longer = [], max_tokens[row]
        batch.append(row)
        room = longer
    if batch:
        yield batch


def _check(
    prompts: Sequence[Sequence[int]], keys: Sequence, temperatures: Sequence[float], max_tokens: Sequence[int]
) -> None:
    if not len(prompts) == len(keys) == len(temperatures) == len(max_tokens):
        raise ValueError("prompts, keys, temperatures and max_tokens must have one entry per row")
    for name, bad, allowed in (
        ("prompts", any(not len(prompt) for prompt in prompts), "at least one token each"),
        ("temperatures", any(not 0 <= heat < float("inf") for heat in temperatures), "finite and at least 0"),
        ("max_tokens", any(limit < 1 for limit in max_tokens), "at least 1"),
    ):
        if bad:
            raise ValueError(f"{name} must be {allowed}")


def _first_bad(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"
    return "its activations, every parameter is finite"
