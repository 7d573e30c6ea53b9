"""Episodes of results/play.html, played by its JavaScript in Node and by the package."""

import json
import random
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from coevolve.engines.loading import load_policy
from coevolve.engines.router import EngineRouter
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Sample
from reproduce.play import page, tables, weights

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "results/play.html"
PLAYER = Path(__file__).with_name("play_episodes.mjs")
SHOWN = Path(__file__).with_name("play_shown.mjs")
SEEDS = Path(__file__).with_name("play_seeds.mjs")
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None, reason="node, which runs the page's JavaScript, is missing"
)

METHODS = tuple(tables.FIELDS)
# Of the episodes of a method; the first has a changed reply, every other one is trained.
TEMPERATURES = (1.0, 0.7, 0.0, 1.0)
EDITED_TURN = 1
CLOSE = 1e-9  # sums in another order, and CoNL's strengths by another solver

Request = dict[str, Any]


def requests() -> list[Request]:
    """Return the episodes to compare: every method, trained or not, one with a changed reply."""
    asked = []
    for number, temperature in enumerate(TEMPERATURES):
        for method in METHODS:
            settings = {
                "method": method,
                "seed": 100 + number,
                "temperature": temperature,
                "isTrained": number % 2 == 1,
            }
            edits = {EDITED_TURN: "<score>1</score>"} if number == 0 else {}
            asked.append({"settings": settings, "edits": edits})
    return asked


@cache
def page_data() -> dict[str, Any]:
    """Return the data in the committed page."""
    return page.read_data(PAGE.read_text(encoding="utf-8"))


def run_on(folder: Path, script: Path, *contents: Any) -> Any:
    """Return what a script makes of contents, each of which it reads from a JSON file."""
    files = []
    for number, content in enumerate(contents):
        file = folder / f"{number}.json"
        file.write_text(json.dumps(content), encoding="utf-8")
        files.append(str(file))
    return json.loads(run_node(str(script), *files))


def run_node(*arguments: str) -> str:
    """Return what node prints; raise with its error if it fails."""
    assert NODE is not None
    result = subprocess.run([NODE, *arguments], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@cache
def base() -> weights.Tensors:
    """Return the embedded model's weights."""
    return weights.tensors_of(load_policy(tables.MODEL))


@cache
def loaded(policy_name: str) -> Any:
    """Return a policy of this name, whose weights each episode sets."""
    return load_policy(tables.MODEL, policy_name)


def play_in_python(data: dict[str, Any], request: Request) -> EpisodeStepper:
    """Play a request with the package, with the very weights of the page."""
    settings = request["settings"]
    name = settings["method"]
    method = tables.methods()[name]
    engines = {}
    for policy_name in method.policies:
        tensors = base()
        if settings["isTrained"]:
            packed = data["weights"]["trained"][f"{name}/{policy_name}"]
            tensors = weights.unpack_trained(base(), packed)
        policy = loaded(policy_name)
        weights.load_tensors(policy, tensors)
        limit = tables.max_tokens(name)
        engines[policy_name] = policy.serve(settings["temperature"], limit)
    seed = settings["seed"]
    episode = method.observed(random.Random(seed))
    stepper = EpisodeStepper(episode, EngineRouter(engines), key=(seed, 0))
    while stepper.pending_turns:
        answer_wave(stepper, request["edits"])
    return stepper


def answer_wave(stepper: EpisodeStepper, edits: dict[int, str]) -> None:
    """Answer the pending turns, with the changed replies in their places."""
    first = len(stepper.replies)
    replies = stepper.engine.answer(stepper.pending_turns)
    wave = [edits.get(first + place, reply) for place, reply in enumerate(replies)]
    stepper.answer(wave)


def reward_of(sample: Sample) -> float | None:
    """Return a sample's reward; of CoNL's segments at most one earns any."""
    if not isinstance(sample.reward, dict):
        return sample.reward
    earned = [value for value in sample.reward.values() if value is not None]
    return earned[0] if earned else None


def rewards_of(stepper: EpisodeStepper) -> dict[int, float]:
    """Return the rewards by number of the turn, without masked ones."""
    assert stepper.outcome is not None
    numbers = {id(reply): number for number, reply in enumerate(stepper.replies)}
    rewards = {}
    for sample in stepper.outcome.samples:
        reward = reward_of(sample)
        if reward is not None:
            rewards[numbers[id(sample.reply)]] = reward
    return rewards
