"""The loop as its user runs it: the same run gives the same bytes, a killed run resumes, and the model learns."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from tensors import Keep, ask, learn

from coevolve.cli import main
from coevolve.engines.loading import load_policy
from coevolve.methods.baselines.trl_trainers import SFT
from coevolve.methods.registry import get_method
from coevolve.models.names import find
from coevolve.rollout.pools import Pool, frozen
from coevolve.runs import record
from coevolve.runs.checkpoint import newest
from coevolve.training import config
from coevolve.training.loop import train
from coevolve.training.trainer import Trainer
from coevolve.types import Outcome
from reproduce.analysis import stats
from tinyworld import tasks as tiny

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"steps": 4, "batch_size": 4, "eval_every": 2, "eval_items": 4, "save_every": 1}
FIELDS = {
    "mae": {"solves": 2, "attempts": 2},
    "conl": {"steps": 2, "batch_size": 2, "eval_items": 1, "eval_every": 1, "examined": 1},
    "comas": {"steps": 2, "batch_size": 1, "reuse": 2, "rounds_per_agent": 1, "agents": 2, "model": "tiny-small",
              "setups": ["vanilla"], "eval_items": 1, "eval_every": 0, "kl_coef": 0.1, "learning_rate": 3e-3},
    "base": {"steps": 0},
    "sft": {"epochs": 1, "lora": [4, 4, 0.0]},
}  # fmt: skip


def run(out: Path, method: str = "mae", seed: int = 0, **fields) -> Path:
    known = config.field_defaults(get_method(method)) | config.field_defaults(
        config.Run
    )
    small = {name: value for name, value in SMALL.items() if name in known}
    return train(
        config.build(
            method,
            "quick",
            seed=seed,
            out=out,
            overrides=small | FIELDS.get(method, {}) | fields,
        )
    )


def train_by_hand(out: Path, *more: str, **fields) -> int:
    """The same run by the command line."""
    pairs = [
        f"{name}={json.dumps(value)}"
        for name, value in (SMALL | FIELDS["mae"] | fields).items()
    ]
    return main(["train", "mae", "--out", str(out), *pairs, *more])


def same_bytes(one: Path, other: Path) -> None:
    names = [
        "metrics.jsonl",
        "episodes.jsonl",
        "scores.csv",
        *(path.name for path in one.glob("conversations.jsonl")),
    ]
    for name in [
        *names,
        *(path.relative_to(one) for path in one.glob("policy/**/*.safetensors")),
    ]:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def summary(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    return run(tmp_path_factory.mktemp("runs") / "straight")


def test_the_same_run_twice_writes_the_same_bytes_and_another_seed_differs(
    straight, tmp_path
):
    same_bytes(straight, run(tmp_path / "again"))
    other = run(tmp_path / "other", seed=1)
    assert (other / "metrics.jsonl").read_bytes() != (
        straight / "metrics.jsonl"
    ).read_bytes()


RESUMED = [("mae", {"estimator": "rae"}), ("conl", {"estimator": "gae"})]
RESUMED += [("comas", {"lora": lora}) for lora in ([], [4, 8, 0.1])]


@pytest.mark.parametrize(("method", "fields"), RESUMED)
def test_a_run_that_stopped_goes_on_bit_for_bit(method, fields, tmp_path):
    whole = run(tmp_path / "whole", method, **fields)
    half = FIELDS[method].get("steps", SMALL["steps"]) // 2
    run(tmp_path / "halves", method, **fields, steps=half)
    (tmp_path / "halves" / "summary.json").unlink()
    with pytest.raises(ValueError, match=f"holds a checkpoint of step {half}"):
        run(tmp_path / "halves", method, **fields, steps=half - 1)
    halves = run(tmp_path / "halves", method, **fields)
    assert summary(halves)["resumed_at"] == half
    same_bytes(whole, halves)
    metrics = record.read(whole)
    if method == "comas":  # the policies start at the reference and leave it
        kl = metrics["kl"].dropna().tolist()
        assert abs(kl[0]) < 1e-4 < abs(kl[-1])
        assert metrics["normalised"].dropna().tolist() == [0.5, 0.5], "zero-sum"
    if method == "conl":
        talks = record.read(whole, "conversations")
        assert len(talks) == 12
        assert (
            metrics["r_diag_null"].notna().any()
            and metrics["reward/revision/revised_solution"].notna().any()
        )
        assert "reward/review/initial_ranking" not in metrics, "masked"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc")
def test_runs_that_are_killed_go_on_bit_for_bit():
    command = [sys.executable, "-m", "benchmarks.kills", "4", "--methods", "mae"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    said = json.loads(done.stdout[done.stdout.index(b"{") :])
    assert (
        done.returncode == 0
        and said["survived"] == said["runs"] >= 1
        and said["lost"] == []
    ), done.stderr


@pytest.mark.parametrize(
    ("signals", "done"),
    [([signal.SIGINT], 2), ([signal.SIGTERM] * 2, 2), ([signal.SIGINT] * 2, 0)],
)
def test_a_signal_ends_a_run_after_the_step_and_it_goes_on(
    signals, done, straight, tmp_path, monkeypatch, capfd
):
    true, receivers = Trainer.learn, signal.getsignal(signal.SIGINT)

    def learn(self, step, outcomes):
        for number in signals if step == 2 else ():
            signal.raise_signal(number)
        return true(self, step, outcomes)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "learn", learn)
        assert train_by_hand(tmp_path / "cut", save_every=3) == 130
    assert [path.name for path in tmp_path.glob("cut/checkpoints/step-*")] == [
        "step-00000002"
    ][: done // 2]
    said = capfd.readouterr().err
    assert (
        said.endswith(f"\nstopped at step {done}; the same command goes on\n")
        and "Traceback" not in said
    )
    assert signal.getsignal(signal.SIGINT) == receivers
    same_bytes(straight, run(tmp_path / "cut"))


def test_a_notebook_that_is_interrupted_has_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(
        Trainer, "learn", lambda *args: signal.raise_signal(signal.SIGINT) or {}
    )
    with pytest.raises(
        KeyboardInterrupt,
        match="^stopped at step 1; train the same run again to go on$",
    ):
        run(tmp_path / "run", save_every=3)
    assert newest(tmp_path / "run" / "checkpoints")[0] == 1


def test_a_finished_run_says_so_and_stays_as_it_is(straight, capsys):
    old = {
        path: (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in straight.rglob("*")
    }
    for fewer in ([], ["steps=2"]):
        assert train_by_hand(straight, *fewer) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert line.startswith(
            f"{straight} is finished: another out folder makes another run"
        )
    assert run(straight) == straight
    assert {
        path: (path.stat().st_mtime_ns, path.stat().st_ino)
        for path in straight.rglob("*")
    } == old


def test_two_runs_on_one_folder_are_one_too_many(tmp_path, capsys):
    with FileLock(tmp_path / ".in-use"):
        assert train_by_hand(tmp_path) == 1
    assert (
        "in-use' could not be acquired" in capsys.readouterr().err
        and not (tmp_path / "metrics.jsonl").exists()
    )


def test_a_disk_that_is_full_is_one_line_and_nothing_is_lost(
    straight, tmp_path, monkeypatch, capfd
):
    out, true = tmp_path / "full", record.Recorder.step

    def step(self, number, *args):
        true(self, number, *args)
        if number == 3:  # a line is cut, as a full disk cuts it
            (self.out / "metrics.jsonl").write_bytes(
                (self.out / "metrics.jsonl").read_bytes()[:-9]
            )
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(record.Recorder, "step", step)
        assert train_by_hand(out) == 1
    assert (
        f"No space left on device; later --out {out} goes on"
        in capfd.readouterr().err.splitlines()[-1]
    )
    same_bytes(straight, run(out))


def test_a_folder_of_another_run_is_refused_by_field(straight):
    short = f"'{'x' * 12}...{'x' * 13}'"  # of 99 characters
    others = {
        "batch_size 4 there, 5 now; solves 2 there, 3 now; take": (
            "mae",
            {"batch_size": 5, "solves": 3, "steps": 2},
        ),
        f"model 'tiny' there, {short} now; take": ("mae", {"model": "x" * 99}),
        "method 'mae' there, 'base' now; take": (
            "base",
            {},
        ),  # nothing about its fields
    }
    for words, (method, fields) in others.items():
        with pytest.raises(
            ValueError,
            match=re.escape(f"{straight} belongs to another run: {words} its values"),
        ):
            run(straight, method, **fields)


def test_a_pool_comes_back_and_a_name_that_is_none_is_told():
    pool = Pool([("1+1", (1, 2))])
    assert [*map(frozen, json.loads(json.dumps(pool.items)))] == pool.items
    distributed = Mock(
        play=Mock(
            return_value=[Outcome(adds={"seen": [1]}), Outcome(adds={"sean": [2]})]
        )
    )
    with pytest.raises(
        ValueError,
        match="a pool in Outcome.adds must be one of seen, got 'sean'; did you mean 'seen'",
    ):
        Trainer.play(
            Mock(
                run=Mock(batch_size=0),
                distributed=distributed,
                method=Mock(pools={"seen": pool}),
            ),
            1,
        )
    assert len(pool) == 2


def test_summary_counts_every_test_item_and_pools_hold_no_held_out_question(straight):
    scores, said = record.read(straight, "scores"), summary(straight)
    for stage in ("before", "after"):
        rows = scores[scores["stage"] == stage]
        assert said["held_out"][stage] == {
            "k": int(rows["correct"].sum()),
            "n": len(rows),
        }
        assert {*rows["split"]} == {"test"}
    assert said["seconds"] > 0
    assert 0 < sum(said["seconds_around"].values()) < said["seconds"]
    pools = json.loads(
        (max(straight.glob("checkpoints/step-*")) / "pools.json").read_text("utf-8")
    )
    assert pools["pairs"] and all(
        tiny.split(question) == "train" for question in pools["questions"]
    )


KINDS = {
    "azr": {"steps": 1},
    "base": {},
    "sft": {},
    "srt": {"form": "multi", "steps": 1},
    "ground_truth": {"steps": 1},
}


@pytest.mark.parametrize(("method", "fields"), KINDS.items())
def test_every_kind_of_method_runs_to_a_summary(method, fields, tmp_path, monkeypatch):
    events = []
    for owner, name in (
        (SFT, "fit"),
        (Trainer, "score"),
        (get_method(method), "before_run"),
    ):
        true = getattr(owner, name)
        monkeypatch.setattr(
            owner,
            name,
            lambda *args, true=true, name=name: (events.append(name), true(*args))[1],
        )
    said = summary(run(tmp_path / method, method, **fields))
    assert (
        said["method"] == method
        and said["held_out"]["after"]["n"] > 50
        and events[0] == "before_run"
    )
    assert method != "base" or said["held_out"]["before"] == said["held_out"]["after"]
    assert method != "sft" or "score" in events[events.index("fit") :], (
        "what it trained is scored"
    )


def renumbered(folder: Path) -> Path:
    """A copy of the small backbone whose tokenizer numbers its tokens in the opposite order."""
    shutil.copytree(find("tiny-small"), folder)
    state = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    fixed = {token["content"] for token in state["added_tokens"]}
    ids = sorted(i for text, i in state["model"]["vocab"].items() if text not in fixed)
    swap = dict(zip(ids, reversed(ids), strict=True))
    state["model"]["vocab"] = {
        text: swap.get(i, i) for text, i in state["model"]["vocab"].items()
    }
    (folder / "tokenizer.json").write_text(json.dumps(state), "utf-8")
    weights = load_file(folder / "model.safetensors")
    old = weights["model.embed_tokens.weight"]
    weights["model.embed_tokens.weight"] = old[
        torch.tensor([swap.get(i, i) for i in range(len(old))])
    ].contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_two_bases_with_two_tokenizers_train_in_one_run(tmp_path):
    fields = FIELDS["comas"] | {
        "model": ["tiny", str(renumbered(tmp_path / "other"))],
        "kl_coef": 0.0,
        "batch_size": 3,
    }
    trainer = Trainer(
        config.build("comas", "smoke", out=tmp_path / "run", overrides=fields)
    )
    one, two = (trainer.team.policies[name] for name in ("agent_1", "agent_2"))
    text = [{"role": "user", "content": "solve box<question>3+4</question>"}]
    assert (
        one.render(text) != two.render(text)
        and one.model.config.hidden_size != two.model.config.hidden_size
    )
    before = [policy.head_VH.detach().clone() for policy in (one, two)]
    outcomes = trainer.play(1)
    metrics = trainer.learn(1, outcomes)
    boxed = [
        s.reply.text
        for o in outcomes
        for s in o.samples
        if (s.policy, s.role) == ("agent_2", "solution")
    ]
    assert sum("\\boxed{" in text for text in boxed) >= len(boxed) / 2 > 0, (
        "it still speaks the form"
    )
    assert all(
        not torch.equal(old, policy.head_VH)
        for old, policy in zip(before, (one, two), strict=True)
    )
    assert metrics["logprob_gap"] < 1e-3 and metrics["skipped_update"] == 0
    assert any(row["correct"] for row in trainer.score("test"))


def test_masked_segments_have_no_gradient():
    def pushed(paid: float, **masked: None) -> list[torch.Tensor]:
        policy = load_policy("tiny-small")
        replies = policy.generate([ask(key=key) for key in range(4)], max_tokens=12)
        spans = {"s": ((8, 99),), "t": ((0, 8),)}
        samples = [
            reply.earns({"s": i * paid, **masked}, "all", spans)
            for i, reply in enumerate(replies)
        ]
        optimizer = Keep(policy.parameters(), lr=1.0)
        settings = {"loss": "importance", "length_norm": "token_sum", "grad_clip": 1e9}
        learn(policy, optimizer, samples, estimator="segment_centred", **settings)
        return optimizer.seen

    usual = pushed(1.0)
    assert all(
        torch.equal(a, b) for a, b in zip(usual, pushed(1.0, t=None), strict=True)
    ), "None is no reward of 0"
    assert all(
        torch.allclose(a, -b, atol=1e-4)
        for a, b in zip(usual, pushed(-1.0, t=None), strict=True)
    )
    assert any(change.abs().max() > 0 for change in usual)


def test_mae_raises_held_out_accuracy_beyond_its_interval(tmp_path):
    out = train(
        config.build(
            "mae",
            "quick",
            out=tmp_path / "mae",
            overrides={"steps": 12, "eval_every": 0},
        )
    )
    scores = record.read(out, "scores")
    before, after = (
        scores[scores["stage"] == s].sort_values("item")["correct"].to_list()
        for s in ("before", "after")
    )
    gain, low, _ = stats.bootstrap(
        [[[late - early for early, late in zip(before, after, strict=True)]]]
    )
    assert low > 0, f"gain {gain}"
