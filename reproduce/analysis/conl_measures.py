"""CoNL by its own measures: readable replies, measures and differences beside the paper's.

A variant whose replies cannot be read gets no verdict: its difference does not measure the
mechanism that was left out. Loads no torch.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from coevolve.methods.conl.parsing import ranking
from coevolve.runs import record
from reproduce.analysis import conversations, standins, tables
from reproduce.analysis.conversations import KEY
from reproduce.analysis.tables import Groups

FULL = "conl"  # the run of the whole method
UNTRAINED = "conl_base"
BACKBONE = "Qwen3-8B"  # of the paper's numbers
# Role: its ranking's tag.
RANKINGS = {
    "review": "initial_ranking",
    "verdict": "final_ranking",
}
FACTS = ["critiques", "votes", "r_meta", "decided"]
REWARDS = [
    "r_diag",
    "r_diag_null",
    "r_meta",
    "rank_rho",
    "correct_initial",
    "correct_final",
    "critiques",
]
METRIC_NAMES = {"pass@1_pct": "Pass@1", "pass@K_pct": "Pass@K"}
ALL_TEST_ITEMS = {"all test items": ["all test items"]}
Printed = Mapping[tuple[str, str, str], float]  # (method, benchmark, measure): value


@dataclass(frozen=True)
class Variants:
    """The runs of a table: whole CoNL, its variants, and the untrained model."""

    folder: Path
    runs: standins.Runs
    labels: standins.Labels

    @property
    def full(self) -> str:
        """The label of the whole method."""
        return self.labels[FULL]

    @property
    def trained(self) -> list[str]:
        """The runs that were trained."""
        return [run for run in self.labels if run != UNTRAINED]

    def home(self, run: str, seed: int) -> Path:
        """The folder of one run."""
        return self.folder / f"{run}-s{seed}"


def readability(variants: Variants) -> pd.DataFrame:
    """Return how readable the recorded rankings of each trained variant are, by label.

    Columns: agents, replies, means of `FACTS`, readable rankings (the share that holds a vote),
    and votes of an order (the share of the votes that a full order of the other agents needs).
    """
    rows = []
    for run in variants.trained:
        for seed in variants.runs[run]:
            row = _readability_of(variants.home(run, seed))
            rows.append({"variant": variants.labels[run], **row})
    return pd.DataFrame(rows).groupby("variant", sort=False).mean()


def _readability_of(home: Path) -> dict[str, float]:
    config = json.loads((home / "config.json").read_text(encoding="utf-8"))
    agents = config["method_fields"]["agents"]
    votes = list(_vote_counts(home, config["method_fields"]))
    metrics = record.read(home, "metrics").query("step > 0")
    return {
        "agents": agents,
        "replies": len(votes),
        **metrics.reindex(columns=FACTS).mean(),
        "readable rankings": fmean(map(bool, votes)),
        "votes of an order": fmean(votes) / max(1, agents - 2),
    }


def _vote_counts(home: Path, method: Mapping[str, Any]) -> Iterator[int]:
    """Yield how many pairs of agents each recorded ranking compares, as the method reads it."""
    agents = method["agents"]
    sees_all = method["own_votes"] or agents == 2
    for samples in record.read(home, "episodes")["samples"]:
        for role, tag in RANKINGS.items():
            texts = [sample["text"] for sample in samples if sample["role"] == role]
            for author, text in enumerate(texts):
                hidden = None if sees_all else author
                votes = ranking(text, tag, agents, hidden)
                pairs = {frozenset((vote.winner, vote.loser)) for vote in votes}
                yield len(pairs)


def unreadable_variants(readable: pd.DataFrame, full: str) -> pd.Index:
    """Return the variants with less than half of the whole method's votes of an order."""
    votes = readable["votes of an order"]
    return readable.index[votes < votes[full] / 2]


