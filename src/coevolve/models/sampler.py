"""Samples completions by `Decoder`, or by the model's own `generate` if `Decoder` cannot.

The noise of a completion depends only on its request's key. A row is a request that still runs; a
slot holds, in the key-value cache, what several rows have in common. Shapes: N requests, R rows,
S slots, T steps, V vocabulary, H hidden size, L positions, E end tokens.
"""

import hashlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
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

# Rows decoded together.
MAX_ROWS = 512
# Cache positions (rows x length) held together.
MAX_CACHE_POSITIONS = 2**18
# Padded prompt tokens that a CPU prefills at once: activations then fit into the CPU's own cache.
PREFILL_TOKENS = 4096
# The same on a GPU: what its multiprocessors need is there, and the activations stay below 2 GiB.
GPU_PREFILL_TOKENS = 2**15
# The share of a GPU's free memory for the cache: while it grows, a copy of half its size exists.
CACHE_SHARE = 0.4
# Cache positions first reserved for new tokens; doubled when they are used up.
CACHE_INCREMENT = 16
# The cache is compacted when a smaller fraction of its slots is in use.
COMPACT_BELOW = 0.75


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
    """Sampled tokens and their log-probabilities as drawn; those of temperature 1 if greedy."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


def noise(keys: Sequence[Hashable], count: int) -> np.ndarray:
    """Return uniform numbers in [0, 1), (keys, count).

    A row depends only on the `repr` of its key, and a shorter row is a prefix of a longer one.
    """
    rows = np.empty((len(keys), count))
    source = np.random.Philox(key=0)
    generator = np.random.Generator(source)
    fresh: Any = source.state  # counter at 0, nothing buffered
    for row, key in zip(rows, keys, strict=True):
        key_bytes = repr(key).encode()
        digest = hashlib.blake2b(key_bytes, digest_size=16).digest()
        keyed = {**fresh["state"], "key": np.frombuffer(digest, "<u8")}
        # The same as a new generator of this key, and four times as fast.
        source.state = fresh | {"state": keyed}
        generator.random(out=row)
    return rows


@torch.inference_mode()
def sample(
    requests: Sequence[Request],
    complete_batch: Callable[[list[Request]], list[Completion]],
    max_positions: int | None = None,
) -> list[Completion]:
    """Complete the requests batch by batch; `complete_batch` is `decode` or `generate`.

    A batch takes at most `max_positions` of the cache (None: MAX_CACHE_POSITIONS), except for a
    single request. The other
    requests of a batch do not change a completion's noise, though they may change its logits by
    rounding. Raises ValueError for an invalid request, FloatingPointError if the model's output is
    not finite.
    """
    for request in requests:
        _check(request)
    completions: dict[int, Completion] = {}
    for batch in batches(requests, max_positions):
        batch_requests = [requests[i] for i in batch]
        completed = complete_batch(batch_requests)
        completions.update(zip(batch, completed, strict=True))
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


def positions_in(free_bytes: int, bytes_per_position: int) -> int:
    """Return how many cache positions fit into a GPU's free memory, at most as many as on a CPU."""
    fitting = int(CACHE_SHARE * free_bytes) // bytes_per_position
    return min(MAX_CACHE_POSITIONS, max(1, fitting))


def batches(
    requests: Sequence[Request], max_positions: int | None = None
) -> Iterator[list[int]]:
    """Yield the requests' indices in batches, sorted by prompt.

    A batch has at most MAX_ROWS requests and `max_positions` (None: MAX_CACHE_POSITIONS); a request
    that is too large comes alone. Equal prompts are neighbours, and the longest prompt of a batch
    comes last.
    """
    if max_positions is None:
        max_positions = MAX_CACHE_POSITIONS
    largest_limit = max((request.limit for request in requests), default=0)

    def fits(batch: list[int]) -> bool:
        if len(batch) > MAX_ROWS:
            return False
        longest_prompt = len(requests[batch[-1]].prompt)
        room = max_positions // len(batch) - longest_prompt
        if largest_limit <= room:  # saves a pass over the batch
            return True
        return max(requests[i].limit for i in batch) <= room

    def by_prompt(i: int) -> tuple[int, tuple[int, ...]]:
        prompt = requests[i].prompt
        return len(prompt), prompt

    order = sorted(range(len(requests)), key=by_prompt)
    return greedy_batches(order, fits)


