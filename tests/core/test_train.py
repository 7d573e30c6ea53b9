"""The training loop: every kind of method runs, two bases train in one run, the model learns."""

import gc
import json
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file
from small_runs import FIELDS, summary_of, train_small
from tensors import Keep, ask, learn

from coevolve.engines.loading import load_policy
from coevolve.methods.baselines.trl_trainers import SFT
from coevolve.methods.registry import get_method
from coevolve.models.names import find
from coevolve.rollout.pools import Pool, frozen
from coevolve.runs import record
from coevolve.training import config, loop
from coevolve.training.commit import commit
from coevolve.training.loop import accuracy_in_validation, train
from coevolve.training.trainer import Trainer
from coevolve.types import Outcome
from reproduce.analysis import stats
from tinyworld.oracle import TinyWorld

EMBEDDING = "model.embed_tokens.weight"


class TestPools:
    def test_a_pool_survives_json(self):
        pool = Pool([("1+1", (1, 2))])
        loaded = json.loads(json.dumps(pool.items))
        assert [frozen(item) for item in loaded] == pool.items

    def test_an_unknown_pool_in_an_outcome_is_refused(self):
        pool = Pool(["start"])
        outcomes = [Outcome(adds={"seen": [1]}), Outcome(adds={"sean": [2]})]
        trainer = Mock(
            run=Mock(batch_size=0),
            _explain_output=nullcontext,
            distributed=Mock(play=Mock(return_value=outcomes)),
            method=Mock(pools={"seen": pool}),
        )
        message = (
            "Outcome.adds has items for a pool 'sean' that the method does not declare in "
            "`pools`, which has seen; did you mean 'seen'"
        )
        with pytest.raises(ValueError, match=message):
            Trainer.play(trainer, 1)
        assert len(pool) == 2

    @pytest.mark.parametrize("item", [["a"], {"a"}, Fraction(1, 2), ("a", ["b"])])
    def test_an_item_that_no_checkpoint_could_hold_is_refused(self, item):
        message = "^an item of a pool must be a text, .* 'seen' gets "
        with pytest.raises(ValueError, match=message):
            commit([Outcome(adds={"seen": [item]})], {"seen": Pool()})


@dataclass(frozen=True)
class ObservedRun:
    """The summary of a run, and which of the observed functions it called, in order."""

    summary: dict[str, Any]
    calls: list[str]


class TestKindsOfMethods:
    @pytest.fixture
    def observe_run(self, tmp_path, monkeypatch) -> Callable[..., ObservedRun]:
        """Return a function that trains a small run of a method and observes it."""
        calls = []

        def record_calls(owner: type, name: str) -> None:
            original = getattr(owner, name)

            def recorded(*args):
                calls.append(name)
                return original(*args)

            monkeypatch.setattr(owner, name, recorded)

        def observe(method: str, **fields) -> ObservedRun:
            record_calls(SFT, "fit")
            record_calls(Trainer, "evaluate")
            record_calls(get_method(method), "before_run")
            out = train_small(tmp_path / method, method, **fields)
            return ObservedRun(summary_of(out), calls)

        return observe

    @staticmethod
    def assert_complete(observed: ObservedRun, method: str) -> None:
        """Check that the run prepared itself first and scored the test questions."""
        assert observed.summary["method"] == method
        assert observed.summary["held_out"]["after"]["n"] > 50
        assert observed.calls[0] == "before_run"

    @pytest.mark.parametrize(
        ("method", "fields"),
        [
            ("azr", {"steps": 1}),
            ("srt", {"form": "multi", "steps": 1}),
            ("ground_truth", {"steps": 1}),
        ],
        ids=["azr", "srt", "ground_truth"],
    )
    def test_a_method_that_plays_runs_to_a_summary(self, method, fields, observe_run):
        observed = observe_run(method, **fields)
        self.assert_complete(observed, method)

    def test_the_base_is_as_good_after_the_run_as_before(self, observe_run):
        observed = observe_run("base")
        self.assert_complete(observed, "base")
        held_out = observed.summary["held_out"]
        assert held_out["before"] == held_out["after"]

    @pytest.mark.thorough
    def test_sft_scores_what_its_own_trainer_trained(self, observe_run):
        observed = observe_run("sft")
        self.assert_complete(observed, "sft")
        calls_from_fit = observed.calls[observed.calls.index("fit") :]
        assert "evaluate" in calls_from_fit


