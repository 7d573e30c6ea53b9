"""The judge of MAE's evaluation: four prompts, the last tag counts, failures never become wrong."""

import csv
import json
import re
import shutil
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path

import mirror
import pytest
from test_server import Judge

from coevolve.__main__ import main
from coevolve.driver import Batched
from coevolve.types import Reply, Turn
from published.judge import PROMPTS, Judged, judge, verdict
from published.rows import Item
from tinyworld import tasks as tiny

SAMPLES = Path(__file__).parents[1] / "data" / "hostile_strings.jsonl"
TRUE, FALSE = "<answer>TRUE</answer>", "<answer>FALSE</answer>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TRUE, True),
        (FALSE, False),
        ("<think>it is <answer>FALSE</answer>?</think>\n<answer>TRUE</answer>", True),  # the last tag counts
        (f"{TRUE}{FALSE}", False),
        (f"{TRUE} or {FALSE} <answer>maybe</answer>", None),  # also when it is the last that cannot be read
        ("<answer> true\n</answer>", True),
        ("<answer>TRUE.</answer>", None),
        ("<answer>TRUE or FALSE</answer>", None),
        ("<answer></answer>", None),
        (f"{TRUE}<answer>FALSE", True),  # cut off: the last complete pair
        ("TRUE", None),
        ("", None),
    ],
)
def test_the_last_tag_counts(text: str, expected: bool | None) -> None:
    assert verdict(text) is expected


def test_no_text_breaks_it() -> None:
    for line in SAMPLES.read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["input"]
        assert verdict(text) is None if isinstance(text, str) else True
    assert verdict("<answer>" * 100_000) is None


def item(n: int, kind: str = "math", gold: str | tuple[str, ...] = "7") -> Item:
    return Item("zork", f"{n}", f"Question {n}?", gold, "judge", judge=kind)


def engine(say, seen: list[Turn] | None = None) -> Batched:
    def generate(turns: list[Turn]) -> list[Reply]:
        if seen is not None:
            seen.extend(turns)
        return [Reply(turn, say(turn.messages[0]["content"])) for turn in turns]

    return Batched(generate)


def test_answer_and_gold_stand_in_their_own_places() -> None:
    seen: list[Turn] = []
    judge(engine(lambda text: TRUE, seen), [item(1, gold=("GOLD", "other"))], ["MINE"])
    (turn,) = seen
    text = turn.messages[0]["content"]
    assert "Question: Question 1?" in text
    assert "Ground truth: GOLD" in text and "model's answer: MINE" in text
    assert (turn.role, turn.policy, turn.temperature) == ("eval", "judge", 1.0)


@pytest.mark.parametrize("kind", PROMPTS)
def test_each_kind_has_its_own_prompt(kind: str) -> None:
    seen: list[Turn] = []
    judge(engine(lambda text: TRUE, seen), [item(1, kind), item(2, "general")], ["a", "b"])
    judge(engine(lambda text: TRUE, seen), [item(1, "general")], ["a"], kind=kind)
    own, general, chosen = (turn.messages[0]["content"] for turn in seen)
    assert chosen == own
    bare = [
        text.replace(f"Question {n}?", "").replace(f": {a}\n", "") for text, n, a in ((own, 1, "a"), (general, 2, "b"))
    ]
    assert (bare[0] == bare[1]) == (kind == "general")


def test_failures_are_counted_apart() -> None:
    replies = {"Question 1?": TRUE, "Question 2?": FALSE, "Question 3?": "I cannot say", "Question 4?": TRUE}
    said = engine(lambda text: next(reply for question, reply in replies.items() if question in text))
    judged = judge(said, [item(n) for n in range(1, 6)], ["a", "b", "c", "d", None])
    assert judged.correct == [True, False, None, True, False]  # nothing in the answer tags is wrong, and not asked
    assert judged.failures == 1
    summary = judged.summary()
    assert (summary["k"], summary["n"], summary["failures"], summary["accuracy"]) == (2, 4, 1, 0.5)
    assert 0 < summary["low"] < 0.5 < summary["high"] < 1
    assert judged.swapped is None


def test_a_judge_that_always_fails_has_no_accuracy() -> None:
    summary = judge(engine(lambda text: "hm"), [item(1)], ["a"]).summary()
    assert summary == {"k": 0, "n": 0, "failures": 1, "accuracy": None, "low": None, "high": None}
    assert Judged([]).summary()["n"] == 0


def test_the_swap_test_asks_again_with_answer_and_gold_exchanged() -> None:
    def partial(text: str) -> str:  # calls 7 and 7.0 the same in one direction only
        return TRUE if "Ground truth: 7\n" in text else FALSE

    items = [item(1), item(2), item(3, gold="8")]
    judged = judge(engine(partial), items, ["7", "7.0", "9"], swap=True)
    assert judged.correct == [True, True, False]
    assert judged.swapped == pytest.approx(2 / 3)
    assert judge(engine(lambda text: "?"), items, ["7", "7.0", "9"], swap=True).swapped is None


def test_an_item_without_a_kind_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match=r"^judge must be one of math, choice, truthfulness, general, got ''$"):
        judge(engine(lambda text: TRUE), [item(1, "")], ["a"])


