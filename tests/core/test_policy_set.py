"""Several policies in one run: separate models, adapters on one base, frozen ones, mixed bases."""

import pickle

import pytest
import torch
from tensors import ask, learn, teacher_forced, weights_of

from coevolve.engines.loading import load_policy
from coevolve.engines.router import make_engine
from coevolve.methods.comas.method import CoMAS
from coevolve.models.lora import attach
from coevolve.models.policy_set import PolicySet
from coevolve.runs import record
from coevolve.training.config import Run, assign_models
from coevolve.training.distributed import Distributed
from coevolve.training.loop import train
from coevolve.training.value_baselines import make_baselines

LORA = (4, 8, 0.0)


def make_team(names="pq", lora=()):
    """Return policies of `tiny-small` with optimisers and baselines; equal calls, equal weights."""
    torch.manual_seed(0)
    team = PolicySet(dict.fromkeys(names, "tiny-small"), tuple(names), lora)
    team.optimize(1e-3, 0.0)
    team.baselines |= make_baselines("rae", team.trainable)
    return team


def answer(team, turns):
    return make_engine(team, "torch", 1.0, 64).answer(turns)


def teach(team, name):
    """Take a step on six replies of a policy, of which every other one is rewarded."""
    replies = answer(team, [ask(name, key, max_tokens=8) for key in range(6)])
    samples = [reply.earns(float(i % 2)) for i, reply in enumerate(replies)]
    policy = team.trainable[name]
    baseline = team.baselines[name]
    return learn(policy, team.optimizers[name], samples, "rae", baseline=baseline)


def texts_of(replies):
    return [reply.text for reply in replies]


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def assert_equal_weights(team, other, name):
    weights = weights_of(team.policies[name])
    assert torch.equal(weights, weights_of(other.policies[name]))


@pytest.mark.parametrize("lora", [(), LORA])
def test_each_policy_learns_alone(lora):
    team = make_team(lora=lora)
    before = {name: weights_of(team.policies[name]) for name in "pq"}
    assert teach(team, "p")["sequences"] == 6
    assert not torch.equal(weights_of(team.policies["p"]), before["p"])
    assert torch.equal(weights_of(team.policies["q"]), before["q"])


@pytest.fixture(params=[(), LORA], ids=["full", "lora"])
def saved(request, tmp_path):
    """A team that has learned, its folder, and a fresh team that has read all of it."""
    team = make_team(lora=request.param)
    teach(team, "p")
    teach(team, "q")
    team.save(tmp_path / "policy")
    team.save_optimizers(tmp_path / "optimizers")
    restored = make_team(lora=request.param)
    restored.restore(tmp_path / "policy")
    restored.restore_optimizers(tmp_path / "optimizers")
    return team, tmp_path / "policy", restored


def test_a_restored_team_is_the_same_bit_for_bit_and_takes_the_same_next_step(saved):
    team, folder, restored = saved
    assert names_in(folder) == ["p", "q"]
    for name in "pq":
        assert_equal_weights(team, restored, name)
        teach(team, name)
        teach(restored, name)
        assert_equal_weights(team, restored, name)


def test_a_saved_policy_can_be_loaded_without_its_team(saved):
    team, folder, _ = saved
    teach(team, "p")
    teach(team, "q")
    team.restore(folder)
    loaded = load_policy(str(folder / "q"))
    greedy = [ask("q", key, temperature=0.0) for key in range(4)]
    assert texts_of(loaded.generate(greedy)) == texts_of(answer(team, greedy))


def test_restoring_an_optimizer_runs_no_code(tmp_path):
    torch.save({"state": print}, tmp_path / "p.pt")
    with pytest.raises(pickle.UnpicklingError, match="[Ww]eights"):
        make_team("p").restore_optimizers(tmp_path)


def test_a_full_disk_is_an_error_of_the_file_system(tmp_path):
    (tmp_path / "p.pt").symlink_to("/dev/full")
    team = make_team("p")
    with pytest.raises(OSError, match="^a file could not be written, is the disk full"):
        Distributed().on_main_process(lambda: team.save_optimizers(tmp_path))


@pytest.fixture
def adapters():
    """Three adapters on one base, of which the first has learned."""
    team = make_team("pqs", lora=LORA)
    for _ in range(3):
        teach(team, "p")
    return team


def test_an_untrained_adapter_says_what_its_base_says():
    team = make_team("pqs", lora=LORA)
    base = load_policy("tiny-small")
    replies = answer(team, [ask("q", key) for key in range(8)])
    base_replies = base.generate([ask(key=key) for key in range(8)])
    assert texts_of(replies) == texts_of(base_replies)


def test_adapters_share_one_model_and_own_few_different_parameters():
    team = make_team("pqs", lora=LORA)
    policies = list(team.policies.values())
    assert len({id(policy.model) for policy in policies}) == 1
    parameters = []
    for policy in policies:
        parameters += policy.parameters()
    assert len(parameters) == len(set(parameters))
    count = sum(parameter.numel() for parameter in parameters)
    assert count < load_policy("tiny-small").model.num_parameters()
    p, q, _ = policies
    assert not torch.equal(weights_of(p), weights_of(q)), "each draws its own"


