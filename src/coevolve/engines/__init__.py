"""Engines: what answers turns. In-process policies batch by batch, vLLM request by request, servers by threads.

`Switch` routes every turn to the engine of its policy; protocols and the loop see one engine.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from coevolve.driver import Batched, Engine
from coevolve.types import Reply, Turn

if TYPE_CHECKING:
    from coevolve.policies.team import Team


class Switch:
    """One engine made of several: {policy: engine}; an engine may serve several policies."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.engines = dict(engines)
        self.distinct = list({id(engine): engine for engine in engines.values()}.values())
        self.tickets: dict[tuple[int, int], int] = {}
        self.count = 0

    def submit(self, turn: Turn) -> int:
        """Hand the turn to its policy's engine; ValueError names a policy that nobody answers for."""
        if turn.policy not in self.engines:
            raise ValueError(f"policy of a turn must be one of {sorted(self.engines)}, got {turn.policy!r}")
        engine = self.engines[turn.policy]
        self.count += 1
        self.tickets[self.distinct.index(engine), engine.submit(turn)] = self.count
        return self.count

    def poll(self) -> list[tuple[int, Reply]]:
        """Return what is finished; in-process engines go first, as those elsewhere work meanwhile."""
        waiting = {number for number, _ in self.tickets}
        order = sorted(waiting, key=lambda number: getattr(self.distinct[number], "elsewhere", False))
        done = []
        for number in order:
            engine = self.distinct[number]
            if done and getattr(engine, "elsewhere", False):
                break  # whoever has replies goes on; the others are asked again
            done += [(self.tickets.pop((number, ticket)), reply) for ticket, reply in engine.poll()]
        return done

    def rest(self) -> None:
        """Give memory back while the policies learn, where an engine can."""
        for engine in self.distinct:
            getattr(engine, "rest", lambda: None)()

    def sync(self) -> None:
        """Speak with the policies' weights as they are now, where an engine holds its own copy."""
        for engine in self.distinct:
            getattr(engine, "sync", lambda: None)()

    def close(self) -> None:
        """End every engine that holds memory; nothing can be asked afterwards."""
        for engine in self.distinct:
            getattr(engine, "close", lambda: None)()

    def costs(self) -> dict[str, float]:
        """What engines elsewhere have used since this was last asked, by policy (requests, tokens)."""
        found = {}
        for name, engine in self.engines.items():
            if hasattr(engine, "costs"):
                found |= {f"{key}/{name}": value for key, value in engine.costs.items()}
                engine.costs.update(dict.fromkeys(engine.costs, 0))
        return found


def connect(team: "Team", kind: str, temperature: float, max_tokens: int) -> Switch:
    """Make the engine of a team: every policy's own server, vLLM where `kind` says so, else the policy itself."""
    engines: dict[str, Engine] = {}
    local = {}
    for name, policy in team.policies.items():
        if hasattr(policy, "serve"):
            engines[name] = policy.serve(temperature, max_tokens)
        else:
            local[name] = policy
    if kind.endswith("vllm"):
        from coevolve.engines.vllm import VLLM

        groups: dict[object, dict] = {}
        for name, policy in local.items():  # adapters of one base, and frozen policies of it, are mixed in one batch
            shares = hasattr(policy, "activate") or (name not in team.trained and team.shared(policy.source))
            groups.setdefault(policy.source if shares else name, {})[name] = policy
        for its in groups.values():
            engines |= dict.fromkeys(its, VLLM(its, temperature, max_tokens, engines=len(groups)))
    else:
        engines |= dict.fromkeys(local, Batched(partial(team.generate, temperature=temperature, max_tokens=max_tokens)))
    return Switch(engines)
