"""Samples completions by `Decoder`, or by the model's own `generate` if `Decoder` cannot.

The noise of a completion depends only on its request's key. Knows token ids and keys, but neither
text nor turns. Shapes: N requests, R rows that still run, S slots of the cache, T steps, V
vocabulary, H hidden size.
"""

import copy
import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList

from coevolve.models.decoder import Decoder
from coevolve.models.packing import greedy_batches, micro_batches

MAX_ROWS = 512  # rows decoded together
MAX_CACHE_POSITIONS = 2**18  # cache positions (rows x length) held together
PREFILL_TOKENS = (
    4096  # padded prompt tokens a CPU prefills at once: activations fit into its cache
)
CACHE_INCREMENT = (
    16  # cache positions first reserved for new tokens; doubled when they are used up
)
COMPACT_BELOW = (
    0.75  # the cache is compacted when a smaller fraction of its slots is in use
)


@dataclass(frozen=True)
class Request:
    """One completion to sample."""

    prompt: tuple[int, ...]
    key: Hashable
    """What the noise depends on."""
    temperature: float
    """0 takes the most probable token."""
    limit: int
    """Largest number of tokens in the completion."""


@dataclass(frozen=True)
class Completion:
    """Sampled tokens with their log-probabilities under the distribution they were drawn from."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def noise(keys: Sequence[Hashable], count: int) -> np.ndarray:
    """Return uniform numbers in [0, 1), (keys, count).

    A row depends only on its key, and a shorter row is a prefix of a longer one.
    """
    rows = np.empty((len(keys), count))
    source = np.random.Philox(key=0)
    generator = np.random.Generator(source)
    fresh: Any = source.state
    for row, key in zip(rows, keys, strict=True):
        key_bytes = repr(key).encode()
        digest = hashlib.blake2b(key_bytes, digest_size=16).digest()
        keyed = {**fresh["state"], "key": np.frombuffer(digest, "<u8")}
        source.state = fresh | {"state": keyed}  # four times as fast as a new generator
        generator.random(out=row)
    return rows


@torch.inference_mode()
def sample(
    requests: Sequence[Request],
    complete_batch: Callable[[list[Request]], list[Completion]],
) -> list[Completion]:
    """Complete the requests in batches that fit into memory; `decode` or `generate` completes one.

    The other requests of a batch do not change a completion's noise. Raises ValueError for an
    invalid request, FloatingPointError if the model's output is not finite.
    """
    for request in requests:
        _check(request)
    completions: dict[int, Completion] = {}
    for batch in batches(requests):
        batch_requests = [requests[i] for i in batch]
        completions |= zip(batch, complete_batch(batch_requests), strict=True)
    for completion in completions.values():
        if not np.isfinite(completion.logprobs).all():
            raise FloatingPointError(
                "the model's output is not finite: check the weights that it was loaded with"
            )
    return [completions[i] for i in range(len(requests))]


def _check(request: Request) -> None:
    is_valid_temperature = isfinite(request.temperature) and request.temperature >= 0
    if not (request.prompt and is_valid_temperature and request.limit >= 1):
        raise ValueError(
            "a reply needs a prompt, a finite temperature of at least 0 and max_tokens of at least "
            f"1, got {len(request.prompt)} prompt tokens, temperature {request.temperature} and "
            f"max_tokens {request.limit}"
        )


def batches(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Yield the requests' indices in batches that fit into memory, sorted by prompt.

    Equal prompts are neighbours, and the longest prompt of a batch comes last.
    """
    largest_limit = max((request.limit for request in requests), default=0)

    def fits(batch: list[int]) -> bool:
        longest_prompt = len(requests[batch[-1]].prompt)
        room = MAX_CACHE_POSITIONS // len(batch) - longest_prompt
        if len(batch) > MAX_ROWS:
            return False
        if largest_limit <= room:
            return True
        return max(requests[i].limit for i in batch) <= room

    def by_prompt(i: int) -> tuple[int, tuple[int, ...]]:
        prompt = requests[i].prompt
        return len(prompt), prompt

    return greedy_batches(sorted(range(len(requests)), key=by_prompt), fits)


