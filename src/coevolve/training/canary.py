"""Watches whether sampler and learner still agree, and asks an engine before a run begins.

Old weights in an engine, an adapter that is not applied, or other attention leave a run that looks
healthy. All of them show in the gap between the two log-probabilities of a sampled token. Knows
policies and replies only by what they answer.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

from coevolve.rollout.engine import Engine
from coevolve.types import Reply, Turn

# Nats a token. In bfloat16 a healthy gap is 0.01 to 0.03.
WARN_ABOVE = 0.1
STOP_ABOVE = 0.5
# A metric of updates with several minibatches: the gap of the first one.
FIRST_GAP = "logprob_gap_first"
PROBE_TOKENS = 16
PROBE_MESSAGES = ({"role": "user", "content": "Count from 1 to 20 in words."},)
LIKELY_CAUSES = (
    "the engine may hold old weights, not apply the adapter, or compute attention, positions or "
    "chat template differently; try engine=torch on one step, and the versions of "
    "constraints-gpu.txt"
)


class ProbedPolicy(Protocol):
    """What the probe needs of a policy."""

    def logprobs(self, replies: list[Reply]) -> Any:
        """Return the tokens' log-probabilities (T,)."""

    def perturbed(self) -> AbstractContextManager[None]:
        """Return a context in which some trained weights are others."""


class Canary:
    """Judges the gap of every step: it warns once, and stops a run that would learn nonsense."""

    def __init__(self, dropout: float = 0.0, warn: Callable[[str], None] | None = None):
        """Watch a run whose adapters drop this share of their inputs while they learn.

        `warn` is given the text of a warning; by default it goes to stderr.
        """
        self.dropout = dropout
        self.warn = warn or _print_warning
        self.has_warned = False

    def watch(self, step: int, metrics: Mapping[str, float]) -> None:
        """Judge a step by its metrics.

        With several minibatches the first one counts, whose weights are those that sampled. A gap
        that dropout explains never stops a run. Raises ArithmeticError above STOP_ABOVE.
        """
        gap = metrics.get(FIRST_GAP, metrics.get("logprob_gap", 0.0))
        if not gap > WARN_ABOVE:  # nan without any trained token
            return
        causes = LIKELY_CAUSES
        if self.dropout:
            causes = f"dropout of the adapter ({self.dropout:g}) may explain it; if not, {causes}"
        line = (
            f"step {step}: learner and sampler differ by {gap:.2f} nats a token "
            f"(usual: below {WARN_ABOVE}): {causes}"
        )
        if gap > STOP_ABOVE and not self.dropout:
            raise ArithmeticError(line)
        if not self.has_warned:
            self.has_warned = True
            self.warn(line)


def _print_warning(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def probe(policies: Mapping[str, ProbedPolicy], engine: Engine, canary: Canary) -> None:
    """Ask the engine for a few greedy tokens of every policy, as it is and with other weights.

    Raises ArithmeticError if the engine's log-probabilities are not the policy's, or if the engine
    answers with the old weights after an update.
    """
    for name, policy in policies.items():
        turn = Turn(
            "probe", PROBE_MESSAGES, name, max_tokens=PROBE_TOKENS, temperature=0.0
        )
        (reply,) = engine.answer([turn])
        canary.watch(0, {"logprob_gap": gap(policy, reply)})
        with policy.perturbed():
            engine.load_weights()
            (reply,) = engine.answer([turn])
            gap_to_new = gap(policy, reply)
        gap_to_old = gap(policy, reply)
        engine.load_weights()
        canary.watch(0, {"logprob_gap": gap_to_new})
        if gap_to_new >= gap_to_old:
            raise ArithmeticError(
                f"policy {name!r}: the engine answers with old weights after an update: its tokens "
                f"differ by {gap_to_new:.2g} nats from the new and {gap_to_old:.2g} from the old "
                f"weights; {LIKELY_CAUSES}"
            )


def gap(policy: ProbedPolicy, reply: Reply) -> float:
    """Return the mean |learner - sampler| over a reply's tokens, in nats."""
    learned = policy.logprobs([reply]).tolist()
    differences = []
    for ours, sampled in zip(learned, reply.logprobs, strict=True):
        differences.append(abs(ours - sampled))
    return float(sum(differences) / len(differences))
