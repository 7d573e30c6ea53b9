"""The contract: documented defaults, a method of one's own, and that an episode is the algorithm and nothing else."""

import ast
import inspect
import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from core.conftest import DATA, HOSTILE, Sums, scripted, text
from hypothesis import given, settings
from hypothesis import strategies as st

import coevolve
from coevolve import config, driver, loop, trainer
from coevolve.driver import Batched, play
from coevolve.method import Method
from coevolve.policies import load
from coevolve.types import Episode, Outcome, Role, Turn

SRC = Path(coevolve.__file__).parent
FIELDS = tomllib.loads((DATA / "fields.toml").read_text("utf-8"))
PAPERS = ("mae", "sage", "spice", "comas", "conl")
SMALL = {
    "sage": {"attempts": 2},
    "spice": {"group": 2, "attempts": 4, "verifier": "exact"},
    "comas": {"agents": 2, "reuse": 2},
}


def test_every_public_member_of_the_contract_is_documented_and_has_a_default() -> None:
    members = {
        name: value for name, value in vars(Method).items() if inspect.isfunction(value) or isinstance(value, property)
    }
    assert {"episode", "observe", "answering", "policies", "pools", "fit", "after_run"} < members.keys()
    assert [name for name, value in members.items() if not inspect.getdoc(value)] == []
    plain = Method()
    mine = Adder()
    assert (mine.policies, mine.scored, mine.frozen, mine.models) == (("shared",), ("shared",), (), {})
    assert (plain.roles, plain.pools, plain.measure(), plain.world.name) == ({}, {}, {}, "tiny")
    assert plain.before_run() is plain.fit(None, None) is plain.after_step(1, print) is None
    assert plain.after_run(None, (), None) == plain.observe(Outcome(), plain.world) == {}
    assert plain.read_answer("so <answer> 5 </answer>") == "5"
    with pytest.raises(NotImplementedError, match="^Method must define episode"):
        plain.episode(Random(0))
    with pytest.raises(ValueError, match="^Method must have a role `solver`"):
        _ = plain.answering


