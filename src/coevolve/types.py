"""The core types: Turn, Reply, Sample, Outcome, Role. Methods read text, the learner tokens.

Knows nothing about models, parsing or the meaning of rewards; imports the standard library alone.
"""

import re
from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Self, TypeVar

Reward = float | Mapping[str, float | None]
Spans = Mapping[str, tuple[tuple[int, int], ...]]
FIELD = re.compile(r"\{([a-z_][a-z0-9_]*)\}")


@dataclass(frozen=True)
class Turn:
    """A request: in one role, one policy is prompted for a reply."""

    role: str
    messages: tuple[dict[str, str], ...]
    policy: str = "shared"
    max_tokens: int | None = None  # None: the engine's default
    temperature: float | None = None  # None: the engine's default; 0.0 decodes greedily
    # (seed, step, episode, turn), set by `play`; the sampling noise depends on it.
    key: tuple[int, ...] = ()
    source: str = ""  # the prompt's paper/name, "" for a prompt that is written in code
    # What the prompt was filled with.
    fields: Mapping[str, object] = field(
        default_factory=dict, compare=False, repr=False
    )

    def sampling(self, temperature: float, max_tokens: int) -> tuple[float, int]:
        """Return the turn's (temperature, max_tokens); an argument replaces one that is None."""
        if self.temperature is not None:
            temperature = self.temperature
        if self.max_tokens is not None:
            max_tokens = self.max_tokens
        return temperature, max_tokens


class RewardError(ValueError):
    """A reward is neither a number nor a mapping; `role` is the name of the role that earned it."""

    def __init__(self, message: str, role: str):
        super().__init__(message)
        self.role = role


class Parts(float):
    """A reward that is the weighted sum of named parts, and remembers them.

    It is a number, so that a reward hook may return it. A part of None is left out, and one without
    a weight counts once. The result of arithmetic with it is a plain number without parts.
    """

    values: dict[str, float]

    def __new__(
        cls,
        parts: Mapping[str, float | None],
        weights: Mapping[str, float] | None = None,
    ) -> Self:
        """Add up the parts. Raises ValueError for the weight of a part that does not exist."""
        weights = weights or {}
        unknown = sorted(weights.keys() - parts.keys())
        if unknown:
            raise ValueError(
                f"weights must name parts of the reward, which are {', '.join(parts)}; "
                f"got {', '.join(unknown)}"
            )
        values = {name: value for name, value in parts.items() if value is not None}
        reward = sum(weights.get(name, 1.0) * value for name, value in values.items())
        number = super().__new__(cls, reward)
        number.values = values
        return number


@dataclass(frozen=True)
class Reply:
    """A completion: `text` for the method, token ids and log-probabilities for the learner."""

    turn: Turn
    text: str
    prompt_ids: tuple[int, ...] = ()
    completion_ids: tuple[int, ...] = ()
    # Of each id, under the policy that sampled it and at the sampling temperature.
    logprobs: tuple[float, ...] = ()
    # How many characters of `text` are complete after each id.
    char_ends: tuple[int, ...] = ()
    finished: bool = True  # False: cut off at max_tokens
    temperature: float = 1.0  # at which `logprobs` were computed

    @property
    def group_id(self) -> Hashable:
        """The group of this reply's episode, for rewards that share a baseline."""
        return self.turn.key[:-1]

    def earns(
        self, reward: Reward, group_id: Hashable = None, spans: Spans | None = None
    ) -> "Sample":
        """Make this reply training data with a reward: a number, or {tag: number or None}.

        Samples with the same `group_id` share a baseline: None is the whole role, `reply.group_id`
        the episode. `spans` locates the segments of a reward by tag: {tag: ((start, end), ...)},
        character ranges in `text`. The sample keeps the parts of a reward that is `Parts`. Raises
        RewardError for a reward of another type.
        """
        if isinstance(reward, Parts):
            return Sample(self, float(reward), group_id, spans or {}, reward.values)
        if not isinstance(reward, (Real, Mapping)):
            role = self.turn.role
            raise RewardError(
                "the advantage takes one finite number per reply, "
                f"{role!r} earned {reward!r}",
                role,
            )
        return Sample(self, reward, group_id, spans or {})

    def earns_parts(
        self,
        parts: Mapping[str, float | None],
        weights: Mapping[str, float] | None = None,
        group_id: Hashable = None,
    ) -> "Sample":
        """Make this reply training data with a reward that is the weighted sum of named parts.

        Metrics hold the mean of each part, part/ROLE/NAME, and transcripts show them. Short for
        `earns(Parts(parts, weights), group_id)`, see `Parts`.
        """
        return self.earns(Parts(parts, weights), group_id)


@dataclass(frozen=True)
class Sample:
    """A reply with a reward. Replies without a reward are never trained on."""

    reply: Reply
    reward: Reward
    # Samples with equal ids share a baseline; None: all samples of the role.
    group_id: Hashable = None
    # Character ranges of each tag of a segmented reward.
    spans: Spans = field(default_factory=dict)
    # The parts that the reward is a weighted sum of, for metrics and transcripts.
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def role(self) -> str:
        """Name of the reply's role."""
        return self.reply.turn.role

    @property
    def policy(self) -> str:
        """Name of the policy that sampled the reply and will be updated."""
        return self.reply.turn.policy


@dataclass(frozen=True)
class Outcome:
    """The result of an episode: samples to learn from, additions to the shared pools, a trace.

    `trace` is anything that the method's `observe` needs. `facts` is what `observe` returned;
    numbers in it (None: not applicable) are averaged over the step's episodes into the metrics.
    """

    samples: list[Sample] = field(default_factory=list)
    # Pool name to new items, which are committed after the step.
    adds: dict[str, list[Any]] = field(default_factory=dict)
    trace: Any = None
    facts: dict[str, Any] = field(default_factory=dict)
    # Tokens of all replies, with or without a reward; set by `play`.
    generated: int = 0
    # All replies in the order of their turns, for transcripts; set by `play`.
    replies: tuple[Reply, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Role:
    """A name, a prompt template and the policy that plays it; called with fields, makes a Turn."""

    name: str
    prompt: str
    policy: str = "shared"
    max_tokens: int | None = None
    temperature: float | None = None
    source: str = ""  # paper/name of the prompt's file

    @property
    def fields(self) -> frozenset[str]:
        """Names of the template's placeholders."""
        return frozenset(FIELD.findall(self.prompt))

    def __call__(self, /, *, policy: str | None = None, **fields: object) -> Turn:
        """Fill the template in one pass, so that braces inside a value are never expanded.

        Raises ValueError unless the fields are exactly the template's placeholders.
        """
        if self.fields != fields.keys():
            raise ValueError(
                f"role {self.name!r} takes the fields {sorted(self.fields)}, got {sorted(fields)}"
            )
        text = FIELD.sub(lambda match: str(fields[match[1]]), self.prompt)
        # Tokenizers reject half of a surrogate pair, which the JSON of a reply may hold.
        text = text.encode(errors="replace").decode()
        message = {"role": "user", "content": text}
        return Turn(
            self.name,
            (message,),
            policy or self.policy,
            self.max_tokens,
            self.temperature,
            source=self.source,
            fields=fields,
        )


T = TypeVar("T")
# Yields turns, receives their replies and returns a T.
Dialogue = Generator[Turn | list[Turn], Any, T]
Episode = Dialogue[Outcome]
