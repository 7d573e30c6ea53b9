"""Set-ups at work: scoring with an exact oracle, three lines for a notebook, and the embedded backbone."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from coevolve import policies, prompts
from coevolve.driver import Batched
from coevolve.policies.team import Team
from coevolve.score import score, tally
from coevolve.setups import LIMITS, SETUPS, ask, limit
from coevolve.types import Reply, Turn
from tinyworld import tasks as tiny


def tasks(count: int) -> list[tiny.Task]:
    """Items whose misconception is wrong."""
    found = [task for task in tiny.items("validation", 4) if not tiny.right(task.question, task.misconception)]
    return found[:count]


def oracle(wrong: Callable[[Turn], bool] = lambda turn: False) -> Batched:
    """Answers right unless told otherwise, in every form at once, and accepts every solution."""

    def say(turn: Turn) -> str:
        (question,) = re.findall(r"<question>(.*?)</question>", turn.messages[0]["content"])
        task = tiny.read(question)
        said = task.misconception if wrong(turn) else task.answer
        revised = f"<revised_solution>\nANSWER: {said}\n</revised_solution>"
        return f"<answer>{said}</answer> \\boxed{{{said}}}\n{revised}\nverdict: right"

    return Batched(lambda turns: [Reply(turn, say(turn), (1,), (2, 3)) for turn in turns])


MAE = prompts.load("mae", "solver", "compact")


@pytest.mark.parametrize("name", SETUPS)
def test_score_verifies_exactly_under_every_setup(name: str) -> None:
    wanted = tasks(6)
    rows = score(oracle(), MAE, wanted, setup=name)
    assert tally(rows) == {"k": 6, "n": 6}
    assert {row["setup"] for row in rows} == {name}
    assert [row["item"] for row in rows] == list(range(6))
    assert all(row["misconception"] == 0 for row in rows)
    rows = score(oracle(lambda turn: True), MAE, wanted, setup=name)
    assert tally(rows) == {"k": 0, "n": 6}
    assert all(row["misconception"] == 1 for row in rows)


def test_score_deals_items_to_policies_in_turn() -> None:
    rows = score(oracle(lambda turn: turn.policy == "b"), MAE, tasks(6), policies=("a", "b", "c"))
    assert [row["correct"] for row in rows] == [1, 0, 1, 1, 0, 1]
    seen = []
    score(
        oracle(lambda turn: seen.append((turn.key[-2], turn.policy))),
        MAE,
        tasks(2),
        policies=("a", "b"),
        setup="consistency",
    )
    assert [policy for item, policy in seen if item == 0] == ["a", "b", "a", "b", "a"]
    assert [policy for item, policy in seen if item == 1] == ["b", "a", "b", "a", "b"]


def test_score_is_greedy_unless_the_setup_votes_or_it_is_told() -> None:
    for name, options, heat in (
        ("vanilla", {}, 0.0),
        ("consistency", {}, 0.7),
        ("vanilla", {"temperature": 1.0}, 1.0),
        ("debate", {"temperature": 0.0}, 0.0),
    ):
        seen = set()
        score(oracle(lambda turn, seen=seen: seen.add(turn.temperature)), MAE, tasks(1), setup=name, **options)
        assert seen == {heat}


def test_ask_answers_one_question_or_several() -> None:
    one = ask(oracle(), "3+4", setup="debate")
    assert one["answer"] == "7" and one["votes"] == 4
    assert [facts["answer"] for facts in ask(oracle(), ["3+4", "2+2"], "consistency")] == ["7", "4"]
    assert ask(oracle(), [], "vanilla") == []


def test_ask_seats_the_trained_policies_of_a_team() -> None:
    team = Team({"left": "tiny", "right": "tiny-small", "third": "tiny"}, ("left", "right"))
    facts = ask(team, ["3+4", "2+2"], setup="debate", seats=2, rounds=1)
    assert all(len(its["answers"]) == 2 for its in facts)
    alone = ask(team.policies["left"], "3+4")
    assert ask(team, "3+4")["answer"] == alone["answer"]


def test_the_limit_of_a_compact_ranking_grows_with_the_seats() -> None:
    assert [limit("top_ranked", seats=seats) for seats in (1, 2, 4, 5, 8)] == [64, 64, 64, 128, 320]
    assert limit("debate", seats=8) == 64 and limit("top_ranked", "full", 8) == LIMITS["full"] == 4096
    for options, most in (
        ({}, {64}),
        ({"seats": 8}, {320}),
        ({"seats": 8, "max_tokens": 9}, {9}),
        ({"seats": 8, "prompt": "full", "solver": MAE}, {4096}),
    ):
        seen = set()
        ask(
            Batched(lambda turns, seen=seen: [seen.add(turn.max_tokens) or Reply(turn, "") for turn in turns]),
            "3+4",
            "top_ranked",
            **options,
        )
        assert seen == most


def test_eight_embedded_agents_finish_what_they_say_and_are_ranked() -> None:
    questions = [task.question for task in tiny.items("validation", 1)][:4]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = ask(policies.load("tiny-seasoned"), questions, "top_ranked", seats=8)
    assert all(its["finished"] for its in facts)
    assert any(len(set(its["scores"])) > 1 for its in facts)


def test_ask_warns_once_of_conversations_with_a_reply_that_was_cut_off() -> None:
    def cut(questions: tuple[str, ...]) -> Batched:
        return Batched(
            lambda turns: [
                Reply(turn, "", finished=turn.key[-2] not in questions or turn.key[-1] > 0) for turn in turns
            ]
        )

    asked = ["3+4", "2+2", "1+1"]
    with pytest.warns(UserWarning, match=r"max_tokens=64 in 2 of 3 conversations \(setup 'consistency'\)") as seen:
        facts = ask(cut((0, 2)), asked, "consistency")
    assert len(seen) == 1 and seen[0].filename == __file__
    assert [its["finished"] for its in facts] == [False, True, False]
    with pytest.warns(UserWarning, match="max_tokens=9 in 1 of 1"):
        ask(cut((0,)), "3+4", max_tokens=9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask(cut(()), asked, "debate")


def test_the_embedded_backbone_speaks_every_setup() -> None:
    policy = policies.load("tiny")
    questions = [task.question for task in tiny.items("validation", 1)][:8]
    for name in SETUPS:
        facts = ask(policy, questions, setup=name)
        readable = [fact["answer"] for fact in facts if fact["answer"] is not None]
        assert len(readable) >= 7, name
        assert facts == ask(policy, questions, setup=name)  # keyed noise
    refined = ask(policy, questions, setup="self_refine")
    assert all(len(fact["answers"]) == 4 for fact in refined)


def test_the_evaluation_notebook_runs(tmp_path: Path) -> None:
    at = Path(__file__).parents[2] / "notebooks" / "evaluate.ipynb"
    notebook = nbformat.read(at, 4)
    (cell,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", []))
    cell.source += f"\nitems, out = 1, {str(tmp_path / 'table')!r}"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(at.parent)}}).execute()
    table = (tmp_path / "table" / "table.md").read_text(encoding="utf-8")
    assert "iny world" in table and all(name in table for name in SETUPS)
