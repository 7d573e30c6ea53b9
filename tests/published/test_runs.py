"""Runs on published data: small questions in a benchmark's schema, graded, held out, resumed."""

import json
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import mirror
import pandas
import pytest
from core.conftest import scripted
from data_files import OWN, tables

from coevolve.cli import main
from coevolve.methods.baselines.rzero import RZero
from coevolve.methods.registry import METHODS, get_method
from coevolve.methods.spice.method import SPICE
from coevolve.methods.spice.parsing import Question
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train
from coevolve.types import Turn
from published.world import DataWorld
from tinyworld import documents

SMALL = {
    "world": "data:gsm8k",
    "batch_size": 4,
    "max_tokens": 32,
    "eval_items": 24,
    "eval_every": 2,
    "save_every": 1,
    "learning_rate": 3e-4,
}
TABLES = tables("published")
RUNS = TABLES["runs"]
MISTAKES = TABLES["mistakes"]
METHODS_WITHOUT_VALIDATION = ("spice", "comas")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("local")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror, with a folder of documents in it."""
    root = mirror.sums(tmp_path_factory.mktemp("sums"))
    folder = root / "texts"
    folder.mkdir()
    for number in range(20):
        text, _ = documents.document(Random(number), families=("add", "sub"))
        (folder / f"{number}.txt").write_text(text)
    return root


@pytest.fixture(scope="module")
def gold_of(copies: Path) -> dict[str, str]:
    """The golds of the test split by question; each is one integer."""
    golds = {}
    for row in record.read(copies / "gsm8k", "test").itertuples():
        golds[row.question] = row.answer.split()[-1]
    return golds


@pytest.fixture(scope="module", params=RUNS)
def run(
    request: pytest.FixtureRequest,
    copies: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> config.Run:
    """A finished run of every method."""
    method = request.param
    folder = tmp_path_factory.mktemp(method)
    fields = SMALL | RUNS[method]
    for field in get_method(method).unread:
        fields.pop(field, None)
    if method == "spice":
        fields["corpus"] = str(copies / "texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COEVOLVE_DATA", str(copies))
        patch.setattr("datasets.config.HF_DATASETS_CACHE", str(folder / "cache"))
        run = config.build(method, "smoke", out=folder / "run", overrides=fields)
        train(run)
    return run


def questions_of_episodes(run: config.Run) -> set[str]:
    """Return the questions that the episodes of a run are about."""
    if run.method_name == "sft":
        return set()
    questions = set()
    for facts in record.read(run.out, "episodes")["facts"]:
        questions.add(facts.get("question") or facts.get("reference"))
    return questions


class TestRun:
    """What a finished run of each method has recorded."""

    @pytest.fixture
    def scores(self, run: config.Run) -> pandas.DataFrame:
        return record.read(run.out, "scores")

    def test_the_world_is_named_in_its_configuration(self, run: config.Run) -> None:
        world = run.method.world
        assert world == DataWorld(world.paper, ("gsm8k",))
        recorded = json.loads((run.out / "config.json").read_text())
        assert recorded["method_fields"]["world"] == "data:gsm8k"

    def test_the_test_split_is_evaluated(self, scores: pandas.DataFrame) -> None:
        assert set(scores["family"]) == {"gsm8k"}
        assert set(scores["split"]) == {"test"}

    def test_answers_are_graded_against_the_golds(
        self, scores: pandas.DataFrame, gold_of: dict[str, str]
    ) -> None:
        for row in scores.itertuples():
            assert bool(row.correct) == (row.answer == gold_of[row.question])

    def test_the_summary_counts_the_scores(
        self, run: config.Run, scores: pandas.DataFrame
    ) -> None:
        summary = json.loads((run.out / "summary.json").read_text())
        held_out = summary["held_out"]
        after = scores[scores["stage"] == "after"]
        assert held_out["after"] == {"k": int(after["correct"].sum()), "n": 24}
        assert held_out["before"]["k"] > 4, "the backbone can solve sums"

    def test_validation_is_scored_during_training(self, run: config.Run) -> None:
        if run.method_name not in METHODS_WITHOUT_VALIDATION:
            last = record.read(run.out)["validation"].iloc[-1]
            assert 0 < last <= 1

    def test_no_test_question_is_trained_on(
        self, run: config.Run, gold_of: dict[str, str]
    ) -> None:
        assert questions_of_episodes(run).isdisjoint(gold_of)

    def test_methods_that_take_questions_take_seeds(self, run: config.Run) -> None:
        if run.method_name in ("comas", "conl"):
            seeds = {item.question for _, item in run.method.world.seed_rows()}
            assert questions_of_episodes(run) <= seeds

    def test_conl_examines_conversations_about_the_test(
        self, run: config.Run, gold_of: dict[str, str]
    ) -> None:
        if run.method_name == "conl":
            conversations = record.read(run.out, "conversations")
            assert set(conversations["question"]) <= set(gold_of)


class TestMethodWithoutPaper:
    """A user's own method, which no paper gives tests and seeds."""

    def test_it_names_its_data(self, tmp_path: Path) -> None:
        fields = SMALL | {"steps": 1, "eval_items": 2}
        train(config.build(OWN, "smoke", out=tmp_path, overrides=fields))
        assert set(record.read(tmp_path, "scores")["family"]) == {"gsm8k"}

    def test_without_names_it_is_refused(self, tmp_path: Path) -> None:
        message = (
            "^world=data is a paper's data, and this method has no paper: "
            "name benchmarks"
        )
        with pytest.raises(ValueError, match=message):
            config.build(OWN, "smoke", out=tmp_path, overrides={"world": "data"})


