"""The calls to vLLM and Unsloth, recorded by stand-ins: neither need be installed."""

import json
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock, call

import peft
import pytest
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.engines.vllm import VLLM
from coevolve.models.lora import attach, load_unsloth
from coevolve.models.policy_set import LoadOptions, PolicySet
from coevolve.training import config
from coevolve.training.trainer import Trainer

LORA = (4, 8, 0.0)


@pytest.fixture
def vllm(monkeypatch):
    """A stand-in for the package that accepts every call."""
    package = ModuleType("vllm")
    package.LLM = Mock()
    # Removing an adapter returns False, as for one that no request has named.
    engine = package.LLM.return_value.llm_engine
    engine.remove_lora.return_value = False
    engine.model_config.max_model_len = 2048
    request = ModuleType("vllm.lora.request")
    request.LoRARequest = namedtuple("LoRARequest", "lora_name lora_int_id lora_path")
    for module in (package, ModuleType("vllm.lora"), request):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return package


def start_engine(rank):
    """Start an engine of two adapters of this rank."""
    models = {"left": "tiny-small", "right": "tiny-small"}
    team = PolicySet(models, ("left", "right"), (rank, 8, 0.0))
    return VLLM(team.policies, 1.0, 8)


@pytest.mark.parametrize(("rank", "room"), [(8, 8), (33, 64)])
def test_vllm_has_room_for_the_rank(rank, room, vllm):
    start_engine(rank)
    assert vllm.LLM.call_args.kwargs["max_lora_rank"] == room


def test_vllm_on_a_cpu_takes_two_gibibytes_of_cache(vllm):
    start_engine(8)
    settings = vllm.LLM.call_args.kwargs
    assert settings["kv_cache_memory_bytes"] == 2**31, (
        "or it would take nearly all memory"
    )


@pytest.mark.parametrize("rank", [8, 33])
def test_vllm_keeps_of_each_adapter_only_the_served_version(rank, vllm):
    engine = start_engine(rank)
    for update in range(3):
        folders = sorted(path.name for path in Path(engine.folder.name).iterdir())
        assert folders == ["left", "right"]
        versions = [request.lora_int_id for request in engine.loras.values()]
        assert versions == [2 * update + 1, 2 * update + 2]
        for request in engine.loras.values():
            assert (Path(request.lora_path) / "adapter_config.json").is_file()
        engine.load_weights()
    removed = engine.llm.llm_engine.remove_lora.mock_calls
    assert removed == [call(version) for version in range(1, 7)]


@pytest.fixture
def unsloth(monkeypatch):
    """A stand-in that loads with transformers and PEFT under another name.

    Unsloth does the same with its own repositories.
    """

    def from_pretrained(model_name, **settings):
        policy = load_policy(model_name)
        policy.model.name_or_path = "unsloth/other-bnb-4bit"
        return policy.model, policy.tokenizer

    def get_peft_model(model, r, lora_alpha, target_modules, **settings):
        config = peft.LoraConfig(
            r=r, lora_alpha=lora_alpha, target_modules=target_modules
        )
        return peft.get_peft_model(model, config)

    package = ModuleType("unsloth")
    package.FastLanguageModel = Mock()
    package.FastLanguageModel.from_pretrained.side_effect = from_pretrained
    package.FastLanguageModel.get_peft_model.side_effect = get_peft_model
    monkeypatch.setitem(sys.modules, "unsloth", package)
    return package


def export(adapter, folder, *options):
    return main(["export", str(adapter), "--to", str(folder), *options])


def test_unsloth_loads_exactly_the_named_model_in_full_precision(unsloth):
    load_unsloth("tiny-small", ["shared"], LORA)
    (name,), settings = unsloth.FastLanguageModel.from_pretrained.call_args
    assert Path(name).name == "tiny-small"
    assert settings["use_exact_model_name"]
    assert not settings["load_in_4bit"]
    assert settings["offload_embedding"] is False
    context = load_policy("tiny-small").model.config.max_position_embeddings
    assert settings["max_seq_length"] == context


def trainer_of(out, **fields):
    """Load what a run with an adapter trains."""
    overrides = {"model": "tiny-small", "lora": [*LORA], **fields}
    return Trainer(config.build("mae", "quick", out=out, overrides=overrides))


@pytest.mark.parametrize("quantize", ["4bit", ""])
def test_a_run_says_to_unsloth_whether_weights_have_4_bits(quantize, unsloth, tmp_path):
    trainer_of(tmp_path, engine="unsloth", quantize=quantize)
    settings = unsloth.FastLanguageModel.from_pretrained.call_args.kwargs
    assert settings["load_in_4bit"] == (quantize == "4bit")


