"""Samples any causal model of `transformers` with the model's own `generate` and the same keyed noise as `sampler`."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from coevolve.policies.sampler import Completion, Request, choose, noise


def generate(model: Any, requests: Sequence[Request], ends: Collection[int]) -> list[Completion]:
    """Return the completions of one batch; see `sampler.sample`."""
    width, room = max(len(request.prompt) for request in requests), max(request.limit for request in requests)
    padded = [[0] * (width - len(request.prompt)) + list(request.prompt) for request in requests]
    mask = [[0] * (width - len(request.prompt)) + [1] * len(request.prompt) for request in requests]
    keyed = _Keyed(requests, room)
    settings = GenerationConfig(max_new_tokens=room, eos_token_id=sorted(ends), pad_token_id=0, do_sample=False)
    own, model.generation_config = model.generation_config, GenerationConfig()
    try:  # the model's own generation settings may hold penalties that the log-probabilities do not know
        whole = model.generate(
            torch.tensor(padded, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            logits_processor=LogitsProcessorList([keyed]),
            generation_config=settings,
        )
    finally:
        model.generation_config = own
    done = []
    ids_BT, logprobs_BT = whole[:, width:].tolist(), torch.stack(keyed.logprobs, 1).tolist()
    for request, ids, logprobs in zip(requests, ids_BT, logprobs_BT, strict=True):
        stop = next((i + 1 for i, token in enumerate(ids[: request.limit]) if token in ends), request.limit)
        done.append((ids[:stop], logprobs[:stop]))
    return done


class _Keyed(LogitsProcessor):
    """Leaves `generate` only the token that each row's own noise chooses, and keeps their log-probabilities."""

    def __init__(self, requests: Sequence[Request], room: int):
        self.noise_BT = torch.from_numpy(np.stack([noise(request.key, room) for request in requests]))
        self.temperatures_B = torch.tensor([request.temperature for request in requests], dtype=torch.float32)
        self.logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return `scores` with every token but the chosen one at minus infinity."""
        uniforms_B = self.noise_BT[:, len(self.logprobs)].to(scores.device)
        tokens_B, logprobs_B = choose(scores, self.temperatures_B.to(scores.device), uniforms_B)
        self.logprobs.append(logprobs_B)
        return torch.full_like(scores, -torch.inf).scatter(-1, tokens_B[:, None], 0.0)
