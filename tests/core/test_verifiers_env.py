"""An environment of another library plays the same episode of MAE, with the same rewards."""

import asyncio
import subprocess
import sys
from random import Random

import pytest

from coevolve.engines.loading import load_policy
from coevolve.methods.mae import MAE
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Outcome, Reply, Turn
from examples import verifiers_env

SEEDS = range(4)


@pytest.fixture(scope="module")
def engine():
    return load_policy("tiny").serve(temperature=0.0, max_tokens=64)


def played_here(engine, seed: int) -> EpisodeStepper:
    stepper = EpisodeStepper(MAE().episode(Random(seed)), engine)
    for _ in stepper:
        pass
    return stepper


def played_there(engine, seed: int) -> tuple[MAE, list[Reply], Outcome]:
    async def speak(turn: Turn) -> str:
        (reply,) = engine.answer([turn])
        return reply.text

    method = MAE()
    replies, outcome = asyncio.run(verifiers_env.play(method, seed, speak))
    return method, replies, outcome


@pytest.mark.parametrize("seed", SEEDS)
def test_it_plays_and_pays_as_an_episode_does(engine, seed):
    here = played_here(engine, seed)
    _, replies, outcome = played_there(engine, seed)
    assert [reply.text for reply in replies] == [reply.text for reply in here.replies]
    paid = [(sample.role, sample.reward) for sample in outcome.samples]
    assert paid == [(sample.role, sample.reward) for sample in here.outcome.samples]
    assert "solver" in dict(paid)


def test_what_an_episode_adds_is_in_the_pools_of_the_next(engine):
    method, _, outcome = played_there(engine, 0)
    added = outcome.adds["pairs"]
    assert added
    assert method.pools["pairs"].items[-len(added) :] == list(added)


def test_the_core_needs_neither_torch_nor_verifiers():
    program = (
        "import sys; sys.modules['verifiers'] = None; from examples import verifiers_env; "
        "assert verifiers_env.vf is None; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
