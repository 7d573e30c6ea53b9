"""What a run wants of a GPU, against counts by hand, and the line that a small GPU gets."""

import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from coevolve import config, policies
from coevolve.__main__ import main
from coevolve.policies import adapters, memory, team

GIB = 2**30


def parts(**overrides) -> dict[str, float]:
    return memory.estimate(config.build("mae", "quick", out="x", overrides=overrides))


def test_full_fine_tuning_counts_sixteen_bytes_a_parameter():
    count = sum(part.numel() for part in policies.load("tiny").model.parameters())
    found = parts()
    assert found["weights"] == pytest.approx(4 * count / GIB)
    assert [found["gradients"], found["optimiser"]] == pytest.approx([4 * count / GIB, 8 * count / GIB])
    assert found["playing"] == pytest.approx(12 * count / GIB + found["sampling"])
    assert found["learning"] == pytest.approx(16 * count / GIB + found["activations"] + found["loss"])
    assert found["total"] == max(found["playing"], found["learning"]) and min(found["sampling"], found["loss"]) > 0


def test_sampling_in_process_counts_its_cache_and_a_penalty_its_copy():
    config_of = policies.load("tiny").model.config
    wide = config_of.hidden_size // config_of.num_attention_heads * config_of.num_key_value_heads
    count = sum(part.numel() for part in policies.load("tiny").model.parameters())
    copied = sum(part.numel() for part in policies.load("tiny").model.model.layers.parameters())
    found, position = parts(max_tokens=64), config_of.num_hidden_layers * 2 * wide
    assert found["sampling"] == pytest.approx(4 * (copied + 512 * 128 * position) / GIB)
    assert parts(max_tokens=4096)["sampling"] == pytest.approx(4 * (copied + 2**18 * position) / GIB)
    assert parts(lora=[8, 16, 0.0])["sampling"] == pytest.approx(found["sampling"] / 2)
    assert parts(engine="vllm")["sampling"] == 0 == found["references"]
    comas = memory.estimate(config.build("comas", "quick", out="x", overrides={"kl_coef": 0.1, "agents": 2}))
    assert comas["references"] == pytest.approx(2 * 4 * count / GIB)


def test_adapters_count_by_their_rank():
    base = policies.load("tiny").model
    count = sum(part.numel() for part in base.parameters())
    linear = [part for name, part in base.named_modules() if isinstance(part, torch.nn.Linear) and name != "lm_head"]
    own = 8 * sum(part.in_features + part.out_features for part in linear)
    found = parts(lora=[8, 16, 0.0])
    assert found["weights"] == pytest.approx((2 * count + 4 * own) / GIB)
    assert [found["gradients"], found["optimiser"]] == pytest.approx([4 * own / GIB, 8 * own / GIB])


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("mae", {}),
        ("mae", {"lora": [4, 8, 0.0]}),
        ("mae", {"judge_model": "tiny"}),
        ("mae", {"judge_model": "tiny", "lora": [4, 8, 0.0]}),
        ("mae", {"judge_model": "tiny-small"}),
        ("spice", {"challenger": "fixed"}),
        ("spice", {"challenger": "fixed", "lora": [4, 8, 0.0]}),
        ("comas", {"agents": 2, "lora": [4, 8, 0.0], "kl_coef": 0.1}),
        ("comas", {"agents": 2, "kl_coef": 0.1}),
    ],
)
def test_the_models_that_are_loaded_are_those_that_are_counted(method, fields, monkeypatch):
    monkeypatch.setattr(team, "base_dtype", lambda: "bfloat16")  # as on a GPU
    run = config.build(method, "quick", out="x", overrides=fields)
    made = team.Team(*config.assign(run.protocol, run.model), run.lora)
    if getattr(run.protocol, "kl_coef", 0.0):
        made.remember()
    copies = [reference.policy.model for reference in made.references.values() if not reference.adapted]
    held = {
        id(part): part
        for model in (*(its.model for its in made.policies.values()), *copies)
        for part in model.parameters()
    }.values()
    found = memory.estimate(run)
    assert found["weights"] + found["references"] == pytest.approx(
        sum(part.numel() * part.element_size() for part in held) / GIB
    )
    frozen = [its for name, its in made.policies.items() if name not in made.trained]
    assert {part.dtype for its in frozen for part in its.model.parameters()} <= {torch.bfloat16}
    assert {part.dtype for its in made.policies.values() for part in its.parameters() if its not in frozen} == {
        torch.float32
    }