@pytest.mark.parametrize("world", MISTAKES)
def test_the_error_for_missing_data_is_one_line_before_anything_is_written(
    world: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    refusal = Mock(side_effect=ConnectionError("No way.\nMore."))
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refusal)
    # No model may load.
    monkeypatch.setattr("coevolve.training.trainer.PolicySet", None)
    out = tmp_path / "run"
    command = ["train", "mae", "--preset", "smoke", "--out", str(out)]
    assert main([*command, f"world={world}"]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"coevolve: {MISTAKES[world]}")
    assert message.count("\n") == 1
    assert not out.exists()


class TestInventedQuestions:
    """Challengers of SPICE and R-Zero that invent a question of the test."""

    INTEGER_SEED = next(
        i
        for i in range(40)
        if Random(i).choice(("Integer", *range(5))) == "Integer"  # the answer type
    )

    @pytest.fixture
    def world(self) -> DataWorld:
        return DataWorld("spice", ("gsm8k",))

    @pytest.fixture
    def spice(self, world: DataWorld) -> SPICE:
        return SPICE(world=world, corpus="none", group=2)

    @pytest.fixture
    def r_zero(self, world: DataWorld) -> RZero:
        return RZero(world=world, rollouts=1, answers=2)

    @pytest.fixture
    def test_question(self, copies: Path) -> str:
        return record.read(copies / "gsm8k", "test")["question"][0]

    def test_free_and_multiple_choice_forms_are_held_out(
        self, spice: SPICE, test_question: str
    ) -> None:
        options = f"{test_question} A) 1 B) 2 C) 3 D) 4"
        assert spice.held_out(Question(test_question, "1", "Integer"))
        assert spice.held_out(Question(options, "A", "MCQ"))
        assert not spice.held_out(Question("What is 2+2+2?", "6", "Integer"))

    @pytest.mark.parametrize("method", ["spice", "r_zero"])
    def test_only_the_challenger_learns_from_them(
        self, method: str, request: pytest.FixtureRequest, test_question: str
    ) -> None:
        def say(turn: Turn) -> str:
            if turn.role == "challenger":
                task = {
                    "question": test_question,
                    "answer": "7",
                    "answer_type": "Integer",
                }
                return json.dumps(task)
            return rf"\boxed{{{7 + turn.key[-1] % 2}}}"

        method = request.getfixturevalue(method)
        (outcome,), _ = scripted(method, say, [self.INTEGER_SEED])
        questions = outcome.facts["questions"]
        assert questions
        assert set(questions) == {test_question}
        assert {sample.role for sample in outcome.samples} == {"challenger"}


def plain(value: Any) -> str:
    """Return a value as docs/gpu.md writes it."""
    if isinstance(value, tuple | list):
        return ", ".join(map(plain, value)) or "none"
    return str(value) or "none"


class TestGPUPreset:
    """The preset's differences from the papers, which docs/gpu.md lists."""

    @pytest.fixture
    def table(self) -> list[str]:
        """The lines of the table that the documentation should have."""
        lines = []
        for name in METHODS:
            if not get_method(name).paper_name:
                continue
            run = config.build(name, "gpu", out=".")
            for change in config.differences(run):
                values = f"{plain(change.paper)} | {plain(change.run)}"
                lines.append(f"| {name} | `{change.field}` | {values} |")
        return lines

    def test_the_documentation_lists_every_difference(self, table: list[str]) -> None:
        page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
        lines = []
        for line in page.splitlines():
            if line.count("|") == 5 and line.split("|")[1].strip() in METHODS:
                lines.append(line)
        assert table
        assert lines == table

    def test_known_differences_are_among_them(self, table: list[str]) -> None:
        assert "| comas | `loss_aggregation` | token_sum | token_mean |" in table, (
            "Eq. 11"
        )
        assert "| conl | `revision_reads` | all | own |" in table
        assert "own_votes" not in "".join(table)
