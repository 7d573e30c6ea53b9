"""Which GPU a run needs, and what it costs: GiB, hours and dollars, computed and never measured.

The replies of a step are counted on a few episodes of the embedded backbone. Speeds and prices are
assumptions, named below.
"""

import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from transformers import AutoConfig

from coevolve.engines.loading import load_policy
from coevolve.models.policy import Policy
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.training import config, machine, memory
from coevolve.training.memory import Memory
from coevolve.types import Reply, Turn

EPISODES = 8  # played to count replies
# Assumed tokens of a full prompt and of a reply.
PROMPT_TOKENS = 600
REPLY_TOKENS = 350
# Per parameter and token: forward pass, its recomputation, gradients of activations.
OPERATIONS_PER_PARAMETER = 6
# The model for which the cards' sampling speeds are assumed.
REFERENCE_PARAMETERS = 3.1e9
SLOWER_IN_PYTHON = 10  # how many times longer the torch engine samples, at least
KNOWN_MODELS = tomllib.loads(
    Path(__file__).with_name("known_models.toml").read_text(encoding="utf-8")
)
HEADER = (
    "| card | learning GiB per card | sampling GiB per card | fits | hours | dollars "
    "| with |"
)


@dataclass(frozen=True)
class Card:
    """A GPU, with assumed speeds and an assumed price of an hour."""

    name: str
    gib: float
    sampled_tokens_per_second: float
    """Of vLLM in large batches with a 3B model in bfloat16."""
    operations_per_second: float
    """During an update."""
    dollars_per_hour: float


CARDS = (
    Card("16 GB (RTX 4080, A4000)", 15.6, 1500, 20e12, 0.35),
    Card("24 GB (RTX 4090, L4, A10)", 23.6, 2500, 30e12, 0.5),
    Card("48 GB (L40S, A6000)", 47.5, 3500, 60e12, 1.0),
    Card("80 GB (A100, H100)", 79.2, 8000, 250e12, 2.5),
)
# What to change, in this order, until a run fits; the last ones change what is trained.
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"max_tokens_per_micro_batch": 8192},
    {"max_tokens_per_micro_batch": 4096},
    {
        "lora": [64, 128, 0.0],
        "engine": "unsloth+vllm",
        "max_tokens_per_micro_batch": 8192,
    },
    {
        "lora": [64, 128, 0.0],
        "engine": "unsloth+vllm",
        "max_tokens_per_micro_batch": 4096,
    },
    {
        "lora": [64, 128, 0.0],
        "engine": "unsloth",
        "quantize": "4bit",
        "max_tokens_per_micro_batch": 4096,
    },
)
# What takes Unsloth's place for several policies and under TRL's trainer, where it cannot train.
WITHOUT_UNSLOTH = {"unsloth+vllm": "vllm", "unsloth": "torch"}


@dataclass(frozen=True)
class Replies:
    """Mean number of replies of an episode, and of those that earn a reward."""

    total: float
    rewarded: float


class CountingEngine(BatchedEngine):
    """An engine that counts its turns."""

    def __init__(self, generate: Callable[[list[Turn]], list[Reply]]):
        super().__init__(generate)
        self.count = 0

    def submit(self, turn: Turn) -> int:
        """Count the turn."""
        self.count += 1
        return super().submit(turn)


def known_config(model: str) -> Any:
    """Return the configuration of a model; those that presets name need no hub."""
    if model not in KNOWN_MODELS:
        return memory.load_config(model)
    sizes = dict(KNOWN_MODELS[model])
    return AutoConfig.for_model(sizes.pop("model_type"), **sizes)


def count_replies(method: str, preset: str, overrides: Mapping[str, Any]) -> Replies:
    """Play a few episodes of a method in the tiny world; return the replies of an episode."""
    in_tiny_world = {
        "model": "tiny",
        "engine": "torch",
        "lora": [],
        "quantize": "",
        "vllm": {},
        "vllm_server": "",
        "max_tokens": 64,
        "world": "tiny",
        "prompt": "compact",
    }
    fields = {**overrides, **in_tiny_world}
    run = config.build(method, preset, out=".", overrides=fields)
    run.check_episodes()
    policy = load_policy("tiny")
    assert isinstance(policy, Policy)  # not one on a server
    engine = CountingEngine(partial(policy.generate, max_tokens=64))
    episodes = [run.method.episode(Random(f"{method} {i}")) for i in range(EPISODES)]
    outcomes = play(episodes, engine, (0,))
    rewarded = sum(len(outcome.samples) for outcome in outcomes)
    return Replies(total=engine.count / EPISODES, rewarded=rewarded / EPISODES)


