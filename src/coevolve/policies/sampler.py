"""Samples completions: fast on a CPU where `Decoder` computes the model, of any other by its own `generate`.

A completion's noise depends on its request's key alone. For a decoder equal prompts are prefilled once, and finished
rows leave the batch. Knows token ids and keys, but neither text nor turns.
"""

import copy
import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList

from coevolve.policies.decoder import Decoder
from coevolve.policies.packing import micro_batches, runs

ROWS = 512  # most rows decoded together
POSITIONS = 2**18  # most cache positions (rows x length) held together
CHUNK = 4096  # padded prompt tokens that a CPU prefills at a time, so that the activations stay in its cache
GROWTH = 16  # cache positions reserved for new tokens at first; doubled when they are used up
DENSE = 0.75  # the batch is compacted when fewer of its rows than this share are still running

Completion = tuple[list[int], list[float]]  # ids and their log-probabilities


def noise(key: Hashable, count: int) -> np.ndarray:
    """Return `count` uniform numbers in [0, 1) that depend on `key` alone; fewer are a prefix of more."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little"))).random(count)


class Request(NamedTuple):
    """One completion to sample."""

    prompt: tuple[int, ...]
    key: Hashable  # of the noise
    temperature: float  # 0 takes the most probable token
    limit: int  # most tokens of the completion


@torch.no_grad()
def sample(requests: Sequence[Request], answer: Callable[[list[Request]], list[Completion]]) -> list[Completion]:
    """Let `answer` (`decode` or `generate`) make the requests' completions in batches that fit into memory.

    A completion draws its noise from its request's key, so what else is in the batch does not change it. Raises
    ValueError for a request that is not allowed, FloatingPointError when the model's output is not finite.
    """
    for request in requests:
        if not (request.prompt and 0 <= request.temperature < float("inf") and request.limit >= 1):
            needs = "a prompt, a finite temperature of at least 0 and max_tokens of at least 1"
            raise ValueError(f"a reply needs {needs}, got {len(request.prompt)} tokens and {request[2:]}")
    done: dict[int, Completion] = {}
    for batch in batches(requests):
        done |= zip(batch, answer([requests[i] for i in batch]), strict=True)
    if not all(np.isfinite(logprobs).all() for _, logprobs in done.values()):
        raise FloatingPointError("the model's output is not finite: check the weights that it was loaded with")
    return [done[i] for i in range(len(requests))]


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


def batches(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Yield the requests' indices sorted by prompt, equal prompts together, in batches that keep within memory."""
    most = max((request.limit for request in requests), default=0)

    def fits(batch: list[int]) -> bool:
        room = POSITIONS // len(batch) - len(requests[batch[-1]].prompt)
        return len(batch) <= ROWS and (most <= room or max(requests[i].limit for i in batch) <= room)

    return runs(sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt), requests[i].prompt)), fits)


def generate(model: Any, ends: Collection[int], requests: Sequence[Request]) -> list[Completion]:
    """Sample one batch with a model's own `generate`, to which every step leaves just the token that is chosen.

    Completions end with a token of `ends` or at their limit.
    """
    room = max(request.limit for request in requests)
    noise_NT = torch.from_numpy(np.stack([noise(request.key, room) for request in requests])).to(model.device)
    heat_N = torch.tensor([request.temperature for request in requests], dtype=torch.float32, device=model.device)
    chosen: list[Tensor] = []

    def keyed(_: Tensor, logits_NV: Tensor) -> Tensor:
        tokens_N, logprobs_N = choose(logits_NV, heat_N, noise_NT[:, len(chosen)])
        chosen.append(logprobs_N)
        return torch.full_like(logits_NV, -torch.inf).scatter(-1, tokens_N[:, None], 0.0)

    prompts = [torch.tensor(request.prompt, device=model.device) for request in requests]
    ids_NS = pad_sequence(prompts, batch_first=True, padding_side="left")
    mask_NS = pad_sequence([torch.ones_like(ids) for ids in prompts], batch_first=True, padding_side="left")
    settings = GenerationConfig(max_new_tokens=room, eos_token_id=sorted(ends), pad_token_id=0, do_sample=False)
    bare = copy.copy(model)  # its own generation settings may hold penalties that the log-probabilities do not know
    bare.generation_config = settings
    whole = bare.generate(ids_NS, attention_mask=mask_NS, logits_processor=LogitsProcessorList([keyed]))
    done = []
    rows = zip(requests, whole[:, ids_NS.shape[1] :].tolist(), torch.stack(chosen, 1).tolist(), strict=True)
    for request, ids, logprobs in rows:
        stop = next((i + 1 for i, token in enumerate(ids[: request.limit]) if token in ends), request.limit)
        done.append((ids[:stop], logprobs[:stop]))
    return done


