"""Samples completions: fast on a CPU where `Decoder` computes the model, of any other by its own `generate`.

A completion's noise depends on its request's key alone. A decoder computes once what several requests begin
with, and finished ones leave the batch. Knows token ids and keys, but neither text nor turns.
"""

import copy
import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList

from coevolve.models.decoder import Decoder
from coevolve.models.packing import micro_batches, runs

ROWS = 512  # most rows decoded together
POSITIONS = 2**18  # most cache positions (rows x length) held together
CHUNK = 4096  # padded prompt tokens that a CPU prefills at a time, so that the activations stay in its cache
GROWTH = 16  # cache positions reserved for new tokens at first; doubled when they are used up
DENSE = 0.75  # the cache is compacted when fewer of its places than this share are still in use

Completion = tuple[list[int], list[float]]  # ids and their log-probabilities


def noise(keys: Sequence[Hashable], count: int) -> np.ndarray:
    """Return uniform numbers in [0, 1): for each key a row that depends on it alone; a shorter one is a prefix."""
    rows, source = np.empty((len(keys), count)), np.random.Philox(key=0)
    generator, fresh = np.random.Generator(source), source.state
    for row, key in zip(rows, keys, strict=True):
        digest = hashlib.blake2b(repr(key).encode(), digest_size=16).digest()
        # Setting the key takes a quarter of the time of a new generator.
        source.state = fresh | {"state": {**fresh["state"], "key": np.frombuffer(digest, "<u8")}}
        generator.random(out=row)
    return rows


class Request(NamedTuple):
    """One completion to sample."""

    prompt: tuple[int, ...]
    key: Hashable  # of the noise
    temperature: float  # 0 takes the most probable token
    limit: int  # most tokens of the completion


@torch.inference_mode()
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


def choose(logits_PV: Tensor, heat_P: Tensor, place_R: Tensor, uniforms_R: Tensor) -> tuple[Tensor, Tensor]:
    """Choose one token per row by inverting the cumulative distribution of the row's place.

    Returns (tokens_R, logprobs_R). The log-probability is under the distribution sampled from. At temperature 0 a place
    takes the most probable token and reports its log-probability at temperature 1.
    """
    greedy_P = heat_P == 0
    logprobs_PV = (logits_PV.float() / torch.where(greedy_P, 1.0, heat_P)[:, None]).log_softmax(-1)
    cumulative_RV = logprobs_PV.exp().cumsum(-1, dtype=torch.float64)[place_R]
    total_R1 = cumulative_RV[:, -1:]
    # Rounding may carry u * total up to total itself: stay below, at a token that has some probability.
    drawn_R1 = torch.minimum(uniforms_R[:, None] * total_R1, total_R1.nextafter(torch.zeros_like(total_R1)))
    drawn_R = torch.searchsorted(cumulative_RV, drawn_R1, right=True)[:, 0].clamp(max=logits_PV.shape[-1] - 1)
    tokens_R = torch.where(greedy_P[place_R], logprobs_PV.argmax(-1)[place_R], drawn_R)
    return tokens_R, logprobs_PV[place_R, tokens_R]


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
    noise_NT = torch.from_numpy(noise([request.key for request in requests], room)).to(model.device)
    heat_N = torch.tensor([request.temperature for request in requests], dtype=torch.float32, device=model.device)
    row_N = torch.arange(len(requests), device=model.device)
    chosen: list[Tensor] = []

    def keyed(_: Tensor, logits_NV: Tensor) -> Tensor:
        tokens_N, logprobs_N = choose(logits_NV, heat_N, row_N, noise_NT[:, len(chosen)])
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
    """Sample one batch; completions end with a token of `ends` or at their limit, and then leave it.

    Requests of one prompt and temperature have one place in the cache, and compute as one, while they say the same.
    """
    known = [(request.prompt, request.temperature) for request in requests]
    places = {one: place for place, one in enumerate(dict.fromkeys(known))}
    prompts, heats = zip(*places, strict=True)
    vocabulary, device = decoder.head_HV.shape[1], decoder.head_HV.device
    width, room = len(prompts[-1]), max(request.limit for request in requests)
    rotary, ends_E = decoder.rotary(width + room), torch.tensor([*ends], dtype=torch.long, device=device)
    x_PH, cache = _prefill(decoder, prompts, rotary, min(room, GROWTH))
    lengths_P = torch.tensor([*map(len, prompts)], device=device)
    heat_P = torch.tensor(heats, dtype=torch.float32, device=device)
    position_T = torch.arange(width + room, device=device)
    gap_PT = (position_T >= lengths_P[:, None]) & (position_T < width)  # behind each prompt: seen by nobody
    mask = torch.where(gap_PT, -torch.inf, 0.0).to(x_PH.dtype)[:, None, None]
    limits_N = torch.tensor([request.limit for request in requests], device=device)
    noise_NT = torch.from_numpy(noise([request.key for request in requests], room)).to(device)
    # The rows that go on, and the place of each.
    row_R, place_R = torch.arange(len(requests), device=device), torch.tensor([*map(places.get, known)], device=device)
    steps: list[tuple[Tensor, ...]] = []
    for t in range(room):
        tokens_R, logprobs_R = choose(decoder.logits(x_PH), heat_P, place_R, noise_NT[row_R, t])
        steps.append((row_R, tokens_R, logprobs_R))
        going = (~torch.isin(tokens_R, ends_E) & (limits_N[row_R] > t + 1)).nonzero()[:, 0]
        if not len(going):
            break
        row_R, place_R, tokens_R = row_R[going], place_R[going], tokens_R[going]
        said_P, joined_R = (place_R * vocabulary + tokens_R).unique(return_inverse=True)
        before_P = said_P // vocabulary
        if (before_P[1:] == before_P[:-1]).any() or len(said_P) < DENSE * len(lengths_P):  # some part, or many are done
            place_R, lengths_P, heat_P, mask = joined_R, lengths_P[before_P], heat_P[before_P], mask[before_P]
            cache = cache.index_select(2, before_P)
        if width + t == cache.shape[-2]:
            cache = F.pad(cache, (0, 0, 0, min(t, room - t)))
        ids_P = torch.zeros_like(lengths_P).scatter_(0, place_R, tokens_R)
        x_PH = decoder.step(ids_P, rotary[lengths_P + t], cache, width + t, mask[..., : width + t + 1])
    done: list[Completion] = [([], []) for _ in requests]
    for row, token, logprob in zip(*(torch.cat(parts).tolist() for parts in zip(*steps, strict=True)), strict=True):
        done[row][0].append(token)
        done[row][1].append(logprob)
    return done


def _prefill(decoder: Decoder, prompts: Sequence[tuple[int, ...]], rotary: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Return the last hidden states (P, H) of prompts sorted by length, and a cache with `room` to spare.

    They are padded on the right, which keeps attention plainly causal; decoding masks the gap.
    """
    device, width = decoder.head_HV.device, len(prompts[-1])
    cache, states = decoder.cache(len(prompts), width + room), []
    examples = [(prompt, ()) for prompt in prompts]
    for chunk in micro_batches(examples, CHUNK if device.type == "cpu" else POSITIONS, share=False):
        part, own = [prompts[i] for i in chunk], cache[:, :, chunk[0] : chunk[-1] + 1]
        longest = len(part[-1])
        ids_PS = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in part], device=device)
        last_P = torch.tensor([len(prompt) - 1 for prompt in part], device=device)
        states.append(decoder.prefill(ids_PS, rotary, own[..., :longest, :], last_P))
        own[..., longest:width, :] = 0.0  # masked, but it must be finite
    return torch.cat(states), cache
