"""The judge of MAE's evaluation: four prompts, the last tag counts, failures are never wrong."""

import csv
import re
import shutil
from dataclasses import dataclass
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

TRUE = "<answer>TRUE</answer>"
FALSE = "<answer>FALSE</answer>"
UNREADABLE = "hm"
FAULTS = tables("mistakes")["grade"]
Table = list[dict[str, str]]


def item(n: int, kind: str = "math", gold: str | tuple[str, ...] = "7") -> Item:
    """Return an item whose judge prompt is of a kind."""
    return Item("zork", str(n), f"Question {n}?", gold, "judge", judge=kind)


class TestVerdicts:
    """The prompts of the judge, and its replies."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_each_kinds_prompt_has_places_for_gold_and_answer(self, kind: str) -> None:
        judge = Scripted([TRUE])
        verdicts(judge, [item(1, kind, ("GOLD", "other"))], ["ANSWER"])
        (prompt,) = prompts(judge.asked)
        pattern = (
            r"Question: Question 1\?\n\n"
            "[A-Z][a-z ]+: GOLD\n\n"
            "The model's answer: ANSWER\n"
        )
        assert re.search(pattern, prompt)

    @pytest.mark.parametrize("kind", KINDS)
    def test_each_kind_has_its_own_prompt(self, kind: str) -> None:
        judge = Scripted([TRUE, TRUE])
        items = [item(1, kind), item(1, "general")]
        verdicts(judge, items, ["ANSWER", "ANSWER"])
        prompt, general_prompt = prompts(judge.asked)
        assert (prompt == general_prompt) == (kind == "general")

    def test_turns_go_to_the_judge_with_its_temperature_and_keys(self) -> None:
        judge = Scripted([TRUE, TRUE])
        verdicts(judge, [item(1), item(2)], ["a", "b"], (5,))
        first, second = judge.asked
        assert first.policy == second.policy == "judge"
        assert first.temperature == second.temperature == 1.0
        assert first.key == (5, 0, 0)
        assert second.key == (5, 1, 0)

    def test_an_item_without_a_kind_is_refused(self) -> None:
        message = "^judge must be one of math, choice, truthfulness, general, got ''$"
        with pytest.raises(ValueError, match=message):
            verdicts(Scripted([]), [item(1, "")], ["a"])

    def test_failures_are_counted_separately(self) -> None:
        judge = Scripted([TRUE, FALSE, "I cannot say", TRUE])
        items = [item(n) for n in range(1, 6)]
        correct = verdicts(judge, items, ["a", "b", "c", "d", None])
        # An answer of None is wrong without a question to the judge.
        assert correct == [True, False, None, True, False]
        # Wilson's interval, by hand.
        interval = "2 of 4 correct (50.0%, 95 % 15.0% to 85.0%)"
        assert summary(correct) == f"{interval}, 1 without a verdict"

    def test_failures_alone_have_no_accuracy(self) -> None:
        assert summary([None]) == "0 of 0 correct, 1 without a verdict"


@dataclass(frozen=True)
class PromptFields:
    """What a prompt of the judge asks about."""

    question: str
    gold: str
    answer: str


def prompt_fields(prompt: str) -> PromptFields:
    pattern = r"Question: (.*?)\s*\n\nGround truth: (.*?)\n\n.*?answer: (.*?)\n\n"
    match = re.search(pattern, prompt, re.DOTALL)
    return PromptFields(*match.groups())


class ServedJudge(BatchedEngine, ServedPolicy):
    """A served judge: TRUE where answer and gold are the same text.

    It gives no readable verdict on `hard_question`, and fails if `fails`.
    """

    def __init__(self) -> None:
        self.requests = 0
        self.hard_question = ""
        self.fails = False
        super().__init__(self.judge)

    def serve(self, temperature: float, max_tokens: int) -> "ServedJudge":
        assert (temperature, max_tokens) == (1.0, 2048)
        return self

    def judge(self, turns: list[Turn]) -> list[Reply]:
        if self.fails:
            raise ServerError("no more")
        self.requests += len(turns)
        return [Reply(turn, self.verdict(text(turn))) for turn in turns]

    def costs(self) -> dict[str, float]:
        return {
            "requests/judge": self.requests,
            "tokens_in/judge": 700 * self.requests,
        }

    def verdict(self, prompt: str) -> str:
        fields = prompt_fields(prompt)
        if fields.question == self.hard_question:
            return UNREADABLE
        return TRUE if fields.gold == fields.answer else FALSE


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> ServedJudge:
    """The judge that every model's name loads."""
    judge = ServedJudge()
    monkeypatch.setattr("published.judge.load_policy", lambda name, role: judge)
    return judge


