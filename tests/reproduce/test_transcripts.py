"""Transcripts of the report: which episodes, in which order, marked by the oracle."""

import json
import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from report_pages import (
    ASKED,
    EPISODES,
    build,
    build_mae,
    dialogue,
    episode,
    made_up,
    squeezed,
)

from reproduce import transcripts
from reproduce.plan import Plan


@pytest.fixture
def results(tmp_path: Path) -> Plan:
    return made_up(tmp_path)


def test_answers_are_marked_by_the_oracle() -> None:
    right = transcripts.mark(ASKED, "<answer>12</answer>")
    wrong = transcripts.mark(ASKED, "<answer>13</answer>")
    assert right == transcripts.Mark(True, "12")
    assert wrong == transcripts.Mark(False, "12")
    assert transcripts.mark(ASKED, "<score>3</score>") is None
    assert (
        transcripts.mark("solve<question>dk?</question>", "<answer>1</answer>") is None
    )


REPLIES = {
    "\\boxed{12}": True,
    "ANSWER: 12": True,
    "<revised_solution>ANSWER: 12</revised_solution>": True,
    "first 3\nANSWER: 13": False,
    "<critique target='Agent 1'>it is 12</critique>": None,
}


@pytest.mark.parametrize(("reply", "is_correct"), REPLIES.items())
def test_the_forms_of_all_papers_are_answers(
    reply: str, is_correct: bool | None
) -> None:
    mark = transcripts.mark(ASKED, reply)
    assert (mark and mark.is_correct) == is_correct


def test_episodes_with_the_highest_and_lowest_reward_of_the_first_and_last_step_are_shown(
    results: Plan,
) -> None:
    text = build_mae(results).text
    steps = re.findall(r"The (\w+) .* of step (\d), mean reward ([\d.]+)", text)
    assert steps == [
        ("best", "1", "0.75"),
        ("worst", "1", "0.25"),
        ("only", "3", "0.5"),
    ]
    assert text.count("best!") == 3, "every completion"
    assert "so-so!" not in text
    assert "later!" not in text
    assert "a none, b 0.5" in text


RUNS = {
    "mae": "mae_half",
    "sage": "sage",
    "spice": "spice",
    "comas": "comas",
    "conl": "conl",
}


@pytest.mark.parametrize("paper", RUNS)
def test_a_page_that_is_built_while_runs_exist_has_transcripts(
    results: Plan, paper: str
) -> None:
    """The results fixture has a run of MAE alone."""
    page = results.folder / f"report/{paper}.html"
    assert ("transcripts" in build(results)[page].ids) == (paper == "mae")
    run = results.folder / f"runs/{RUNS[paper]}-s0"
    run.mkdir(exist_ok=True)
    (run / "episodes.jsonl").write_text("".join(EPISODES))
    assert "transcripts" in build(results)[page].ids


def test_a_page_keeps_its_transcripts_without_the_runs(results: Plan) -> None:
    """As where the results are committed and the runs are not."""
    page = results.folder / "report/mae.html"
    build(results)
    with_runs = page.read_text("utf-8")
    assert 'id="transcripts"' in with_runs
    (results.folder / "runs/mae_half-s0/episodes.jsonl").unlink()
    build(results)
    assert page.read_text("utf-8") == with_runs


def folded(page: str) -> list[str]:
    """The summaries inside the first episode of a page's transcripts."""
    heading = BeautifulSoup(page, "html.parser").find(id="transcripts")
    episode = heading.find_next("details")
    return [squeezed(summary.text.strip()) for summary in episode("summary")[1:]]


def test_the_third_reply_of_a_role_is_folded(results: Plan) -> None:
    build_mae(results)
    page = (results.folder / "report/mae.html").read_text()
    assert folded(page) == ["solver, reward 0.75"]


def test_a_reply_in_a_dialogue_has_the_earlier_messages(results: Plan) -> None:
    file = results.folder / "runs/mae_half-s0/episodes.jsonl"
    file.write_text(dialogue())
    text = squeezed(build_mae(results).text)
    parts = [
        "solver, not paid ✓ right",
        "earlier messages of the dialogue: 2",
        f"user{ASKED}",
        "assistant<answer>11</answer>",
        "try again<answer>12</answer>",
        "solver, reward 0.25",
    ]
    positions = [text.find(part) for part in parts]
    assert -1 not in positions, positions
    assert positions == sorted(positions)


def test_a_reply_that_is_not_paid_stands_in_its_place(results: Plan) -> None:
    row = json.loads(episode(1, 0.25, "paid"))
    row["samples"] = [{**row["samples"][0], "turn": 2}]
    unpaid = {name: row["samples"][0][name] for name in ("role", "policy", "prompt")}
    row["unpaid"] = [{**unpaid, "text": "in vain", "tokens": 2, "turn": 1}]
    file = results.folder / "runs/mae_half-s0/episodes.jsonl"
    file.write_text(json.dumps(row) + "\n")
    text = squeezed(build_mae(results).text)
    assert re.search(r"solver, not paid .*in vain.*solver, reward 0.25 .*paid", text)
