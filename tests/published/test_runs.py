"""Runs on published data: small questions of the tiny world in a benchmark's schema, graded, held out, resumed."""

import json
import sys
from pathlib import Path
from random import Random

import mirror
import papermill
import pytest

from coevolve import config, record
from coevolve.__main__ import main
from coevolve.baselines.rzero import RZero
from coevolve.driver import Batched, play
from coevolve.loop import train
from coevolve.papers.spice.method import SPICE
from coevolve.papers.spice.reading import Question
from coevolve.types import Reply
from published.world import DataWorld
from tinyworld import tasks as tiny

ROOT = Path(__file__).resolve().parents[2]
SMALL = {"batch_size": 4, "max_tokens": 32, "eval_items": 24, "eval_every": 2, "save_every": 1, "learning_rate": 3e-4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror, and a folder of documents beside it."""
    root = mirror.sums(tmp_path_factory.mktemp("sums"))
    (root / "texts").mkdir()
    for number in range(20):
        (root / "texts" / f"{number}.txt").write_text(tiny.document(Random(number), families=("add", "sub"))[0])
    return root


@pytest.fixture(autouse=True)
def local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", str(folder))


RUNS = {
    "mae": {"attempts": 2, "steps": 2},
    "spice": {"corpus": "texts", "group": 4, "attempts": 8, "max_tokens": 64, "document_tokens": 96, "steps": 2},
    "comas": {"agents": 2, "rounds_per_agent": 1, "reuse": 1, "setups": ["vanilla"], "steps": 2},
    "conl": {"agents": 2, "max_tokens": 96, "examined": 3, "steps": 1},
    "sft": {"epochs": 1, "lora_rank": 0},
    "azr": {"steps": 1},
}


@pytest.mark.parametrize("method", RUNS)
def test_a_run_is_trained_held_out_and_graded_on_the_data(method: str, folder: Path, tmp_path: Path) -> None:
    fields = SMALL | {"batch_size": 2 if method == "spice" else 4} | RUNS[method] | {"world": "data:gsm8k"}
    if method == "spice":
        fields["corpus"] = str(folder / "texts")
    run = config.build(method, "smoke", out=tmp_path / "run", overrides=fields)
    assert run.protocol.world == DataWorld(run.protocol.world.paper, ("gsm8k",))
    train(run)
    test = {
        row["question"]: row["answer"].split()[-1] for row in map(json.loads, (folder / "gsm8k" / "test.jsonl").open())
    }
    scores = record.read(run.out, "scores")
    assert (
        set(scores["family"]) == {"gsm8k"} and set(scores["split"]) == {"test"} and set(scores["question"]) <= {*test}
    )
    for row in scores.itertuples():
        assert bool(row.correct) == (row.answer == test[row.question]), "as graded: every gold here is one integer"
    summary = json.loads((run.out / "summary.json").read_text())
    assert summary["held_out"]["after"] == {"k": int(scores[scores["stage"] == "after"]["correct"].sum()), "n": 24}
    assert summary["held_out"]["before"]["k"] > 4, "the backbone knows sums"
    assert json.loads((run.out / "config.json").read_text())["protocol"]["world"] == "data:gsm8k"
    metrics = record.read(run.out)
    assert method in ("spice", "comas") or 0 < metrics["validation"].iloc[-1] <= 1
    asked = (
        {
            row["facts"].get("question") or row["facts"].get("reference")
            for row in (json.loads(line) for line in (run.out / "episodes.jsonl").open())
        }
        if method != "sft"
        else set()
    )
    assert not asked & {*test}
    if method in ("comas", "conl"):
        assert asked <= {item.question for _, item in run.protocol.world.seed_rows()}
    if method == "conl":
        assert {*record.read(run.out, "conversations")["question"]} <= {*test}


def test_a_run_on_data_resumes_with_its_pools(tmp_path: Path) -> None:
    fields = SMALL | RUNS["mae"] | {"world": "data:gsm8k", "eval_items": 4, "eval_every": 1}
    straight, cut = (config.build("mae", "smoke", out=tmp_path / name, overrides=fields) for name in ("one", "two"))
    train(straight)
    train(config.build("mae", "smoke", out=tmp_path / "two", overrides=fields | {"steps": 1}))
    train(cut)
    assert json.loads((cut.out / "summary.json").read_text())["resumed_at"] == 1
    for name in ("metrics.jsonl", "episodes.jsonl", "scores.csv"):
        assert (straight.out / name).read_bytes() == (cut.out / name).read_bytes(), name
    with pytest.raises(ValueError, match="belongs to a run with another protocol"):
        train(config.build("mae", "smoke", out=tmp_path / "two", overrides=fields | {"world": "tiny"}))


MISTAKES = {
    "key": ("data:gsm9k", "world must be data:KEY,KEY with keys of gsm8k, "),
    "kind": ("date", "world must be one of tiny, data, data:KEY,KEY, got 'date'"),
    "type": ("3", "world must be str, got 3"),
    "split": ("data:aime24", "world: mae starts from questions of a train split, and aime24 has none"),
    "half a mirror": ("data:math", "math: no test.jsonl, .json or .parquet in "),
    "gated": ("data:gsm8k,gpqa_main", "gpqa_main is gated: accept its conditions on "),
    "by hand": ("data:gsm8k,usaco", "usaco cannot be downloaded ("),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_data_that_cannot_be_had_is_one_line_before_anything_is_written(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    from huggingface_hub.errors import GatedRepoError

    def refused(*_: object, **__: object) -> None:
        answer = type("Answer", (), {"status_code": 403, "headers": {}, "request": None})()
        raise GatedRepoError("Dataset is gated.\nMore.", response=answer)

    monkeypatch.setattr("huggingface_hub.get_hf_file_metadata", refused)
    (folder / "math").mkdir(exist_ok=True)
    monkeypatch.setattr(sys.modules["coevolve.loop"], "Team", None)  # no model may load
    world, line = MISTAKES[name]
    assert main(["train", "mae", "--preset", "smoke", "--out", str(tmp_path / "run"), f"world={world}"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"coevolve: {line}") and said.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_command_says_what_differs_from_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    fields = ["steps=0", "eval_items=2", "eval_every=0", "world=data:gsm8k"]
    assert main(["train", "mae", "--preset", "smoke", "--out", str(tmp_path / "run"), *fields]) == 0
    said = capsys.readouterr().out
    assert json.loads(said.splitlines()[-1])["held_out"]["after"]["n"] == 2
    for line in ("steps 300 -> 0", "model Qwen/Qwen2.5-3B-Instruct -> tiny", "world data -> data:gsm8k"):
        assert f"differs from the paper: {line}\n" in said


def test_questions_of_the_test_never_train_a_reasoner(folder: Path) -> None:
    held = json.loads((folder / "gsm8k" / "test.jsonl").open().readline())
    world, question = DataWorld("spice", ("gsm8k",)), held["question"]
    spice = SPICE(world=world, corpus="none", group=2)
    assert world.valid(question) is None
    assert spice._held_out(Question(question, "1", "Integer"))
    assert spice._held_out(Question(f"{question} A) 1 B) 2 C) 3 D) 4", "A", "MCQ"))
    assert not spice._held_out(Question("What is 2+2+2?", "6", "Integer"))

    def generate(turns: list) -> list[Reply]:
        asks = turns[0].role == "challenger"
        task = json.dumps({"question": question, "answer": "7", "answer_type": "Integer"})
        return [Reply(turn, task if asks else rf"\boxed{{{7 + i % 2}}}") for i, turn in enumerate(turns)]

    for protocol in (spice, RZero(world=world, rollouts=1, answers=2)):
        seeds = [i for i in range(40) if Random(i).choice(("Integer", *range(5))) == "Integer"]  # that answer type
        (outcome,) = play([protocol.episode(Random(seeds[0]))], Batched(generate))
        assert outcome.facts["questions"] == [question] * len(outcome.facts["questions"]) != []
        assert {sample.role for sample in outcome.samples} == {"challenger"}


def test_the_notebook_takes_the_world_as_a_parameter_and_from_a_registry_run(tmp_path: Path) -> None:
    small = json.dumps(SMALL | {"steps": 1, "attempts": 1, "eval_items": 4})
    given = json.dumps(json.loads(small) | {"world": "data:gsm8k"})
    for name, parameters in (("one", {"world": "data:gsm8k", "overrides": small}), ("two", {"overrides": given})):
        papermill.execute_notebook(
            ROOT / "notebooks/train.ipynb",
            tmp_path / f"{name}.ipynb",
            cwd=ROOT / "notebooks",
            progress_bar=False,
            parameters={"preset": "smoke", "out": str(tmp_path / name), **parameters},
        )
    one, two = (tmp_path / name / "scores.csv" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes() and set(record.read(tmp_path / "one", "scores")["family"]) == {"gsm8k"}


def test_a_registry_is_checked_without_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", "/nowhere")
    for method in config.METHODS:
        config.check(method, {"world": "data"})
        assert config.build(method, "gpu", out="x").protocol.world.name == "data"
    with pytest.raises(ValueError, match="^world must be data:KEY,KEY"):
        config.check("mae", {"world": "data:gsm9k"})


def test_an_item_that_only_a_judge_can_score_is_blank(tmp_path: Path) -> None:
    log = record.Recorder(tmp_path)
    log.scores([{"item": 0, "correct": None, "answer": ""}, {"item": 1, "correct": 1, "answer": "7"}])
    assert record.read(tmp_path, "scores")["correct"].isna().tolist() == [True, False]


def test_what_the_gpu_preset_changes_is_what_the_documentation_lists(capsys: pytest.CaptureFixture) -> None:
    assert main(["differences"]) == 0
    table = capsys.readouterr().out
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.count("|") == 5]
    assert "\n".join(rows) + "\n" == table and len(rows) > 5
    assert main(["differences", "sage", "steps=7", "world=tiny"]) == 0
    said = capsys.readouterr().out
    assert "| sage | `steps` | 200 | 7 |\n" in said and "| sage | `world` | data | tiny |\n" in said
    for name in config.METHODS:
        for field, paper, here in config.differences(config.build(name, "gpu", out="x")):
            assert f"| {name} | `{field}` |" in table and paper != here
