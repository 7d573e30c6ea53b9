"""Learning steps on a fake `cuda:0`: no loss and no estimator leaves a tensor elsewhere.

All steps run in one process of their own, because the shim must be loaded before torch. The model
has the widths of Qwen2.5-3B and two layers; see `benchmarks/fake_gpu.py` for what is fake.
"""

from typing import Any

import pytest
from core.learning_steps import OF_LOSSES, SMALL

from benchmarks import fake_gpu, fake_step
from coevolve.advantages.estimators import ESTIMATORS

Rows = dict[str, dict[str, Any]]
# An estimator sees rewards alone, so the kind of the trained weights makes no difference to it.
OF_ESTIMATORS = {name: {"estimator": name} for name in ESTIMATORS}
SHARED = "replies to one prompt"
FOUR_TO_ONE_PROMPT = {"replies": 4, "group": 4}


def settings_of_steps() -> Rows:
    """The settings of every step, by the trained weights and what is special about it."""
    of_losses = {**OF_LOSSES, SHARED: FOUR_TO_ONE_PROMPT}
    steps = {}
    for name, settings in {**OF_ESTIMATORS, **of_losses}.items():
        steps[f"lora/{name}"] = {**SMALL, "lora": 64, **settings}
    for name, settings in of_losses.items():
        steps[f"all/{name}"] = {**SMALL, "lora": 0, **settings}
    return steps


STEPS = settings_of_steps()
# What is said about each fault.
MUTANTS = {
    "cpu": "_statistics got a tensor on cpu",
    "float32": "hidden_TH and head_VH must both be",
    "reference": "reference_logprobs_T must have shape",
}
# The settings in which a fault shows, if not in all.
SHOWS_IN = {"reference": OF_LOSSES["kl in the loss"]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Take all steps; return what was measured, by the trained weights and the settings."""
    reason = fake_gpu.why_not()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("shim")
    library = fake_gpu.compile_shim(folder)
    cases = dict(STEPS)
    for name in MUTANTS:
        settings = SHOWS_IN.get(name, {})
        cases[f"mutant/{name}"] = {**SMALL, **settings, "mutant": name}
    rows = fake_gpu.measure("benchmarks.fake_step", library, cases.values())
    return dict(zip(cases, rows, strict=True))


@pytest.mark.parametrize("name", STEPS)
def test_a_step_stays_on_the_gpu_and_the_policy_speaks(
    name: str, results: Rows
) -> None:
    result = results[name]
    assert "error" not in result
    assert result["devices"] == ["cuda:0"]
    assert result["peak_gib"] > result["before_gib"] >= result["loaded_gib"]
    assert result["attention"].keys() == {"causal", "masked"}
    sizes = fake_step.SHAPES[result["shape"]]
    assert result["logits"] == [2, sizes["vocab_size"]]


@pytest.mark.parametrize("trained", ["lora", "all"])
def test_replies_to_one_prompt_share_it(trained: str, results: Rows) -> None:
    alone = results[f"{trained}/ppo"]
    shared = results[f"{trained}/{SHARED}"]
    # The sampler attends under a mask as well, once in each layer.
    layers = alone["layers"]
    assert alone["attention"]["masked"] == layers
    assert shared["attention"]["masked"] > layers


@pytest.mark.parametrize(("name", "message"), MUTANTS.items())
def test_a_fault_is_found(name: str, message: str, results: Rows) -> None:
    assert message in results[f"mutant/{name}"]["error"]
