"""The contract: documented defaults, a method of one's own, and that an episode is the algorithm and nothing else."""

import inspect
import re
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
from coevolve.types import Outcome, Role, Turn

FIELDS = tables("fields")
PAPERS = ("mae", "sage", "spice", "comas", "conl")
SMALL = {"sage": {"attempts": 2}, "comas": {"agents": 2, "reuse": 2}}
SMALL["spice"] = {
    "group": 5,
    "attempts": 5,
    "verifier": "exact",
}  # enough attempts for equal tasks


def test_every_public_member_of_the_contract_is_documented_and_has_a_default() -> None:
    members = {
        name: value
        for name, value in vars(Method).items()
        if isinstance(value, FunctionType | property)
    }
    assert {
        "episode",
        "observe",
        "answering",
        "policies",
        "pools",
        "fit",
        "after_run",
    } < members.keys()
    assert [name for name, value in members.items() if not inspect.getdoc(value)] == []
    plain, mine = Method(), Debate()
    assert (mine.policies, mine.scored, mine.frozen, mine.models) == (
        ("shared",),
        ("shared",),
        (),
        {},
    )
    assert (plain.roles, plain.pools, plain.measure(), plain.world.name) == (
        {},
        {},
        {},
        "tiny",
    )
    assert mine.answering is mine.roles["solver"]
    assert (
        plain.before_run()
        is plain.fit(None, None)
        is plain.after_step(1, print)
        is None
    )
    assert (
        plain.after_run(None, (), None) == plain.observe(Outcome(), plain.world) == {}
    )
    assert plain.read_answer("so <answer> 5 </answer>") == "5"
    with pytest.raises(NotImplementedError, match="^Method must define episode"):
        plain.episode(Random(0))
    with pytest.raises(ValueError, match="^Method must have a role `solver`"):
        _ = plain.answering


@pytest.mark.parametrize("paper", PAPERS)
def test_an_episode_is_the_algorithm_without_bookkeeping(paper: str) -> None:
    source = inspect.getsource(get_method(paper).episode)
    assert not re.search(r"facts|mean\(|world\.(right|valid|level)|observe", source)


def test_the_loop_calls_the_contract_and_probes_for_nothing() -> None:
    assert not any(
        re.search(r"\b(get|has)attr\(", inspect.getsource(module))
        for module in (loop, trainer, scheduler)
    )


def make(paper: str, **fields: object) -> Method:
    """A small method of a paper, in the world of sums; SPICE reads the documents of the tiny world."""
    world = {} if paper == "spice" else {"world": Sums()}
    return get_method(paper)(**world, **SMALL.get(paper, {}) | fields)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_defaults_are_the_papers_numbers(paper: str) -> None:
    expected = FIELDS[paper]["paper"]
    assert {name: getattr(get_method(paper)(), name) for name in expected} == expected


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_field_is_named_with_what_was_given(name: str) -> None:
    for field, value in [
        (field, value)
        for field, values in FIELDS[name]["wrong"].items()
        for value in values
    ]:
        with pytest.raises(ValueError, match=f"^{field}.* must .* got ") as error:
            get_method(name)(**{"world": Sums(), field: value})
        given = str(error.value).partition("got ")[2]
        assert (
            "\n" not in str(error.value)
            and str(value[-1] if isinstance(value, list) and value else "") in given
        )
    with pytest.raises(ValueError, match="^estimator with a kl_coef"):
        get_method(name)(kl_coef=0.1, estimator="group_mean", world=Sums())


