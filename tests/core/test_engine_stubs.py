"""What vLLM and Unsloth are asked for, told by stand-ins: neither need be installed."""

import json
import sys
from collections import namedtuple
from pathlib import Path
from types import ModuleType
from unittest.mock import Mock, call

import peft
import pytest
import torch

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.engines.vllm import VLLM
from coevolve.models import lora
from coevolve.models.policy_set import PolicySet


@pytest.mark.parametrize(("rank", "room"), [(8, 8), (33, 64)])
def test_vllm_has_room_for_the_rank_and_keeps_of_an_adapter_only_the_version_that_is_served(rank, room, monkeypatch):
    package, request = ModuleType("vllm"), ModuleType("vllm.lora.request")
    # It takes everything; removing an adapter says no, as for one that no request has named.
    package.LLM = Mock(**{"return_value.llm_engine.remove_lora.return_value": False})
    request.LoRARequest = namedtuple("LoRARequest", "lora_name lora_int_id lora_path")
    for module in (package, ModuleType("vllm.lora"), request):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    team = PolicySet({"left": "tiny-small", "right": "tiny-small"}, ("left", "right"), (rank, 8, 0.0))
    engine = VLLM(team.policies, 1.0, 8)
    assert package.LLM.call_args.kwargs["max_lora_rank"] == room
    assert package.LLM.call_args.kwargs["kv_cache_memory_bytes"] == 2**31, "or vLLM would take nearly all memory"
    for update in range(3):
        folders = sorted(path.name for path in Path(engine.folder.name).iterdir())
        assert folders == ["left", "right"]
        assert [lora.lora_int_id for lora in engine.loras.values()] == [2 * update + 1, 2 * update + 2]
        assert all((Path(lora.lora_path) / "adapter_config.json").is_file() for lora in engine.loras.values())
        engine.load_weights()
    assert engine.llm.llm_engine.remove_lora.mock_calls == [call(version) for version in range(1, 7)]


def test_unsloth_loads_the_very_model_and_its_adapter_is_merged_into_that_one(tmp_path, monkeypatch):
    """Its stand-in loads with transformers and PEFT under another name, as Unsloth does with its own repositories."""

    def load(model_name, **settings):
        policy = load_policy(model_name)
        policy.model.name_or_path = "unsloth/other-bnb-4bit"
        return policy.model, policy.tokenizer

    def attach(model, r, lora_alpha, target_modules, **settings):
        return peft.get_peft_model(model, peft.LoraConfig(r=r, lora_alpha=lora_alpha, target_modules=target_modules))

    package = ModuleType("unsloth")
    package.FastLanguageModel = Mock(**{"from_pretrained.side_effect": load, "get_peft_model.side_effect": attach})
    monkeypatch.setitem(sys.modules, "unsloth", package)
    policy = lora.load_unsloth("tiny-small", ["shared"], (4, 8, 0.0))["shared"]
    (name,), settings = package.FastLanguageModel.from_pretrained.call_args
    assert Path(name).name == "tiny-small" and settings["use_exact_model_name"] and not settings["load_in_4bit"]
    for part in policy.parameters():
        torch.nn.init.normal_(part, std=0.1)
    policy.save(tmp_path / "adapter")
    named = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == "tiny-small", "not what Unsloth made of it"
    assert main(["export", str(tmp_path / "adapter"), "--to", str(tmp_path / "whole"), "--dtype", "float32"]) == 0
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = load_policy(str(tmp_path / "whole")).model(ids).logits
        torch.testing.assert_close(found, policy.model(ids).logits, atol=1e-4, rtol=0)


def test_an_adapter_is_never_merged_into_quantised_weights(tmp_path, monkeypatch, capsys):
    policy = lora.attach(load_policy("tiny-small"), ["p"], (4, 8, 0.0), "tiny-small")["p"]
    policy.save(tmp_path / "adapter")
    monkeypatch.setattr("transformers.PreTrainedModel.is_quantized", True, raising=False)
    assert main(["export", str(tmp_path / "adapter"), "--to", str(tmp_path / "whole")]) == 2
    said = capsys.readouterr().err
    assert "is quantised" in said.splitlines()[-1] and said.count("\n") == 2 and not (tmp_path / "whole").exists()
