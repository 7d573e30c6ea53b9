"""Credit by text segment (CoNL, section 3.3 and Table 1): whose reward each token gets, and which tokens are masked.

Turns character spans into token masks through `Reply.char_ends`, and segment rewards into advantages. Knows segments by
name only; where they are in a text was found out before.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean

from coevolve.types import Sample

GAMMA, LAMBDA = 1.0, 0.95  # Appendix G prints lambda; nothing is discounted


def segments(sample: Sample) -> dict[str, float | None]:
    """The sample's rewards by segment, None where masked; a plain number pays one segment without a name."""
    reward = sample.reward
    return {"": reward} if isinstance(reward, (int, float)) else dict(reward)


def unmasked(sample: Sample) -> dict[str, float]:
    """Return the sample's rewards by segment, without those that are masked."""
    return {name: reward for name, reward in segments(sample).items() if reward is not None}


def owners(sample: Sample) -> list[str | None]:
    """Return the segment that each token of the reply belongs to, None where it belongs to none.

    A token belongs to a span when every character it touches does: one that reaches across an edge is left out,
    and a token that completes no character (part of a multi-byte one) goes with the character that comes next.
    A segment without spans is the whole reply, its end token included. What two segments claim belongs to none.
    """
    claimed = {name: _claimed(sample, name) for name in segments(sample)}
    found = [[name for name in claimed if i in claimed[name]] for i in range(len(sample.reply.completion_ids))]
    return [names[0] if len(names) == 1 else None for names in found]


def _claimed(sample: Sample, name: str) -> set[int]:
    """Return which tokens belong to a segment."""
    reply = sample.reply
    if name not in sample.spans:
        return {*range(len(reply.completion_ids))}
    starts, claimed = (0, *reply.char_ends), set[int]()
    for first, last in sample.spans[name]:
        # A token that ends where the span does may hold the first byte of the next character, if that has several.
        sure = last if last >= len(reply.text) or reply.text[last].isascii() else last - 1
        for i, end in enumerate(reply.char_ends):
            if first <= starts[i] < last and end <= (sure if starts[i] < end else last):
                claimed.add(i)
    return claimed


def token_rewards(sample: Sample) -> list[float | None]:
    """Return the reward of each token's segment, None for tokens that are masked."""
    rewards = segments(sample)
    return [None if name is None else rewards[name] for name in owners(sample)]


def mean_reward(rewards: Sequence[float]) -> float:
    """Return the mean of some rewards; of equal ones exactly that number, which a rounded mean may miss."""
    return rewards[0] if min(rewards) == max(rewards) else fmean(rewards)


def segment_centred(samples: Sequence[Sample]) -> list[list[float | None]]:
    """Give every token its segment's reward minus the mean of that segment over the agents of the conversation.

    The agents are the samples of one role and group. Masked segments (reward None) and tokens outside every
    segment get None and do not count in the mean.
    """
    earned: dict[tuple[Hashable, ...], list[float]] = defaultdict(list)
    for sample in samples:
        for name, reward in unmasked(sample).items():
            earned[sample.role, sample.group_id, name].append(reward)
    advantages = []
    for sample in samples:
        rewards = unmasked(sample)
        means = {name: mean_reward(earned[sample.role, sample.group_id, name]) for name in rewards}
        advantages.append([rewards[name] - means[name] if name in rewards else None for name in owners(sample)])
    return advantages


def gae(samples: Sequence[Sample], values: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """Generalised advantage estimation along each segment, as Appendix G states it (gamma 1, lambda 0.95).

    `values` holds one estimate of the expected reward per token of each sample, made before that token was
    drawn. A segment's tokens form one trajectory with its reward on the last of them and value 0 after it, so
    nothing leaks from one segment into another. Masked tokens get None.
    """
    advantages: list[list[float | None]] = []
    for sample, estimates in zip(samples, values, strict=True):
        row: list[float | None] = [None] * len(sample.reply.completion_ids)
        names = owners(sample)
        for name, reward in unmasked(sample).items():
            following, tail = 0.0, 0.0
            for i in reversed([i for i, owner in enumerate(names) if owner == name]):
                error = reward + GAMMA * following - estimates[i]
                tail = error + GAMMA * LAMBDA * tail
                row[i], reward, following = tail, 0.0, estimates[i]
        advantages.append(row)
    return advantages


def role_conditioned(samples: Sequence[Sample], values: Sequence[Sequence[float]]) -> list[list[float | None]]:
    """Give every token its segment's reward minus the moving mean of what the role earned before (RAE, SPIRAL).

    `values` holds that mean per token of each sample. No standard deviation; masked tokens get None.
    """
    pairs = [zip(token_rewards(sample), means, strict=True) for sample, means in zip(samples, values, strict=True)]
    return [[None if reward is None else reward - mean for reward, mean in row] for row in pairs]
