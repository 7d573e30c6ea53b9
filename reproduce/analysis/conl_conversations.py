"""CoNL's conversations: who knows the answer, what talking changes, and clear cases of each kind.

Loads no torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from coevolve.methods.conl.parsing import critiques
from coevolve.runs import record
from reproduce.analysis import conversations, standins
from reproduce.analysis.conversations import KEY
from reproduce.analysis.tables import Groups
from tinyworld import tasks

TURNS = 4  # of an agent in a conversation: proposal, review, revision, verdict
REVIEW = 1
NAMES_ANSWER = "it is "  # how a critique begins that names another answer
CRITIQUE_COLUMNS = [
    "index",
    "critic",
    "target",
    "text",
    "names_correct",
    "before",
    "after",
    "rise",
]
STATE = {  # measure: which solutions of round 0 it is over
    "Correction": "wrong",
    "Harm": "correct",
}


def groups(year: str) -> Groups:
    """Return the stand-ins of each benchmark; one represents the problems of either year."""
    families = list(standins.layout("conl").families)
    return {"DeepMath": ["DeepMath"], year: ["AIME"], "all items": families}


def cell_texts(cells: pd.DataFrame) -> list[str]:
    """Return each measure as a table shows it, with its limits."""
    numbers = cells[["value", "low", "high", "measure"]]
    return [conversations.cell(*row) for row in numbers.itertuples(index=False)]


def printed_values(cells: pd.DataFrame, printed: pd.DataFrame) -> list[Any]:
    """Return what the paper prints for each measure, None where it prints nothing."""
    values = printed.set_index(KEY)["value"]
    return [values.get(tuple(key)) for key in cells[KEY].to_numpy()]


def knowledge_table(frame: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Return Pass@1 and Pass@4 by benchmark and method, beside the printed numbers."""
    names = {"pass@1_pct": "Pass@1", "pass@4_pct": "Pass@K"}
    printed = printed.assign(measure=printed["metric"].replace(names))
    cells = conversations.measured(frame, groups("AIME24"), ["Pass@1", "Pass@K"])
    texts = []
    for text, value in zip(
        cell_texts(cells), printed_values(cells, printed), strict=True
    ):
        texts.append(text if value is None else f"{text} / {value:g}")
    cells["cell"] = texts
    table = cells.pivot(
        index=["benchmark", "method"],
        columns="measure",
        values="cell",
    )
    table = table.reset_index().rename_axis(columns=None)
    return table.rename(columns={"Pass@K": "Pass@4"})


