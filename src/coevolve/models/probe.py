"""Asks a model whether the learner and the sampler compute its probabilities as it does itself.

A cap on logits, a bias, or attention that ignores padding would let the policy train on other
probabilities than those that were sampled. The probe finds them whatever they are called.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coevolve.losses import selective_logprobs
from coevolve.models import sampler
from coevolve.models.sampler import Request

LENGTHS = (3, 7, 12)  # of the prompts; different, so that a batch of them is padded
COMPLETION_TOKENS = 4
MAX_GAP = 1e-3  # nats a token, in float32
# bfloat16 has eight bits: logits of 20 round by 0.06.
MAX_GAP_ROUNDED = 0.25
CAP = re.compile(r"(?:final_)?logits?_?soft_?cap(?:ping)?")


def capped_logits(config: Any) -> str:
    """Return the field that caps the logits, wherever a configuration keeps it, "" if none does."""
    for name, value in _fields(config.to_dict()):
        last = name.rpartition(".")[2]
        if CAP.fullmatch(last) and value:
            return f"{name} = {value}"
    return ""


def _fields(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of a configuration and of those inside it, with dotted names."""
    for name, value in config.items():
        if isinstance(value, Mapping):
            yield from _fields(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


@torch.no_grad()
def check(policy: Any) -> None:
    """Raise ValueError if learner or sampler differ from the model by more than rounding.

    Three short prompts of different lengths are completed greedily. The model's own logits for
    each of them alone are the truth.
    """
    vocabulary = len(policy.head_VH)
    requests = []
    for length in LENGTHS:
        positions = range(length)
        prompt = tuple((5 + 7 * position) % vocabulary for position in positions)
        requests.append(Request(prompt, (length,), 0.0, COMPLETION_TOKENS))
    completions = sampler.sample(requests, policy.batch_sampler())
    examples = []
    expected = []
    sampled = []
    for request, completion in zip(requests, completions, strict=True):
        token_ids = tuple(completion.token_ids)
        examples.append((request.prompt, token_ids))
        expected.append(_own_logprobs(policy, request.prompt, token_ids))
        sampled += completion.logprobs
    expected_T = torch.cat(expected)
    hidden_TH, targets_T = policy.hidden_states(examples)
    learned_T = selective_logprobs(hidden_TH, policy.head_VH, targets_T, 1.0)
    _compare(policy, "learner", learned_T, expected_T)
    _compare(policy, "sampler", torch.tensor(sampled), expected_T)


def _own_logprobs(
    policy: Any, prompt: tuple[int, ...], completion: tuple[int, ...]
) -> Tensor:
    """Return the log-probabilities (T,) of a completion by the model's own logits."""
    device = policy.head_VH.device
    input_1S = torch.tensor([[*prompt, *completion]], device=device)
    logits_1SV = policy.plain_model(input_ids=input_1S, use_cache=False).logits
    first = len(prompt) - 1  # the position that predicts the first token
    last = first + len(completion)
    logits_TV = logits_1SV[0, first:last].float()
    targets_T = torch.tensor(completion, device=device)
    return -F.cross_entropy(logits_TV, targets_T, reduction="none")


def _compare(policy: Any, name: str, logprobs_T: Tensor, expected_T: Tensor) -> None:
    head = policy.head_VH
    is_exact = head.dtype == torch.float32 and not head.is_cuda
    limit = MAX_GAP if is_exact else MAX_GAP_ROUNDED
    difference_T = logprobs_T.cpu() - expected_T.cpu()
    gap = float(difference_T.abs().max())
    if gap <= limit:
        return
    model = type(policy.plain_model).__name__
    raise ValueError(
        f"model {model}: the {name}'s log-probabilities differ from "
        f"the model's own by {gap:.2g} nats on a probe of {len(LENGTHS)} prompts, at most {limit} "
        "is allowed; it may bias or cap its logits, or not ignore padding"
    )
