"""The engine for vLLM beside a pretend one: no order of events makes it answer with old weights."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pretend_vllm
import pytest
import torch
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pretend_vllm import (
    PretendLLM,
    PretendServer,
    fingerprint,
    sum_of,
)

from coevolve.engines.limits import share_beside_learner
from coevolve.engines.openai_server import ServerError
from coevolve.engines.router import make_engine
from coevolve.engines.vllm import VLLM
from coevolve.engines.vllm_server import SERVED_DTYPE, VLLMServer
from coevolve.models.lora import AdapterPolicy
from coevolve.models.policy import Policy
from coevolve.models.policy_set import PolicySet
from coevolve.rollout.engine import Engine
from coevolve.types import Turn

LORA = (4, 8, 0.0)
NAMES = ("left", "right")
QUESTION = ({"role": "user", "content": "3+4=?"},)
MODELS = dict.fromkeys(NAMES, "tiny-small")
WHICH = st.integers(0, 1)  # of the policies


def turn_of(name: str, **settings: object) -> Turn:
    return Turn("solver", QUESTION, name, **settings)


class Life(RuleBasedStateMachine):
    """A run's engine, in any order of what a run, a notebook or an error may do to it."""

    team: PolicySet
    checkpoints: Path
    has_gpu = True
    names: tuple[str, ...]
    lora: tuple[Any, ...]
    lives: int
    """How many orders of events a test tries."""
    passes_weights: tuple[type, str]
    """The function by which the engine gets new weights."""
    forgets: type = PretendLLM
    """What keeps the keys and values of old weights."""
    keep = staticmethod(lambda llm: False)
    """Keeps them, in place of `reset_prefix_cache`."""

    @initialize()
    def start(self) -> None:
        self.scope = ExitStack()
        patch = self.scope.enter_context(pytest.MonkeyPatch.context())
        pretend_vllm.install(patch)
        if self.has_gpu:
            pretend_vllm.pretend_gpu(patch)
        torch.manual_seed(0)
        for which, name in enumerate(self.names):
            # Puts the weights back in the end, for the next life.
            self.scope.enter_context(self.team.trainable[name].perturbed())
            self.change_weights(which)
        self.start_engine()

    def start_engine(self) -> None:
        self.engine: Engine = VLLM(self.team.policies, 1.0, 8)

    def can_sleep(self) -> bool:
        return isinstance(self.engine, VLLM) and self.engine.sleeps

    def teardown(self) -> None:
        with self.scope:
            self.play([*range(len(self.names))])
            self.engine.close()

    def current(self, name: str) -> float:
        """Return the fingerprint of a policy's weights as its engine reads them."""
        raise NotImplementedError

    def chosen(self, which: int) -> str:
        """Return the name of one of the policies."""
        return self.names[which % len(self.names)]

    @rule(which=st.lists(WHICH, min_size=1, max_size=3))
    def play(self, which: list[int]) -> None:
        names = [self.chosen(one) for one in which]
        replies = self.engine.answer([turn_of(name) for name in names])
        for name, reply in zip(names, replies, strict=True):
            assert reply.logprobs == (pytest.approx(self.current(name), rel=1e-5),)

    @rule(which=WHICH)
    def play_until_interrupted(self, which: int) -> None:
        self.engine.submit(turn_of(self.chosen(which)))

    def change_weights(self, which: int) -> None:
        policy = self.team.trainable[self.chosen(which)]
        with torch.no_grad():
            for parameter in policy._weights_to_perturb():
                parameter.add_(torch.rand(parameter.shape) * 0.01)

    @rule(which=WHICH)
    def learn(self, which: int) -> None:
        self.learn_until_an_error(which)
        self.engine.load_weights()

    @rule(which=WHICH)
    def learn_until_an_error(self, which: int) -> None:
        self.engine.sleep()
        self.change_weights(which)

    @precondition(lambda life: life.can_sleep() and not life.engine.is_asleep)
    @rule(which=WHICH)
    def learn_although_it_does_not_fall_asleep(self, which: int) -> None:
        with broken(PretendLLM, "sleep"):
            self.engine.sleep()
        self.change_weights(which)

    @precondition(lambda life: life.can_sleep())
    @rule(which=WHICH)
    def learn_until_it_does_not_wake_up(self, which: int) -> None:
        self.learn_until_an_error(which)
        with broken(PretendLLM, "wake_up"):
            self.engine.load_weights()

    @rule(which=WHICH)
    def learn_until_weights_cannot_be_passed_on(self, which: int) -> None:
        self.learn_until_an_error(which)
        with broken(*self.passes_weights):
            self.engine.load_weights()

    @rule(which=WHICH)
    def learn_until_old_keys_and_values_stay(self, which: int) -> None:
        self.play([which])  # which is how they came there
        self.learn_until_an_error(which)
        with broken(self.forgets, "reset_prefix_cache", self.keep):
            self.engine.load_weights()

    def restore(self, which: int) -> None:
        name = self.chosen(which)
        self.team.trainable[name].restore(self.checkpoints / name)

    @rule(which=WHICH)
    def swap_in_saved_weights(self, which: int) -> None:
        self.restore(which)
        self.engine.load_weights()

    @rule(which=WHICH)
    def swap_until_weights_cannot_be_passed_on(self, which: int) -> None:
        self.restore(which)
        with broken(*self.passes_weights):
            self.engine.load_weights()

    @rule()
    def load_again(self) -> None:
        self.engine.load_weights()

    @rule()
    def next_run_in_this_process(self) -> None:
        self.engine.close()
        self.start_engine()

    @invariant()
    def one_pool_is_in_use(self) -> None:
        assert PretendLLM.pools_in_use <= 1


