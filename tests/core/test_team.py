"""Several policies in one run: separate models, adapters on one base, frozen ones, mixed bases."""

import pickle

import pytest
import torch
from tensors import ask, learn, teacher_forced, weights_of

from coevolve.engines.loading import load_policy
from coevolve.engines.router import make_engine
from coevolve.methods.comas.method import CoMAS
from coevolve.models import lora as lora_module
from coevolve.models.policy_set import PolicySet
from coevolve.runs import record
from coevolve.training.config import Run, assign_models
from coevolve.training.distributed import Distributed
from coevolve.training.loop import train
from coevolve.training.value_baselines import make_baselines

LORA = (4, 8, 0.0)


def made(names="pq", lora=(), **models):
    torch.manual_seed(0)
    team = PolicySet({name: models.get(name, "tiny-small") for name in names}, tuple(names), lora)
    team.optimize(1e-3, 0.0)
    team.baselines |= make_baselines("rae", team.trainable)
    return team


def said(team, turns):
    return make_engine(team, "torch", 1.0, 64).answer(turns)


def teach(team, name):
    replies = said(team, [ask(name, key, max_tokens=8) for key in range(6)])
    samples = [reply.earns(float(i % 2)) for i, reply in enumerate(replies)]
    return learn(team.trainable[name], team.optimizers[name], samples, "rae", baseline=team.baselines[name])


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
    alone = load_policy(str(tmp_path / "policy" / "q"))
    team.restore(tmp_path / "policy")
    greedy = [ask("q", key, temperature=0.0) for key in range(4)]
    assert [r.text for r in alone.generate(greedy)] == [r.text for r in said(team, greedy)]


def test_restoring_an_optimizer_runs_no_code(tmp_path):
    torch.save({"state": print}, tmp_path / "p.pt")
    with pytest.raises(pickle.UnpicklingError, match="[Ww]eights"):
        made("p").restore_optimizers(tmp_path)


def test_a_full_disk_is_an_error_of_the_file_system(tmp_path):
    (tmp_path / "p.pt").symlink_to("/dev/full")
    with pytest.raises(OSError, match="^a file could not be written, is the disk full"):
        Distributed().on_main_process(lambda: made("p").save_optimizers(tmp_path))


def test_adapters_share_one_base_that_stays_frozen():
    base = load_policy("tiny-small")
    team = made("pqs", lora=LORA)
    assert len({id(policy.model) for policy in team.policies.values()}) == 1
    own, plain = said(team, [ask("q", key) for key in range(8)]), base.generate([ask(key=key) for key in range(8)])
    assert [reply.text for reply in own] == [reply.text for reply in plain], "untrained, it says what the base says"
    own = [part for name in "pqs" for part in team.policies[name].parameters()]
    assert len(own) == len(set(own)) and sum(part.numel() for part in own) < base.model.num_parameters()
    assert not torch.equal(weights_of(team.policies["p"]), weights_of(team.policies["q"])), "each draws its own"
    kept = {name: part.clone() for name, part in team.primary.model.named_parameters() if "lora" not in name}
    for _ in range(3):
        teach(team, "p")
    assert all(torch.equal(part, kept[name]) for name, part in team.primary.model.named_parameters() if name in kept)
    reply = said(team, [ask("q"), ask("p")])[1]
    p, q = team.policies["p"], team.policies["q"]
    torch.testing.assert_close(torch.tensor(reply.logprobs), p.logprobs([reply]), atol=1e-5, rtol=0)
    assert not torch.allclose(p.logprobs([reply]), q.logprobs([reply]), atol=1e-4), "they compute different things"


def test_an_adapter_on_a_bfloat16_base_samples_what_transformers_computes():
    torch.manual_seed(0)
    base = load_policy("tiny-small", dtype="bfloat16")
    policy = lora_module.attach(base, ["p"], (4, 8, 0.0), "tiny-small")["p"]
    for part in policy.parameters():
        assert part.dtype == torch.float32
        torch.nn.init.normal_(part, std=0.1)  # a fresh adapter adds nothing
    said = policy.generate([ask("p", key) for key in range(8)], max_tokens=16)
    reported = torch.tensor([logprob for reply in said for logprob in reply.logprobs])
    models = policy.model, load_policy("tiny-small").model
    exact = [[teacher_forced(model, r.prompt_ids, r.completion_ids) for r in said] for model in models]
    gaps, moved = ((torch.cat(found) - reported).abs() for found in exact)
    assert gaps.mean() < 0.02 and gaps.max() < 0.2, "bfloat16 has eight bits"
    assert moved.mean() > 10 * gaps.mean(), "the adapter must count for this to show anything"


class Trio(CoMAS):
    """Three agents discuss, of whom the last is frozen."""

    models = {"agent_3": "tiny"}

    def after_step(self, step, keep):
        if step == 2:
            keep("snapshots/2")


def test_a_run_saves_what_it_trains_keeps_what_the_method_asks_for_and_counts_every_policy(tmp_path):
    few = {"steps": 3, "batch_size": 2, "max_tokens": 16, "eval_items": 2, "eval_every": 0, "learning_rate": 1e-3}
    method = Trio(agents=3, rounds_per_agent=1, prompt="compact", setups=("vanilla",))
    out = train(Run(method="trio", protocol=method, out=tmp_path / "run", model="tiny-small", **few))
    for folder in ("policy", "snapshots/2"):
        assert sorted(path.name for path in (out / folder).iterdir()) == ["agent_1", "agent_2"], "no frozen one"
    metrics = record.read(out)
    assert "tokens/agent_2" in metrics and "tokens/agent_3" not in metrics


def test_models_are_dealt_to_policies_in_turn():
    models, trained = assign_models(Trio(agents=3), ("tiny-small", "tiny-large"))
    assert models == {"agent_1": "tiny-small", "agent_2": "tiny-large", "agent_3": "tiny"}
    assert trained == ("agent_1", "agent_2")
    with pytest.raises(ValueError, match="model must be one name or at most 2"):
        assign_models(Trio(agents=3), ("tiny",) * 3)


@pytest.mark.parametrize("lora", [(), LORA])
def test_large_models_compute_layers_twice_and_learn_the_same_unless_unsloth_has_a_way_of_its_own(lora, monkeypatch):
    weights = []
    for large in (10**9, 0):
        monkeypatch.setattr("coevolve.models.policy_set.LARGE", large)
        team = made("p", lora)
        assert team.primary.model.is_gradient_checkpointing is (large == 0) and teach(team, "p")["grad_norm"] > 0
        weights.append(weights_of(team.primary))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=0)
    own = lora_module.attach(load_policy("tiny-small"), ["p"], LORA, "tiny-small")
    monkeypatch.setattr("coevolve.models.policy_set.load_unsloth", lambda *asked: own)
    assert not PolicySet({"p": "tiny-small"}, ("p",), LORA, unsloth=True).primary.model.is_gradient_checkpointing
