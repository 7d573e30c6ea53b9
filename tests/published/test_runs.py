"""Runs on published data: small questions of the tiny world in a benchmark's schema, graded, held out, resumed."""

import json
from pathlib import Path
from random import Random
from unittest.mock import Mock

import mirror
import pytest
from core.conftest import scripted
from data_files import tables

from coevolve.cli import main, plain
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

SMALL = {"batch_size": 4, "max_tokens": 32, "eval_items": 24, "eval_every": 2, "save_every": 1, "learning_rate": 3e-4}
SMALL["world"] = "data:gsm8k"
RUNS, MISTAKES = (tables("published")[name] for name in ("runs", "mistakes"))
pytestmark = pytest.mark.usefixtures("local")


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror, and a folder of documents beside it."""
    root = mirror.sums(tmp_path_factory.mktemp("sums"))
    (root / "texts").mkdir()
    for number in range(20):
        (root / "texts" / f"{number}.txt").write_text(documents.document(Random(number), families=("add", "sub"))[0])
    return root


@pytest.mark.parametrize("method", RUNS)
def test_a_run_is_trained_held_out_and_graded_on_the_data(method, copies, tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    corpus = {"corpus": str(copies / "texts")} if method == "spice" else {}
    run = config.build(method, "smoke", out=tmp_path / "run", overrides=SMALL | RUNS[method] | corpus)
    assert run.protocol.world == DataWorld(run.protocol.world.paper, ("gsm8k",))
    train(run)
    test = {row.question: row.answer.split()[-1] for row in record.read(copies / "gsm8k", "test").itertuples()}
    scores = record.read(run.out, "scores")
    assert (set(scores["family"]), set(scores["split"])) == ({"gsm8k"}, {"test"})
    for row in scores.itertuples():
        assert bool(row.correct) == (row.answer == test[row.question]), "as graded: every gold here is one integer"
    held = json.loads((run.out / "summary.json").read_text())["held_out"]
    assert held["after"] == {"k": int(scores[scores["stage"] == "after"]["correct"].sum()), "n": 24}
    assert held["before"]["k"] > 4, "the backbone knows sums"
    assert json.loads((run.out / "config.json").read_text())["protocol"]["world"] == "data:gsm8k"
    assert method in ("spice", "comas") or 0 < record.read(run.out)["validation"].iloc[-1] <= 1
    facts = record.read(run.out, "episodes")["facts"] if method != "sft" else []
    asked = {fact.get("question") or fact.get("reference") for fact in facts}
    assert not asked & {*test}
    if method in ("comas", "conl"):
        assert asked <= {item.question for _, item in run.protocol.world.seed_rows()}
    if method == "conl":
        assert {*record.read(run.out, "conversations")["question"]} <= {*test}


def test_a_method_without_a_paper_names_its_data(tmp_path: Path) -> None:
    own = f"{Path(__file__).parents[1] / 'core' / 'own_method.py'}:Debate"
    train(config.build(own, "smoke", out=tmp_path, overrides=SMALL | {"steps": 1, "eval_items": 2}))
    assert set(record.read(tmp_path, "scores")["family"]) == {"gsm8k"}
    with pytest.raises(ValueError, match="^world=data is a paper's data, and this method has no paper: name some"):
        config.build(own, "smoke", out=tmp_path, overrides={"world": "data"})


@pytest.mark.parametrize("world", MISTAKES)
def test_data_that_cannot_be_had_is_one_line_before_anything_is_written(world, copies, tmp_path, monkeypatch, capsys):
    refused = Mock(side_effect=ConnectionError("No way.\nMore."))
    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refused)
    monkeypatch.setattr("coevolve.training.trainer.PolicySet", None)  # no model may load
    assert main(["train", "mae", "--preset", "smoke", "--out", str(tmp_path / "run"), f"world={world}"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"coevolve: {MISTAKES[world]}") and said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_questions_of_the_test_never_train_a_reasoner(copies: Path) -> None:
    world, question = DataWorld("spice", ("gsm8k",)), record.read(copies / "gsm8k", "test")["question"][0]
    spice = SPICE(world=world, corpus="none", group=2)
    assert spice.held_out(Question(question, "1", "Integer"))
    assert spice.held_out(Question(f"{question} A) 1 B) 2 C) 3 D) 4", "A", "MCQ"))
    assert not spice.held_out(Question("What is 2+2+2?", "6", "Integer"))

    def say(turn: Turn) -> str:
        task = json.dumps({"question": question, "answer": "7", "answer_type": "Integer"})
        return task if turn.role == "challenger" else rf"\boxed{{{7 + turn.key[-1] % 2}}}"

    seed = next(i for i in range(40) if Random(i).choice(("Integer", *range(5))) == "Integer")  # that answer type
    for protocol in (spice, RZero(world=world, rollouts=1, answers=2)):
        (outcome,), _ = scripted(protocol, say, [seed])
        assert outcome.facts["questions"] == [question] * len(outcome.facts["questions"]) != []
        assert {sample.role for sample in outcome.samples} == {"challenger"}


def test_what_the_gpu_preset_changes_is_what_the_documentation_lists() -> None:
    runs = [config.build(name, "gpu", out=".") for name in METHODS if get_method(name).paper_name]
    table = []
    for run in runs:
        for change in config.differences(run):
            table.append(f"| {run.method} | `{change.field}` | {plain(change.paper)} | {plain(change.run)} |")
    assert "| comas | `length_norm` | token_sum | token_mean |" in table, "Eq. 11"
    assert "| conl | `revision_reads` | all | own |" in table and "own_votes" not in "".join(table)
    page = (Path(__file__).resolve().parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if line.count("|") == 5][2:] == table != []