class LifeOfAdapters(Life):
    """The engine of two adapters on one base."""

    names = NAMES
    lora = LORA
    lives = 15
    passes_weights = (AdapterPolicy, "save_for_engine")

    def current(self, name: str) -> float:
        policy = self.team.trainable[name]
        dtype = torch.bfloat16 if self.has_gpu else torch.float32
        rounded = {}
        for parameter, weights in policy.model.named_parameters():
            if parameter.endswith(f"lora_B.{policy.adapter}.weight"):
                rounded[parameter] = weights.detach().to(dtype)
        return fingerprint(rounded)


class LifeOfWholeModel(Life):
    """The engine of a model whose weights are all trained."""

    names = ("shared",)
    lora = ()
    lives = 30
    passes_weights = (PretendLLM, "collective_rpc")

    def current(self, name: str) -> float:
        return fingerprint(self.team.trainable[name].model.state_dict())


class LifeOfServer(Life):
    """The server of one policy, on GPUs of its own."""

    names = ("shared",)
    lives = 20
    passes_weights = (PretendServer, "start_weight_update")
    forgets = PretendServer
    keep = staticmethod(lambda server: {"success": False})

    def start_engine(self) -> None:
        patch = self.scope.enter_context(pytest.MonkeyPatch.context())
        pretend_vllm.install_server(patch)
        policy = self.team.trainable["shared"]
        self.engine = VLLMServer("http://gpu:8000", policy, 1.0, 8)

    def current(self, name: str) -> float:
        rounded = {}
        for parameter, weights in self.team.trainable[name].served_weights():
            rounded[parameter] = weights.to(SERVED_DTYPE)
        return sum_of(rounded)


class LifeOfServedAdapter(LifeOfServer):
    """The same, of a policy whose adapter is merged on the way."""

    lora = LORA


class LifeOfServedModel(LifeOfServer):
    """The same, of a policy that is trained whole."""

    lora = ()


def fail(*_: object, **__: object) -> None:
    """Fail, in place of what an engine should do."""
    raise RuntimeError


