"""Routes every turn to the engine of its policy, so that methods and the loop see one engine.

Policies in this process answer batch by batch, vLLM request by request, servers by threads.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn
from coevolve.validation import check_choice

if TYPE_CHECKING:
    from coevolve.models.policy_set import PolicySet


class EngineRouter(Engine):
    """One engine made of several: {policy: engine}; an engine may serve several policies."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.engines = dict(engines)
        # Engines in this process are polled first.
        self.distinct = sorted(
            dict.fromkeys(engines.values()), key=lambda engine: engine.remote
        )

    def submit(self, turn: Turn) -> Ticket:
        """Pass the turn to its policy's engine; raises ValueError if there is none."""
        check_choice("policy of a turn", turn.policy, sorted(self.engines))
        engine = self.engines[turn.policy]
        return engine, engine.submit(turn)

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Return finished replies; wait for a remote engine only if no other engine has any."""
        finished: list[tuple[Ticket, Reply]] = []
        for engine in self.distinct:
            if finished and engine.remote:
                continue
            for ticket, reply in engine.poll():
                finished.append(((engine, ticket), reply))
        return finished

    def sleep(self) -> None:
        """Let every engine free memory while the policies learn."""
        for engine in self.distinct:
            engine.sleep()

    def load_weights(self) -> None:
        """Load the policies' current weights into every engine."""
        for engine in self.distinct:
            engine.load_weights()

    def close(self) -> None:
        """Close every engine."""
        for engine in self.distinct:
            engine.close()

    def costs(self) -> dict[str, float]:
        """Return the costs of all engines since the last call."""
        costs: dict[str, float] = {}
        for engine in self.distinct:
            costs |= engine.costs()
        return costs


def make_engine(
    team: "PolicySet",
    kind: str,
    temperature: float,
    max_tokens: int,
    options: Mapping[str, Any] | None = None,
    later_gib: float = 0.0,
    server: str = "",
) -> EngineRouter:
    """Return the engine of a run's policies.

    Each policy serves itself, except that vLLM serves those in this process if `kind` ends with
    "vllm"; `options` are arguments of vLLM, and `later_gib` is what it leaves to the learner. With
    the address of a `server`, vLLM runs there and serves the trained policy.
    """
    engines: dict[str, Engine] = {}
    for name, policy in team.policies.items():
        engines[name] = policy.serve(temperature, max_tokens)
    if server:
        from coevolve.engines.vllm_server import VLLMServer

        policy = team.primary
        engines[policy.name] = VLLMServer(server, policy, temperature, max_tokens)
    elif kind.endswith("vllm"):
        from coevolve.engines.vllm import serve

        engines |= serve(team, temperature, max_tokens, options, later_gib)
    return EngineRouter(engines)
