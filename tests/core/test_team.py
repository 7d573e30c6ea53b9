"""Several policies in one run: separate models, adapters on one base, frozen ones, mixed bases."""

import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tensors import SOLVER, ask, learn, teacher_forced, weights_of

from coevolve import policies, record
from coevolve.config import Run, assign
from coevolve.loop import train
from coevolve.method import Method
from coevolve.parse import tag
from coevolve.policies import adapters
from coevolve.policies.team import Team
from coevolve.types import Outcome

LORA = (4, 8, 0.0)


def made(names="pq", lora=(), **models):
    torch.manual_seed(0)
    team = Team({name: models.get(name, "tiny-small") for name in names}, tuple(names), lora)
    team.optimize(1e-3, 0.0)
    return team


def teach(team, name):
    replies = team.generate([ask(name, key, max_tokens=8) for key in range(6)])
    samples = [reply.earns(float(i % 2)) for i, reply in enumerate(replies)]
    return learn(team.learners[name], team.optimizers[name], samples, estimator="task_relative")


@pytest.mark.parametrize("lora", [(), LORA])
def test_each_policy_learns_alone_and_comes_back_bit_for_bit(lora, tmp_path):
    team, again = made(lora=lora), made(lora=lora)
    before = {name: weights_of(team.policies[name]) for name in "pq"}
    assert teach(team, "p")["sequences"] == 6
    assert not torch.equal(weights_of(team.policies["p"]), before["p"])
    assert torch.equal(weights_of(team.policies["q"]), before["q"])
    teach(team, "q")
    team.save(tmp_path / "policy"), team.save_optimizers(tmp_path / "optimizers")
    assert sorted(path.name for path in (tmp_path / "policy").iterdir()) == ["p", "q"]
    again.restore(tmp_path / "policy"), again.restore_optimizers(tmp_path / "optimizers")
    for name in "pq":
        assert torch.equal(weights_of(team.policies[name]), weights_of(again.policies[name]))
        teach(team, name), teach(again, name)
        assert torch.equal(weights_of(team.policies[name]), weights_of(again.policies[name])), "the next step as well"
    alone = policies.load(str(tmp_path / "policy" / "q"))
    team.restore(tmp_path / "policy")
    greedy = [ask("q", key, temperature=0.0) for key in range(4)]
    assert [r.text for r in alone.generate(greedy)] == [r.text for r in team.generate(greedy)]


class Sneaky:
    def __reduce__(self):
        return (print, ("code ran",))


def test_restoring_an_optimizer_runs_no_code(tmp_path, capsys):
    team = made("p")
    team.save_optimizers(tmp_path)
    torch.save({"state": Sneaky(), "param_groups": []}, tmp_path / "p.pt")
    with pytest.raises(pickle.UnpicklingError, match="[Ww]eights"):
        team.restore_optimizers(tmp_path)
    assert capsys.readouterr().out == ""


def test_adapters_share_one_base_that_stays_frozen():
    base = policies.load("tiny-small")
    team = made("pqs", lora=LORA)
    assert len({id(policy.model) for policy in team.policies.values()}) == 1
    said, plain = team.generate([ask("q", key) for key in range(8)]), base.generate([ask(key=key) for key in range(8)])
    assert [reply.text for reply in said] == [reply.text for reply in plain], "untrained, it says what the base says"
    own = [part for name in "pqs" for part in team.policies[name].parameters()]
    assert len(own) == len(set(own)) and sum(part.numel() for part in own) < base.model.num_parameters()
    assert not torch.equal(weights_of(team.policies["p"]), weights_of(team.policies["q"])), "each draws its own"
    kept = {name: part.clone() for name, part in team.first.model.named_parameters() if "lora" not in name}
    for _ in range(3):
        teach(team, "p")
    assert all(torch.equal(part, kept[name]) for name, part in team.first.model.named_parameters() if name in kept)
    reply = team.generate([ask("q"), ask("p")])[1]
    p, q = team.policies["p"], team.policies["q"]
    torch.testing.assert_close(torch.tensor(reply.logprobs), p.logprobs([reply]), atol=1e-5, rtol=0)
    assert not torch.allclose(p.logprobs([reply]), q.logprobs([reply]), atol=1e-4), "they compute different things"


