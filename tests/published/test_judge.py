"""The judge of MAE's evaluation: four prompts, the last tag counts, failures never become wrong."""

import csv
import re
import shutil
from pathlib import Path

import mirror
import pytest
from core.conftest import Scripted, prompts, text
from data_files import tables

from coevolve.cli import main
from coevolve.engines.openai_server import ServedPolicy, ServerError
from coevolve.rollout.engine import BatchedEngine
from coevolve.types import Reply, Turn
from published.judge import KINDS, summary, verdicts
from published.rows import Item
from tinyworld import tasks as tiny

TRUE, FALSE = "<answer>TRUE</answer>", "<answer>FALSE</answer>"


def item(n: int, kind: str = "math", gold: str | tuple[str, ...] = "7") -> Item:
    return Item("zork", str(n), f"Question {n}?", gold, "judge", judge=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_answer_and_gold_stand_in_their_own_places_of_each_kinds_prompt(kind: str) -> None:
    judge = Scripted([TRUE, TRUE])
    verdicts(judge, [item(1, kind, ("GOLD", "other")), item(1, "general", "GOLD")], ["MINE", "MINE"], (5,))
    own, general = prompts(judge.asked)
    assert re.search("Question: Question 1\\?\n\n[A-Z][a-z ]+: GOLD\n\nThe model's answer: MINE\n", own)
    assert (own == general) == (kind == "general")
    settings = [(turn.policy, turn.temperature, turn.key) for turn in judge.asked]
    assert settings == [("judge", 1.0, (5, 0, 0)), ("judge", 1.0, (5, 1, 0))]
    with pytest.raises(ValueError, match=r"^judge must be one of math, choice, truthfulness, general, got ''$"):
        verdicts(judge, [item(1, "")], ["a"])


def test_failures_are_counted_apart() -> None:
    judge = Scripted([TRUE, FALSE, "I cannot say", TRUE])
    correct = verdicts(judge, [item(n) for n in range(1, 6)], ["a", "b", "c", "d", None])
    assert correct == [True, False, None, True, False]  # nothing in the answer tags is wrong, and not asked
    assert summary(correct) == "2 of 4 right (50.0%, 95 % 15.0% to 85.0%), 1 without a verdict"  # Wilson, by hand
    assert summary([None]) == "0 of 0 right, 1 without a verdict"


class Careful(BatchedEngine, ServedPolicy):
    """A judge elsewhere: TRUE where answer and gold are the same text, and nothing to read of whom it calls hard."""

    def __init__(self) -> None:
        self.used, self.hard, self.fails = 0, "", False
        super().__init__(self.judged)

    def serve(self, temperature: float, max_tokens: int) -> "Careful":
        assert (temperature, max_tokens) == (1.0, 2048)
        return self

    def judged(self, turns: list[Turn]) -> list[Reply]:
        if self.fails:
            raise ServerError("no more")
        self.used += len(turns)
        return [Reply(turn, self.say(text(turn))) for turn in turns]

    def costs(self) -> dict[str, float]:
        return {"requests/judge": self.used, "tokens_in/judge": 700 * self.used}

    def say(self, prompt: str) -> str:
        parts = re.search(r"Question: (.*?)\s*\n\nGround truth: (.*?)\n\n.*?answer: (.*?)\n\n", prompt, re.S)
        return "hm" if parts[1] == self.hard else TRUE if parts[2] == parts[3] else FALSE


@pytest.fixture
def careful(monkeypatch: pytest.MonkeyPatch) -> Careful:
    made = Careful()
    monkeypatch.setattr("coevolve.engines.loading.load_policy", lambda name, role: made)
    return made


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror with a run on it that has answers which nothing could score; line breaks tell two questions apart."""
    folder = mirror.sums(tmp_path_factory.mktemp("graded"))
    made = tiny.items("test", 5, ("next", "rate"))
    asked = [("", "A sum:\r\n", "A sum:\n")[i % 3] + task.question for i, task in enumerate(made)]
    rows = [{"question": one, "best_answer": str(task.answer)} for one, task in zip(asked, made, strict=True)]
    more = {**rows[1], "question": "A sum:\n" + rows[0]["question"]}
    mirror.lines(folder / "truthfulqa" / "validation.jsonl", [*rows, more])
    fields = ["world=data:gsm8k,truthfulqa", "steps=0", "eval_every=0", "eval_items=11"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COEVOLVE_DATA", str(folder))
        assert main(["train", "mae", "--preset", "smoke", "--out", str(folder / "run"), *fields]) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVOLVE_DATA", str(finished))
    return Path(shutil.copytree(finished / "run", tmp_path / "run"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_finished_run_is_graded(careful: Careful, run: Path, capsys: pytest.CaptureFixture) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    blank = [row for row in table(run / "scores.csv") if row["correct"] == ""]
    assert len(blank) == 22 and {row["family"] for row in blank} == {"truthfulqa"}
    careful.hard = blank[0]["question"]
    assert main(["grade", str(run), "--judge", "tiny"]) == 0
    graded = table(run / "grades.csv")
    for row, score in zip(graded, blank, strict=True):
        assert all(row[name] == score[name] for name in ("stage", "question", "answer"))
        expected = "" if row["question"] == careful.hard else str(int(row["answer"] == row["gold"]))
        assert (row["correct"], row["kind"]) == (expected, "truthfulness"), row
    *lines, used = capsys.readouterr().out.splitlines()
    assert used == "22 requests, 15,400 tokens_in"
    for stage, line in zip(("before", "after"), lines, strict=True):
        mine = [row["correct"] for row in graded if row["stage"] == stage]
        assert line.startswith(f"truthfulqa {stage} vanilla: {mine.count('1')} of {len(mine) - 1} right")
        assert line.endswith(", 1 without a verdict")
    assert {name: (run / name).read_bytes() for name in before} == before


def test_a_model_here_can_be_the_judge_and_its_failures_are_no_zeros(run: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["grade", str(run), "--judge", "tiny", "--kind", "general", "--max-tokens", "2"]) == 0
    graded = table(run / "grades.csv")
    assert {(row["correct"], row["kind"]) for row in graded} == {("", "general")} and len(graded) == 22
    assert "truthfulqa before vanilla: 0 of 0 right, 11 without a verdict" in capsys.readouterr().out


FAULTS = tables("mistakes")["grade"]


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_graded_is_one_line(name: str, careful: Careful, run: Path, capsys) -> None:
    arguments, old, new, line = FAULTS[name]
    scores, careful.fails = run / "scores.csv", True
    scores.write_bytes(scores.read_bytes().replace(old.encode(), new.encode()))
    if name == "unfinished":
        scores.unlink()
    assert main(["grade", str(run), *arguments.split()]) == 2
    captured = capsys.readouterr()
    lines = 1 + (name == "server")  # a judge that is asked is waited for in a line of its own
    assert captured.out == "" and captured.err.count("\n") == lines and line in captured.err
    assert not (run / "grades.csv").exists()
