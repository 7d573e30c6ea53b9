"""What a run wants of a GPU, against counts by hand, the line that a small GPU gets, and export."""

import pytest
import torch
from safetensors.torch import load_file

from coevolve import config, policies
from coevolve.__main__ import main
from coevolve.policies import adapters, memory, team

GIB = 2**30
LORA = [8, 16, 0.0]


def estimate(**overrides) -> float:
    return memory.estimate(config.build("mae", "quick", out="x", overrides=overrides)) * GIB


def test_the_formula_by_hand():
    model = policies.load("tiny").model
    count, sizes = model.num_parameters(), model.config
    activations = 2 * 1024 * (10 * sizes.hidden_size + 3 * sizes.intermediate_size) * sizes.num_hidden_layers
    assert estimate(micro_tokens=1024) == pytest.approx(16 * count + activations)
    linear = [part for name, part in model.named_modules() if isinstance(part, torch.nn.Linear) and name != "lm_head"]
    own = 8 * sum(part.in_features + part.out_features for part in linear)
    assert estimate(micro_tokens=1024, lora=LORA) == pytest.approx(2 * count + 16 * own + activations)
    assert estimate(judge_model="tiny") - estimate() == pytest.approx(2 * count), "a frozen judge of its own"
    wide, narrow = (estimate(lora=LORA, engine="unsloth", four_bit=on) for on in (False, True))
    assert wide - narrow == pytest.approx(1.5 * count)


def test_a_gpu_that_is_too_small_is_named_before_anything_loads(monkeypatch):
    run = config.build("mae", "quick", out="x")
    memory.check(run)  # no GPU: nothing to say
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Small GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**10, 2**20))
    with pytest.raises(ValueError, match="wants about 0 GiB and Small GPU has 0; set lora, or lower micro_tokens"):
        memory.check(run)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**37, 2**37))
    memory.check(run)


@pytest.mark.parametrize("fields", [{"lora": LORA}, {"lora": LORA, "engine": "vllm"}, {"engine": "unsloth"}])
def test_four_bits_are_for_unsloth_with_an_adapter(fields):
    with pytest.raises(ValueError, match=r"^four_bit needs engine unsloth or unsloth\+vllm and lora, got "):
        estimate(four_bit=True, **fields)


@pytest.mark.parametrize("unsloth", [False, True])
def test_large_models_compute_layers_twice_unless_unsloth_does_it(unsloth, monkeypatch):
    def load(model, names, lora, four_bit):
        return adapters.attach(policies.load(model), names, lora, model)

    monkeypatch.setattr(team, "LARGE", 0)
    monkeypatch.setattr(team, "load_unsloth", load)
    found = team.Team({"shared": "tiny"}, ("shared",), (4, 8, 0.0), unsloth=unsloth)
    assert found.first.model.is_gradient_checkpointing is not unsloth


def test_a_trained_adapter_is_exported_as_an_ordinary_checkpoint(tmp_path, capsys, monkeypatch):
    fields = ["lora=[4,8,0.0]", "steps=1", "batch_size=2", "attempts=1", "solves=1", "eval_every=0", "eval_items=1"]
    assert main(["train", "mae", "--out", str(tmp_path / "run"), *fields]) == 0
    policy = tmp_path / "run" / "policy"
    assert (policy / "adapter_config.json").is_file() and not (policy / "model.safetensors").exists()
    assert main(["export", str(policy), "--to", str(tmp_path / "merged"), "--dtype", "float32"]) == 0
    assert "parameters in float32" in capsys.readouterr().out
    merged, adapted = policies.load(str(tmp_path / "merged")), policies.load(str(policy))
    for (name, one), other in zip(merged.model.state_dict().items(), adapted.model.state_dict().values(), strict=True):
        assert torch.equal(one, other), name
    assert main(["export", str(policy), "--to", str(tmp_path / "halved")]) == 0
    stored = load_file(tmp_path / "halved" / "model.safetensors")
    assert {part.dtype for part in stored.values()} == {torch.bfloat16}
    more = ["train", "mae", "--out", str(tmp_path / "more"), f"model={policy}", *fields]
    with monkeypatch.context() as installed:
        installed.setattr("coevolve.preflight.engine", lambda kind: None)
        assert main([*more, "engine=vllm"]) == 2
    assert "is an adapter, which engine 'vllm' does not load" in capsys.readouterr().err
    assert main(more) == 0, "trained on: an adapter on an adapter"
    assert main(["export", str(tmp_path / "more" / "policy"), "--to", str(tmp_path / "both")]) == 0
    assert main(["export", str(policy), "--to", str(tmp_path / "merged")]) == 2
    assert "must be a new or empty folder" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "nowhere"), "--to", str(tmp_path / "new")]) == 2
    assert "model must be one of" in capsys.readouterr().err
    assert main(["train", "mae", "--out", str(tmp_path / "new"), "judge_model=nowhere"]) == 2
    assert "got 'nowhere'" in capsys.readouterr().err and not (tmp_path / "new").exists()