def step_seconds(
    run: config.Run, replies: Replies, parameters: int, card: Card
) -> float:
    """Return the seconds of a step: sampling of all replies, an update on the rewarded ones."""
    speed = card.sampled_tokens_per_second * REFERENCE_PARAMETERS / max(parameters, 1)
    if not run.engine.endswith("vllm"):
        speed /= SLOWER_IN_PYTHON
    sampling = replies.total * run.batch_size * REPLY_TOKENS / speed
    tokens = replies.rewarded * run.batch_size * (PROMPT_TOKENS + REPLY_TOKENS)
    operations = tokens * OPERATIONS_PER_PARAMETER * parameters
    return sampling + operations / card.operations_per_second


def process_count() -> int:
    """Return the number of processes that the environment announces; each has a card."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@dataclass(frozen=True)
class Fit:
    """A setting of a run on a card."""

    run: config.Run
    changes: Mapping[str, Any]
    memory: Memory
    fits: bool


def choose(method: str, preset: str, overrides: Mapping[str, Any], card: Card) -> Fit:
    """Return the first of SETTINGS with which a run fits the card, or else the run as it is."""
    plain = config.build(method, preset, out=".", overrides=overrides)
    takes_unsloth = plain.trainer == "own" and len(plain.method.policies) == 1
    first: Fit | None = None
    for setting in SETTINGS:
        changes = dict(setting)
        if "engine" in changes and not takes_unsloth:
            changes["engine"] = WITHOUT_UNSLOTH[changes["engine"]]
        try:
            run = config.build(
                method, preset, out=".", overrides={**changes, **overrides}
            )
        except ValueError:
            continue  # this setting and the user's own fields exclude each other
        if run.quantize and machine.shards() > 1:
            continue  # weights of 4 bits are not sharded
        need = memory.estimate(run, known_config)
        fit = Fit(run, changes, need, need.needed <= card.gib)
        if fit.fits:
            return fit
        first = first or fit
    assert first is not None
    return first


def lines(method: str, preset: str, overrides: Mapping[str, Any]) -> Iterator[str]:
    """Yield the table of a run for all cards, and what it assumes."""
    replies = count_replies(method, preset, overrides)
    yield HEADER
    yield "|---|---|---|---|---|---|---|"
    for card in CARDS:
        fit = choose(method, preset, overrides, card)
        yield row(fit, replies, card)
    yield ""
    cards = process_count()
    if cards > 1:
        yield (
            f"{cards} cards (WORLD_SIZE) share the episodes and the samples of a step. The hours "
            "are those of all cards at once, the dollars those of all of them together."
        )
    yield (
        f"Computed, never measured: prompts of {PROMPT_TOKENS} and replies of {REPLY_TOKENS} "
        "tokens, speeds and prices of src/coevolve/training/plan.py. Memory is at most 5 % below "
        "learning steps on a fake GPU (benchmarks/memory.json), beside what a sleeping vLLM keeps."
    )


def row(fit: Fit, replies: Replies, card: Card) -> str:
    """Return the line of a card, or of as many as the run has processes."""
    cards = process_count()
    cost = ("", "")
    if fit.fits:
        parameters = fit.memory.largest_parameters
        seconds = step_seconds(fit.run, replies, parameters, card)
        hours = fit.run.steps * seconds / 3600 / cards
        dollars = hours * cards * card.dollars_per_hour
        cost = (f"{hours:.1f}", f"{dollars:.2f}")
    changes = [
        f"{name}={value}".replace(" ", "") for name, value in fit.changes.items()
    ]
    cells = [
        card.name if cards == 1 else f"{cards} x {card.name}",
        f"{fit.memory.learning:.1f}",
        f"{fit.memory.sampling:.1f}",
        "yes" if fit.fits else "no",
        *cost,
        " ".join(changes) or "preset unchanged",
    ]
    return f"| {' | '.join(cells)} |"