def decode(decoder: Decoder, ends: Collection[int], requests: Sequence[Request]) -> list[Completion]:
    """Sample one batch; completions end with a token of `ends` or at their limit, and then leave it."""
    device = decoder.head_HV.device
    width, room = len(requests[-1].prompt), max(request.limit for request in requests)
    rotary, ends_E = decoder.rotary(width + room), torch.tensor([*ends], dtype=torch.long, device=device)
    x_NH, cache = _prefill(decoder, [request.prompt for request in requests], rotary, min(room, GROWTH))
    row_N = torch.arange(len(requests), device=device)
    lengths_N = torch.tensor([len(request.prompt) for request in requests], device=device)
    limits_N = torch.tensor([request.limit for request in requests], device=device)
    heat_N = torch.tensor([request.temperature for request in requests], dtype=torch.float32, device=device)
    noise_NT = torch.from_numpy(np.stack([noise(request.key, room) for request in requests])).to(device)
    mask, running_N = _mask(lengths_N, width, room, x_NH.dtype), limits_N > 0
    steps: list[tuple[Tensor, ...]] = []
    for t in range(room):
        tokens_N, logprobs_N = choose(decoder.logits(x_NH), heat_N, noise_NT[:, t])
        steps.append((row_N[running_N], tokens_N[running_N], logprobs_N[running_N]))
        running_N = running_N & ~(torch.isin(tokens_N, ends_E) | (limits_N == t + 1))
        count = int(running_N.sum())
        if not count:
            break
        if count < DENSE * len(running_N):
            keep = running_N.nonzero()[:, 0]
            each = (row_N, lengths_N, limits_N, heat_N, noise_NT, mask, running_N, tokens_N)
            row_N, lengths_N, limits_N, heat_N, noise_NT, mask, running_N, tokens_N = (x[keep] for x in each)
            cache = cache.index_select(2, keep)
        if width + t == cache.shape[-2]:
            cache = F.pad(cache, (0, 0, 0, min(t, room - t)))
        x_NH = decoder.step(tokens_N, rotary[lengths_N + t], cache, width + t, mask[..., : width + t + 1])
    done: list[Completion] = [([], []) for _ in requests]
    for row, token, logprob in zip(*(torch.cat(parts).tolist() for parts in zip(*steps, strict=True)), strict=True):
        done[row][0].append(token)
        done[row][1].append(logprob)
    return done


def _prefill(decoder: Decoder, prompts: Sequence[tuple[int, ...]], rotary: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Run the distinct prompts once; return the last hidden states (N, H) and a cache with `room` to spare.

    Prompts come sorted, equal ones together. They are padded on the right, which keeps attention plainly causal;
    decoding masks the gap.
    """
    device, width = decoder.head_HV.device, len(prompts[-1])
    cache, states, first = decoder.cache(len(prompts), width + room), [], 0
    copies = Counter(prompts)
    distinct = [(prompt, ()) for prompt in copies]
    for chunk in micro_batches(distinct, CHUNK if device.type == "cpu" else POSITIONS, share=False):
        part = [distinct[i][0] for i in chunk]
        longest = len(part[-1])
        ids_MS = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in part], device=device)
        last_M = torch.tensor([len(prompt) - 1 for prompt in part], device=device)
        narrow = decoder.cache(len(part), longest)
        source_N = torch.tensor([i for i, prompt in enumerate(part) for _ in range(copies[prompt])], device=device)
        states.append(decoder.prefill(ids_MS, rotary, narrow, last_M)[source_N])
        last = first + len(source_N)
        # A layer at a time, which the processor's cache holds.
        for into, computed in zip(cache.flatten(0, 1), narrow.flatten(0, 1), strict=True):
            into[first:last, :, :longest] = computed.index_select(0, source_N)
        cache[:, :, first:last, :, longest:width] = 0.0  # masked, but it must be finite
        first = last
    return torch.cat(states), cache


def _mask(lengths_B: Tensor, width: int, room: int, dtype: torch.dtype) -> Tensor:
    """Return the additive attention mask (B, 1, 1, width + room) that closes the gap behind each prompt."""
    position_T = torch.arange(width + room, device=lengths_B.device)
    gap_BT = (position_T >= lengths_B[:, None]) & (position_T < width)
    return torch.where(gap_BT, -torch.inf, 0.0).to(dtype)[:, None, None]
