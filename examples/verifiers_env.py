"""MAE as an environment of `verifiers`, which prime-rl trains on: docs/prime-rl.md.

`play` needs neither torch nor verifiers. The environment below it has a seat for each role; a
run's configuration may give each seat a model of its own.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable
from random import Random

from coevolve.methods.base import Method
from coevolve.methods.mae import MAE
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Outcome, Reply, Turn

Speak = Callable[[Turn], Awaitable[str]]


class Nobody:
    """The engine of an episode whose turns are answered elsewhere."""

    def answer(self, turns: list[Turn]) -> list[Reply]:
        """Refuse to answer."""
        raise NotImplementedError("the environment's agents answer")


async def play(method: Method, seed: int, speak: Speak) -> tuple[list[Reply], Outcome]:
    """Play an episode whose turns `speak` answers; return all replies, and what they earned.

    The turns of a wave are asked at once. What the episode adds to the method's pools is in them
    afterwards, so the next episode may draw from it.
    """
    stepper = EpisodeStepper(method.episode(Random(seed)), Nobody())
    while stepper.pending_turns:
        stepper.answer(await asyncio.gather(*map(speak, stepper.pending_turns)))
    assert stepper.outcome is not None  # it has ended
    for name, items in stepper.outcome.adds.items():
        method.pools[name].extend(items)
    return stepper.replies, stepper.outcome


try:
    import verifiers.v1 as vf
except ImportError:  # `play` works without
    vf = None

if vf is not None:
    # What verifiers finds by the id verifiers_env, with this folder on the path.
    __all__ = ["Episodes", "MAEEnv"]
    # A plain chat without tools, on this machine.
    CHAT = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})

    class EpisodeData(vf.TaskData):
        """A task is the seed of an episode; the Proposer writes the question."""

        seed: int = 0

    class EpisodeTask(vf.Task[EpisodeData, vf.State, vf.TaskConfig]):
        """An episode to play."""

    class Episodes(vf.Taskset[EpisodeTask, vf.TasksetConfig]):
        """Episodes without end."""

        INFINITE = True

        def load(self) -> Iterable[EpisodeTask]:
            """Yield one task per seed."""
            for seed in itertools.count():
                yield EpisodeTask(EpisodeData(seed=seed))

    class MAEConfig(vf.EnvConfig):
        """A seat per role. All share the run's model unless a seat names its own."""

        proposer: vf.AgentConfig = CHAT
        solver: vf.AgentConfig = CHAT
        judge: vf.AgentConfig = CHAT
        prompt: str = "full"

    class MAEEnv(vf.Env[MAEConfig]):
        """One task is one pass through Algorithm 1."""

        def __init__(self, config: MAEConfig):
            super().__init__(config)
            self.method = MAE(prompt=config.prompt)

        async def run(self, task: EpisodeTask, agents: vf.Agents) -> None:
            """Play the episode; pay each agent's trace, and train on the paid ones alone."""
            trace_of_turn: dict[int, vf.Trace] = {}

            async def speak(turn: Turn) -> str:
                text = "\n".join(message["content"] for message in turn.messages)
                agent = getattr(agents, turn.role)
                trace = await agent.run(vf.Task(vf.TaskData(prompt=text)))
                trace_of_turn[id(turn)] = trace
                return trace.last_reply

            replies, outcome = await play(self.method, task.data.seed, speak)
            for reply in replies:
                trace_of_turn[id(reply.turn)].agent.trainable = False
            for sample in outcome.samples:
                trace = trace_of_turn[id(sample.reply.turn)]
                trace.record_reward("mae", sample.reward)
                trace.agent.trainable = True
