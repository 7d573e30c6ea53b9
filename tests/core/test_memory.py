"""The estimated GPU memory of a run against counts by hand, and the export of trained adapters."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from benchmarks import memory as bench
from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.training import config, machine, memory, plan
from coevolve.training.memory import GIB, Memory

LORA = [8, 16, 0.0]
RANK = 8


def estimate(**overrides: Any) -> Memory:
    run = config.build("mae", "quick", out="x", overrides=overrides)
    return memory.estimate(run)


@pytest.fixture(scope="module")
def model():
    return load_policy("tiny").model


def adapter_parameters(model) -> int:
    count = 0
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            count += RANK * (module.in_features + module.out_features)
    return count


class TestWeights:
    """Weights, gradients and moments, counted by hand."""

    def test_full_fine_tuning_takes_16_bytes_per_parameter(self, model):
        need = estimate()
        kept = need.weights + need.gradients + need.moments
        assert kept * GIB == pytest.approx(16 * model.num_parameters())

    def test_lora_takes_2_bytes_of_the_base_and_16_of_the_adapter(self, model):
        need = estimate(lora=LORA)
        expected = 2 * model.num_parameters() + 16 * adapter_parameters(model)
        kept = need.weights + need.gradients + need.moments
        assert kept * GIB == pytest.approx(expected)

    def test_moments_of_8_bits_take_a_quarter(self):
        small = estimate(optimizer="adamw_8bit").moments
        assert small == pytest.approx(estimate().moments / 4)

    @pytest.mark.parametrize("optim", ["adamw_bnb_8bit", "paged_adamw_8bit"])
    def test_moments_of_trl_s_own_optimiser_count(self, optim):
        fields = {"trainer": "trl"}
        small = estimate(**fields, trl={"optim": optim}).moments
        assert small == pytest.approx(estimate(**fields).moments / 4)

    def test_a_base_of_4_bits_is_smaller(self):
        small = estimate(lora=LORA, quantize="4bit").weights
        assert small < 0.75 * estimate(lora=LORA).weights

    def test_trl_has_a_second_copy_of_the_weights(self, model):
        need = estimate(trainer="trl")
        kept = need.weights + need.gradients + need.moments
        assert kept * GIB == pytest.approx((16 + 4) * model.num_parameters())

    def test_trl_shares_the_base_of_an_adapter(self, model):
        more = estimate(trainer="trl", lora=LORA).weights - estimate(lora=LORA).weights
        assert more * GIB == pytest.approx(4 * adapter_parameters(model))

    @pytest.mark.parametrize("name", machine.SHARDING)
    def test_trl_copies_the_base_that_it_shards(self, model, name, monkeypatch):
        monkeypatch.setenv(name, "true")
        whole = estimate(lora=LORA).weights
        assert estimate(trainer="trl", lora=LORA).weights == pytest.approx(2 * whole)

    @pytest.mark.parametrize("name", machine.SHARDING)
    def test_processes_share_what_trl_shards(self, model, name, monkeypatch):
        monkeypatch.setenv(name, "true")
        monkeypatch.setenv("WORLD_SIZE", "8")
        need = estimate(trainer="trl")
        kept = need.weights + need.gradients + need.moments
        assert kept * GIB == pytest.approx((4 + 16 / 8) * model.num_parameters())

    def test_a_frozen_judge_takes_2_bytes_per_parameter(self, model):
        difference = estimate(judge_model="tiny").weights - estimate().weights
        assert difference * GIB == pytest.approx(2 * model.num_parameters())

    def test_a_reference_is_a_copy_of_all_weights_and_of_no_adapter(self, model):
        settings = {"kl_coef": 0.1, "estimator": "reinforce_pp"}
        difference = estimate(**settings).weights - estimate().weights
        assert difference * GIB == pytest.approx(4 * model.num_parameters())
        with_adapter = estimate(lora=LORA, **settings).weights
        assert with_adapter == pytest.approx(estimate(lora=LORA).weights)


MEASURED = json.loads(Path(bench.OUT).read_text(encoding="utf-8"))


def name_of(row: dict[str, Any]) -> str:
    return f"{row['shape']}-{bench.kind_of(row)}-{row['layers']}-{row['tokens']}"


@pytest.mark.parametrize("row", MEASURED, ids=name_of)
def test_activations_are_those_of_a_step_on_a_fake_gpu(row):
    difference = bench.predicted_gib(row) / row["peak_gib"] - 1
    # The loss's buffers are as large as their limit only where all tokens are learnt from.
    most = 0.15 if bench.loss_leads(row) else 0.05
    assert -0.05 < difference < most


def test_the_loss_leads_where_layers_are_narrow_and_kept_elsewhere():
    leading = [name_of(row) for row in MEASURED if bench.loss_leads(row)]
    assert leading == ["Qwen2.5-0.5B-unsloth-2-7592"]


def test_updates_by_unsloth_are_estimated_by_its_own_measurements():
    by_peft = estimate(lora=LORA, max_tokens_per_micro_batch=8192)
    by_unsloth = estimate(
        lora=LORA, max_tokens_per_micro_batch=8192, engine="unsloth+vllm"
    )
    assert by_unsloth.weights == by_peft.weights
    assert by_unsloth.activations < by_peft.activations


class TestGPU:
    """The check of a run against the memory of a GPU, before anything loads."""

    def run(self, **overrides: Any) -> config.Run:
        return config.build("mae", "quick", out="x", overrides=overrides)

    @pytest.fixture
    def set_free(self, monkeypatch):
        def set_gib(free: float) -> None:
            monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
            bytes_of = (int(free * GIB), int(2 * free * GIB))
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: bytes_of)

        return set_gib

    def test_without_a_gpu_nothing_is_checked(self):
        memory.check(self.run())

    def test_a_gpu_on_which_it_cannot_learn_is_refused(self, set_free):
        set_free(estimate().learning - 0.01)
        with pytest.raises(ValueError, match="learning needs about .* are free; set"):
            memory.check(self.run())

    def test_a_gpu_on_which_it_cannot_speak_is_refused(self, set_free):
        settings = {"engine": "vllm", "max_tokens_per_micro_batch": 1024}
        need = estimate(**settings)
        assert need.sampling > need.learning
        set_free((need.sampling + need.learning) / 2)
        with pytest.raises(ValueError, match="sampling needs about .* beside the lea"):
            memory.check(self.run(**settings))

    def test_a_gpu_that_is_large_enough_passes(self, set_free, capsys):
        set_free(estimate().needed + 0.01)
        memory.check(self.run())
        assert capsys.readouterr().err == ""

    def test_vllm_sleeps_while_the_policies_learn(self):
        need = estimate(engine="vllm")
        assert need.engine_while_learning == memory.ASLEEP_GIB < need.sampler

    def test_a_large_model_that_samples_in_python_is_warned_of(
        self, set_free, capsys, monkeypatch
    ):
        monkeypatch.setattr(memory, "CHECKPOINTING_MIN_PARAMETERS", 10)
        set_free(10.0)
        memory.check(self.run())
        assert (
            "engine 'torch' samples token by token in Python" in capsys.readouterr().err
        )
        memory.check(self.run(engine="vllm"))
        assert capsys.readouterr().err == ""


@pytest.fixture
def no_hub(monkeypatch):
    """Read the shapes of the models that presets name from this repository."""
    from_folder = AutoConfig.from_pretrained

    def from_pretrained(model: Any, **options: Any) -> Any:
        if model in plan.KNOWN_MODELS:
            return plan.known_config(model)
        return from_folder(model, **options)

    monkeypatch.setattr(AutoConfig, "from_pretrained", from_pretrained)


class TestHost:
    """RAM for a vLLM that sleeps, and a disk for a model that is downloaded."""

    @pytest.fixture(autouse=True)
    def set_gpu(self, monkeypatch, no_hub):
        """Give the run a GPU on which everything fits, and a small host."""
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (200 * GIB, 200 * GIB))
        monkeypatch.setattr(machine, "free_ram_gib", lambda: 8.0)
        monkeypatch.setattr(machine, "free_disk_gib", lambda folder: 3.0)
        monkeypatch.setattr(machine, "cached_gib", lambda model: 100.0)

    def run(self, **fields: Any) -> config.Run:
        values = {"model": "Qwen/Qwen2.5-3B-Instruct", "engine": "vllm"} | fields
        return config.build("mae", "quick", out="x", overrides=values)

    def test_one_engine_keeps_its_weights_in_ram(self):
        assert memory.check(self.run()).in_ram == pytest.approx(5.75, abs=0.01)

    def test_every_process_keeps_its_own(self, monkeypatch):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        line = (
            "^model must fit the host's memory, where vLLM keeps its weights while it sleeps: "
            "2 x 5.7 GiB, and 8.0 are free; choose a smaller model, or a machine with more RAM$"
        )
        with pytest.raises(ValueError, match=line):
            memory.check(self.run())

    def test_engines_that_stay_awake_keep_nothing_there(self, monkeypatch):
        monkeypatch.setattr(machine, "free_ram_gib", lambda: 0.0)
        need = memory.check(self.run(judge_model="tiny"))
        assert need.in_ram == 0

    def test_the_torch_engine_keeps_nothing_there(self, monkeypatch):
        monkeypatch.setattr(machine, "free_ram_gib", lambda: 0.0)
        assert memory.check(self.run(engine="torch")).in_ram == 0

    def test_a_download_that_the_disk_cannot_hold_is_refused(self, monkeypatch):
        monkeypatch.setattr(machine, "cached_gib", lambda model: 0.5)
        monkeypatch.setattr(machine, "hub_cache", lambda: Path("/cache/hub"))
        line = (
            "^model 'Qwen/Qwen2.5-3B-Instruct' is a download of about 5 GiB, and 3 are free on "
            "the disk of /cache/hub; set HF_HOME to a folder on a larger disk$"
        )
        with pytest.raises(ValueError, match=line):
            memory.check(self.run())

    def test_files_in_the_cache_are_not_downloaded_again(self, monkeypatch):
        monkeypatch.setattr(machine, "cached_gib", lambda model: 5.0)
        memory.check(self.run())

    def test_a_model_in_a_folder_is_not_downloaded(self, monkeypatch):
        monkeypatch.setattr(machine, "cached_gib", lambda model: 0.0)
        monkeypatch.setattr(machine, "free_disk_gib", lambda folder: 0.0)
        memory.check(self.run(model="tiny"))

    def test_without_a_gpu_nothing_is_read(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(memory, "read_models", None)
        monkeypatch.setattr(machine, "free_ram_gib", None)
        assert memory.check(self.run()) == Memory()


class TestCures:
    """What the refusal of CoNL's 8B on eight shards advises."""

    @pytest.fixture
    def check(self, monkeypatch, no_hub):
        """Return the check of such a run on cards with `free` GiB each."""
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("WORLD_SIZE", "8")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(machine, "free_ram_gib", lambda: 1000.0)
        monkeypatch.setattr(machine, "free_disk_gib", lambda folder: 1000.0)

        def check(free: float, **fields: Any) -> Memory:
            gpu = (int(free * GIB), int(80 * GIB))
            monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: gpu)
            values = {"world": "tiny", "trainer": "trl"} | fields
            run = config.build("conl", "gpu", out="x", overrides=values)
            return memory.check(run)

        return check

    def test_replies_that_fit_are_named(self, check):
        line = (
            "sampling needs about 80.1 GiB beside the learner and 79.2 are free; "
            "set lora or lower max_tokens to 7680$"
        )
        with pytest.raises(ValueError, match=line):
            check(79.2)

    def test_the_named_length_passes(self, check):
        assert check(79.2, max_tokens=7680).sampling <= 79.2

    def test_a_smaller_model_is_advised_where_no_length_fits(self, check):
        few = {"lora": LORA, "trainer": "own", "max_tokens_per_micro_batch": 1024}
        with pytest.raises(ValueError, match="sampling .* are free; choose a smaller"):
            check(24.0, **few)

    def test_smaller_micro_batches_do_not_help_a_copy(self, check):
        line = "learning needs about 66.9 .* set lora or choose a smaller model$"
        with pytest.raises(ValueError, match=line):
            check(66.0)


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

    def test_only_a_policy_is_exported(self, tmp_path, capsys):
        assert export(tmp_path / "nowhere", tmp_path / "new") == 2
        hint = "model must be a folder that exists (of a model or of a run)"
        assert hint in capsys.readouterr().err
        assert not (tmp_path / "new").exists()

    def test_a_run_stands_for_its_policy(self, policy, tmp_path):
        assert export(policy.parent, tmp_path / "of_run") == 0
        assert export(policy, tmp_path / "of_policy") == 0
        of_run = load_file(tmp_path / "of_run" / "model.safetensors")
        of_policy = load_file(tmp_path / "of_policy" / "model.safetensors")
        for name, weights in of_policy.items():
            assert torch.equal(of_run[name], weights), name

    def test_an_unknown_judge_is_refused_before_anything_is_written(
        self, tmp_path, capsys
    ):
        assert train_adapter(tmp_path / "new", "judge_model=nowhere") == 2
        assert "got 'nowhere'" in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
