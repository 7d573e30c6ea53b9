"""Credit by text segment (CoNL, section 3.3, Table 1): whose reward each token gets, if any.

Turns character spans into token masks through `Reply.char_ends`, and segment rewards into
advantages. Segments are names; the methods find their spans in the text.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import fmean
from typing import TypeGuard

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.types import Reply, Sample

MaskedRewards = dict[str, float | None]  # by segment, None where masked
Advantages = list[list[float | None]]  # by sample and token, None where masked

# Estimators that take a reward per segment as well as one per reply.
WITH_SEGMENTS = ("segment_centred", "gae", "rae")
GAMMA = 1.0  # nothing is discounted
LAMBDA = 0.95  # Appendix G


def segments(sample: Sample) -> MaskedRewards:
    """Return the sample's rewards by segment, None where masked.

    A plain number is the reward of a single segment without a name. Raises ValueError for a
    reward that is neither a finite number nor a mapping to such numbers and None.
    """
    reward = sample.reward
    if not isinstance(reward, Mapping):
        return {"": finite_reward(sample)}
    for segment_reward in reward.values():
        if segment_reward is not None and not _is_finite_number(segment_reward):
            raise ValueError(
                "the advantage takes one finite number or None per segment, "
                f"{sample.role!r} earned {reward!r}"
            )
    return dict(reward)


def finite_reward(sample: Sample) -> float:
    """Return a reward that is one number; ValueError names the role of any other reward."""
    reward = sample.reward
    if isinstance(reward, Mapping):
        raise ValueError(
            f"a reward per segment needs estimator={', '.join(WITH_SEGMENTS[:-1])} or "
            f"{WITH_SEGMENTS[-1]}; {sample.role!r} earned {reward!r}; "
            "a reward that is a sum of named parts is written coevolve.Parts({...})"
        )
    if not _is_finite_number(reward):
        raise ValueError(
            "the advantage takes one finite number per reply, "
            f"{sample.role!r} earned {reward!r}"
        )
    return float(reward)


def _is_finite_number(reward: object) -> TypeGuard[float]:
    return isinstance(reward, (int, float)) and math.isfinite(reward)


def unmasked(sample: Sample) -> dict[str, float]:
    """Return the sample's rewards by segment, without those that are masked."""
    rewards = {}
    for name, reward in segments(sample).items():
        if reward is not None:
            rewards[name] = reward
    return rewards


def owners(sample: Sample) -> list[str | None]:
    """Return the segment that each token of the completion belongs to, None for none.

    A token belongs to a span when every character it touches does, so a token across an edge is
    left out. A token that completes no character (part of a multi-byte one) goes with the next
    character. A segment without spans covers the whole completion, including the EOS token. Tokens
    claimed by two segments belong to neither.
    """
    claims: list[list[str]] = [[] for _ in sample.reply.completion_ids]
    for name in segments(sample):
        for token in _tokens_of(sample, name):
            claims[token].append(name)
    owner_of: list[str | None] = []
    for names in claims:
        owner_of.append(names[0] if len(names) == 1 else None)
    return owner_of


def _tokens_of(sample: Sample, name: str) -> set[int]:
    """Return the indices of the tokens that a segment claims."""
    reply = sample.reply
    if name not in sample.spans:
        return set(range(len(reply.completion_ids)))
    tokens: set[int] = set()
    for start, end in sample.spans[name]:
        tokens |= _tokens_inside(reply, start, end)
    return tokens


def _tokens_inside(reply: Reply, span_start: int, span_end: int) -> set[int]:
    """Return the tokens all of whose characters lie in [span_start, span_end)."""
    # A token that ends where the span does may hold the first byte of the next character, if that
    # character has several.
    next_character = reply.text[span_end : span_end + 1]
    last_sure_end = span_end
    if not next_character.isascii():
        last_sure_end = span_end - 1
    inside: set[int] = set()
    token_start = 0
    for token, token_end in enumerate(reply.char_ends):
        completes_a_character = token_start < token_end
        limit = last_sure_end if completes_a_character else span_end
        if span_start <= token_start < span_end and token_end <= limit:
            inside.add(token)
        token_start = token_end
    return inside


def token_rewards(sample: Sample) -> list[float | None]:
    """Return the reward of each token's segment, None for tokens that are masked."""
    rewards = segments(sample)
    reward_by_token: list[float | None] = []
    for owner in owners(sample):
        reward_by_token.append(None if owner is None else rewards[owner])
    return reward_by_token


def mean_reward(rewards: Sequence[float]) -> float:
    """Return the mean; of equal rewards exactly that number, which a rounded mean may miss."""
    if min(rewards) == max(rewards):
        return rewards[0]
    return fmean(rewards)


def segment_centred(inputs: EstimatorInputs) -> Advantages:
    """Give every token its segment's reward minus that segment's mean over the conversation.

    The mean is over the agents: the samples of one role and group. Masked segments (reward
    None) and tokens outside every segment get None and do not count in the mean.
    """
    peer_rewards: dict[Hashable, list[float]] = defaultdict(list)
    for sample in inputs.samples:
        for name, reward in unmasked(sample).items():
            peer_rewards[_peers(sample, name)].append(reward)
    advantages = []
    for sample in inputs.samples:
        centred: dict[str | None, float] = {}
        for name, reward in unmasked(sample).items():
            peers = peer_rewards[_peers(sample, name)]
            centred[name] = reward - mean_reward(peers)
        row = [centred.get(owner) for owner in owners(sample)]
        advantages.append(row)
    return advantages


def _peers(sample: Sample, segment: str) -> Hashable:
    """Return the key of the segments that share a mean with this one."""
    return sample.role, sample.group_id, segment


def gae(inputs: EstimatorInputs) -> Advantages:
    """Generalised advantage estimation along each segment (CoNL, Appendix G: gamma 1, lambda 0.95).

    `inputs.values` holds one estimate of the expected reward per token, made before that token was
    drawn. A segment's tokens form one trajectory with its reward on the last of them and value 0
    after it, so nothing leaks from one segment into another. Masked tokens get None.
    """
    advantages: Advantages = []
    for sample, values in zip(inputs.samples, inputs.values, strict=True):
        row: list[float | None] = [None] * len(sample.reply.completion_ids)
        owner_of = owners(sample)
        for name, segment_reward in unmasked(sample).items():
            trajectory = [t for t, owner in enumerate(owner_of) if owner == name]
            reward = segment_reward  # on the last token; 0 on the others
            next_value = 0.0
            advantage = 0.0
            for t in reversed(trajectory):
                td_error = reward + GAMMA * next_value - values[t]
                advantage = td_error + GAMMA * LAMBDA * advantage
                row[t] = advantage
                next_value = values[t]
                reward = 0.0
        advantages.append(row)
    return advantages


def role_conditioned(inputs: EstimatorInputs) -> Advantages:
    """Give every token its segment's reward minus the role's moving mean so far (RAE, SPIRAL).

    `inputs.values` holds that mean per token of each sample. No standard deviation; masked tokens
    get None.
    """
    advantages = []
    for sample, means in zip(inputs.samples, inputs.values, strict=True):
        row = []
        for reward, mean in zip(token_rewards(sample), means, strict=True):
            advantage = None
            if reward is not None:
                advantage = reward - mean
            row.append(advantage)
        advantages.append(row)
    return advantages