def test_an_adapter_on_a_bfloat16_base_samples_what_transformers_computes():
    torch.manual_seed(0)
    base = policies.load("tiny-small", dtype="bfloat16")
    policy = adapters.attach(base, ["p"], (4, 8, 0.0), "tiny-small")["p"]
    for part in policy.parameters():
        assert part.dtype == torch.float32
        torch.nn.init.normal_(part, std=0.1)  # a fresh adapter adds nothing
    plain, gaps, moved = policies.load("tiny-small"), [], []
    for reply in policy.generate([ask("p", key) for key in range(8)], max_tokens=16):
        for model, found in ((policy.model, gaps), (plain.model, moved)):
            expected = teacher_forced(model, reply.prompt_ids, reply.ids)
            found.append((expected - torch.tensor(reply.logprobs)).abs())
    gaps, moved = torch.cat(gaps), torch.cat(moved)
    assert gaps.mean() < 0.02 and gaps.max() < 0.2, "bfloat16 has eight bits"
    assert moved.mean() > 10 * gaps.mean(), "the adapter must count for this to show anything"


def test_a_turn_of_a_policy_that_is_not_in_the_team_is_one_clear_line():
    with pytest.raises(ValueError, match="^policy of a turn must be one of p, q, got 'solver'$"):
        made("pq").generate([ask("p"), ask("solver")])


@dataclass(kw_only=True)
class Pair(Method):
    """Two policies answer the same question; a third, frozen one does too and earns nothing."""

    estimator: str = "group_mean"
    policies = ("left", "right", "judge")
    frozen = ("judge",)
    models = {"judge": "tiny"}

    def __post_init__(self):
        super().__post_init__()
        self.solver = SOLVER

    def episode(self, rng):
        question = rng.choice(self.world.zero())
        replies = yield [SOLVER(question=question, policy=name) for name in self.policies for _ in range(2)]
        rights = [float(bool(self.world.right(question, tag(reply.text, "answer")))) for reply in replies[:4]]
        return Outcome([r.earns(right, question) for r, right in zip(replies[:4], rights, strict=True)], {})

    def after_step(self, step, keep):
        if step == 2:
            keep("snapshots/2")


def run(out: Path, **changes) -> Run:
    settings = {"steps": 3, "batch_size": 3, "learning_rate": 1e-3, "max_tokens": 16, "eval_items": 2}
    settings |= {"model": "tiny-small", "save_every": 1, "eval_every": 0}
    return Run(method="pair", protocol=Pair(), out=out, **(settings | changes))


def test_a_run_saves_what_it_trains_keeps_what_the_method_asks_for_and_counts_every_policy(tmp_path):
    out = train(run(tmp_path / "run"))
    assert sorted(path.name for path in (out / "policy").iterdir()) == ["left", "right"], "no frozen one"
    assert sorted(path.name for path in (out / "snapshots" / "2").iterdir()) == ["left", "right"]
    metrics = record.read(out)
    assert {"reward/left", "tokens/right"} <= {*metrics} and "tokens/judge" not in metrics


def test_models_are_dealt_to_policies_in_turn():
    models, trained = assign(Pair(), ("tiny-small", "tiny-large"))
    assert models == {"left": "tiny-small", "right": "tiny-large", "judge": "tiny"} and trained == ("left", "right")
    with pytest.raises(ValueError, match="model must be one name or at most 2"):
        assign(Pair(), ("tiny",) * 3)


@pytest.mark.parametrize("lora", [(), LORA])
def test_layers_that_are_computed_twice_learn_the_same(lora):
    weights = []
    for thrifty in (False, True):
        team = made("p", lora)
        if thrifty:
            team.first.checkpoint_activations()
            assert team.first.model.is_gradient_checkpointing
        assert teach(team, "p")["grad_norm"] > 0
        weights.append(weights_of(team.first))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=0)