def equal_variants(variants: Variants) -> list[str]:
    """Return the variants that answered and conversed exactly as the whole method did."""
    return [
        variants.labels[run]
        for run in variants.trained
        if run != FULL and _is_equal(variants, run)
    ]


def _is_equal(variants: Variants, run: str) -> bool:
    """Compare all greedy answers and conversations, for the first seed of both."""
    seed = min({*variants.runs[run]} & {*variants.runs[FULL]})
    own_home = variants.home(run, seed)
    full_home = variants.home(FULL, seed)
    own_talks = record.read(own_home, "conversations")
    full_talks = record.read(full_home, "conversations")
    return own_talks.equals(full_talks) and _greedy(own_home).equals(_greedy(full_home))


def _greedy(home: Path) -> pd.DataFrame:
    """Return the answers that every variant is asked for; some are asked in other ways too."""
    scores = record.read(home, "scores")
    greedy = scores[scores["strategy"] == "vanilla"]
    return greedy.reset_index(drop=True)


def remarks(
    labels: Sequence[str],
    readable: pd.DataFrame,
    unreadable: pd.Index,
    equal: Sequence[str],
) -> dict[str, str]:
    """Return, for each row, why it does not measure what its name says; empty if it does."""
    marks = {
        "unreadable replies": unreadable,
        "no consensus: r_meta undefined": readable.index[readable["decided"] == 0],
        "equals full CoNL": equal,
    }
    by_label = {}
    for label in labels:
        own = [mark for mark, marked in marks.items() if label in marked]
        by_label[label] = "; ".join(own)
    return by_label


def with_votes(
    frame: pd.DataFrame, variants: Variants, votes: standins.Labels
) -> pd.DataFrame:
    """Add rows for the majority votes of some runs, on the items of the conversations."""
    items = frame.drop_duplicates("item")[["family", "question", "item"]]
    scores = standins.scores(variants.folder, variants.runs, votes, "conl")
    majority = scores.query("strategy == 'consistency'").drop(columns="item")
    majority = majority.merge(items, on=["family", "question"])
    majority = majority.rename(columns={"correct": "pass_1"})
    return pd.concat([frame, majority], ignore_index=True)


def printed_measures(table: str) -> pd.Series:
    """Return what a table of measures prints, by method, benchmark and measure."""
    paper = tables.paper_numbers(table)
    paper = paper[paper["backbone"] == BACKBONE]
    measure = paper["metric"].replace(METRIC_NAMES)
    return paper.assign(measure=measure).set_index(KEY)["value"]


def printed_scores(table: str, rows: Mapping[str, str], measure: str) -> pd.Series:
    """Return what a table of scores prints as one measure; `rows` maps our rows to the paper's."""
    names = {printed_row: row for row, printed_row in rows.items()}
    paper = standins.printed(table, names, "conl", backbone=BACKBONE)
    paper = paper.replace({"benchmark": {"Average": "all items"}})
    return paper.assign(measure=measure).set_index(KEY)["paper"]


def measured(
    frame: pd.DataFrame, groups: Groups, measures: Sequence[str], paper: Printed
) -> pd.DataFrame:
    """Return every measure with limits, the paper's number, and both as the text of a cell."""
    cells = conversations.measured(frame, groups, measures)
    keys = [tuple(key) for key in cells[KEY].to_numpy()]
    cells["paper"] = [paper.get(key) for key in keys]
    texts = []
    for row in cells.itertuples():
        text = conversations.cell(row.value, row.low, row.high, row.measure)
        if not pd.isna(row.paper):
            text = f"{text} / {row.paper:.4g}"
        texts.append(text)
    cells["cell"] = texts
    return cells