def base_weights(team):
    weights = {}
    for name, parameter in team.primary.model.named_parameters():
        if "lora" not in name:
            weights[name] = parameter.detach().clone()
    return weights


def test_the_base_of_adapters_stays_frozen(adapters):
    untrained = base_weights(make_team("pqs", lora=LORA))
    trained = base_weights(adapters)
    assert trained.keys() == untrained.keys()
    for name, weight in trained.items():
        assert torch.equal(weight, untrained[name]), name


def test_each_adapter_computes_its_own_logprobs(adapters):
    _, reply = answer(adapters, [ask("q"), ask("p")])
    p_logprobs = adapters.policies["p"].logprobs([reply])
    q_logprobs = adapters.policies["q"].logprobs([reply])
    sampled = torch.tensor(reply.logprobs)
    torch.testing.assert_close(sampled, p_logprobs, atol=1e-5, rtol=0)
    assert not torch.allclose(p_logprobs, q_logprobs, atol=1e-4)


def test_an_adapter_on_a_bfloat16_base_samples_what_transformers_computes():
    torch.manual_seed(0)
    base = load_policy("tiny-small", dtype="bfloat16")
    policy = attach(base, ["p"], LORA, "tiny-small")["p"]
    for parameter in policy.parameters():
        assert parameter.dtype == torch.float32
        torch.nn.init.normal_(parameter, std=0.1)  # a fresh adapter adds nothing
    replies = policy.generate([ask("p", key) for key in range(8)], max_tokens=16)

    def gaps_to(model):
        gaps = []
        for reply in replies:
            expected = teacher_forced(model, reply.prompt_ids, reply.completion_ids)
            gaps.append((expected - torch.tensor(reply.logprobs)).abs())
        return torch.cat(gaps)

    gaps = gaps_to(policy.model)
    gaps_without_adapter = gaps_to(load_policy("tiny-small").model)
    assert gaps.mean() < 0.02, "bfloat16 has eight bits"
    assert gaps.max() < 0.2
    assert gaps_without_adapter.mean() > 10 * gaps.mean(), "the adapter must matter"


class Trio(CoMAS):
    """Three agents discuss, of whom the last is frozen."""

    models = {"agent_3": "tiny"}

    def after_step(self, step, keep):
        if step == 2:
            keep("snapshots/2")


@pytest.fixture(scope="module")
def trio_run(tmp_path_factory):
    method = Trio(
        agents=3, rounds_per_agent=1, prompt="compact", strategies=("vanilla",)
    )
    run = Run(
        method_name="trio",
        method=method,
        out=tmp_path_factory.mktemp("trio") / "run",
        model="tiny-small",
        steps=3,
        batch_size=2,
        max_tokens=16,
        eval_items=2,
        eval_every=0,
        learning_rate=1e-3,
    )
    return train(run)


@pytest.mark.parametrize("folder", ["policy", "snapshots/2"])
def test_a_run_saves_only_trained_policies_also_where_the_method_asks_for_it(
    trio_run, folder
):
    assert names_in(trio_run / folder) == ["agent_1", "agent_2"]


def test_a_run_counts_the_tokens_of_every_trained_policy(trio_run):
    metrics = record.read(trio_run)
    assert "tokens/agent_2" in metrics
    assert "tokens/agent_3" not in metrics


def test_models_are_assigned_to_policies_in_turn():
    models, trained = assign_models(Trio(agents=3), ("tiny-small", "tiny-large"))
    assert models == {
        "agent_1": "tiny-small",
        "agent_2": "tiny-large",
        "agent_3": "tiny",
    }
    assert trained == ("agent_1", "agent_2")


def test_more_models_than_trained_policies_are_refused():
    with pytest.raises(ValueError, match="model must be one name or at most 2"):
        assign_models(Trio(agents=3), ("tiny",) * 3)


CHECKPOINTING_THRESHOLD = "coevolve.models.policy_set.CHECKPOINTING_MIN_PARAMETERS"


@pytest.mark.parametrize("lora", [(), LORA])
def test_large_models_recompute_activations_and_learn_the_same(lora, monkeypatch):
    weights = []
    for threshold in (10**9, 0):
        monkeypatch.setattr(CHECKPOINTING_THRESHOLD, threshold)
        team = make_team("p", lora)
        is_large = threshold == 0
        assert team.primary.model.is_gradient_checkpointing is is_large
        assert teach(team, "p")["grad_norm"] > 0
        weights.append(weights_of(team.primary))
    torch.testing.assert_close(weights[0], weights[1], atol=1e-5, rtol=0)


def test_large_models_of_unsloth_are_left_to_unsloth(monkeypatch):
    policies = attach(load_policy("tiny-small"), ["p"], LORA, "tiny-small")
    monkeypatch.setattr(CHECKPOINTING_THRESHOLD, 0)
    monkeypatch.setattr("coevolve.models.policy_set.load_unsloth", lambda *_: policies)
    team = PolicySet({"p": "tiny-small"}, ("p",), LORA, unsloth=True)
    assert not team.primary.model.is_gradient_checkpointing