@pytest.fixture(scope="module")
def data_and_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mirror, and a run on it with answers that no scorer can grade.

    Some of the questions differ only in their line breaks.
    """
    folder = mirror.sums(tmp_path_factory.mktemp("graded"))
    prefixes = ("", "A sum:\r\n", "A sum:\n")
    rows = []
    tasks = tiny.items("test", 5, ("next", "rate"))
    for i, task in enumerate(tasks):
        question = prefixes[i % 3] + task.question
        rows.append({"question": question, "best_answer": str(task.answer)})
    first_question = rows[0]["question"]
    rows.append({**rows[1], "question": f"A sum:\n{first_question}"})
    mirror.write_rows(folder / "truthfulqa" / "validation.jsonl", rows)
    fields = ["world=data:gsm8k,truthfulqa", "steps=0", "eval_every=0", "eval_items=11"]
    out = str(folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COEVOLVE_DATA", str(folder))
        status = main(["train", "mae", "--preset", "smoke", "--out", out, *fields])
    assert status == 0
    return folder


@pytest.fixture
def run(data_and_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run."""
    monkeypatch.setenv("COEVOLVE_DATA", str(data_and_run))
    return Path(shutil.copytree(data_and_run / "run", tmp_path / "run"))


def read_table(path: Path) -> Table:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def unscored_rows(run: Path) -> Table:
    scores = read_table(run / "scores.csv")
    return [row for row in scores if row["correct"] == ""]


class TestGrade:
    """The command that grades a finished run."""

    def grade(self, run: Path, *options: str) -> Table:
        """Grade a run with the command, and return the table that it writes."""
        assert main(["grade", str(run), "--judge", "tiny", *options]) == 0
        return read_table(run / "grades.csv")

    def test_the_run_has_answers_that_only_a_judge_can_grade(self, run: Path) -> None:
        unscored = unscored_rows(run)
        assert len(unscored) == 22
        assert {row["family"] for row in unscored} == {"truthfulqa"}

    def test_every_unscored_answer_gets_the_judges_verdict(
        self, judge: ServedJudge, run: Path
    ) -> None:
        unscored = unscored_rows(run)
        judge.hard_question = unscored[0]["question"]
        grades = self.grade(run)
        for row, score in zip(grades, unscored, strict=True):
            for column in ("stage", "question", "answer"):
                assert row[column] == score[column]
            expected = str(int(row["answer"] == row["gold"]))
            if row["question"] == judge.hard_question:
                expected = ""
            assert row["correct"] == expected, row
            assert row["kind"] == "truthfulness"

    def test_stages_are_summarised_and_costs_are_stated(
        self, judge: ServedJudge, run: Path, capsys: pytest.CaptureFixture
    ) -> None:
        judge.hard_question = unscored_rows(run)[0]["question"]
        grades = self.grade(run)
        *lines, costs = capsys.readouterr().out.splitlines()
        assert costs == "22 requests, 15,400 tokens_in"
        for stage, line in zip(("before", "after"), lines, strict=True):
            correct = [row["correct"] for row in grades if row["stage"] == stage]
            ratio = f"{correct.count('1')} of {len(correct) - 1} correct"
            assert line.startswith(f"truthfulqa {stage} vanilla: {ratio}")
            assert line.endswith(", 1 without a verdict")

    def test_the_files_of_the_run_do_not_change(
        self, judge: ServedJudge, run: Path
    ) -> None:
        files = [path for path in run.iterdir() if path.is_file()]
        contents = {path: path.read_bytes() for path in files}
        self.grade(run)
        for path, content in contents.items():
            assert path.read_bytes() == content

    def test_failures_of_a_local_judge_are_blank_and_not_wrong(
        self, run: Path, capsys: pytest.CaptureFixture
    ) -> None:
        grades = self.grade(run, "--kind", "general", "--max-tokens", "2")
        assert len(grades) == 22
        for row in grades:
            assert row["correct"] == ""
            assert row["kind"] == "general"
        line = "truthfulqa before vanilla: 0 of 0 correct, 11 without a verdict"
        assert line in capsys.readouterr().out

    @pytest.mark.parametrize("name", FAULTS)
    def test_the_error_for_a_run_that_cannot_be_graded_is_one_line(
        self,
        name: str,
        judge: ServedJudge,
        run: Path,
        capsys: pytest.CaptureFixture,
    ) -> None:
        arguments, old, new, message = FAULTS[name]
        judge.fails = True
        scores = run / "scores.csv"
        edited = scores.read_bytes().replace(old.encode(), new.encode())
        scores.write_bytes(edited)
        if name == "unfinished":
            scores.unlink()
        assert main(["grade", str(run), *arguments.split()]) == 2
        captured = capsys.readouterr()
        # If the judge is asked, a line shows that the command waits for it.
        lines = 2 if name == "server" else 1
        assert captured.out == ""
        assert captured.err.count("\n") == lines
        assert message in captured.err
        assert not (run / "grades.csv").exists()
