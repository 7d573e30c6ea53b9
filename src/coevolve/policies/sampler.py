"""Samples completions of Qwen2 models fast on a CPU: equal prompts prefilled once, finished rows leave.

Noise hangs on a row's key alone. Several models of one shape are sampled together: a batch has P models x R rows, N in
all. Knows token ids and keys, but neither text nor turns.
"""

import hashlib
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

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


@dataclass(frozen=True)
class Rows:
    """What one model is asked: prompts, keys of the noise, temperatures and limits, one entry per row; end tokens."""

    prompts: Sequence[Sequence[int]]
    keys: Sequence[Hashable]
    temperatures: Sequence[float]
    limits: Sequence[int]
    ends: Collection[int]

    def __post_init__(self) -> None:
        """Raise ValueError naming what is not allowed."""
        if not len(self.prompts) == len(self.keys) == len(self.temperatures) == len(self.limits):
            raise ValueError("prompts, keys, temperatures and max_tokens must have one entry per row")
        for name, bad, allowed in (
            ("prompts", any(not len(prompt) for prompt in self.prompts), "at least one token each"),
            ("temperatures", any(not 0 <= heat < float("inf") for heat in self.temperatures), "finite and at least 0"),
            ("max_tokens", any(limit < 1 for limit in self.limits), "at least 1"),
        ):
            if bad:
                raise ValueError(f"{name} must be {allowed}")

    def slots(self, rows: Sequence[int], count: int) -> list["_Slot"]:
        """Make `count` slots: the rows, and empty ones after them."""
        slots = [_Slot(tuple(self.prompts[i]), self.keys[i], self.temperatures[i], self.limits[i]) for i in rows]
        return slots + [EMPTY] * (count - len(rows))


class _Slot(NamedTuple):
    """One row of a batch."""

    prompt: tuple[int, ...]
    key: Hashable
    temperature: float
    limit: int


EMPTY = _Slot((0,), (), 1.0, 0)


def choose(logits_BV: Tensor, temperatures_B: Tensor, uniforms_B: Tensor) -> tuple[Tensor, Tensor]:
    """Choose one token per row by inverting its cumulative distribution, and return (tokens_B, logprobs_B).

    The log-probability is under the distribution sampled from. A row of temperature 0 takes the most
    probable token and reports its log-probability at temperature 1.
    """
    greedy_B = temperatures_B == 0
    logprobs_BV = (logits_BV.float() / torch.where(greedy_B, 1.0, temperatures_B)[:, None]).log_softmax(-1)
    tokens_B = logprobs_BV.argmax(-1) if greedy_B.any() else greedy_B.long()
    if not greedy_B.all():
        cumulative_BV = logprobs_BV.exp().cumsum(-1, dtype=torch.float64)
        total_B1 = cumulative_BV[:, -1:]
        # Rounding may carry u * total up to total itself: stay below, at a token that has some probability.
        drawn_B1 = torch.minimum(uniforms_B[:, None] * total_B1, total_B1.nextafter(torch.zeros_like(total_B1)))
        drawn_B = torch.searchsorted(cumulative_BV, drawn_B1, right=True)[:, 0].clamp(max=logits_BV.shape[-1] - 1)
        tokens_B = torch.where(greedy_B, tokens_B, drawn_B)
    return tokens_B, logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]


