"""Engines: what answers turns. In-process policies batch by batch, vLLM request by request, servers by threads.

`EngineRouter` routes every turn to the engine of its policy; methods and the loop see one engine.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn
from coevolve.validation import check_choice

if TYPE_CHECKING:
    from coevolve.models.policy_set import PolicySet


class EngineRouter(Engine):
    """One engine made of several: {policy: engine}; an engine may serve several policies."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.engines = dict(engines)
        # In-process engines are polled first.
        self.distinct = sorted(dict.fromkeys(engines.values()), key=lambda engine: engine.remote)

    def submit(self, turn: Turn) -> Ticket:
        """Hand the turn to its policy's engine; ValueError names a policy that nobody answers for."""
        check_choice("policy of a turn", turn.policy, sorted(self.engines))
        engine = self.engines[turn.policy]
        return engine, engine.submit(turn)

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Return what is finished; engines elsewhere are not waited for while others have replies."""
        done: list[tuple[Ticket, Reply]] = []
        for engine in self.distinct:
            if not (done and engine.remote):
                done += [((engine, ticket), reply) for ticket, reply in engine.poll()]
        return done

    def sleep(self) -> None:
        """Let every engine give memory back while the policies learn."""
        for engine in self.distinct:
            engine.sleep()

    def load_weights(self) -> None:
        """Have every engine speak with the policies' weights as they are now."""
        for engine in self.distinct:
            engine.load_weights()

    def close(self) -> None:
        """Close every engine."""
        for engine in self.distinct:
            engine.close()

    def costs(self) -> dict[str, float]:
        """Return what all engines have used since the last call."""
        return {name: value for engine in self.distinct for name, value in engine.costs().items()}


def make_engine(team: "PolicySet", kind: str, temperature: float, max_tokens: int) -> EngineRouter:
    """Make the engine of a team: every policy's own, but vLLM for those in this process where `kind` says so."""
    engines: dict[str, Engine] = {name: policy.serve(temperature, max_tokens) for name, policy in team.policies.items()}
    if kind.endswith("vllm"):
        from coevolve.engines.vllm import serve

        engines |= serve(team, temperature, max_tokens)
    return EngineRouter(engines)
