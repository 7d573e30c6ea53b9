"""The canary: a gap between sampler and learner warns, then stops, and a probe comes first."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from coevolve.engines.router import make_engine
from coevolve.models.policy_set import PolicySet
from coevolve.rollout.engine import BatchedEngine, Engine
from coevolve.training import canary as canary_module
from coevolve.training.canary import Canary, probe
from coevolve.types import Reply, Turn

LORA = (4, 8, 0.0)


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def canary(warnings: list[str]) -> Canary:
    return Canary(warn=warnings.append)


class TestWatch:
    """The gap of each step."""

    @pytest.mark.parametrize("gap", [0.0, 0.02, 0.1, math.nan])
    def test_a_usual_gap_passes(
        self, gap: float, canary: Canary, warnings: list[str]
    ) -> None:
        canary.watch(1, {"logprob_gap": gap})
        assert warnings == []

    def test_a_large_gap_warns_once(self, canary: Canary, warnings: list[str]) -> None:
        for step in (1, 2):
            canary.watch(step, {"logprob_gap": 0.3})
        (line,) = warnings
        assert line.startswith(
            "step 1: learner and sampler differ by 0.30 nats a token"
        )
        assert "the engine may hold old weights" in line

    def test_a_huge_gap_stops_the_run(self, canary: Canary) -> None:
        with pytest.raises(ArithmeticError, match="^step 3: learner and sampler"):
            canary.watch(3, {"logprob_gap": 0.6})

    def test_dropout_alone_never_stops_a_run(self, warnings: list[str]) -> None:
        Canary(dropout=0.05, warn=warnings.append).watch(3, {"logprob_gap": 0.6})
        (line,) = warnings
        assert "dropout of the adapter (0.05)" in line

    def test_the_first_of_several_minibatches_counts(self, canary: Canary) -> None:
        canary.watch(1, {"logprob_gap": 0.9, "logprob_gap_first": 0.01})

    def test_the_warning_goes_to_stderr(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Canary().watch(1, {"logprob_gap": 0.3})
        assert capsys.readouterr().err.startswith("warning: step 1: learner")


def make_team(has_adapter: bool) -> PolicySet:
    return PolicySet({"shared": "tiny-small"}, ("shared",), LORA if has_adapter else ())


def edited(engine: Engine, edit: Callable[[Reply], Reply]) -> Engine:
    """Return the engine with its replies changed."""

    def answer(turns: list[Turn]) -> list[Reply]:
        return [edit(reply) for reply in engine.answer(turns)]

    return BatchedEngine(answer)


@pytest.mark.parametrize("has_adapter", [False, True], ids=["all", "lora"])
class TestProbe:
    """The start-up probe of an engine."""

    def test_an_engine_with_the_current_weights_passes(
        self, has_adapter: bool, canary: Canary, warnings: list[str]
    ) -> None:
        team = make_team(has_adapter)
        before = team.primary.model.state_dict()
        before = {name: weights.clone() for name, weights in before.items()}
        probe(team.trainable, make_engine(team, "torch", 1.0, 8), canary)
        assert warnings == []
        for name, weights in team.primary.model.state_dict().items():
            assert weights.equal(before[name]), "the probe leaves the weights alone"

    def test_an_engine_that_keeps_old_weights_is_found(
        self, has_adapter: bool, canary: Canary
    ) -> None:
        team = make_team(has_adapter)
        old = make_engine(make_team(has_adapter), "torch", 1.0, 8)
        with pytest.raises(ArithmeticError, match="old weights"):
            probe(team.trainable, old, canary)

    def test_other_probabilities_are_found(
        self, has_adapter: bool, canary: Canary
    ) -> None:
        def flatten(reply: Reply) -> Reply:
            return replace(reply, logprobs=tuple(p - 0.7 for p in reply.logprobs))

        team = make_team(has_adapter)
        wrong = edited(make_engine(team, "torch", 1.0, 8), flatten)
        with pytest.raises(ArithmeticError, match="differ by 0.70 nats a token"):
            probe(team.trainable, wrong, canary)


def test_the_probe_asks_for_sixteen_tokens(canary: Canary) -> None:
    asked: list[Turn] = []
    team = make_team(has_adapter=True)
    engine = make_engine(team, "torch", 1.0, 8)

    def note(reply: Reply) -> Reply:
        asked.append(reply.turn)
        return reply

    probe(team.trainable, edited(engine, note), canary)
    assert [turn.max_tokens for turn in asked] == [canary_module.PROBE_TOKENS] * 2
    assert {turn.temperature for turn in asked} == {0.0}
