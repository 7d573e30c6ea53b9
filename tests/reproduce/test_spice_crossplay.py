"""Figure 3's matrices by hand: who asks, who answers, what counts, and the interval around it."""

import json
from itertools import product

import pandas as pd
import pytest
from core.conftest import Scripted, prompts, text

from coevolve.methods.spice import SPICE
from coevolve.types import Turn
from reproduce.analysis import crossplay

FREE_FORM = json.dumps(
    {
        "suitable_for_mcq": False,
        "suitable_for_free_form": True,
        "best_answer_type": "Integer",
        "reason": "x",
    }
)


def speaker(level: int) -> Scripted:
    """A player of a level: it asks questions numbered by its level, and solves those up to it.

    Of its attempts on a document every second one is valid.
    """

    def reply(turn: Turn) -> str:
        if turn.role == "format":
            return FREE_FORM
        if turn.role == "challenger":
            return ask(turn.key[-1])
        prompt = text(turn)
        question = prompt.removeprefix("solve box<question>level ")
        asked_level = int(question.removesuffix("</question>"))
        return f"\\boxed{{{int(level >= asked_level)}}}"

    def ask(number: int) -> str:
        if number % 2 == 0:
            return "x"
        task = {
            "question": f"level {level + number}",
            "answer": 1,
            "answer_type": "Integer",
        }
        return json.dumps(task)

    return Scripted(reply)


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Attempts and answers of two Challengers and three Reasoners on three documents."""
    monkeypatch.setattr(
        crossplay, "speaker", lambda model, max_tokens: speaker(int(model))
    )
    return crossplay.every_pair(
        {0: "0", 9: "9"},
        {0: "0", 3: "3", 9: "9"},
        SPICE(verifier="exact"),
        crossplay.documents(SPICE(), 3),
        attempts=4,
        answers=2,
        max_tokens=8,
    )


def test_every_attempt_and_every_answer_has_a_row(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    attempts, answers = frames
    valid = attempts.dropna(subset=["question"])
    challengers = 2
    documents = 3
    assert len(attempts) == challengers * documents * 4
    assert len(valid) == challengers * documents * 2
    assert len(answers) == len(valid) * 3 * 2
    assert set(valid["gold"]) == {"1"}
    assert attempts["gold_correct"].isna().all(), "no oracle knows these questions"
    # Turn 0 chooses the form, so attempts are turns 1 to 4, of which 1 and 3 are valid.
    questions = {f"level {level}" for level in (0 + 1, 0 + 3, 9 + 1, 9 + 3)}
    assert set(valid["question"]) == questions


def test_pass_rates_are_of_each_pair(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    _, answers = frames
    by_document = crossplay.pass_rates(answers)
    assert len(by_document) == 2 * 3 * 3
    rates = by_document.groupby(["challenger", "reasoner"])["pass_rate"].mean()
    assert rates[0, 0] == 0.0
    assert rates[0, 3] == 1.0
    assert rates[0, 9] == 1.0
    assert rates[9, 0] == 0.0
    assert rates[9, 9] == 0.0


@pytest.fixture
def rates() -> pd.DataFrame:
    """Pass rates that depend on Challenger and document; Challenger 9 has no task on document 2."""
    steps = (0, 5, 9)
    rows = []
    for challenger, reasoner, document in product(steps, steps, range(3)):
        if (challenger, document) == (9, 2):
            continue
        harder = 0.5 if challenger == 9 else 0.0
        row = {
            "seed": 0,
            "challenger": challenger,
            "reasoner": reasoner,
            "document": document,
            "pass_rate": harder + document / 4,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def test_only_documents_with_tasks_at_both_steps_count(rates: pd.DataFrame) -> None:
    challenger = crossplay.first_and_last(rates, "challenger")
    assert challenger.to_dict() == {5: {0: 12.5}, 9: {0: 62.5}}, "without document 2"
    reasoner = crossplay.first_and_last(rates, "reasoner")
    assert reasoner.to_dict() == {5: {0: 25.0}, 9: {0: 25.0}}


def test_all_players_get_the_same_documents() -> None:
    documents = crossplay.documents(SPICE(), 5)
    assert documents == crossplay.documents(SPICE(), 5)
    assert documents != crossplay.documents(SPICE(), 5, seed=1)


def test_a_challenger_reads_the_document_and_a_reasoner_does_not() -> None:
    spice = SPICE(verifier="exact", group=4, attempts=4)
    documents = crossplay.documents(spice, 5)
    challenger = speaker(0)
    attempts_by_document = crossplay.posed(challenger, spice, documents)
    assert [len(attempts) for attempts in attempts_by_document] == [4] * 5
    read = [text(turn) for turn in challenger.asked if turn.role == "format"]
    assert read == [f"<doc>{document}</doc>format" for document in documents]

    reasoner = speaker(9)
    tasks = [crossplay.valid_tasks(attempts) for attempts in attempts_by_document]
    answered_by_document = crossplay.answered(reasoner, spice, tasks)
    for answered_tasks in answered_by_document:
        assert [len(task.answers) for task in answered_tasks] == [4, 4]
    assert {turn.role for turn in reasoner.asked} == {"reasoner"}
    seen = "\n".join(prompts(reasoner.asked))
    for document in documents:
        assert document not in seen