def choose(
    logits_SV: Tensor, temperature_S: Tensor, slot_R: Tensor, uniforms_R: Tensor
) -> tuple[Tensor, Tensor]:
    """Choose one token per row by inverting the cumulative distribution of the row's slot.

    Returns (tokens_R, logprobs_R), log-probabilities under the distribution sampled from. At
    temperature 0 a row takes the most probable token, with its log-probability at temperature 1.
    """
    is_greedy_S = temperature_S == 0
    divisor_S = torch.where(is_greedy_S, 1.0, temperature_S)
    scaled_SV = logits_SV.float() / divisor_S[:, None]
    logprobs_SV = scaled_SV.log_softmax(-1)
    probs_SV = logprobs_SV.exp()
    cumulative_SV = probs_SV.cumsum(-1, dtype=torch.float64)
    cumulative_RV = cumulative_SV[slot_R]
    total_R1 = cumulative_RV[:, -1:]
    # Rounding may carry u * total up to total itself: stay below, at a token of some probability.
    below_total_R1 = total_R1.nextafter(torch.zeros_like(total_R1))
    uniforms_R1 = uniforms_R[:, None]
    threshold_R1 = torch.minimum(uniforms_R1 * total_R1, below_total_R1)
    drawn_R1 = torch.searchsorted(cumulative_RV, threshold_R1, right=True)
    # The index is out of range only if a logit is NaN, which `sample` reports.
    last_token = logits_SV.shape[-1] - 1
    drawn_R = drawn_R1[:, 0].clamp(max=last_token)
    most_probable_S = logprobs_SV.argmax(-1)
    most_probable_R = most_probable_S[slot_R]
    is_greedy_R = is_greedy_S[slot_R]
    tokens_R = torch.where(is_greedy_R, most_probable_R, drawn_R)
    logprobs_R = logprobs_SV[slot_R, tokens_R]
    return tokens_R, logprobs_R


def generate(
    model: Any, eos_token_ids: Collection[int], requests: Sequence[Request]
) -> list[Completion]:
    """Sample one batch with a model's own greedy `generate`; a logits processor draws the tokens.

    The processor hides all tokens but the drawn one, so that greedy search must take it.
    Completions end with one of `eos_token_ids` or at their limit.
    """
    steps = max(request.limit for request in requests)
    noise_NT = _noise_of(requests, steps, model.device)
    temperatures = [request.temperature for request in requests]
    temperature_N = torch.tensor(temperatures, dtype=torch.float32, device=model.device)
    slot_N = torch.arange(len(requests), device=model.device)  # each row has its own
    logprobs_of_step: list[Tensor] = []

    def leave_only_the_chosen_token(_: Tensor, logits_NV: Tensor) -> Tensor:
        uniforms_N = noise_NT[:, len(logprobs_of_step)]
        tokens_N, logprobs_N = choose(logits_NV, temperature_N, slot_N, uniforms_N)
        logprobs_of_step.append(logprobs_N)
        impossible_NV = torch.full_like(logits_NV, -torch.inf)
        return impossible_NV.scatter(-1, tokens_N[:, None], 0.0)

    prompts = []
    visible = []
    for request in requests:
        prompt = torch.tensor(request.prompt, device=model.device)
        prompts.append(prompt)
        visible.append(torch.ones_like(prompt))
    ids_NL = pad_sequence(prompts, batch_first=True, padding_side="left")
    mask_NL = pad_sequence(visible, batch_first=True, padding_side="left")
    processors = LogitsProcessorList([leave_only_the_chosen_token])
    settings = GenerationConfig(
        max_new_tokens=steps,
        eos_token_id=sorted(eos_token_ids),
        pad_token_id=0,
        do_sample=False,
    )
    with _generation_settings(model, settings):
        output_NL = model.generate(
            ids_NL, attention_mask=mask_NL, logits_processor=processors
        )
    prompt_width = ids_NL.shape[1]
    tokens = output_NL[:, prompt_width:].tolist()
    logprobs = torch.stack(logprobs_of_step, 1).tolist()
    completions = []
    for request, row_tokens, row_logprobs in zip(
        requests, tokens, logprobs, strict=True
    ):
        # What a row drew after its end is cut off.
        length = _completed_length(row_tokens, request.limit, eos_token_ids)
        completion = Completion(row_tokens[:length], row_logprobs[:length])
        completions.append(completion)
    return completions