def choose(
    logits_SV: Tensor, temperature_S: Tensor, slot_R: Tensor, uniforms_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Choose one token per row by inverting the cumulative distribution of the row's slot.

    Returns (tokens_R, logprobs_R), log-probabilities under the distribution sampled from. At
    temperature 0 a row takes the most probable token, with its log-probability at temperature 1.
    """
    greedy_S = temperature_S == 0
    divisor_S = torch.where(greedy_S, 1.0, temperature_S)
    scaled_SV = logits_SV.float() / divisor_S[:, None]
    logprobs_SV = scaled_SV.log_softmax(-1)
    cumulative_SV = logprobs_SV.exp().cumsum(-1, dtype=torch.float64)
    cumulative_RV = cumulative_SV[slot_R]
    total_R1 = cumulative_RV[:, -1:]
    # Rounding may carry u * total up to total itself: stay below, at a token of some probability.
    below_total_R1 = total_R1.nextafter(torch.zeros_like(total_R1))
    threshold_R1 = torch.minimum(uniforms_R[:, None] * total_R1, below_total_R1)
    drawn_R1 = torch.searchsorted(cumulative_RV, threshold_R1, right=True)
    last_token = logits_SV.shape[-1] - 1
    drawn_R = drawn_R1[:, 0].clamp(max=last_token)
    most_probable_S = logprobs_SV.argmax(-1)
    most_probable_R = most_probable_S[slot_R]
    tokens_R = torch.where(greedy_S[slot_R], most_probable_R, drawn_R)
    return tokens_R, logprobs_SV[slot_R, tokens_R]


def generate(
    model: Any, eos_token_ids: Collection[int], requests: Sequence[Request]
) -> list[Completion]:
    """Sample one batch with a model's own `generate`, which sees only the chosen token's logit.

    Completions end with one of `eos_token_ids` or at their limit.
    """
    steps = max(request.limit for request in requests)
    noise_NT = _noise_of(requests, steps, model.device)
    temperature_N = torch.tensor(
        [request.temperature for request in requests],
        dtype=torch.float32,
        device=model.device,
    )
    row_N = torch.arange(len(requests), device=model.device)
    logprobs_of_step: list[Tensor] = []

    def leave_only_the_chosen_token(_: Tensor, logits_NV: Tensor) -> Tensor:
        uniforms_N = noise_NT[:, len(logprobs_of_step)]
        tokens_N, logprobs_N = choose(logits_NV, temperature_N, row_N, uniforms_N)
        logprobs_of_step.append(logprobs_N)
        impossible_NV = torch.full_like(logits_NV, -torch.inf)
        return impossible_NV.scatter(-1, tokens_N[:, None], 0.0)

    prompts = [
        torch.tensor(request.prompt, device=model.device) for request in requests
    ]
    visible = [torch.ones_like(prompt) for prompt in prompts]
    ids_NL = pad_sequence(prompts, batch_first=True, padding_side="left")
    mask_NL = pad_sequence(visible, batch_first=True, padding_side="left")
    # The model's own generation settings may hold penalties that the log-probabilities ignore.
    plain = copy.copy(model)
    plain.generation_config = GenerationConfig(
        max_new_tokens=steps,
        eos_token_id=sorted(eos_token_ids),
        pad_token_id=0,
        do_sample=False,
    )
    processors = LogitsProcessorList([leave_only_the_chosen_token])
    output_NL = plain.generate(
        ids_NL, attention_mask=mask_NL, logits_processor=processors
    )
    tokens = output_NL[:, ids_NL.shape[1] :].tolist()
    logprobs = torch.stack(logprobs_of_step, 1).tolist()
    completions = []
    for request, row_tokens, row_logprobs in zip(
        requests, tokens, logprobs, strict=True
    ):
        length = _completed_length(row_tokens, request.limit, eos_token_ids)
        completions.append(Completion(row_tokens[:length], row_logprobs[:length]))
    return completions


def _completed_length(
    tokens: list[int], limit: int, eos_token_ids: Collection[int]
) -> int:
    """Return the length up to and including the first end-of-sequence token, at most `limit`."""
    for i, token in enumerate(tokens[:limit]):
        if token in eos_token_ids:
            return i + 1
    return limit


def _noise_of(requests: Sequence[Request], steps: int, device: torch.device) -> Tensor:
    """Return the noise of every request and step (N, T), in float64."""
    keys = [request.key for request in requests]
    return torch.from_numpy(noise(keys, steps)).to(device)


def decode(
    decoder: Decoder, eos_token_ids: Collection[int], requests: Sequence[Request]
) -> list[Completion]:
    """Sample one batch of requests sorted by prompt; finished rows leave the batch.

    Completions end with one of `eos_token_ids` or at their limit. Requests of one prompt and
    temperature are merged into one slot of the cache, and computed once, until their tokens differ.
    """
    device = decoder.device
    steps = max(request.limit for request in requests)
    starts = [SlotStart(request.prompt, request.temperature) for request in requests]
    slot_of: dict[SlotStart, int] = {}
    for start in starts:
        slot_of.setdefault(start, len(slot_of))
    slots = _CacheSlots(decoder, list(slot_of), steps)
    eos_E = torch.tensor([*eos_token_ids], dtype=torch.long, device=device)
    limits_N = torch.tensor([request.limit for request in requests], device=device)
    noise_NT = _noise_of(requests, steps, device)

    # The requests whose rows still run, and the slot of each row.
    request_R = torch.arange(len(requests), device=device)
    slot_R = torch.tensor([slot_of[start] for start in starts], device=device)
    history = _History()
    for t in range(steps):
        logits_SV = decoder.logits(slots.hidden_SH)
        tokens_R, logprobs_R = choose(
            logits_SV, slots.temperature_S, slot_R, noise_NT[request_R, t]
        )
        history.add(request_R, tokens_R, logprobs_R)
        ended_R = torch.isin(tokens_R, eos_E)
        has_room_R = limits_N[request_R] > t + 1
        goes_on_R = ~ended_R & has_room_R
        running = goes_on_R.nonzero()[:, 0]
        if not len(running):
            break
        request_R = request_R[running]
        tokens_R = tokens_R[running]
        slot_R = slots.split(slot_R[running], tokens_R)
        slots.append(t, slot_R, tokens_R)
    return history.completions(len(requests))


@dataclass(frozen=True)
class SlotStart:
    """What the rows of a slot have in common before their first token."""

    prompt: tuple[int, ...]
    temperature: float


class _History:
    """The tokens that each step of `decode` has chosen."""

    def __init__(self) -> None:
        self.requests: list[Tensor] = []
        self.tokens: list[Tensor] = []
        self.logprobs: list[Tensor] = []

    def add(self, request_R: Tensor, tokens_R: Tensor, logprobs_R: Tensor) -> None:
        """Add one step: of each running row its request, token and log-probability."""
        self.requests.append(request_R)
        self.tokens.append(tokens_R)
        self.logprobs.append(logprobs_R)

    def completions(self, count: int) -> list[Completion]:
        """Return the completions of `count` requests."""
        completions = [Completion() for _ in range(count)]
        requests = torch.cat(self.requests).tolist()
        tokens = torch.cat(self.tokens).tolist()
        logprobs = torch.cat(self.logprobs).tolist()
        for request, token, logprob in zip(requests, tokens, logprobs, strict=True):
            completions[request].token_ids.append(token)
            completions[request].logprobs.append(logprob)
        return completions


class _CacheSlots:
    """Slots of a key-value cache: each holds a prompt and the tokens that its rows have in common.

    Rows of one slot have the same temperature and have drawn the same tokens so far.
    """

    def __init__(
        self,
        decoder: Decoder,
        starts: Sequence[SlotStart],
        steps: int,
    ):
        """Prefill the slots, whose prompts are sorted by length, for `steps` new tokens."""
        device = decoder.device
        prompts = [start.prompt for start in starts]
        lengths = [len(prompt) for prompt in prompts]
        temperatures = [start.temperature for start in starts]
        self.decoder = decoder
        self.steps = steps
        self.prompt_width = lengths[-1]
        self.rotary = decoder.rotary(self.prompt_width + steps)
        self.hidden_SH, self.cache = _prefill(
            decoder, prompts, self.rotary, min(steps, CACHE_INCREMENT)
        )
        self.length_S = torch.tensor(lengths, device=device)
        self.temperature_S = torch.tensor(
            temperatures, dtype=torch.float32, device=device
        )
        # Prompts are padded on the right: new tokens must not attend to the padding.
        position_L = torch.arange(self.prompt_width + steps, device=device)
        after_prompt_SL = position_L >= self.length_S[:, None]
        padding_SL = after_prompt_SL & (position_L < self.prompt_width)
        mask_SL = torch.where(padding_SL, -torch.inf, 0.0).to(self.hidden_SH.dtype)
        self.mask = mask_SL[:, None, None]

    def split(self, slot_R: Tensor, tokens_R: Tensor) -> Tensor:
        """Give rows of one slot that drew different tokens slots of their own; return slot_R.

        Slots without rows are dropped on the way, if there are many of them.
        """
        vocab_size = self.decoder.head_HV.shape[1]
        slot_and_token_R = slot_R * vocab_size + tokens_R
        new_slot_R: Tensor
        slot_and_token_S, new_slot_R = slot_and_token_R.unique(return_inverse=True)
        parent_S = slot_and_token_S // vocab_size
        same_parent = parent_S[1:] == parent_S[:-1]
        some_slot_split = bool(same_parent.any())
        many_rows_finished = len(parent_S) < COMPACT_BELOW * len(self.length_S)
        if not (some_slot_split or many_rows_finished):
            return slot_R
        self.length_S = self.length_S[parent_S]
        self.temperature_S = self.temperature_S[parent_S]
        self.mask = self.mask[parent_S]
        self.cache = self.cache.index_select(2, parent_S)
        return new_slot_R

    def append(self, t: int, slot_R: Tensor, tokens_R: Tensor) -> None:
        """Append the rows' tokens of step `t`; update the hidden states of the slots."""
        position = self.prompt_width + t
        if position == self.cache.shape[-2]:
            more = min(t, self.steps - t)
            at_the_end = (0, 0, 0, more)
            self.cache = F.pad(self.cache, at_the_end)
        # A slot without rows gets token 0; nothing reads what it computes.
        ids_S = torch.zeros_like(self.length_S).scatter_(0, slot_R, tokens_R)
        text_position_S = self.length_S + t
        rotary_S = self.rotary[text_position_S]
        mask = self.mask[..., : position + 1]
        self.hidden_SH = self.decoder.step(ids_S, rotary_S, self.cache, position, mask)


def _prefill(
    decoder: Decoder, prompts: Sequence[tuple[int, ...]], rotary: Tensor, room: int
) -> tuple[Tensor, Tensor]:
    """Return the last hidden states (S, H) of prompts sorted by length, and their cache.

    The cache has `room` positions to spare. Prompts are padded on the right, which keeps attention
    plainly causal; decoding masks the padding.
    """
    device = decoder.device
    width = len(prompts[-1])
    cache = decoder.cache(len(prompts), width + room)
    hidden_states = []
    examples = [(prompt, ()) for prompt in prompts]
    max_tokens = PREFILL_TOKENS if device.type == "cpu" else MAX_CACHE_POSITIONS
    for chunk in micro_batches(examples, max_tokens, share_prompts=False):
        chunk_prompts = [prompts[i] for i in chunk]
        first = chunk[0]
        chunk_cache = cache[:, :, first : first + len(chunk)]
        longest = len(chunk_prompts[-1])
        padded = []
        for prompt in chunk_prompts:
            padding = [0] * (longest - len(prompt))
            padded.append([*prompt, *padding])
        ids_SL = torch.tensor(padded, device=device)
        last_S = torch.tensor(
            [len(prompt) - 1 for prompt in chunk_prompts], device=device
        )
        hidden_SH = decoder.prefill(
            ids_SL, rotary, chunk_cache[..., :longest, :], last_S
        )
        hidden_states.append(hidden_SH)
        chunk_cache[..., longest:width, :] = 0.0  # masked, but it must be finite
    return torch.cat(hidden_states), cache
