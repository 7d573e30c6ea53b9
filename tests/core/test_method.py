"""The contract of a method: documented defaults, fields and switches, episodes that never fail."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import FunctionType

import pytest
from core.conftest import HOSTILE, Sums, scripted, text
from data_files import tables
from hypothesis import given, settings
from hypothesis import strategies as st
from own_method import Debate

from coevolve.methods.base import Method
from coevolve.methods.registry import get_method
from coevolve.rollout import scheduler
from coevolve.training import loop, trainer
from coevolve.types import Outcome, Role, Sample, Turn

FIELDS = tables("fields")
PAPERS = ("mae", "sage", "spice", "comas", "conl")
SMALL = {
    "sage": {"attempts": 2},
    "comas": {"agents": 2, "reuse": 2},
    "conl": {"leave_one_out": True},
    # Attempts enough for two tasks to be equal.
    "spice": {"group": 5, "attempts": 5, "verifier": "exact"},
}


def small_method(paper: str, **fields: object) -> Method:
    """A small method of a paper in the world of sums; SPICE reads the tiny world's documents."""
    values = SMALL.get(paper, {}) | fields
    if paper != "spice":
        values["world"] = Sums()
    return get_method(paper)(**values)


class TestDefaults:
    def test_every_public_member_is_documented(self) -> None:
        members = {
            name: value
            for name, value in vars(Method).items()
            if isinstance(value, FunctionType | property)
        }
        required = {
            "episode",
            "observe",
            "answering",
            "policies",
            "pools",
            "fit",
            "after_run",
        }
        assert required < members.keys()
        assert [name for name in members if not inspect.getdoc(members[name])] == []

    def test_one_policy_is_shared_scored_and_trained(self) -> None:
        debate = Debate()
        assert debate.policies == ("shared",)
        assert debate.scored == ("shared",)
        assert debate.frozen == ()
        assert debate.models == {}
        assert debate.answering is debate.roles["solver"]

    def test_a_bare_method_has_no_roles_or_pools_and_the_tiny_world(self) -> None:
        method = Method()
        assert method.roles == {}
        assert method.pools == {}
        assert method.measure() == {}
        assert method.world.name == "tiny"

    def test_the_hooks_do_nothing(self) -> None:
        method = Method()
        assert method.before_run() is None
        assert method.fit(None, None, None) is None
        assert method.after_step(1, print) is None
        assert method.after_run(None, (), None) == {}
        assert method.observe(Outcome(), method.world) == {}

    def test_an_answer_is_read_from_its_tag(self) -> None:
        assert Method().read_answer("so <answer> 5 </answer>") == "5"

    def test_episode_must_be_defined(self) -> None:
        with pytest.raises(NotImplementedError, match="^Method must define episode"):
            Method().episode(Random(0))

    def test_a_solver_must_be_defined(self) -> None:
        with pytest.raises(ValueError, match="^Method must have a role `solver`"):
            _ = Method().answering


class TestBookkeeping:
    @pytest.mark.parametrize("paper", PAPERS)
    def test_an_episode_is_the_algorithm_alone(self, paper: str) -> None:
        source = inspect.getsource(get_method(paper).episode)
        bookkeeping = r"facts|mean\(|world\.(right|valid|level)|observe"
        assert not re.search(bookkeeping, source)

    @pytest.mark.parametrize("module", [loop, trainer, scheduler])
    def test_the_loop_calls_the_contract_without_probing_for_members(
        self, module: object
    ) -> None:
        assert not re.search(r"\b(get|has)attr\(", inspect.getsource(module))


@dataclass(frozen=True)
class WrongField:
    """A value that a field of a method must refuse."""

    method: str
    field: str
    value: object

    def __str__(self) -> str:
        return f"{self.method} {self.field}={self.value}"

    @property
    def refused_part(self) -> str:
        """What the message must quote: the value, of a list its last item."""
        if isinstance(self.value, list):
            return str(self.value[-1]) if self.value else ""
        return str(self.value)


WRONG_FIELDS = [
    WrongField(method, field, value)
    for method, table in FIELDS.items()
    for field, values in table["wrong"].items()
    for value in values
]


class TestFields:
    @pytest.mark.parametrize("paper", PAPERS)
    def test_the_defaults_are_the_papers_numbers(self, paper: str) -> None:
        method = get_method(paper)()
        expected = FIELDS[paper]["paper"]
        assert {name: getattr(method, name) for name in expected} == expected

    @pytest.mark.parametrize("wrong", WRONG_FIELDS, ids=str)
    def test_a_wrong_field_is_named_with_the_value_it_got(
        self, wrong: WrongField
    ) -> None:
        fields = {"world": Sums()}
        fields[wrong.field] = wrong.value
        with pytest.raises(ValueError, match=f"^{wrong.field}.* must .* got ") as error:
            get_method(wrong.method)(**fields)
        message = str(error.value)
        _, _, quoted = message.partition("got ")
        assert wrong.refused_part in quoted
        assert "\n" not in message

    @pytest.mark.parametrize("name", FIELDS)
    def test_a_kl_coef_requires_an_estimator_that_uses_it(self, name: str) -> None:
        with pytest.raises(ValueError, match="^estimator with a kl_coef"):
            get_method(name)(kl_coef=0.1, estimator="group_mean", world=Sums())

    def test_only_annotated_names_are_fields(self) -> None:
        class Duet(Debate):
            policies = ("first", "second")
            topics: list[str] = []

        duet = Duet()
        assert duet.policies == ("first", "second")
        assert duet.describe().keys() == Debate().describe().keys() | {"topics"}

    def test_a_list_field_takes_a_list_before_the_roles_are_defined(self) -> None:
        class Duet(Debate):
            topics: list[str] = []

            def define_roles(self) -> None:
                prompt = f"{len(self.topics)} {{question}}"
                self.solver = Role("solver", prompt, policy="first")

        duet = Duet(topics=["sums"])
        assert duet.topics == ["sums"]
        assert duet.solver.prompt == "1 {question}"