@contextmanager
def _generation_settings(model: Any, settings: GenerationConfig) -> Iterator[None]:
    """Let a model generate by these settings, which replace its own while the block runs.

    Its own may hold penalties that the log-probabilities ignore, and fill what is left open in
    settings that are passed to `generate`. A copy of the model would not help: Unsloth binds
    `generate` to the model.
    """
    own = model.generation_config
    model.generation_config = settings
    try:
        yield
    finally:
        model.generation_config = own


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
    """Sample one batch; finished rows leave it. The requests must be sorted as `batches` does.

    Completions end with one of `eos_token_ids` or at their limit. Requests of one prompt and
    temperature are merged into one slot of the cache, and computed once, until their tokens differ.
    """
    device = decoder.device
    steps = max(request.limit for request in requests)
    slot_of: dict[SlotStart, int] = {}
    slot_of_request = []
    for request in requests:
        start = SlotStart(request.prompt, request.temperature)
        slot = slot_of.setdefault(start, len(slot_of))
        slot_of_request.append(slot)
    slots = _CacheSlots(decoder, list(slot_of), steps)
    eos_E = torch.tensor([*eos_token_ids], dtype=torch.long, device=device)
    limits_N = torch.tensor([request.limit for request in requests], device=device)
    noise_NT = _noise_of(requests, steps, device)

    # The requests whose rows still run, and the slot of each row.
    request_R = torch.arange(len(requests), device=device)
    slot_R = torch.tensor(slot_of_request, device=device)
    history = _History()
    for t in range(steps):
        logits_SV = decoder.logits(slots.hidden_SH)
        tokens_R, logprobs_R = choose(
            logits_SV, slots.temperature_S, slot_R, noise_NT[request_R, t]
        )
        history.add(request_R, tokens_R, logprobs_R)
        ended_R = torch.isin(tokens_R, eos_E)
        below_limit_R = limits_N[request_R] > t + 1
        unfinished_R = ~ended_R & below_limit_R
        kept_rows = unfinished_R.nonzero()[:, 0]
        if not len(kept_rows):
            break
        # From here on, R are the kept rows.
        request_R = request_R[kept_rows]
        tokens_R = tokens_R[kept_rows]
        slot_R = slots.split(slot_R[kept_rows], tokens_R)
        slots.append(t, slot_R, tokens_R)
    return history.completions(len(requests))


@dataclass(frozen=True)
class SlotStart:
    """What the rows of a slot have in common before their first token."""

    prompt: tuple[int, ...]
    temperature: float