def main_table(
    cells: pd.DataFrame,
    labels: Sequence[str],
    groups: Groups,
    measures: Sequence[str],
    remarks_by_label: Mapping[str, str],
) -> pd.DataFrame:
    """Return a row per variant, with a column per benchmark and measure, and its remark."""
    by_variant = cells.pivot(
        index="method", columns=["benchmark", "measure"], values="cell"
    )
    order = pd.MultiIndex.from_product([list(groups), measures])
    table = by_variant.loc[list(labels), order]
    table.columns = [" ".join(name) for name in table.columns]
    table = table.reset_index().rename(columns={"method": "variant"})
    return table.assign(remark=table["variant"].map(remarks_by_label))


def printed_differences(
    paper: pd.Series, base: str
) -> dict[tuple[str, str, str], float]:
    """Return the printed difference of each other row from a base, where both are printed."""
    differences = {}
    for key in paper.index:
        method, benchmark, measure = key
        base_value = paper.get((base, benchmark, measure), float("nan"))
        difference = paper[key] - base_value
        if method != base and not pd.isna(difference):
            differences[key] = difference
    return differences


def differences(
    frame: pd.DataFrame,
    base: str,
    claims: Printed,
    groups: Groups,
    measures: Sequence[str],
) -> pd.DataFrame:
    """Return each method's difference from a base, in points, and Rank-rho in correlation.

    `claims` are printed differences; the verdict is on their signs.
    """
    signs = {key: 1 if value > 0 else -1 for key, value in claims.items() if value}
    gains = conversations.gains(frame, base, groups, measures, signs)
    is_share = gains["measure"] != "Rank-rho"
    gains.loc[is_share, ["delta", "low", "high"]] *= 100.0
    keys = [tuple(key) for key in gains[KEY].to_numpy()]
    return gains.assign(**{"the paper's": [claims.get(key) for key in keys]})


def all_differences(
    frame: pd.DataFrame,
    comparisons: Mapping[str, Sequence[str]],
    paper: pd.Series,
    groups: Groups,
    measures: Sequence[str],
) -> pd.DataFrame:
    """Return the differences from every base of the rows compared with it, if empty of all."""
    frames = []
    for base, compared in comparisons.items():
        part = frame
        if compared:
            part = frame[frame["method"].isin([base, *compared])]
        claims = printed_differences(paper, base)
        own = differences(part, base, claims, groups, measures)
        own.insert(1, "over", base)
        frames.append(own)
    return pd.concat(frames, ignore_index=True)


def without_unreadable(
    gains: pd.DataFrame, unreadable: pd.Index, remarks_by_label: Mapping[str, str]
) -> pd.DataFrame:
    """Replace the verdicts on variants whose replies cannot be read, and add remarks."""
    is_unreadable = gains["method"].isin(unreadable)
    is_judged = gains["verdict"] != ""
    verdict = gains["verdict"].mask(is_unreadable & is_judged, "unreadable replies")
    remark = gains["method"].map(remarks_by_label)
    return gains.assign(verdict=verdict, remark=remark)


def alone(scores: pd.DataFrame, labels: standins.Labels) -> pd.DataFrame:
    """Return each row's test accuracy without conversation, and its gain over the untrained."""
    untrained = labels[UNTRAINED]
    frames = []
    for label in labels.values():
        if label != untrained:
            gain = tables.compare_rows(scores, untrained, label, ALL_TEST_ITEMS)
            frames.append(gain.iloc[-1:].assign(variant=label))
    columns = ["variant", "method", "delta", "low", "high"]
    return pd.concat(frames)[columns].rename(columns={"method": "accuracy"})


