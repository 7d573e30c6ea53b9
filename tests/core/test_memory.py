"""The estimated GPU memory of a run against counts by hand, and the export of trained adapters."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.training import config, memory

LORA = [8, 16, 0.0]
RANK = 8


def estimated_bytes(**overrides) -> float:
    run = config.build("mae", "quick", out="x", overrides=overrides)
    return memory.estimate(run) * 2**30


@pytest.fixture(scope="module")
def model():
    return load_policy("tiny").model


def activation_bytes(model, max_tokens_per_micro_batch: int) -> int:
    """Count 2 bytes for 10 widths and 3 inner widths, per token and layer."""
    sizes = model.config
    per_layer = 10 * sizes.hidden_size + 3 * sizes.intermediate_size
    return 2 * max_tokens_per_micro_batch * per_layer * sizes.num_hidden_layers


def adapter_parameters(model) -> int:
    count = 0
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            count += RANK * (module.in_features + module.out_features)
    return count


def test_full_fine_tuning_takes_16_bytes_per_parameter(model):
    expected = 16 * model.num_parameters() + activation_bytes(model, 1024)
    assert estimated_bytes(max_tokens_per_micro_batch=1024) == pytest.approx(expected)


def test_lora_takes_2_bytes_per_parameter_of_the_base_and_16_of_the_adapter(model):
    weights = 2 * model.num_parameters() + 16 * adapter_parameters(model)
    expected = weights + activation_bytes(model, 1024)
    assert estimated_bytes(max_tokens_per_micro_batch=1024, lora=LORA) == pytest.approx(
        expected
    )


def test_a_frozen_judge_takes_2_bytes_per_parameter(model):
    difference = estimated_bytes(judge_model="tiny") - estimated_bytes()
    assert difference == pytest.approx(2 * model.num_parameters())


class TestGPU:
    """The check of a run against the memory of a GPU, before anything loads."""

    @pytest.fixture
    def run(self):
        return config.build("mae", "quick", out="x")

    @pytest.fixture
    def vllm_run(self):
        return config.build("mae", "quick", out="x", overrides={"engine": "vllm"})

    @pytest.fixture
    def required(self, run) -> int:
        return int(memory.estimate(run) * 2**30)

    @pytest.fixture
    def set_gpu_memory(self, monkeypatch):
        def set_bytes(total: int) -> None:
            monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**10, total))

        return set_bytes

    LINE = "needs about 0 GiB and has 0; set lora or lower max_tokens_per_micro_batch"

    def test_without_a_gpu_nothing_is_checked(self, run):
        memory.check(run)

    def test_a_gpu_that_is_too_small_is_refused(self, run, required, set_gpu_memory):
        set_gpu_memory(required - 2**10)
        with pytest.raises(ValueError, match=self.LINE):
            memory.check(run)

    def test_a_gpu_that_is_large_enough_passes(self, run, required, set_gpu_memory):
        set_gpu_memory(required + 2**10)
        memory.check(run)

    def test_the_share_of_vllm_is_subtracted(self, vllm_run, required, set_gpu_memory):
        set_gpu_memory(required + 2**10)
        with pytest.raises(ValueError, match=self.LINE):
            memory.check(vllm_run)


SMALL = (
    "lora=[4,8,0.0]",
    "steps=1",
    "batch_size=2",
    "attempts=1",
    "solves=1",
    "eval_every=0",
    "eval_items=1",
)


def train_adapter(out: Path, *fields: str) -> int:
    return main(["train", "mae", "--out", str(out), *SMALL, *fields])


def export(policy: Path, to: Path, *options: str) -> int:
    return main(["export", str(policy), "--to", str(to), *options])


@pytest.fixture(scope="module")
def policy(tmp_path_factory) -> Path:
    """Return the policy of a run with LoRA."""
    out = tmp_path_factory.mktemp("adapters") / "run"
    assert train_adapter(out) == 0
    return out / "policy"


class TestAdapters:
    """A trained adapter, exported as an ordinary checkpoint."""

    def test_a_run_saves_the_adapter_alone(self, policy):
        assert (policy / "adapter_config.json").is_file()
        assert not (policy / "model.safetensors").exists()

    def test_the_exported_weights_are_those_of_base_and_adapter(self, policy, tmp_path):
        assert export(policy, tmp_path / "merged", "--dtype", "float32") == 0
        merged = load_policy(str(tmp_path / "merged")).model.state_dict()
        adapted = load_policy(str(policy)).model.state_dict()
        for name, weights in adapted.items():
            assert torch.equal(merged[name], weights), name

    def test_the_usual_type_of_exported_weights_is_bfloat16(self, policy, tmp_path):
        assert export(policy, tmp_path / "halved") == 0
        weights = load_file(tmp_path / "halved" / "model.safetensors")
        assert {part.dtype for part in weights.values()} == {torch.bfloat16}

    def test_vllm_refuses_an_adapter(self, policy, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr("coevolve.training.preflight.find_spec", lambda name: True)
        assert train_adapter(tmp_path / "run", f"model={policy}", "engine=vllm") == 2
        line = "is an adapter; merge it with `coevolve export` for engine 'vllm'"
        assert line in capsys.readouterr().err

    def test_an_adapter_is_trained_on_an_adapter_and_exported(self, policy, tmp_path):
        assert train_adapter(tmp_path / "run", f"model={policy}") == 0
        assert export(tmp_path / "run" / "policy", tmp_path / "merged") == 0

    def test_a_folder_with_files_is_not_overwritten(self, policy, tmp_path, capsys):
        (tmp_path / "file").touch()
        assert export(policy, tmp_path) == 2
        assert "must be a new or empty folder" in capsys.readouterr().err

    @pytest.mark.parametrize("place", ["missing", "run"])
    def test_only_a_policy_is_exported(self, place, policy, tmp_path, capsys):
        folder = {"missing": tmp_path / "nowhere", "run": policy.parent}[place]
        assert export(folder, tmp_path / "new") == 2
        hint = {
            "missing": "(a run's: OUT/policy, or OUT/policy/NAME)",
            "run": f"is the folder of a run; its trained model is {policy}",
        }[place]
        assert hint in capsys.readouterr().err
        assert not (tmp_path / "new").exists()

    def test_an_unknown_judge_is_refused_before_anything_is_written(
        self, tmp_path, capsys
    ):
        assert train_adapter(tmp_path / "new", "judge_model=nowhere") == 2
        assert "got 'nowhere'" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