def messy(turn: Turn) -> str:
    """What a model in all its moods might say in any role, the same for the same turn."""
    rng = Random(f"{text(turn)} {turn.key}")
    a, b, c, d = (
        rng.randint(0, 4),
        rng.randint(0, 4),
        rng.randint(1, 4),
        rng.randint(0, 3),
    )
    task = f'{{"question": "{a}+1", "answer": {a + 1}, "answer_type": "Integer"}}'
    form = '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer"}'
    order = f"Agent {a} > Agent {d}\nAgent 1 > Agent 2"
    parts = [
        f"<question>{a}+{b}</question>",
        f"<answer>{a + b}</answer>",
        f"\\boxed{{{b + 1}}}",
        "<plan>add</plan>",
    ]
    parts += [
        f"<type>{rng.choice(['math', 'code'])}</type>",
        f"<score>{rng.choice([c, 9])}</score>",
    ]
    parts += [
        f"<judgment>{rng.choice(['', 'in'])}correct</judgment>",
        "<tests>assert True</tests>",
    ]
    parts += [f'<critique target="Agent {b}">{"no " * a}</critique>']
    parts += [
        f"<{name}_ranking>{order}</{name}_ranking>" for name in ("initial", "final")
    ]
    parts += [
        f"<revised_solution>because {a}\nANSWER: {b}</revised_solution>",
        form if turn.role == "format" else task,
    ]
    often = rng.choice((0.0, 0.8, 0.8, 0.8))
    return "\n".join(part for part in parts if rng.random() < often)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_switch_changes_what_is_asked_or_earned(paper: str) -> None:
    def trained(**fields: object) -> list:
        outcomes, asked = scripted(make(paper, **fields), messy, range(40))
        return asked, [sample for outcome in outcomes for sample in outcome.samples]

    usual = trained()
    assert usual == trained()
    assert [
        name
        for name, value in FIELDS[paper]["switches"].items()
        if trained(**{name: value}) == usual
    ] == []


@pytest.mark.parametrize(
    ("paper", "role"),
    [(paper, role) for paper in ("mae", "sage") for role in make(paper).train],
)
def test_without_training_a_role_its_samples_are_gone_and_the_others_untouched(
    paper: str, role: str
) -> None:
    others = tuple(name for name in make(paper).train if name != role)
    full, asked = scripted(make(paper, solves=2), messy, range(8))
    less, same = scripted(make(paper, solves=2, train=others), messy, range(8))
    for whole, part in zip(full, less, strict=True):
        assert part.samples == [
            sample for sample in whole.samples if sample.role != role
        ]
        assert (part.facts, part.adds) == (whole.facts, whole.adds)
    assert asked == same, "the role still speaks"
    assert any(
        part.samples != whole.samples for whole, part in zip(full, less, strict=True)
    )


@pytest.mark.parametrize("paper", PAPERS)
@settings(max_examples=25)
@given(said=st.lists(HOSTILE, min_size=1, max_size=8))
def test_whatever_is_said_an_episode_ends_with_rewards_in_range_and_sound_spans(
    paper: str, said: list[str]
) -> None:
    method = make(paper)
    (outcome,), asked = scripted(method, lambda turn: said[turn.key[-1] % len(said)])
    for sample in outcome.samples:
        rewards = (
            sample.reward.values()
            if isinstance(sample.reward, dict)
            else [sample.reward]
        )
        assert all(reward is None or -1 <= reward <= 8 for reward in rewards)
        assert all(
            0 <= a < b <= len(sample.reply.text)
            for spans in sample.spans.values()
            for a, b in spans
        )
    assert all(
        isinstance(item, tuple | str)
        for added in outcome.adds.values()
        for item in added
    )
    assert asked and all(sample.reply.turn in asked for sample in outcome.samples)


def test_only_annotated_names_are_fields_and_a_list_field_takes_a_list() -> None:
    class Duet(Debate):
        policies = ("first", "second")
        topics: list[str] = []

        def define_roles(self) -> None:
            self.solver = Role(
                "solver", f"{len(self.topics)} {{question}}", policy="first"
            )

    duet = Duet(topics=["sums"])
    assert duet.policies == ("first", "second")
    assert duet.topics == ["sums"] and duet.solver.prompt == "1 {question}"
    assert duet.describe().keys() == Debate().describe().keys() | {"topics"}