# What engines raise, and what `fail` raises.
FAULTS_OF_ENGINES = (RuntimeError, ServerError)


@contextmanager
def broken(
    owner: type, name: str, replacement: Callable[..., Any] = fail
) -> Iterator[None]:
    """Break a function while the code inside runs, which must fail because of it."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(FAULTS_OF_ENGINES):
        patch.setattr(owner, name, replacement)
        yield


@pytest.fixture(scope="module")
def team() -> PolicySet:
    return PolicySet(MODELS, NAMES, LORA)


LIVES = [
    (LifeOfAdapters, True),
    (LifeOfAdapters, False),
    (LifeOfWholeModel, True),
    (LifeOfWholeModel, False),
    (LifeOfServedAdapter, False),
    (LifeOfServedModel, False),
]


@pytest.mark.parametrize(("life", "has_gpu"), LIVES)
def test_every_reply_comes_from_the_current_weights(
    life: type[Life], has_gpu: bool, tmp_path: Path
) -> None:
    team = PolicySet(dict.fromkeys(life.names, "tiny-small"), life.names, life.lora)
    for name, policy in team.trainable.items():
        policy.save(tmp_path / name)
    parts = {"team": team, "checkpoints": tmp_path, "has_gpu": has_gpu}
    machine = type("Life", (life,), parts)
    # A failing order is short as it is; to look for the shortest would take minutes.
    phases = [phase for phase in Phase if phase is not Phase.shrink]
    some = settings(
        max_examples=life.lives, stateful_step_count=12, deadline=None, phases=phases
    )
    run_state_machine_as_test(machine, settings=some)


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    pretend_vllm.install(monkeypatch)
    return monkeypatch


@pytest.fixture
def whole(patch: pytest.MonkeyPatch) -> tuple[Policy, VLLM]:
    """A policy that is trained whole, and its engine."""
    team = PolicySet({"shared": "tiny-small"}, ("shared",))
    return team.primary, VLLM(team.policies, 1.0, 8)


def test_a_whole_model_is_reloaded_without_old_keys_and_values(
    whole: tuple[Policy, VLLM],
) -> None:
    policy, engine = whole
    (before,) = engine.answer([turn_of("shared")])
    with policy.perturbed():
        engine.sleep()
        engine.load_weights()
        (after,) = engine.answer([turn_of("shared")])
    assert before.logprobs != after.logprobs


def test_a_cache_that_stays_stops_the_run(
    whole: tuple[Policy, VLLM], patch: pytest.MonkeyPatch
) -> None:
    _, engine = whole
    patch.setattr(PretendLLM, "reset_prefix_cache", lambda self: False)
    with pytest.raises(RuntimeError, match="^vLLM kept the keys and values of the old"):
        engine.load_weights()


def nothing(*_: object) -> bool:
    """Do nothing, in place of what an engine should do."""
    return True


FAULTS = {
    "it is not woken": (VLLM, "_wake"),
    "the cache of old keys and values stays": (PretendLLM, "reset_prefix_cache"),
    "the new weights are not loaded": (VLLM, "_load_model"),
}


@pytest.mark.parametrize(("owner", "name"), FAULTS.values(), ids=FAULTS)
def test_the_pretend_engine_notices_when(
    owner: type, name: str, patch: pytest.MonkeyPatch
) -> None:
    team = PolicySet({"shared": "tiny-small"}, ("shared",))
    pretend_vllm.pretend_gpu(patch)
    engine = VLLM(team.policies, 1.0, 8)
    (before,) = engine.answer([turn_of("shared")])
    with patch.context() as faulty, team.primary.perturbed():
        faulty.setattr(owner, name, nothing)
        if name == "reset_prefix_cache":  # sleep alone would clear it
            engine.sleeps = False
        engine.sleep()
        try:
            engine.load_weights()
            (after,) = engine.answer([turn_of("shared")])
        except AssertionError as error:
            assert "asleep" in str(error)
        else:
            assert after.logprobs == before.logprobs, "old weights have spoken"


def test_an_adapter_that_is_not_named_speaks_as_the_base(
    team: PolicySet, patch: pytest.MonkeyPatch
) -> None:
    engine = VLLM(team.policies, 1.0, 8)
    with team.trainable["left"].perturbed():
        engine.load_weights()
        (with_adapter,) = engine.answer([turn_of("left")])
    engine.loras.clear()
    (without,) = engine.answer([turn_of("left")])
    assert without.logprobs != with_adapter.logprobs


def test_the_engine_sleeps_from_the_update_until_the_new_weights(
    team: PolicySet, patch: pytest.MonkeyPatch
) -> None:
    pretend_vllm.pretend_gpu(patch)
    engine = VLLM(team.policies, 1.0, 8)
    states = [engine.llm.asleep]
    engine.sleep()
    states.append(engine.llm.asleep)
    engine.load_weights()
    states.append(engine.llm.asleep)
    assert states == [False, True, False]


class TestSettings:
    """What vLLM is started with."""

    @pytest.fixture
    def gpu(self, patch: pytest.MonkeyPatch) -> None:
        pretend_vllm.pretend_gpu(patch)

    def test_the_context_shrinks_to_what_fits(self, gpu: None, team: PolicySet) -> None:
        engine = VLLM(team.policies, 1.0, 8)
        (settings,) = PretendLLM.started
        assert settings["max_model_len"] == -1
        assert engine.context == 512, "as vLLM says it"

    def test_the_share_is_what_the_learner_leaves(
        self, gpu: None, team: PolicySet
    ) -> None:
        make_engine(team, "vllm", 1.0, 8, later_gib=2.0)
        (settings,) = PretendLLM.started
        # 17 GiB are free, 1.5 stay so, and the learner will take two more.
        assert settings["gpu_memory_utilization"] == pytest.approx(13.5 / 24)

    def test_engines_that_stay_awake_divide_the_fixed_share(
        self, gpu: None, team: PolicySet
    ) -> None:
        VLLM(team.policies, 1.0, 8, engines=2)
        (settings,) = PretendLLM.started
        assert settings["gpu_memory_utilization"] == pytest.approx(0.225)
        assert not settings["enable_sleep_mode"]

    def test_the_run_may_say_otherwise(self, gpu: None, team: PolicySet) -> None:
        options = {"gpu_memory_utilization": 0.3, "max_num_seqs": 64}
        VLLM(team.policies, 1.0, 8, options=options)
        (settings,) = PretendLLM.started
        assert settings.items() >= options.items()

    def test_an_adapter_is_passed_on_in_bfloat16_without_a_tokenizer(
        self, gpu: None, team: PolicySet
    ) -> None:
        engine = VLLM(team.policies, 1.0, 8)
        folder = engine.loras["left"].lora_path
        weights = pretend_vllm.load_file(f"{folder}/adapter_model.safetensors")
        assert {part.dtype for part in weights.values()} == {torch.bfloat16}
        names = sorted(path.name for path in pretend_vllm.Path(folder).iterdir())
        assert names == ["adapter_config.json", "adapter_model.safetensors"]


def test_a_prompt_that_fills_the_context_is_refused(
    team: PolicySet, patch: pytest.MonkeyPatch
) -> None:
    engine = VLLM(team.policies, 1.0, 8)
    engine.context = 4
    with pytest.raises(ValueError, match="tokens fills the engine's context of 4$"):
        engine.submit(turn_of("left"))


def test_a_learner_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="^engine 'vllm' has no room: 2.0 of 24 GiB"):
        share_beside_learner(free_gib=2.0, total_gib=24.0, later_gib=0.9)


def test_vllm_never_takes_a_whole_gpu() -> None:
    assert share_beside_learner(free_gib=80.0, total_gib=80.0, later_gib=0.0) == 0.9
