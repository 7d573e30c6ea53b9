"""Figure 3's matrices by hand: who asks, who answers, what counts, and the interval around it."""

import json

import pandas as pd
from core.conftest import Scripted, prompts, text

from coevolve.methods.spice import SPICE
from coevolve.types import Turn
from reproduce.analysis import crossplay

FREE = '{"suitable_for_mcq": false, "suitable_for_free_form": true, "best_answer_type": "Integer", "reason": "x"}'


def speaker(level: int) -> Scripted:
    """Asks questions numbered by its level, four attempts a document of which two are valid; right below its level."""

    def say(turn: Turn) -> str:
        if turn.role == "format":
            return FREE
        if turn.role == "challenger":
            number = turn.key[-1]
            valid = json.dumps({"question": f"level {level + number}", "answer": 1, "answer_type": "Integer"})
            return valid if number % 2 else "x"
        asked = int(text(turn).removeprefix("solve box<question>level ").removesuffix("</question>"))
        return f"\\boxed{{{int(level >= asked)}}}"

    return Scripted(say)


def test_every_pair_on_every_document(monkeypatch) -> None:
    monkeypatch.setattr(crossplay, "speaker", lambda model, max_tokens: speaker(int(model)))
    spice, counts = SPICE(verifier="exact"), {"attempts": 4, "answers": 2, "max_tokens": 8}
    players, documents = {0: "0", 3: "3", 9: "9"}, crossplay.documents(SPICE(), 3)
    asked, answered = crossplay.every_pair({0: "0", 9: "9"}, players, spice, documents, **counts)
    valid = asked.dropna(subset=["question"])
    assert (len(asked), len(valid), len(answered)) == (2 * 3 * 4, 2 * 3 * 2, 2 * 3 * 3 * 2 * 2)
    assert {*valid["question"]} == {"level 1", "level 3", "level 10", "level 12"} and {*valid["gold"]} == {"1"}
    rates = crossplay.pass_rates(answered)
    assert len(rates) == 2 * 3 * 3 and asked["gold_right"].isna().all(), "no oracle knows these questions"
    rates = rates.groupby(["challenger", "reasoner"])["pass_rate"].mean()
    # the choice of the form is turn 0, so attempts are turns 1 to 4, and levels challenger + 1 and challenger + 3 are valid
    assert rates[0, 0] == 0.0 and rates[0, 3] == 1.0 and rates[0, 9] == 1.0
    assert rates[9, 0] == 0.0 and rates[9, 9] == 0.0


def test_only_documents_with_tasks_at_both_ends_count() -> None:
    rates = [
        (0, c, r, d, (c == 9) / 2 + d / 4) for c in (0, 5, 9) for r in (0, 5, 9) for d in range(3) if (c, d) != (9, 2)
    ]
    made = pd.DataFrame(rates, columns=["seed", "challenger", "reasoner", "document", "pass_rate"])
    assert crossplay.ends(made, "challenger").to_dict() == {5: {0: 12.5}, 9: {0: 62.5}}, "without document 2"
    assert crossplay.ends(made, "reasoner").to_dict() == {5: {0: 25.0}, 9: {0: 25.0}}


def test_the_same_documents_for_everybody_and_no_document_for_a_reasoner() -> None:
    spice, asking, answering = SPICE(verifier="exact", group=4, attempts=4), speaker(0), speaker(9)
    documents = crossplay.documents(spice, 5)
    assert documents == crossplay.documents(spice, 5) != crossplay.documents(spice, 5, seed=1)
    said = crossplay.posed(asking, spice, documents)
    assert [len(attempts) for attempts in said] == [4] * 5
    read = [text(turn) for turn in asking.asked if turn.role == "format"]
    assert read == [f"<doc>{document}</doc>format" for document in documents]
    tasks = [[task for _, task in attempts if not isinstance(task, str)] for attempts in said]
    answers = crossplay.answered(answering, spice, tasks)
    assert [[len(group) for group in groups] for groups in answers] == [[4, 4]] * 5
    assert {turn.role for turn in answering.asked} == {"reasoner"}
    assert not any(document in prompt for prompt in prompts(answering.asked) for document in documents)