@pytest.fixture
def gpu(monkeypatch):
    """A GPU of 79 GiB, for counting alone."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Big GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (79 * GIB, 79 * GIB))


def test_vllm_gives_its_share_back_while_the_policies_learn(gpu, monkeypatch):
    """Qwen2.5-3B trained whole: 70 GiB while it plays and 50 while it learns, not the sum."""
    qwen = SimpleNamespace(
        hidden_size=2048,
        num_hidden_layers=36,
        intermediate_size=11008,
        vocab_size=151936,
        model_type="qwen2",
        num_key_value_heads=2,
        num_attention_heads=16,
    )
    monkeypatch.setattr(memory, "shape", lambda model: (qwen, 3_085_938_688, 2_774_773_760, 10**6))
    fields = {"engine": "vllm", "max_tokens": 1024, "world": "tiny"}
    run = config.build("mae", "gpu", out="x", overrides=fields)
    found = memory.estimate(run)
    share = memory.SHARE * 79
    assert found["vllm"] == pytest.approx(share) and found["vllm awake"] == 0
    assert found["playing"] == pytest.approx(12 * 3_085_938_688 / GIB + share) and 69 < found["playing"] < 71
    assert 46 < found["learning"] < 55 and found["total"] == found["playing"]
    memory.check(run)
    judged = memory.estimate(config.build("mae", "gpu", out="x", overrides=fields | {"judge_model": "tiny"}))
    assert judged["vllm awake"] == judged["vllm"], "two engines cannot sleep"
    same = {"engine": "vllm", "lora": [64, 128, 0.0], "challenger": "fixed"}
    adapted = memory.estimate(config.build("spice", "quick", out="x", overrides=same))
    assert adapted["vllm awake"] == 0, "an adapter and its base are one engine"


def test_a_base_in_four_bits_counts_half_a_byte_a_parameter():
    count = sum(part.numel() for part in policies.load("tiny").model.parameters())
    wide, narrow = (parts(lora=[8, 16, 0.0], engine="unsloth", four_bit=on) for on in (False, True))
    assert wide["weights"] - narrow["weights"] == pytest.approx(1.5 * count / GIB)


@pytest.mark.parametrize(
    "fields", [{"lora": [4, 8, 0.0]}, {"lora": [4, 8, 0.0], "engine": "vllm"}, {"engine": "unsloth"}]
)
def test_four_bits_are_for_unsloth_with_an_adapter(fields):
    with pytest.raises(ValueError, match=r"^four_bit needs engine unsloth or unsloth\+vllm and lora, got "):
        parts(four_bit=True, **fields)


def test_four_bits_need_a_gpu_and_bitsandbytes_before_a_model_loads(monkeypatch):
    def never(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(team, "load_unsloth", never)
    monkeypatch.setattr(policies, "load", never)
    for on_gpu, line in ((False, "four_bit needs a CUDA device"), (True, "four_bit needs the package bitsandbytes")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda on_gpu=on_gpu: on_gpu)
        monkeypatch.setattr(adapters, "find_spec", lambda name: None)
        with pytest.raises(ValueError, match=f"^{line}"):
            team.Team({"shared": "tiny"}, ("shared",), (4, 8, 0.0), unsloth=True, four_bit=True)


@pytest.mark.parametrize("unsloth", [False, True])
def test_large_models_compute_layers_twice_unless_unsloth_does_it(unsloth, monkeypatch):
    def load(model, names, lora, four_bit):
        return adapters.attach(policies.load(model), names, *lora, source=model)

    monkeypatch.setattr(team, "LARGE", 0)
    monkeypatch.setattr(team, "load_unsloth", load)
    made = team.Team({"shared": "tiny"}, ("shared",), (4, 8, 0.0), unsloth=unsloth)
    assert made.first.model.is_gradient_checkpointing is not unsloth


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_process_keeps_its_part_of_what_is_shared_out(ranks, monkeypatch):
    model = policies.load("tiny").model
    count = sum(part.numel() for part in model.parameters())
    ends = model.model.embed_tokens.weight.numel() + model.model.norm.weight.numel()  # the head is tied to it
    if model.lm_head.weight is not model.model.embed_tokens.weight:
        ends += model.lm_head.weight.numel()
    monkeypatch.setenv("WORLD_SIZE", str(ranks))
    assert parts()["optimiser"] == pytest.approx(8 * count / GIB)  # every process all of it
    with monkeypatch.context() as fsdp:
        fsdp.setenv("ACCELERATE_USE_FSDP", "true")
        found = parts()
        kept = ends + (count - ends) / ranks
        assert [found["gradients"], found["optimiser"]] == pytest.approx([4 * kept / GIB, 8 * kept / GIB])
        assert found["weights"] == pytest.approx(4 * count / GIB)  # whole while they sample
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    for stage, size in (("1", 4), ("2", 4 / ranks)):
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", stage)
        found = parts()
        expected = [size * count / GIB, 12 / ranks * count / GIB]
        assert [found["gradients"], found["optimiser"]] == pytest.approx(expected)


def test_activations_grow_with_the_micro_batch():
    assert parts(micro_tokens=2048)["activations"] == pytest.approx(2 * parts(micro_tokens=1024)["activations"])


def test_a_gpu_that_is_too_small_is_named_before_anything_loads(monkeypatch):
    run = config.build("mae", "quick", out="x")
    memory.check(run)  # no GPU: nothing to say
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Small GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**10, 2**20))
    with pytest.raises(
        ValueError, match="wants about 0 GiB while .*ing and Small GPU has 0; most of it is .*: set lora"
    ):
        memory.check(run)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**37, 2**37))
    memory.check(run)


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
    new = ["export", str(policy), "--to", str(tmp_path / "new"), "--gguf", "q8_0"]
    assert main([*new, "--dtype", "float32"]) == 2
    assert "--gguf is made from 16 bits" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "unsloth", None)  # as where it is not installed
    assert main(new) == 2 and not (tmp_path / "new").exists()
    assert "--gguf needs the package unsloth" in capsys.readouterr().err


def test_several_models_are_checked_before_anything_is_written(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "mae", "--out", str(out), "judge_model=nowhere"]) == 2
    assert "got 'nowhere'" in capsys.readouterr().err and not out.exists()