class _History:
    """The requests, tokens and log-probabilities of each step of `decode`."""

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
            completion = completions[request]
            completion.token_ids.append(token)
            completion.logprobs.append(logprob)
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
        # The state of each slot's last token, from which the next logits come, and the cache.
        self.hidden_SH, self.cache = _prefill(
            decoder, prompts, self.rotary, min(steps, CACHE_INCREMENT)
        )
        self.length_S = torch.tensor(lengths, device=device)
        self.temperature_S = torch.tensor(
            temperatures, dtype=torch.float32, device=device
        )
        # Prompts are padded on the right: new tokens must not attend to the padding.
        width = self.prompt_width + steps
        position_L = torch.arange(width, device=device)
        after_prompt_SL = position_L >= self.length_S[:, None]
        padding_SL = after_prompt_SL & (position_L < self.prompt_width)
        mask_SL = torch.where(padding_SL, -torch.inf, 0.0).to(self.hidden_SH.dtype)
        self.mask = mask_SL[:, None, None]  # (S, 1, 1, L)

    def split(self, slot_R: Tensor, tokens_R: Tensor) -> Tensor:
        """Give rows of one slot that drew different tokens slots of their own; return slot_R.

        Slots without rows are dropped on the way, if there are many of them. Nothing changes if no
        slot splits and few are without rows.
        """
        vocab_size = self.decoder.head_HV.shape[1]
        slot_and_token_R = slot_R * vocab_size + tokens_R
        # From here on, S are the new slots, and parent_S is the old slot of each.
        new_slot_R: Tensor
        slot_and_token_S, new_slot_R = slot_and_token_R.unique(return_inverse=True)
        parent_S = slot_and_token_S // vocab_size
        same_parent = parent_S[1:] == parent_S[:-1]
        some_slot_split = bool(same_parent.any())
        slots_before = len(self.length_S)
        many_slots_unused = len(parent_S) < COMPACT_BELOW * slots_before
        if not (some_slot_split or many_slots_unused):
            return slot_R
        self.length_S = self.length_S[parent_S]
        self.temperature_S = self.temperature_S[parent_S]
        self.mask = self.mask[parent_S]
        self.cache = self.cache.index_select(2, parent_S)  # dimension 2: slots
        return new_slot_R

    def append(self, t: int, slot_R: Tensor, tokens_R: Tensor) -> None:
        """Append the rows' tokens of step `t`; update the hidden states of the slots."""
        position = self.prompt_width + t
        if position == self.cache.shape[-2]:
            # The cache is full and holds t new tokens: double their room.
            more = min(t, self.steps - t)
            at_the_end = (0, 0, 0, more)
            self.cache = F.pad(self.cache, at_the_end)
        # A slot without rows gets token 0; nothing reads what it computes.
        ids_S = torch.zeros_like(self.length_S).scatter_(0, slot_R, tokens_R)
        text_position_S = self.length_S + t
        rotary_S = self.rotary[text_position_S]
        mask = self.mask[..., : position + 1]
        # Also writes the new position of the cache.
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
    examples = [(prompt, ()) for prompt in prompts]  # without completions
    max_tokens = PREFILL_TOKENS if device.type == "cpu" else GPU_PREFILL_TOKENS
    # The prompts are sorted by length, so that a chunk is a range of them, in order.
    for chunk in micro_batches(examples, max_tokens, max_shared=0):
        chunk_prompts = [prompts[i] for i in chunk]
        first = chunk[0]
        end = first + len(chunk)
        chunk_cache = cache[:, :, first:end]  # a view, to be filled
        longest = len(chunk_prompts[-1])
        padded = []
        for prompt in chunk_prompts:
            padding = [0] * (longest - len(prompt))
            padded.append([*prompt, *padding])
        ids_SL = torch.tensor(padded, device=device)
        last_positions = [len(prompt) - 1 for prompt in chunk_prompts]
        last_S = torch.tensor(last_positions, device=device)
        hidden_SH = decoder.prefill(
            ids_SL, rotary, chunk_cache[..., :longest, :], last_S
        )
        hidden_states.append(hidden_SH)
        # These positions are masked, but 0 * NaN would be NaN.
        chunk_cache[..., longest:width, :] = 0.0
    return torch.cat(hidden_states), cache