@dataclass(kw_only=True)
class Adder(Method):
    """Solve a starting question; the oracle pays."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.solver = Role("solver", "solve<question>{question}</question>")

    def episode(self, rng: Random) -> Episode:
        question = rng.choice(self.world.zero())
        replies = yield [self.solver(question=question)] * 2
        rights = [self.world.right(question, self.read_answer(reply.text)) for reply in replies]
        return Outcome(
            [reply.earns(float(bool(right)), reply.siblings) for reply, right in zip(replies, rights, strict=True)]
        )

    def observe(self, outcome: Outcome, world: object) -> dict[str, float]:
        return {"right": sum(sample.reward for sample in outcome.samples) / 2}


def test_a_method_of_ones_own_plays_with_the_tiny_backbone() -> None:
    policy, method = load("tiny-small"), Adder()
    assert method.answering is method.roles["solver"] and method.world.name == "tiny"
    engine = Batched(lambda turns: policy.generate(turns, max_tokens=24))
    outcomes = play([method.observed(Random(i)) for i in range(12)], engine, (0, 1))
    assert sum(outcome.facts["right"] for outcome in outcomes) > 3, "easy questions"
    assert all(sample.reply.ids and sample.reply.logprobs for outcome in outcomes for sample in outcome.samples)


@pytest.mark.parametrize("paper", PAPERS)
def test_an_episode_is_the_algorithm_without_bookkeeping(paper: str) -> None:
    source = (SRC / "papers" / paper / "method.py").read_text("utf-8")
    nodes = ast.walk(ast.parse(source))
    episodes = [ast.unparse(node) for node in nodes if isinstance(node, ast.FunctionDef) and node.name == "episode"]
    assert len(episodes) == 1
    for word in ("facts", "mean(", "world.right", "world.valid", "world.level", "observe"):
        assert word not in episodes[0]


def test_the_loop_calls_the_contract_and_probes_for_nothing() -> None:
    for module in (loop, trainer, driver):
        assert not {"getattr", "hasattr"} & {
            n.id for n in ast.walk(ast.parse(inspect.getsource(module))) if isinstance(n, ast.Name)
        }


def make(paper: str, **fields: object) -> Method:
    """A small method of a paper, in the world of sums; SPICE reads the documents of the tiny world."""
    world = {} if paper == "spice" else {"world": Sums()}
    return config.method(paper)(**world, **SMALL.get(paper, {}) | fields)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_defaults_are_the_papers_numbers(paper: str) -> None:
    expected = FIELDS[paper]["paper"]
    assert {name: getattr(config.method(paper)(), name) for name in expected} == expected


@pytest.mark.parametrize("paper", PAPERS)
def test_a_wrong_field_is_named_with_what_was_given(paper: str) -> None:
    for field, value in [(name, value) for name, values in FIELDS[paper]["wrong"].items() for value in values]:
        with pytest.raises(ValueError, match=field) as error:
            config.method(paper)(**{"world": Sums(), field: value})
        given = str(error.value).partition("got ")[2]
        assert "\n" not in str(error.value) and str(value[-1] if isinstance(value, list) and value else "") in given
    with pytest.raises(ValueError, match="^estimator with a kl_coef"):
        config.method(paper)(kl_coef=0.1, estimator="group_mean", world=Sums())


def messy(turn: Turn) -> str:
    """What a model in all its moods might say in any role, the same for the same turn."""
    rng = Random(f"{text(turn)} {turn.key}")
    a, b, c, d = rng.randint(0, 4), rng.randint(0, 4), rng.randint(1, 4), rng.randint(0, 3)
    task = f'{{"question": "{a}+1", "answer": {a + 1}, "answer_type": "Integer"}}'
    form = '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer"}'
    parts = [
        f"<question>{a}+{b}</question>",
        f"<type>{rng.choice(['math', 'code'])}</type>",
        f"<answer>{a + b}</answer>",
    ]
    parts += [
        "<tests>assert True</tests>",
        f"<score>{rng.choice([c, 9])}</score>",
        "<plan>add</plan>",
        f"\\boxed{{{b + 1}}}",
    ]
    parts += [
        f"<judgment>{rng.choice(['', 'in'])}correct</judgment>",
        f'<critique target="Agent {b}">{"no " * a}</critique>',
    ]
    parts += [
        f"<{name}_ranking>Agent {a} > Agent {d}\nAgent 1 > Agent 2</{name}_ranking>" for name in ("initial", "final")
    ]
    parts += [f"<revised_solution>because {a}\nANSWER: {b}</revised_solution>", form if turn.role == "format" else task]
    often = rng.choice((0.0, 0.8, 0.8, 0.8))
    return "\n".join(part for part in parts if rng.random() < often)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_switch_changes_what_is_asked_or_earned(paper: str) -> None:
    def trained(**fields: object) -> list:
        outcomes, asked = scripted(make(paper, **fields), messy, range(40))
        return asked, [sample for outcome in outcomes for sample in outcome.samples]

    usual = trained()
    assert usual == trained()
    assert [name for name, value in FIELDS[paper]["switches"].items() if trained(**{name: value}) == usual] == []


@pytest.mark.parametrize(("paper", "role"), [(paper, role) for paper in ("mae", "sage") for role in make(paper).train])
def test_without_training_a_role_its_samples_are_gone_and_the_others_untouched(paper: str, role: str) -> None:
    others = tuple(name for name in make(paper).train if name != role)
    full, asked = scripted(make(paper, solves=2), messy, range(8))
    less, same = scripted(make(paper, solves=2, train=others), messy, range(8))
    for whole, part in zip(full, less, strict=True):
        assert part.samples == [sample for sample in whole.samples if sample.role != role]
        assert (part.facts, part.adds) == (whole.facts, whole.adds)
    assert asked == same, "the role still speaks"
    assert any(part.samples != whole.samples for whole, part in zip(full, less, strict=True))


@pytest.mark.parametrize("paper", PAPERS)
@settings(max_examples=25)
@given(said=st.lists(HOSTILE, min_size=1, max_size=8))
def test_whatever_is_said_an_episode_ends_with_rewards_in_range_and_sound_spans(paper: str, said: list[str]) -> None:
    method = make(paper)
    (outcome,), asked = scripted(method, lambda turn: said[turn.key[-1] % len(said)])
    for sample in outcome.samples:
        rewards = sample.reward.values() if isinstance(sample.reward, dict) else [sample.reward]
        assert all(reward is None or -1 <= reward <= 8 for reward in rewards)
        assert all(0 <= a < b <= len(sample.reply.text) for spans in sample.spans.values() for a, b in spans)
    assert all(isinstance(item, tuple | str) for added in outcome.adds.values() for item in added)
    assert asked and all(sample.reply.turn in asked for sample in outcome.samples)
