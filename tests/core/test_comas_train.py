"""CoMAS trained for real, a few steps: several agents, two bases with two tokenizers, KL with and without LoRA."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from coevolve import config, record
from coevolve.loop import Trainer, train
from tinyworld.recipe import find

SMALL = {
    "batch_size": 1,
    "reuse": 2,
    "rounds_per_agent": 1,
    "steps": 2,
    "eval_every": 0,
    "eval_items": 1,
    "setups": ["vanilla"],
}


def renumbered(folder: Path) -> Path:
    """A copy of the small backbone whose tokenizer numbers its tokens in the opposite order."""
    shutil.copytree(find("tiny-small"), folder)
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    fixed = {token["content"] for token in state["added_tokens"]}
    vocabulary = {text: i for text, i in state["model"]["vocab"].items() if text not in fixed}
    ids = sorted(vocabulary.values())
    swap = dict(zip(ids, reversed(ids), strict=True))
    state["model"]["vocab"] |= {text: swap[i] for text, i in vocabulary.items()}
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    weights = load_file(folder / "model.safetensors")
    old = weights["model.embed_tokens.weight"]
    order = torch.tensor([swap.get(i, i) for i in range(len(old))])
    weights["model.embed_tokens.weight"] = old[order].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_two_bases_with_two_tokenizers_train_in_one_run(tmp_path: Path) -> None:
    other = renumbered(tmp_path / "other")
    fields = {**SMALL, "agents": 2, "model": ["tiny", str(other)], "batch_size": 3}
    trainer = Trainer(config.build("comas", "smoke", out=tmp_path / "run", overrides=fields))
    one, two = (trainer.team.policies[name] for name in ("agent_1", "agent_2"))
    text = [{"role": "user", "content": "solve box<question>3+4</question>"}]
    assert one.render(text) != two.render(text) and one.model.config.hidden_size != two.model.config.hidden_size
    assert two.tokenizer.decode(two.render(text)) == one.tokenizer.decode(one.render(text))
    before = [policy.head_VH.detach().clone() for policy in (one, two)]
    outcomes = trainer.play(1)
    metrics = trainer.learn(1, outcomes)
    said = {name: [s for o in outcomes for s in o.samples if s.policy == name] for name in ("agent_1", "agent_2")}
    assert all(len(samples) > 10 for samples in said.values())
    boxed = [s.reply.text for s in said["agent_2"] if s.role == "solution"]
    assert sum("\\boxed{" in text for text in boxed) >= len(boxed) / 2, "it still speaks the form"
    assert all(not torch.equal(old, policy.head_VH) for old, policy in zip(before, (one, two), strict=True))
    assert metrics["logprob_gap"] < 1e-3 and metrics["skipped_update"] == 0
    rows = trainer.score("test")
    assert len(rows) > 10 and any(row["correct"] for row in rows)


@pytest.mark.parametrize("lora", [[], [4, 8, 0.0]], ids=["copy", "adapter"])
def test_a_penalised_run_logs_its_divergence_and_resumes_from_the_first_reference(tmp_path: Path, lora: list) -> None:
    fields = {**SMALL, "agents": 2, "model": "tiny-small", "kl_coef": 0.1, "lora": lora, "learning_rate": 3e-3}
    whole = train(config.build("comas", "smoke", out=tmp_path / "whole", overrides={**fields, "steps": 3}))
    kl = record.read(whole)["kl"].dropna().tolist()
    assert abs(kl[0]) < 1e-4 < abs(kl[-1]), "the policies start at the reference and leave it"
    parts = {**fields, "save_every": 1}
    train(config.build("comas", "smoke", out=tmp_path / "parts", overrides={**parts, "steps": 2}))
    train(config.build("comas", "smoke", out=tmp_path / "parts", overrides={**parts, "steps": 3}))
    assert (whole / "metrics.jsonl").read_bytes() == (tmp_path / "parts" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("without", ["", "evaluation", "scoring"])
def test_a_run_records_what_the_figures_need(tmp_path: Path, without: str) -> None:
    out = train(config.build("comas", "smoke", out=tmp_path, overrides={**SMALL, "agents": 2, "without": without}))
    metrics = record.read(out).query("step > 0")
    wanted = [
        "normalised",
        "normalised/agent_1",
        "length/agent_2",
        "tp",
        "fp",
        "fn",
        "tn",
        "right",
        "unreadable",
        "interactions",
        "tokens_in",
        "tokens_out",
    ]
    assert not metrics[wanted].isna().any(axis=None)
    assert (metrics["tokens_in"] > metrics["tokens_out"]).all() and (
        metrics["tokens_out"] > metrics["interactions"]
    ).all()
    assert ("judged_correct" if without == "scoring" else "score_3") in metrics
    if not without:
        assert metrics["normalised"].tolist() == [0.5, 0.5], "zero-sum"
    assert {path.name for path in (out / "policy").iterdir()} == {"agent_1", "agent_2"}
    assert set(record.read(out, "scores")["setup"]) == {"vanilla"}
