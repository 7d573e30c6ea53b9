"""CoNL's measures and conversations on made-up records: votes, differences, and clear cases."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pytest import approx

from coevolve.runs.record import Recorder
from reproduce.analysis import conl_conversations, conl_measures
from tinyworld import tasks

LABELS = {"conl": "CoNL", "variant": "Variant", "conl_base": "untrained"}
RUNS = {"conl": [0], "variant": [0], "conl_base": [0]}


def write_run(folder: Path, rankings: list[str]) -> None:
    """A run whose agents review with the given rankings."""
    recorder = Recorder(folder)
    config = {
        "temperature": 1.0,
        "method_fields": {"agents": 3, "own_votes": False, "judge_temperature": None},
    }
    (recorder.out / "config.json").write_text(json.dumps(config))
    samples = []
    for ranking in rankings:
        text = f"<initial_ranking>{ranking}</initial_ranking>"
        samples.append({"role": "review", "text": text})
    recorder.rows("episodes", [{"step": 1, "samples": samples}])
    metrics = {"critiques": 1.0, "votes": 1.0, "r_meta": 0.5, "decided": 1.0}
    recorder.rows("metrics", [{"step": 0}, {"step": 1, **metrics}])


@pytest.fixture
def variants(tmp_path: Path) -> conl_measures.Variants:
    readable = ["Agent 1 > Agent 2", "Agent 0 > Agent 2", "Agent 0 = Agent 1"]
    write_run(tmp_path / "conl-s0", readable)
    write_run(tmp_path / "variant-s0", ["Agent 1 > Agent 2", "?", "no ranking"])
    return conl_measures.Variants(tmp_path, RUNS, LABELS)


def test_readability_counts_the_rankings_with_a_vote(
    variants: conl_measures.Variants,
) -> None:
    readable = conl_measures.readability(variants)
    assert list(readable.index) == ["CoNL", "Variant"], (
        "the untrained model is left out"
    )
    assert readable["replies"].tolist() == [3, 3]
    assert readable["readable rankings"].tolist() == approx([1, 1 / 3])
    assert readable["votes of an order"].tolist() == approx([1, 1 / 3])
    assert readable["r_meta"].tolist() == [0.5, 0.5]


def test_a_variant_below_half_of_the_votes_is_unreadable(
    variants: conl_measures.Variants,
) -> None:
    readable = conl_measures.readability(variants)
    unreadable = conl_measures.unreadable_variants(readable, "CoNL")
    assert list(unreadable) == ["Variant"]


def test_remarks_say_why_a_row_does_not_measure_its_name() -> None:
    readable = pd.DataFrame({"decided": [1.0, 0.0]}, index=["CoNL", "Variant"])
    unreadable = pd.Index(["Variant"])
    labels = ["CoNL", "Variant"]
    remarks = conl_measures.remarks(labels, readable, unreadable, equal=["CoNL"])
    assert remarks["CoNL"] == "equals full CoNL"
    assert remarks["Variant"] == "unreadable replies; no consensus: r_meta undefined"


def test_settings_say_the_temperature_of_rankings(
    variants: conl_measures.Variants,
) -> None:
    text = conl_measures.settings_in_words(variants)
    assert text == "Seats of CoNL: 3; turns at temperature 1, rankings at 1."


def test_printed_differences_need_both_numbers() -> None:
    paper = pd.Series(
        {
            ("CoNL", "AIME25", "Pass@1"): 50.0,
            ("Variant", "AIME25", "Pass@1"): 45.0,
            ("Variant", "AIME25", "Harm"): 3.0,
        }
    )
    differences = conl_measures.printed_differences(paper, "CoNL")
    assert differences == {("Variant", "AIME25", "Pass@1"): -5.0}


def test_an_unreadable_variant_has_no_verdict_but_keeps_a_missing_claim() -> None:
    gains = pd.DataFrame(
        {"method": ["A", "B", "B"], "verdict": ["as printed", "undecided", ""]}
    )
    judged = conl_measures.without_unreadable(
        gains, pd.Index(["B"]), {"A": "", "B": "why"}
    )
    assert judged["verdict"].tolist() == ["as printed", "unreadable replies", ""]
    assert judged["remark"].tolist() == ["", "why", "why"]


def test_the_printed_gain_over_self_rewarding_is_by_benchmark_and_backbone() -> None:
    methods = ["CoNL (Ours)", "Self-Rewarding (Multi-Agent)"]
    printed = pd.DataFrame({"method": methods, "value": [60.0, 55.0]})
    printed = printed.assign(backbone="Qwen3-8B", benchmark="AIME25")
    gain = conl_measures.printed_gain_over_self_rewarding(printed)
    assert gain.loc["AIME25", "Qwen3-8B"] == 5


QUESTION = tasks.items("test", 1, ("add",))[0].question
ANSWER = tasks.read(QUESTION).answer
WRONG = "no number"


def facts_of(before: list[str], after: list[str], **changed: Any) -> dict[str, Any]:
    correct_before = [answer == ANSWER for answer in before]
    correct_after = [answer == ANSWER for answer in after]
    facts = {
        "question": QUESTION,
        "answers_before": before,
        "answers_after": after,
        "scores_before": [0.0] * len(before),
        "scores_after": [0.5 if correct else 0.0 for correct in correct_after],
        "fixed": sum(correct_after) - sum(correct_before),
        "harmed": 0,
        "pass_1": 1.0,
        "r_diag": 0.4,
        "r_diag_null": 0.1,
    }
    return {**facts, **changed}


def samples_of(reviews: list[str]) -> list[dict[str, Any]]:
    """The turns of each agent; only its review matters."""
    samples = []
    for review in reviews:
        for role in ("proposal", "review", "revision", "verdict"):
            text = review if role == "review" else role
            reward = {"critique": 0.2}
            samples.append({"role": role, "text": text, "reward": reward})
    return samples


def talks_of(facts: dict[str, Any], reviews: list[str]) -> conl_conversations.Talks:
    return conl_conversations.Talks(
        pd.DataFrame([facts]), pd.Series([samples_of(reviews)])
    )


@pytest.fixture
def persuasion() -> conl_conversations.Talks:
    """Agent 0 tells agent 1 the correct answer, which agent 1 adopts."""
    facts = facts_of(before=[ANSWER, WRONG], after=[ANSWER, ANSWER])
    critique = f'<critique target="Agent 1">it is {ANSWER}</critique>'
    return talks_of(facts, [critique, "nothing"])


def test_a_critique_is_judged_by_the_answer_that_it_names(
    persuasion: conl_conversations.Talks,
) -> None:
    (critique,) = conl_conversations.critique_table(persuasion).to_dict("records")
    assert critique["critic"] == 0
    assert critique["target"] == 1
    assert critique["names_correct"]
    assert not critique["before"]
    assert critique["after"]
    assert critique["rise"] == 0.5


def test_a_heeded_critique_is_a_persuasion_and_a_convergence(
    persuasion: conl_conversations.Talks,
) -> None:
    critiques = conl_conversations.critique_table(persuasion)
    scores = conl_conversations.kind_scores(persuasion, critiques)
    assert scores["1: successful persuasion"].tolist() == approx([0.3])
    assert scores["2: false alarm withstood"].tolist() == [0]
    assert scores["3: consensus convergence"].tolist() == [2]
    cases = conl_conversations.clearest_cases(scores)
    assert cases == {"1: successful persuasion": 0, "3: consensus convergence": 0}


def test_a_false_alarm_is_withstood() -> None:
    facts = facts_of(
        before=[ANSWER, ANSWER], after=[ANSWER, ANSWER], scores_after=[0.0, 0.0]
    )
    alarm = f'<critique target="Agent 1">it is {WRONG}</critique>'
    talks = talks_of(facts, [alarm, "nothing"])
    critiques = conl_conversations.critique_table(talks)
    scores = conl_conversations.kind_scores(talks, critiques)
    counts = conl_conversations.found_kinds(scores)
    assert counts["2: false alarm withstood"] == 1
    assert counts["1: successful persuasion"] == 0


@pytest.mark.filterwarnings("error")
def test_conversations_without_a_critique_are_of_no_kind() -> None:
    talks = talks_of(facts_of([WRONG, ANSWER], [WRONG, ANSWER]), ["nothing", "nothing"])
    critiques = conl_conversations.critique_table(talks)
    scores = conl_conversations.kind_scores(talks, critiques)
    assert set(conl_conversations.found_kinds(scores).values()) == {0}
    traces = conl_conversations.trace_table(talks, critiques, {})
    assert traces.empty


def test_a_trace_says_what_each_agent_hears_and_earns(
    persuasion: conl_conversations.Talks,
) -> None:
    critiques = conl_conversations.critique_table(persuasion)
    traces = conl_conversations.trace_table(persuasion, critiques, {"case": 0})
    listener = traces.iloc[1]
    assert listener["hears"] == f"0: it is {ANSWER} (true)"
    assert listener["initial"] == WRONG
    assert listener["revised"] == ANSWER
    assert listener["correct"] == "False > True"
    assert listener["critique earned"] == 0.2
    lines = list(conl_conversations.transcript(persuasion, {"case": 0}))
    assert len(lines) == 1 + 2 * 4
    assert lines[5].startswith("agent 1, proposal: ")


def test_distinct_answers_are_counted_before_and_after() -> None:
    frame = pd.DataFrame(
        {
            "method": ["CoNL", "CoNL"],
            "answers_before": [["1", "2"], ["1", "1"]],
            "answers_after": [["1", "1"], ["1", "1"]],
        }
    )
    distinct = conl_conversations.distinct_answers(frame).loc["CoNL"]
    assert distinct["before"] == np.mean([2, 1])
    assert distinct["after"] == 1
