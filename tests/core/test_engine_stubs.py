"""What vLLM and Unsloth are asked for, told by stand-ins: neither need be installed."""

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from coevolve import config, policies
from coevolve.__main__ import main
from coevolve.engines.vllm import VLLM
from coevolve.policies import adapters
from coevolve.policies.team import Team


class LLM:
    """Takes everything and remembers it."""

    def __init__(self, **settings):
        self.settings, self.removed = settings, []
        self.llm_engine = SimpleNamespace(remove_lora=self._remove)

    def _remove(self, version: int) -> bool:
        self.removed.append(version)
        return False  # as for an adapter that no request has named

    def reset_prefix_cache(self):
        """Nothing is cached."""


@pytest.fixture
def vllm(monkeypatch):
    package, request = ModuleType("vllm"), ModuleType("vllm.lora.request")
    package.LLM = LLM
    request.LoRARequest = lambda name, version, path: SimpleNamespace(
        lora_name=name, lora_int_id=version, lora_path=path
    )
    for module in (package, ModuleType("vllm.lora"), request):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_of_an_adapter_only_the_version_that_is_served_stays_on_the_disk(vllm):
    team = Team({"left": "tiny-small", "right": "tiny-small"}, ("left", "right"), (4, 8, 0.0))
    engine = VLLM(team.policies, 1.0, 8)
    for update in range(3):
        folders = sorted(path.name for path in Path(engine.folder.name).iterdir())
        assert folders == ["left", "right"]
        assert [lora.lora_int_id for lora in engine.loras.values()] == [2 * update + 1, 2 * update + 2]
        assert all((Path(lora.lora_path) / "adapter_config.json").is_file() for lora in engine.loras.values())
        engine.sync()
    assert engine.llm.removed == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("rank", "room"), [(8, 8), (33, 64)])
def test_vllm_is_asked_for_the_next_rank_that_it_has_room_for(vllm, rank, room):
    team = Team({"shared": "tiny-small"}, ("shared",), (rank, 8, 0.0))
    assert VLLM(team.policies, 1.0, 8).llm.settings["max_lora_rank"] == room
    with pytest.raises(ValueError, match="^lora must have a rank of at most 512 with vLLM, got 513$"):
        config.build("mae", "quick", out="x", overrides={"engine": "vllm", "lora": [513, 8, 0.0]})


@pytest.fixture
def unsloth(monkeypatch):
    """A stand-in that loads with transformers and PEFT under another name, as Unsloth does with its own repositories."""
    asked, package = [], ModuleType("unsloth")

    class FastLanguageModel:
        @staticmethod
        def from_pretrained(model_name, **settings):
            asked.append({"model_name": model_name, **settings})
            policy = policies.load(model_name)
            policy.model.name_or_path = "unsloth/other-bnb-4bit"
            return policy.model, policy.tokenizer

        @staticmethod
        def get_peft_model(model, r, lora_alpha, lora_dropout, target_modules, use_gradient_checkpointing):
            from peft import LoraConfig, get_peft_model

            return get_peft_model(model, LoraConfig(r=r, lora_alpha=lora_alpha, target_modules=target_modules))

    package.FastLanguageModel = FastLanguageModel
    monkeypatch.setitem(sys.modules, "unsloth", package)
    return asked


def test_unsloth_loads_the_very_model_and_its_adapter_is_merged_into_that_one(unsloth, tmp_path):
    policy = adapters.load_unsloth("tiny-small", ["shared"], (4, 8, 0.0))["shared"]
    assert unsloth[0]["use_exact_model_name"] is True and unsloth[0]["load_in_4bit"] is False
    assert Path(unsloth[0]["model_name"]).name == "tiny-small"
    for part in policy.parameters():
        torch.nn.init.normal_(part, std=0.1)
    policy.save(tmp_path / "adapter")
    named = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == "tiny-small", "not what Unsloth made of it"
    assert main(["export", str(tmp_path / "adapter"), "--to", str(tmp_path / "whole"), "--dtype", "float32"]) == 0
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = policies.load(str(tmp_path / "whole")).model(ids).logits
        torch.testing.assert_close(found, policy.model(ids).logits, atol=1e-4, rtol=0)


def test_an_adapter_is_never_merged_into_quantised_weights(tmp_path, monkeypatch, capsys):
    policy = adapters.attach(policies.load("tiny-small"), ["p"], (4, 8, 0.0), "tiny-small")["p"]
    policy.save(tmp_path / "adapter")
    monkeypatch.setattr("transformers.PreTrainedModel.is_quantized", True, raising=False)
    assert main(["export", str(tmp_path / "adapter"), "--to", str(tmp_path / "whole")]) == 2
    said = capsys.readouterr().err
    assert "is quantised" in said and said.count("\n") == 1 and not (tmp_path / "whole").exists()