def batches(prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], models: int = 1) -> Iterator[list[int]]:
    """Yield row indices sorted by prompt, equal prompts together, in batches that keep within a model's memory."""
    batch, room = [], 0
    for row in sorted(range(len(prompts)), key=lambda row: (len(prompts[row]), tuple(prompts[row]))):
        longer = max(room, max_tokens[row])
        if batch and (len(batch) == ROWS or (len(batch) + 1) * (len(prompts[row]) + longer) > POSITIONS // models):
            yield batch
            batch, longer = [], max_tokens[row]
        batch.append(row)
        room = longer
    if batch:
        yield batch


@torch.no_grad()
def sample_together(decoders: Sequence[Decoder], asked: Sequence[Rows]) -> list[list[Completion]]:
    """Sample every model's rows, all models at once, and return their completions (ids, logprobs).

    Ids end with an end token or at that row's limit. Row i draws its noise from `keys[i]` alone, so what else is in
    the batch does not change its sample. Raises ValueError when the models are not of one kind, FloatingPointError
    when a model's output is not finite.
    """
    if len({decoder.kind for decoder in decoders}) > 1:
        raise ValueError("models sampled together must be of one shape, type and device")
    decoder = Decoder.together(decoders)
    done: list[list[Completion]] = [[([], [])] * len(rows.prompts) for rows in asked]
    for batch in zip_longest(*(list(batches(rows.prompts, rows.limits, len(asked))) for rows in asked), fillvalue=[]):
        count = max(map(len, batch))
        slots = [rows.slots(chosen, count) for rows, chosen in zip(asked, batch, strict=True)]
        completions = _decode(decoder, slots, [rows.ends for rows in asked])
        for one, (chosen, its) in enumerate(zip(batch, completions, strict=True)):
            for row, completion in zip(chosen, its, strict=False):  # without what empty slots said
                done[one][row] = completion
    for one, completions in zip(decoders, done, strict=True):
        if not all(np.isfinite(logprobs).all() for _, logprobs in completions):
            raise FloatingPointError(f"the model's output is not finite; check {_first_bad(one.model)}")
    return done


def _prefill(
    decoder: Decoder, slots: list[list[_Slot]], rotary: Tensor, width: int, room: int
) -> tuple[Tensor, Tensor]:
    """Run each model's distinct prompts once; return the last hidden states (N, H) and a cache with `room` to spare.

    Prompts come sorted by length, `width` is that of the longest. They are padded on the right, which keeps attention
    plainly causal; decoding masks the gap.
    """
    device, P, R = decoder.head_HV.device, len(slots), len(slots[0])
    prompts = [[slot.prompt for slot in its] for its in slots]
    cache = decoder.cache(P * R, width + room)
    spread = cache.view(*cache.shape[:2], P, R, *cache.shape[3:])
    states = []
    for first, last in _chunks(prompts, CHUNK if device.type == "cpu" else POSITIONS):
        part = [its[first:last] for its in prompts]
        distinct = [list(dict.fromkeys(its)) for its in part]
        U = max(map(len, distinct))
        flat = [prompt for its in distinct for prompt in (*its, *[EMPTY.prompt] * (U - len(its)))]
        S = max(map(len, flat))
        ids_MS = torch.tensor([[*prompt, *[0] * (S - len(prompt))] for prompt in flat], device=device)
        last_M = torch.tensor([len(prompt) - 1 for prompt in flat], device=device)
        narrow = decoder.cache(P * U, S)
        x_MH = decoder.prefill(ids_MS, rotary, narrow, last_M)
        places = [{prompt: one * U + i for i, prompt in enumerate(its)} for one, its in enumerate(distinct)]
        source = [[place[prompt] for prompt in its] for place, its in zip(places, part, strict=True)]
        source_PR = torch.tensor(source, device=device)
        spread[:, :, :, first:last, :, :S] = narrow[:, :, source_PR]
        spread[:, :, :, first:last, :, S:width] = 0.0  # masked, but it must be finite
        states.append(x_MH[source_PR])
    return torch.cat(states, 1).flatten(0, 1), cache


def _chunks(prompts: list[list[tuple[int, ...]]], most: int) -> Iterator[tuple[int, int]]:
    """Yield (first, last + 1) of runs of rows, sorted by length, of at most `most` padded tokens, or of one row."""
    first = distinct = 0
    for row, column in enumerate(zip(*prompts, strict=True)):
        new = row == first or any(its[row] != its[row - 1] for its in prompts)
        if row > first and new and (distinct + 1) * len(column) * max(map(len, column)) > most:
            yield first, row
            first, distinct = row, 0
        distinct += new
    yield first, len(prompts[0])


def _decode(decoder: Decoder, slots: list[list[_Slot]], ends: Sequence[Collection[int]]) -> list[list[Completion]]:
    """Sample P models' rows, R of each, letting rows go as they finish."""
    device, P, flat = decoder.head_HV.device, len(slots), [slot for its in slots for slot in its]
    width, room = max(len(slot.prompt) for slot in flat), max(slot.limit for slot in flat)
    rotary, ends_PV = decoder.rotary(width + room), _table(ends, decoder.head_HV)
    x_NH, cache = _prefill(decoder, slots, rotary, width, min(room, GROWTH))
    row_N = torch.arange(len(flat), device=device)
    model_N = row_N // len(slots[0])
    lengths_N = torch.tensor([len(slot.prompt) for slot in flat], device=device)
    limits_N = torch.tensor([slot.limit for slot in flat], device=device)
    heat_N = torch.tensor([slot.temperature for slot in flat], dtype=torch.float32, device=device)
    noise_NT = torch.from_numpy(np.stack([noise(slot.key, room) for slot in flat])).to(device)
    mask, running_N, said = _mask(lengths_N, width, room, x_NH.dtype), limits_N > 0, []
    for t in range(room):
        tokens_N, logprobs_N = choose(decoder.logits(x_NH), heat_N, noise_NT[:, t])
        said.append((row_N, running_N, tokens_N, logprobs_N))
        running_N = running_N & ~(ends_PV[model_N, tokens_N] | (limits_N == t + 1))
        most = int(running_N.view(P, -1).sum(1).max())
        if not most:
            break
        if P * most < DENSE * len(running_N):
            keep = _densest(running_N.view(P, -1), most)
            each = (row_N, model_N, lengths_N, limits_N, heat_N, noise_NT, mask, running_N, tokens_N)
            row_N, model_N, lengths_N, limits_N, heat_N, noise_NT, mask, running_N, tokens_N = (x[keep] for x in each)
            cache = cache[:, :, keep]
        if width + t == cache.shape[-2]:
            cache = F.pad(cache, (0, 0, 0, min(t, room - t)))
        x_NH = decoder.step(tokens_N, rotary[lengths_N + t], cache, width + t, mask[..., : width + t + 1])
    done = _gathered(said, len(flat))
    return [done[first : first + len(slots[0])] for first in range(0, len(flat), len(slots[0]))]


def _table(ends: Sequence[Collection[int]], head_HV: Tensor) -> Tensor:
    """Return which tokens end each model's completions (P, V)."""
    table_PV = torch.zeros(len(ends), head_HV.shape[-1], dtype=torch.bool)
    for row, its in zip(table_PV, ends, strict=True):
        row[[token for token in its if token < len(row)]] = True
    return table_PV.to(head_HV.device)


def _densest(running_PR: Tensor, most: int) -> Tensor:
    """Return the places (P x most) of every model's running rows, and of finished ones where it has fewer."""
    keep_PR = running_PR.byte().argsort(dim=1, descending=True, stable=True)[:, :most]
    return (keep_PR + torch.arange(len(keep_PR), device=keep_PR.device)[:, None] * running_PR.shape[1]).flatten()


def _gathered(said: list[tuple[Tensor, ...]], count: int) -> list[Completion]:
    """Collect the tokens of each of `count` rows from what all rows said, step by step."""
    rows, counted, tokens, logprobs = (torch.cat(parts) for parts in zip(*said, strict=True))
    order = rows[counted].argsort(stable=True)
    ends = rows[counted].bincount(minlength=count).cumsum(0).tolist()
    ids, values = tokens[counted][order].tolist(), logprobs[counted][order].tolist()
    return [(ids[first:last], values[first:last]) for first, last in pairwise([0, *ends])]


def _mask(lengths_B: Tensor, width: int, room: int, dtype: torch.dtype) -> Tensor:
    """Return the additive attention mask (B, 1, 1, width + room) that closes the gap behind each prompt."""
    position_T = torch.arange(width + room, device=lengths_B.device)
    gap_BT = (position_T >= lengths_B[:, None]) & (position_T < width)
    open_BT = torch.zeros(gap_BT.shape, dtype=dtype, device=gap_BT.device)
    return open_BT.masked_fill(gap_BT, -torch.inf)[:, None, None]


def _first_bad(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if not parameter.isfinite().all():
            return f"parameter {name}"
    return "its activations, every parameter is finite"