def copy_with_reversed_token_ids(folder: Path) -> Path:
    """Copy the small backbone, its ordinary tokens numbered in the opposite order."""
    shutil.copytree(find("tiny-small"), folder)
    tokenizer_file = folder / "tokenizer.json"
    tokenizer = json.loads(tokenizer_file.read_text("utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    special_tokens = {token["content"] for token in tokenizer["added_tokens"]}
    ordinary_ids = sorted(
        token_id for text, token_id in vocabulary.items() if text not in special_tokens
    )
    new_ids = dict(zip(ordinary_ids, reversed(ordinary_ids), strict=True))
    for text, token_id in vocabulary.items():
        vocabulary[text] = new_ids.get(token_id, token_id)
    tokenizer_file.write_text(json.dumps(tokenizer), "utf-8")

    weights_file = folder / "model.safetensors"
    weights = load_file(weights_file)
    embedding_VH = weights[EMBEDDING]
    old_row_V = [new_ids.get(row, row) for row in range(len(embedding_VH))]
    weights[EMBEDDING] = embedding_VH[torch.tensor(old_row_V)].contiguous()
    save_file(weights, weights_file, {"format": "pt"})
    return folder


def solutions_of(policy: str, outcomes: list[Outcome]) -> list[str]:
    """Return the texts of the solutions that a policy wrote."""
    texts = []
    for outcome in outcomes:
        for sample in outcome.samples:
            if sample.policy == policy and sample.role == "solution":
                texts.append(sample.reply.text)
    return texts


def test_two_bases_with_two_tokenizers_train_in_one_run(tmp_path):
    other_base = copy_with_reversed_token_ids(tmp_path / "other")
    models = {"model": ["tiny", str(other_base)]}
    fields = FIELDS["comas"] | models | {"kl_coef": 0.0, "batch_size": 3}
    run = config.build("comas", "smoke", out=tmp_path / "run", overrides=fields)
    trainer = Trainer(run)
    first = trainer.team.policies["agent_1"]
    second = trainer.team.policies["agent_2"]
    messages = [{"role": "user", "content": "solve box<question>3+4</question>"}]
    assert first.render(messages) != second.render(messages)
    assert first.model.config.hidden_size != second.model.config.hidden_size
    first_head_VH = first.head_VH.detach().clone()
    second_head_VH = second.head_VH.detach().clone()

    outcomes = trainer.play(1)
    metrics = trainer.learn(1, outcomes)

    solutions = solutions_of("agent_2", outcomes)
    boxed = [text for text in solutions if "\\boxed{" in text]
    assert len(boxed) >= len(solutions) / 2 > 0, "it still answers in the form"
    assert not torch.equal(first_head_VH, first.head_VH)
    assert not torch.equal(second_head_VH, second.head_VH)
    assert metrics["logprob_gap"] < 1e-3
    assert metrics["skipped_update"] == 0
    assert any(row["correct"] for row in trainer.evaluate("test"))


def policy_gradient(reward: float, **masked: None) -> list[torch.Tensor]:
    """Return the gradient of a step in which the first segment earns multiples of a reward.

    The second segment earns nothing; it is masked if it is named in `masked`.
    """
    policy = load_policy("tiny-small")
    replies = policy.generate([ask(key=key) for key in range(4)], max_tokens=12)
    spans = {"first": ((8, 99),), "second": ((0, 8),)}
    samples = []
    for i, reply in enumerate(replies):
        rewards = {"first": i * reward, **masked}
        samples.append(reply.earns(rewards, "all", spans))
    optimizer = Keep(policy.parameters(), lr=1.0)
    learn(
        policy,
        optimizer,
        samples,
        estimator="segment_centred",
        loss="importance",
        loss_aggregation="token_sum",
        grad_clip=1e9,
    )
    return optimizer.seen


@pytest.fixture(scope="module")
def gradient() -> list[torch.Tensor]:
    """The gradient with rewards of 0, 1, 2 and 3 and no masked segment."""
    return policy_gradient(1.0)


class TestMaskedSegments:
    def test_a_masked_segment_has_no_gradient(self, gradient):
        masked = policy_gradient(1.0, second=None)
        for usual_part, masked_part in zip(gradient, masked, strict=True):
            assert torch.equal(usual_part, masked_part), "None is not a reward of 0"

    def test_the_opposite_rewards_give_the_opposite_gradient(self, gradient):
        opposite = policy_gradient(-1.0)
        for usual_part, opposite_part in zip(gradient, opposite, strict=True):
            assert torch.allclose(usual_part, -opposite_part, atol=1e-4)

    def test_the_rewarded_segment_has_a_gradient(self, gradient):
        assert any(part.abs().max() > 0 for part in gradient)


def test_mae_raises_held_out_accuracy_beyond_its_interval(tmp_path):
    fields = {"steps": 12, "eval_every": 0}
    out = train(config.build("mae", "quick", out=tmp_path / "mae", overrides=fields))
    scores = record.read(out, "scores")
    before = scores[scores["stage"] == "before"].sort_values("item")
    after = scores[scores["stage"] == "after"].sort_values("item")
    pairs = zip(before["correct"].to_list(), after["correct"].to_list(), strict=True)
    gains = [late - early for early, late in pairs]
    gain, low, _ = stats.bootstrap([[gains]])
    assert low > 0, f"gain {gain}"


@pytest.mark.parametrize(("test_items", "asked"), [(0, 1), (3, 3)])
def test_the_test_split_may_have_more_questions_than_validation(
    test_items: int, asked: int, tmp_path: Path
) -> None:
    fields = {"steps": 0, "eval_items": 1, "test_items": test_items}
    run = config.build("base", "smoke", out=tmp_path, overrides=fields)
    trainer = Trainer(run)
    families = len({item.family for item in trainer.items["validation"]})
    assert len(trainer.items["validation"]) == families
    assert len(trainer.items["test"]) == asked * families


def test_an_import_that_fails_leaves_the_garbage_collector_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "coevolve.training.trainer", None)
    with pytest.raises(ImportError):
        loop._load_trainer(Mock())
    assert gc.isenabled()


class TestAccuracyInValidation:
    """A run that is trained only to be validated."""

    @staticmethod
    def run_in(folder: Path) -> config.Run:
        """Return a small run, whose method has no questions in its pools yet."""
        fields = {"steps": 2, "eval_every": 2, "eval_items": 1, "model": "tiny-small"}
        return config.build("mae", "smoke", out=folder, overrides=fields)

    @pytest.fixture
    def run(self, tmp_path: Path) -> config.Run:
        return self.run_in(tmp_path / "run")

    def test_it_begins_anew_and_leaves_other_files(self, tmp_path: Path) -> None:
        (tmp_path / "questions.jsonl").write_text("mine")
        first = accuracy_in_validation(self.run_in(tmp_path))
        metrics = (tmp_path / "metrics.jsonl").read_bytes()
        assert accuracy_in_validation(self.run_in(tmp_path)) == first
        assert (tmp_path / "metrics.jsonl").read_bytes() == metrics
        assert list(record.read(tmp_path)["step"]) == [0, 1, 2]
        assert (tmp_path / "questions.jsonl").read_text() == "mine"
        assert not (tmp_path / "scores.csv").exists()

    def test_a_folder_in_use_loses_nothing(self, run: config.Run) -> None:
        train_small(run.out, steps=0)
        with (
            FileLock(run.out / ".in-use"),
            pytest.raises(ValueError, match="another process is training in"),
        ):
            accuracy_in_validation(run)
        assert (run.out / "metrics.jsonl").is_file()

    def test_a_folder_of_something_else_loses_nothing(self, run: config.Run) -> None:
        (run.out / "checkpoints").mkdir(parents=True)
        (run.out / "config.json").write_text('{"model_type": "qwen2"}')
        with pytest.raises(ValueError, match="config.json of something else"):
            accuracy_in_validation(run)
        assert (run.out / "checkpoints").is_dir()

    def test_a_world_without_validation_questions_is_refused_before_a_model_loads(
        self, run: config.Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(TinyWorld, "items", lambda *_, **__: [])
        monkeypatch.setattr(loop, "_load_trainer", pytest.fail)
        line = "^world must have validation questions to validate a run, and tiny has none$"
        with pytest.raises(ValueError, match=line):
            accuracy_in_validation(run)

    def test_answers_that_no_verifier_can_grade_are_one_line(
        self, run: config.Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(
            TinyWorld, "grade", lambda world, pairs: [None for _ in pairs]
        )
        with pytest.raises(ValueError, match="^world must have answers that a verifi"):
            accuracy_in_validation(run)

    def test_processes_other_than_the_first_write_elsewhere(
        self, run: config.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trainer = Mock()
        trainer.distributed.is_main_process = False
        trainer.scratch.name = str(tmp_path / "scratch")
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setattr(loop, "_load_trainer", lambda run: trainer)

        def train_policies(
            trainer: Mock, log: record.Recorder, steps_done: int
        ) -> None:
            log.step(1, {"validation": 0.5}, {})

        monkeypatch.setattr(loop, "_train_policies", train_policies)
        assert accuracy_in_validation(run) == 0.5
        assert not run.out.exists()

    def test_after_a_signal_it_says_that_it_begins_anew(
        self, run: config.Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(*_: object) -> dict[str, float]:
            signal.raise_signal(signal.SIGINT)
            return {}

        monkeypatch.setattr(Trainer, "learn", interrupt)
        with pytest.raises(KeyboardInterrupt, match="^stopped; .* begins anew$"):
            accuracy_in_validation(run)
