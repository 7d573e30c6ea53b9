"""What a run wants of a GPU, against counts by hand, the line that a small GPU gets, and export."""

import pytest
import torch
from safetensors.torch import load_file

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.training import config, memory

LORA = [8, 16, 0.0]


def estimate(**overrides) -> float:
    return memory.estimate(config.build("mae", "quick", out="x", overrides=overrides)) * 2**30  # in bytes


def test_the_formula_by_hand():
    model = load_policy("tiny").model
    count, sizes = model.num_parameters(), model.config
    activations = 2 * 1024 * (10 * sizes.hidden_size + 3 * sizes.intermediate_size) * sizes.num_hidden_layers
    assert estimate(micro_tokens=1024) == pytest.approx(16 * count + activations)
    linear = [part for name, part in model.named_modules() if isinstance(part, torch.nn.Linear) and name != "lm_head"]
    own = 8 * sum(part.in_features + part.out_features for part in linear)
    assert estimate(micro_tokens=1024, lora=LORA) == pytest.approx(2 * count + 16 * own + activations)
    assert estimate(judge_model="tiny") - estimate() == pytest.approx(2 * count), "a frozen judge of its own"


def test_a_gpu_that_is_too_small_is_named_before_anything_loads(monkeypatch):
    run = config.build("mae", "quick", out="x")
    memory.check(run)  # no GPU: nothing to say
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    wanted = int(memory.estimate(run) * 2**30)
    for room, engine in ((wanted - 2**10, "torch"), (wanted + 2**10, "vllm")):  # vLLM takes a share of it
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda room=room: (2**10, room))
        with pytest.raises(ValueError, match="needs about 0 GiB and has 0; set lora or lower micro_tokens"):
            memory.check(config.build("mae", "quick", out="x", overrides={"engine": engine}))
    memory.check(run)


def test_a_trained_adapter_is_exported_as_an_ordinary_checkpoint(tmp_path, capsys, monkeypatch):
    def ran(*arguments: str) -> str:
        """What the command line prints when it fails, or "done"."""
        return "done" if main([*map(str, arguments)]) == 0 else capsys.readouterr().err

    fields = ["lora=[4,8,0.0]", "steps=1", "batch_size=2", "attempts=1", "solves=1", "eval_every=0", "eval_items=1"]
    policy, whole, more = tmp_path / "run" / "policy", tmp_path / "merged", tmp_path / "more"
    assert ran("train", "mae", "--out", tmp_path / "run", *fields) == "done"
    assert (policy / "adapter_config.json").is_file() and not (policy / "model.safetensors").exists()
    assert ran("export", policy, "--to", whole, "--dtype", "float32") == "done"
    merged, adapted = (load_policy(str(folder)).model.state_dict() for folder in (whole, policy))
    assert all(torch.equal(merged[name], part) for name, part in adapted.items())
    assert ran("export", policy, "--to", tmp_path / "halved") == "done"
    assert {p.dtype for p in load_file(tmp_path / "halved" / "model.safetensors").values()} == {torch.bfloat16}
    with monkeypatch.context() as installed:
        installed.setattr("coevolve.training.preflight.find_spec", lambda name: True)
        said = ran("train", "mae", "--out", more, f"model={policy}", *fields, "engine=vllm")
        assert "is an adapter; merge it with `coevolve export` for engine 'vllm'" in said
    assert ran("train", "mae", "--out", more, f"model={policy}", *fields) == "done", "an adapter on an adapter"
    assert ran("export", more / "policy", "--to", tmp_path / "both") == "done"
    assert "must be a new or empty folder" in ran("export", policy, "--to", whole)
    for wrong in (tmp_path / "nowhere", policy.parent):  # no folder, and the run's
        assert "(a run's: OUT/policy, or OUT/policy/NAME)" in ran("export", wrong, "--to", tmp_path / "new")
    assert "got 'nowhere'" in ran("train", "mae", "--out", tmp_path / "new", "judge_model=nowhere")
    assert not (tmp_path / "new").exists()