class Careful(Judge):
    """A server's judge: TRUE where answer and gold are the same text, and nothing to read of whom it calls hard."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(asked["messages"][-1]["content"])
        if self.server.failures:
            self.answer(400, {"error": {"message": "no more"}})
            return
        parts = re.search(
            r"Question: (.*?)\s*\n\nGround truth: (.*?)\n\n.*?answer: (.*?)\n\n", self.server.seen[-1], re.S
        )
        same = TRUE if parts[2] == parts[3] else FALSE
        message = {"role": "assistant", "content": "hm" if parts[1] == self.server.hard else same}
        self.answer(
            200,
            {
                "id": "x",
                "object": "chat.completion",
                "created": 0,
                "model": asked["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 70, "completion_tokens": 3, "total_tokens": 73},
            },
        )


@pytest.fixture
def server():
    made = ThreadingHTTPServer(("127.0.0.1", 0), Careful)
    made.seen, made.failures, made.hard, made.page = [], 0, "", False
    threading.Thread(target=made.serve_forever, daemon=True).start()
    made.address = f"http://127.0.0.1:{made.server_port}/v1#judge-1"
    yield made
    made.shutdown(), made.server_close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A mirror, and a run on it that has answers which nothing could score; two questions end in a line break."""
    folder = mirror.sums(tmp_path_factory.mktemp("graded"))
    tasks = tiny.items("test", 5, ("next", "rate"))
    rows = [
        {
            "question": f"{task.question}{' ' * (i == 1)}\r\n" if i < 2 else task.question,
            "best_answer": str(task.answer),
        }
        for i, task in enumerate(tasks)
    ]
    (folder / "truthfulqa").mkdir()
    (folder / "truthfulqa" / "validation.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fields = ["world=data:gsm8k,truthfulqa", "steps=0", "eval_every=0", "eval_items=10"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COEVOLVE_DATA", str(folder))
        assert main(["train", "mae", "--preset", "smoke", "--out", str(folder / "run"), *fields]) == 0
    return folder, folder / "run"


@pytest.fixture
def run(finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVOLVE_DATA", str(finished[0]))
    return Path(shutil.copytree(finished[1], tmp_path / "run"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_finished_run_is_graded_by_a_server(server, run: Path, capsys: pytest.CaptureFixture) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    blank = [row for row in table(run / "scores.csv") if row["correct"] == ""]
    assert blank and {row["family"] for row in blank} == {"truthfulqa"}
    server.hard = next(row["question"] for row in blank if row["question"] == row["question"].strip())
    assert main(["grade", str(run), "--judge", server.address]) == 0
    graded = table(run / "grades.csv")
    assert [row["question"] for row in graded] == [row["question"] for row in blank]
    for row in graded:
        expected = "" if row["question"] == server.hard else str(int(row["answer"] == row["gold"]))
        assert (row["correct"], row["kind"]) == (expected, "truthfulness"), row
    *lines, used = capsys.readouterr().out.splitlines()
    asked = len(blank)
    assert used == f"{asked} requests, {70 * asked:,} tokens_in, {3 * asked} tokens_out"
    for stage, line in zip(("before", "after"), lines, strict=True):
        mine = [row["correct"] for row in graded if row["stage"] == stage]
        counts = f"{mine.count('1')} of {len(mine) - mine.count('')} right"
        assert line.startswith(f"truthfulqa {stage} vanilla: {counts}") and line.endswith(", 1 without a verdict")
    assert {name: (run / name).read_bytes() for name in before} == before and len(server.seen) == len(blank)


def test_the_kind_chooses_the_prompt_of_every_row(server, run: Path) -> None:
    assert main(["grade", str(run), "--judge", server.address]) == 0
    own, server.seen = sorted(server.seen), []
    assert main(["grade", str(run), "--judge", server.address, "--kind", "general"]) == 0
    assert {row["kind"] for row in table(run / "grades.csv")} == {"general"} and sorted(server.seen) != own


def test_a_model_here_can_be_the_judge_and_its_failures_are_no_zeros(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    sizes = []

    class Here:
        def generate(self, turns: list[Turn], max_tokens: int) -> list[Reply]:
            sizes.append((len(turns), max_tokens))
            return [Reply(turn, "who knows") for turn in turns]

    monkeypatch.setattr("coevolve.policies.load", lambda name, role: Here())
    monkeypatch.setattr("published.grades.BATCH", 4)
    assert main(["grade", str(run), "--judge", "tiny", "--max-tokens", "9"]) == 0
    graded = table(run / "grades.csv")
    assert {row["correct"] for row in graded} == {""} and max(sizes) == (4, 9)
    assert sum(size for size, _ in sizes) == len(graded)
    assert "truthfulqa before vanilla: 0 of 0 right, " in capsys.readouterr().out


def test_what_cannot_be_graded_is_one_line(server, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    def said(*arguments: str) -> str:
        assert main(["grade", *arguments]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1
        return captured.err

    judge_ = ("--judge", server.address)
    assert said(str(tmp_path), *judge_) == f"coevolve: {tmp_path} is no finished run: it has no config.json\n"
    assert "model must be one of tiny-small" in said(str(run), "--judge", "nope")
    assert "grade takes no field=value pairs" in said(str(run), *judge_, "steps=3")
    assert "max_tokens must be at least 1" in said(str(run), *judge_, "--max-tokens", "0")
    assert "no server answers at http://127.0.0.1:1/v1" in said(str(run), "--judge", "http://127.0.0.1:1/v1#x")
    server.failures = 1
    assert "no more" in said(str(run), *judge_)
    scores = run / "scores.csv"
    kept = scores.read_bytes()
    scores.write_bytes(kept.replace(b"truthfulqa", b"gone"))
    assert "has nothing for a judge" in said(str(run), *judge_)
    scores.write_bytes(kept.replace(tiny.items("test", 5, ("next", "rate"))[-1].question.encode(), b"Another?"))
    assert "questions of the run are not in the data set as it is now" in said(str(run), *judge_)
    assert not (run / "grades.csv").exists()