def distinct_answers(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the mean number of different answers before and after talking, by method."""
    counts = frame[["method"]].copy()
    for name in ("before", "after"):
        answers = frame[f"answers_{name}"]
        counts[name] = [len(set(of_agents)) for of_agents in answers]
    return counts.groupby("method", sort=False)[["before", "after"]].mean()


def change_table(frame: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Return corrections and harm with the counts behind them, beside the printed rates."""
    measure = printed["method"].str.split(" ").str[0]
    printed = printed.assign(measure=measure, method="CoNL")
    rates = conversations.measured(frame, groups("AIME25"), list(STATE))
    table = pd.DataFrame(
        {
            "benchmark": rates["benchmark"],
            "model": rates["method"],
            "outcome": rates["measure"],
            "in round 0": rates["measure"].map(STATE),
            "solutions": rates["n"],
            "changed by round 2": rates["k"],
            "as before": rates["n"] - rates["k"],
            "rate": cell_texts(rates),
            "the paper": printed_values(rates, printed),
        }
    )
    return table.sort_values(
        ["benchmark", "model", "outcome"],
        kind="stable",
        ignore_index=True,
    )


@dataclass(frozen=True)
class Talks:
    """Recorded conversations of training."""

    facts: pd.DataFrame  # a row per conversation
    samples: pd.Series  # its replies: the turns of agent 0, then of agent 1, ...

    def reviews(self, index: int) -> list[dict[str, Any]]:
        """Return the review of each agent in one conversation."""
        return self.samples[index][REVIEW::TURNS]


def read_talks(folder: Path, seeds: Sequence[int]) -> Talks:
    """Read the recorded conversations of CoNL's training."""
    episodes = [record.read(folder / f"conl-s{seed}", "episodes") for seed in seeds]
    frame = pd.concat(episodes, ignore_index=True)
    facts = pd.DataFrame(frame["facts"].tolist())
    return Talks(facts, frame["samples"])


def critique_table(talks: Talks) -> pd.DataFrame:
    """Return every critique: what it names, and whether its target was correct before and after.

    Columns: index (of the conversation), critic, target, text, names_correct (whether the answer
    that it names is correct), before, after, rise (of the target's score).
    """
    rows: list[dict[str, Any]] = []
    for index, facts in enumerate(talks.facts.to_dict("records")):
        agents = len(facts["answers_before"])
        for critic, review in enumerate(talks.reviews(index)):
            for critique in critiques(review["text"], agents, critic):
                judged = _judged_critique(critique.target, critique.text, facts)
                rows.append({"index": index, "critic": critic, **judged})
    return pd.DataFrame(rows, columns=CRITIQUE_COLUMNS)


def _judged_critique(
    target: int, text: str, facts: Mapping[str, Any]
) -> dict[str, Any]:
    before = facts["answers_before"][target]
    after = facts["answers_after"][target]
    named = before  # a critique that only approves names the target's own answer
    if text.startswith(NAMES_ANSWER):
        named = text.removeprefix(NAMES_ANSWER)
    question = facts["question"]
    score_before = facts["scores_before"][target]
    score_after = facts["scores_after"][target]
    return {
        "target": target,
        "text": text,
        "names_correct": bool(tasks.is_correct(question, named)),
        "before": bool(tasks.is_correct(question, before)),
        "after": bool(tasks.is_correct(question, after)),
        "rise": score_after - score_before,
    }


def kind_scores(talks: Talks, table: pd.DataFrame) -> dict[str, pd.Series]:
    """Return how clear a case of each kind every conversation is; 0 or less if it is none.

    `table` is that of `critique_table`.
    """
    facts = talks.facts
    counts = _critique_counts(table).reindex(facts.index).fillna(0)
    was_helped = counts["helped"] > 0
    is_unharmed = facts["harmed"] == 0
    above_null = facts["r_diag"] - facts["r_diag_null"]

    agreed = facts["answers_after"].map(_number_of_answers) == 1
    any_corrected = facts["fixed"] > 0
    all_told = counts["corrected"] == facts["fixed"]
    converged = agreed & any_corrected & all_told
    distinct = facts["answers_before"].map(_number_of_given_answers)

    persuasion = above_null.where(was_helped & is_unharmed, 0)
    withstood = counts["withstood"].where(is_unharmed, 0)
    consensus = facts["pass_1"].where(converged, 0)
    return {
        "1: successful persuasion": persuasion,
        "2: false alarm withstood": withstood * facts["pass_1"],
        "3: consensus convergence": consensus * distinct,
    }


def _critique_counts(table: pd.DataFrame) -> pd.DataFrame:
    """Count, per conversation, agents that were helped and corrected, and alarms withstood.

    An alarm counts less the more its target's score falls.
    """
    is_right = table["names_correct"]
    was_correct = table["before"]
    ends_correct = table["after"]
    heeded = table[~was_correct & is_right & ends_correct]
    raised = heeded[heeded["rise"] > 0]
    alarms = table[was_correct & ~is_right & ends_correct]
    silent = alarms[alarms["rise"] <= 0]
    weight = 1 + silent["rise"]
    return pd.DataFrame(
        {
            "helped": raised.groupby("index")["target"].nunique(),
            "corrected": heeded.groupby("index")["target"].nunique(),
            "withstood": weight.groupby(silent["index"]).sum(),
        }
    )


def _number_of_answers(answers: Sequence[str | None]) -> int:
    return len(set(answers))


def _number_of_given_answers(answers: Sequence[str | None]) -> int:
    given = set(answers) - {None}
    return len(given)


def found_kinds(scores: Mapping[str, pd.Series]) -> dict[str, int]:
    """Return how many conversations are of each kind."""
    counts = {}
    for kind, score in scores.items():
        is_case = score > 0
        counts[kind] = int(is_case.sum())
    return counts


def clearest_cases(scores: Mapping[str, pd.Series]) -> dict[str, int]:
    """Return the index of the clearest conversation of each kind that occurs."""
    cases = {}
    for kind, score in scores.items():
        if (score > 0).any():
            cases[kind] = int(score.fillna(0).argmax())
    return cases


def trace_table(
    talks: Talks, table: pd.DataFrame, cases: Mapping[str, int]
) -> pd.DataFrame:
    """Return a row per agent of each chosen conversation: what it hears, revises and earns."""
    rows = []
    for kind, index in cases.items():
        is_talk = table["index"] == index
        for agent, review in enumerate(talks.reviews(index)):
            heard = table[is_talk & (table["target"] == agent)]
            row = _trace_row(talks.facts.loc[index], agent, heard)
            row["critique earned"] = review["reward"]["critique"]
            rows.append({"kind": kind, **row})
    columns = [
        "kind",
        "query",
        "agent",
        "initial",
        "V_init",
        "hears",
        "revised",
        "V_final",
        "critique earned",
        "truth",
        "correct",
    ]
    return pd.DataFrame(rows, columns=columns)


def _trace_row(facts: pd.Series, agent: int, heard: pd.DataFrame) -> dict[str, Any]:
    question = facts["question"]
    before = facts["answers_before"][agent]
    after = facts["answers_after"][agent]
    hears = []
    for critique in heard.itertuples():
        truth = "true" if critique.names_correct else "false"
        hears.append(f"{critique.critic}: {critique.text} ({truth})")
    return {
        "query": question,
        "agent": agent,
        "initial": before,
        "V_init": facts["scores_before"][agent],
        "hears": "; ".join(hears),
        "revised": after,
        "V_final": facts["scores_after"][agent],
        "truth": tasks.read(question).answer,
        "correct": f"{tasks.is_correct(question, before)} > {tasks.is_correct(question, after)}",
    }


def transcript(talks: Talks, cases: Mapping[str, int]) -> Iterator[str]:
    """Yield the chosen conversations, a line per reply."""
    for kind, index in cases.items():
        yield f"=== {kind}"
        for number, sample in enumerate(talks.samples[index]):
            agent = number // TURNS
            role = sample["role"]
            text = sample["text"]
            reward = sample["reward"]
            yield f"agent {agent}, {role}: {text!r} earns {reward}"