def erratic_reply(turn: Turn) -> str:
    """What an erratic model may write in any role: always the same text for the same turn."""
    rng = Random(f"{text(turn)} {turn.key}")
    a = rng.randint(0, 4)
    b = rng.randint(0, 4)
    score = rng.randint(1, 4)
    agent = rng.randint(0, 3)
    kind = rng.choice(["math", "code"])
    any_score = rng.choice([score, 9])
    prefix = rng.choice(["", "in"])
    ranking = f"Agent {a} > Agent {agent}\nAgent 1 > Agent 2"
    objection = "no " * a
    task = f'{{"question": "{a}+1", "answer": {a + 1}, "answer_type": "Integer"}}'
    if turn.role == "format":
        task = (
            '{"suitable_for_mcq": false, "suitable_for_free_form": true, '
            '"best_answer_type": "Integer"}'
        )
    parts = [
        f"<question>{a}+{b}</question>",
        f"<answer>{a + b}</answer>",
        rf"\boxed{{{b + 1}}}",
        "<plan>add</plan>",
        f"<type>{kind}</type>",
        f"<score>{any_score}</score>",
        f"<judgment>{prefix}correct</judgment>",
        "<tests>assert True</tests>",
        f'<critique target="Agent {b}">{objection}</critique>',
        f"<initial_ranking>{ranking}</initial_ranking>",
        f"<final_ranking>{ranking}</final_ranking>",
        f"<revised_solution>because {a}\nANSWER: {b}</revised_solution>",
        task,
    ]
    part_rate = rng.choice((0.0, 0.8, 0.8, 0.8))
    return "\n".join(part for part in parts if rng.random() < part_rate)


@dataclass(frozen=True)
class Rollouts:
    """The turns and samples of some episodes."""

    turns: list[Turn]
    samples: list[Sample]


def rollouts(paper: str, **fields: object) -> Rollouts:
    """Play forty episodes of a small method with an erratic model."""
    method = small_method(paper, **fields)
    outcomes, turns = scripted(method, erratic_reply, range(40))
    samples = [sample for outcome in outcomes for sample in outcome.samples]
    return Rollouts(turns, samples)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_switch_changes_the_turns_or_the_samples(paper: str) -> None:
    usual = rollouts(paper)
    assert usual == rollouts(paper)
    without_effect = []
    for name, value in FIELDS[paper]["switches"].items():
        if rollouts(paper, **{name: value}) == usual:
            without_effect.append(name)
    assert without_effect == []


TRAINED_ROLES = [
    (paper, role) for paper in ("mae", "sage") for role in small_method(paper).train
]


@pytest.mark.parametrize(("paper", "role"), TRAINED_ROLES)
def test_a_role_that_is_not_trained_still_speaks_but_has_no_samples(
    paper: str, role: str
) -> None:
    everyone = small_method(paper, solves=2)
    others = tuple(name for name in everyone.train if name != role)
    without_role = small_method(paper, solves=2, train=others)
    outcomes, turns = scripted(everyone, erratic_reply, range(8))
    reduced_outcomes, reduced_turns = scripted(without_role, erratic_reply, range(8))
    assert reduced_turns == turns
    removed = 0
    for outcome, reduced in zip(outcomes, reduced_outcomes, strict=True):
        assert reduced.samples == [s for s in outcome.samples if s.role != role]
        assert reduced.facts == outcome.facts
        assert reduced.adds == outcome.adds
        removed += len(outcome.samples) - len(reduced.samples)
    assert removed > 0


def assert_reward_in_range(sample: Sample) -> None:
    segmented = isinstance(sample.reward, Mapping)
    rewards = sample.reward.values() if segmented else [sample.reward]
    assert all(reward is None or -1 <= reward <= 8 for reward in rewards)


def assert_spans_in_text(sample: Sample) -> None:
    for spans in sample.spans.values():
        for start, end in spans:
            assert 0 <= start < end <= len(sample.reply.text)


@pytest.mark.parametrize("paper", PAPERS)
@settings(max_examples=25)
@given(replies=st.lists(HOSTILE, min_size=1, max_size=8))
def test_an_episode_survives_hostile_replies(paper: str, replies: list[str]) -> None:
    def reply_in_turn(turn: Turn) -> str:
        return replies[turn.key[-1] % len(replies)]

    outcomes, turns = scripted(small_method(paper), reply_in_turn)
    assert turns
    (outcome,) = outcomes
    for sample in outcome.samples:
        assert sample.reply.turn in turns
        assert_reward_in_range(sample)
        assert_spans_in_text(sample)
    for items in outcome.adds.values():
        assert all(isinstance(item, tuple | str) for item in items)
