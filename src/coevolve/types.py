"""The nouns: Turn, Reply, Sample, Outcome, Role. Text for methods, tokens for the learner.

Knows nothing about models, parsing or what a reward means, and imports nothing but the standard library.
"""

import re
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Reward = float | Mapping[str, float | None]
Spans = Mapping[str, tuple[tuple[int, int], ...]]
FIELD = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True)
class Turn:
    """A request: one role asks one policy to speak."""

    role: str
    messages: tuple[dict[str, str], ...]
    policy: str = "shared"
    max_tokens: int | None = None  # None: the engine's default
    temperature: float | None = None  # None: the engine's default; 0.0 decodes greedily
    key: tuple[int, ...] = ()  # (seed, step, episode, turn), filled in by `play`: the sampling noise depends on it

    def sampling(self, temperature: float, max_tokens: int) -> tuple[float, int]:
        """Return the turn's own temperature and max_tokens, and the engine's (the arguments) where it has none."""
        heat = temperature if self.temperature is None else self.temperature
        return heat, max_tokens if self.max_tokens is None else self.max_tokens


@dataclass(frozen=True)
class Reply:
    """What came back: `text` for the method; ids, log-probabilities and character ends for the learner."""

    turn: Turn
    text: str
    prompt_ids: tuple[int, ...] = ()
    completion_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()  # of each id under the policy that sampled it, at the sampling temperature
    char_ends: tuple[int, ...] = ()  # how many characters of `text` are complete after each id
    finished: bool = True  # False: cut off at max_tokens
    temperature: float = 1.0  # that `logprobs` are of

    @property
    def group_id(self) -> Hashable:
        """The group of all replies of this reply's episode, for rewards that share a baseline."""
        return self.turn.key[:-1]

    def earns(self, reward: Reward, group_id: Hashable = None, spans: Spans | None = None) -> "Sample":
        """Make this reply training data. `reward` is a number, or {tag: number or None} for segments.

        `group_id` says who shares a baseline: None is the whole role, `reply.group_id` the episode.
        `spans` says where the segments are: {tag: ((start, end), ...)}, character ranges in `text`.
        """
        return Sample(self, reward, group_id, spans or {})


@dataclass(frozen=True)
class Sample:
    """A reply that earned something. A reply that earns nothing is never trained on."""

    reply: Reply
    reward: Reward
    group_id: Hashable = None  # who shares a baseline: None is the whole role, a key is a set of siblings
    spans: Spans = field(default_factory=dict)  # of a segmented reward: the character ranges of each tag

    @property
    def role(self) -> str:
        """Name of the role that spoke."""
        return self.reply.turn.role

    @property
    def policy(self) -> str:
        """Name of the policy that spoke and will be updated."""
        return self.reply.turn.policy


@dataclass(frozen=True)
class Outcome:
    """What an episode returns: samples to learn from, additions to the shared pools, and what was played.

    `trace` is whatever the method's `observe` needs to see. `facts` are what `observe` returns; numbers among them
    (None: does not apply) are averaged over the step's episodes into the metrics.
    """

    samples: list[Sample] = field(default_factory=list)
    adds: dict[str, list[Any]] = field(default_factory=dict)  # pool name: items, committed after the step
    trace: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    generated: int = 0  # tokens of all replies of the episode, unpaid ones too; the driver counts them


@dataclass(frozen=True)
class Role:
    """A name, a prompt template and the policy that plays it; calling it with fields makes a Turn."""

    name: str
    prompt: str
    policy: str = "shared"
    max_tokens: int | None = None
    temperature: float | None = None

    @property
    def fields(self) -> frozenset[str]:
        """Names of the template's placeholders."""
        return frozenset(FIELD.findall(self.prompt))

    def __call__(self, /, *, policy: str | None = None, **fields: object) -> Turn:
        """Fill the template in one pass, so braces inside a value are never expanded.

        Raises ValueError when a placeholder is left out or a field is not in the template.
        """
        if self.fields != fields.keys():
            raise ValueError(f"role {self.name!r} takes the fields {sorted(self.fields)}, got {sorted(fields)}")
        text = FIELD.sub(lambda match: str(fields[match[1]]), self.prompt)
        # No tokenizer takes half a surrogate pair, which the JSON of a reply may hold.
        message = {"role": "user", "content": text.encode(errors="replace").decode()}
        return Turn(self.name, (message,), policy or self.policy, self.max_tokens, self.temperature)


T = TypeVar("T")
Dialogue = Generator[Turn | list[Turn], Any, T]  # yields turns, is sent replies, returns a T
Episode = Dialogue[Outcome]