def consensus(
    variants: Variants,
    frame: pd.DataFrame,
    scores: pd.DataFrame,
    paper: pd.Series,
    groups: Groups,
    measures: Sequence[str],
) -> pd.DataFrame:
    """Compare a consensus reward for the thought too with none, on the seeds that both have.

    The verdict is on the paper's direction, full CoNL minus CoNL without consensus.
    """
    without = variants.labels["conl_no_consensus"]
    rewarded = variants.labels["conl_thought"]
    seeds = {*variants.runs["conl_no_consensus"]} & {*variants.runs["conl_thought"]}
    talks = _rows_of(frame, [without, rewarded], seeds)
    answers = _rows_of(scores, [without, rewarded], seeds)
    claims = {}
    for key, value in printed_differences(paper, variants.full).items():
        method, benchmark, measure = key
        if method == without:
            claims[rewarded, benchmark, measure] = -value
    greedy = tables.compare_rows(answers, without, rewarded, ALL_TEST_ITEMS).iloc[-1:]
    greedy = greedy.assign(method=rewarded, measure="accuracy alone", verdict="")
    greedy = greedy[[*KEY, "delta", "low", "high", "verdict"]]
    in_conversation = differences(talks, without, claims, groups, measures)
    table = pd.concat([in_conversation, greedy], ignore_index=True)
    return table.assign(seeds=len(seeds))


def _rows_of(
    frame: pd.DataFrame, methods: Sequence[str], seeds: set[int]
) -> pd.DataFrame:
    is_method = frame["method"].isin(methods)
    return frame[is_method & frame["seed"].isin(seeds)]


def rewards_along_training(variants: Variants) -> pd.DataFrame:
    """Return the mean of each reward in the first and the last fifth of training."""
    labels = {run: variants.labels[run] for run in variants.trained}
    curves = standins.curves(variants.folder, variants.runs, labels)
    # A short run may have no value of a reward.
    curves = curves.reindex(columns=["method", "step", *REWARDS])
    steps = curves["step"]
    fifth = steps.max() / 5
    parts = {
        "first fifth": curves[steps.between(1, fifth)],
        "last fifth": curves[steps > 4 * fifth],
    }
    means = {}
    for name, part in parts.items():
        means[name] = part.groupby("method", sort=False)[REWARDS].mean()
    return pd.concat(means, axis=1)


def printed_gain_over_self_rewarding(printed: pd.DataFrame) -> pd.DataFrame:
    """Return CoNL minus multi-agent self-rewarding training, from the cells of Table 2."""
    by_method = printed.pivot_table(
        index=["backbone", "benchmark"],
        columns="method",
        values="value",
    )
    gain = by_method["CoNL (Ours)"] - by_method["Self-Rewarding (Multi-Agent)"]
    return gain.unstack("backbone")


def settings_in_words(variants: Variants) -> str:
    """Say how many agents whole CoNL has, and at which temperatures they speak and judge."""
    first_seed, *_ = variants.runs[FULL]
    path = variants.home(FULL, first_seed) / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    method = config["method_fields"]
    temperature = config["temperature"]
    judge_temperature = method["judge_temperature"]
    if judge_temperature is None:
        judge_temperature = temperature
    return (
        f"Seats of {variants.full}: {method['agents']}; turns at temperature "
        f"{temperature:g}, rankings at {judge_temperature:g}."
    )


def gains_in_words(gains: pd.DataFrame, method: str) -> str:
    """Say what a method gains over each base on all items."""
    is_own = (gains["method"] == method) & (gains["benchmark"] == "all items")
    texts = []
    for row in gains[is_own].itertuples():
        points = tables.percent(row.delta, row.low, row.high, signed=True)
        texts.append(f"{row.over} {points}")
    return f"{method} in points on all items over {'; over '.join(texts)}."


def note(sentences: Sequence[str], measures: Sequence[str]) -> str:
    """Return the note below the main table, with some sentences about its rows."""
    text = (
        "Ours: held-out test items discussed by the trained policy, 95 % interval "
        "(over items, and over backbones, or the seeds of one, where there "
        "are several); after the slash the paper's printed number (Qwen3-8B). "
        f"{' '.join(sentences)} "
        "Rows with a single seed have intervals over items only, which say nothing about "
        "another seed, and get no verdict. "
    )
    if "Rank-rho" in measures:
        text += (
            "Each Rank-rho is over the row's own conversations that define it; "
            "gains.csv compares those that define both, and counts them."
        )
    return text.strip()