@pytest.fixture
def quantized_loads(monkeypatch):
    """The settings of every load; bitsandbytes would place the weights on the GPU itself."""
    load = AutoModelForCausalLM.from_pretrained
    loads = []

    def refuse(model, *_):
        raise AssertionError("weights of 4 bits stay where they are")

    def from_pretrained(path, quantization_config=None, **settings):
        loads.append({"quantization_config": quantization_config, **settings})
        model = load(path, **settings)
        if quantization_config is not None:
            model.to = refuse
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", from_pretrained)
    return loads


def test_the_base_of_a_run_has_weights_of_4_bits_and_its_adapter_is_trained(
    quantized_loads, tmp_path
):
    trainer = trainer_of(tmp_path, quantize="4bit")
    (settings,) = quantized_loads
    quantization = settings["quantization_config"]
    assert isinstance(quantization, BitsAndBytesConfig)
    assert quantization.quantization_method() == "nf4"
    assert quantization.bnb_4bit_use_double_quant
    assert quantization.bnb_4bit_compute_dtype == torch.bfloat16
    assert settings["dtype"] == "bfloat16"
    trained = trainer.team.primary.model.named_parameters()
    names = [name for name, weights in trained if weights.requires_grad]
    assert names
    assert all("lora_" in name for name in names)


def test_nothing_else_is_quantised(quantized_loads, tmp_path):
    trainer_of(tmp_path)
    assert [load["quantization_config"] for load in quantized_loads] == [None]


class AdamW8bit(torch.optim.AdamW):
    """A stand-in with the first arguments and the defaults of that of bitsandbytes."""

    def __init__(  # noqa: PLR0913
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2
    ):
        super().__init__(params, lr, betas, eps, weight_decay)


def test_adamw_of_8_bits_has_the_settings_of_adamw(tmp_path, monkeypatch):
    package = ModuleType("bitsandbytes")
    package.optim = ModuleType("bitsandbytes.optim")
    package.optim.AdamW8bit = AdamW8bit
    for module in (package, package.optim):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    groups = {}
    for kind in ("adamw", "adamw_8bit"):
        trainer = trainer_of(
            tmp_path, optimizer=kind, learning_rate=3e-4, weight_decay=0.2
        )
        optimizer = trainer.team.optimizers["shared"]
        assert isinstance(optimizer, AdamW8bit) == (kind == "adamw_8bit")
        (group,) = optimizer.param_groups
        trained = [id(weights) for weights in trainer.team.primary.parameters()]
        assert [id(weights) for weights in group["params"]] == trained
        groups[kind] = [group[name] for name in ("lr", "betas", "eps", "weight_decay")]
    assert groups["adamw_8bit"] == groups["adamw"] == [3e-4, (0.9, 0.999), 1e-8, 0.2]


def test_unsloth_draws_the_adapter_from_the_seed_of_the_run(unsloth):
    PolicySet(
        {"p": "tiny-small"}, ("p",), LORA, unsloth=True, loading=LoadOptions(seed=7)
    )
    assert (
        unsloth.FastLanguageModel.get_peft_model.call_args.kwargs["random_state"] == 7
    )


def test_an_adapter_of_unsloth_is_merged_into_the_named_model(unsloth, tmp_path):
    policy = load_unsloth("tiny-small", ["shared"], LORA)["shared"]
    for parameter in policy.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    adapter = tmp_path / "adapter"
    policy.save(adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-small", "not Unsloth's own"

    merged = tmp_path / "merged"
    assert export(adapter, merged, "--dtype", "float32") == 0
    ids = torch.arange(8)[None]
    with torch.no_grad():
        logits = load_policy(str(merged)).model(ids).logits
        expected = policy.model(ids).logits
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def test_an_adapter_of_unsloth_names_a_folder_by_its_full_path(
    unsloth, tmp_path, monkeypatch
):
    load_policy("tiny-small").save(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    policy = load_unsloth("model", ["shared"], LORA)["shared"]
    policy.save("adapter")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(tmp_path / "model")


def test_an_adapter_is_never_merged_into_quantised_weights(
    tmp_path, monkeypatch, capsys
):
    policy = attach(load_policy("tiny-small"), ["p"], LORA, "tiny-small")["p"]
    policy.save(tmp_path / "adapter")
    monkeypatch.setattr(
        "transformers.PreTrainedModel.is_quantized", True, raising=False
    )
    assert export(tmp_path / "adapter", tmp_path / "merged") == 2
    errors = capsys.readouterr().err
    assert errors.count("\n") == 2
    assert "is quantised" in errors.splitlines()[-1]
    assert not (tmp_path / "merged").exists()
