"""The papers' effects in claims.toml, recomputed from the printed cells that each claim names."""

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import claims, tables

MINUS = " minus "
SOURCE = re.compile(r"(?P<file>\w+)\.csv(?: \((?P<part>[^:]+)\))?: (?P<rest>.+)")
ARMS = re.compile(r"(?P<arms>.+?), (?P<columns>mean of .+|[^,]+)")
PARTS = ("backbone", "setup", "metric")  # what brackets behind a file choose
ROUNDED = 0.0051  # effects have two digits
COLUMNS = {  # of the papers' tables, where a claim names their number
    "the seven mathematical columns": (
        "AMC",
        "Minerva",
        "MATH-500",
        "GSM8K",
        "OlympiadBench",
        "AIME24",
        "AIME25",
    ),
    "the four general columns": ("SuperGPQA", "GPQA-Diamond", "MMLU-Pro", "BBEH"),
}
COUNTED = {"six columns": 6, "seven columns": 7}  # all columns of a table
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Named:
    """What a claim's paper_numbers name: arms of a printed table, and the columns to average."""

    cells: pd.DataFrame
    arms: list[str]
    columns: str

    def value_of(self, arm: str) -> float:
        """Return the mean of an arm's cells; each column must be printed once."""
        of_arm = self.cells[self.cells["method"] == arm].set_index("benchmark")
        values = of_arm["value"].astype(float)
        assert values.index.is_unique, arm
        return fmean(values[name] for name in self._names(list(values.index)))

    def _names(self, printed: list[str]) -> list[str]:
        names = self.columns.removeprefix("mean of ")
        if names == self.columns:
            return [names]
        if names in COUNTED:
            assert len(printed) == COUNTED[names]
            return printed
        if names in COLUMNS:
            return list(COLUMNS[names])
        return re.split(", | and ", names)


def named_by(claim: claims.Claim) -> Named | None:
    """Return the arms and columns that a claim names; None if it names no arms of a table."""
    source = SOURCE.fullmatch(claim.get("paper_numbers", ""))
    if source is None:
        return None
    match = ARMS.fullmatch(source["rest"])
    if match is None or MINUS not in match["arms"]:
        return None
    cells = tables.paper_numbers(source["file"])
    cells = cells[~cells["metric"].str.contains("delta")]  # changes, beside the cells
    if source["part"]:
        chosen = [cells[cells[name] == source["part"]] for name in PARTS]
        (cells,) = [part for part in chosen if len(part)]
    names = match["arms"].split(MINUS)
    if not set(names) <= set(cells["method"]):
        return None
    return Named(cells, names, match["columns"])


PRINTED = {name for name, claim in claims.CLAIMS.items() if "paper_effect" in claim}
IN_TABLES: dict[str, Named] = {}
for printed_name in sorted(PRINTED):
    found = named_by(claims.CLAIMS[printed_name])
    if found is not None:
        IN_TABLES[printed_name] = found


@pytest.mark.parametrize("name", IN_TABLES)
def test_an_effect_is_the_difference_of_the_cells_that_the_claim_names(
    name: str,
) -> None:
    claim = claims.CLAIMS[name]
    named = IN_TABLES[name]
    values = [named.value_of(arm) for arm in named.arms]
    steps = [better - worse for better, worse in pairwise(values)]
    printed = claims.printed_effects(claim, steps=len(steps))
    assert printed == approx(steps, abs=ROUNDED)
    if "arms" in claim:
        assert len(claim["arms"]) == len(named.arms)


def cell(file: str, **where: str) -> str:
    """Return the one printed cell of a file with these values of its columns."""
    cells = tables.paper_numbers(file)
    for column, value in where.items():
        cells = cells[cells[column] == value]
    (printed,) = cells["printed"]
    return str(printed)


def numbers(text: str) -> list[float]:
    """Return the numbers of a description such as "0.4 -> 0.78 (step 40) -> 0.5-0.6"."""
    without_steps = re.sub(r"\(.*?\)", "", text)
    return [float(number) for number in NUMBER.findall(without_steps)]


def curve(table: str, method: str) -> list[float]:
    """Return the numbers of a described curve in the third figure of CoNL."""
    return numbers(cell("conl_fig3", table=table, method=method))


def accuracy(setup: str) -> float:
    """Return a validation accuracy in the third figure of SAGE."""
    return float(cell("sage_fig3", setup=setup, metric="accuracy_pct_from_prose"))


def change(file: str, before: dict[str, str], after: dict[str, str]) -> float:
    """Return the later cell minus the earlier one."""
    start, *_ = numbers(cell(file, **before))
    end, *_ = numbers(cell(file, **after))
    return end - start


def grown(file: str, first: str, last: str, **where: str) -> float:
    """Return how much a cell grows from one set-up to another."""
    return change(file, {**where, "setup": first}, {**where, "setup": last})


def of_deepmath(file: str, **where: str) -> float:
    """Return CoNL's cell of a benchmark."""
    return float(cell(file, benchmark="DeepMath", **where))


def test_peaks_have_the_printed_rise_and_fall() -> None:
    start, peak, end = map(accuracy, ("step 0", "step 100-140", "step 240"))
    sage = claims.CLAIMS["sage_accuracy_peaks"]["paper_effect"]
    assert sage == approx([peak - start, peak - end])
    start, peak, *ends = curve("conl_fig3_right", "SRT-S")
    rise = 100 * (peak - start)
    fall = 100 * (peak - fmean(ends))
    conl = claims.CLAIMS["conl_srt_s_peaks"]["paper_effect"]
    assert conl == approx([rise, fall])


def of_sage_and_spice() -> dict[str, float]:
    """Return the effects of SAGE's and SPICE's figures."""
    accepted = grown("sage_fig3", "start", "step 250")
    snapshots = ("checkpoint step 200", "checkpoint step 640")
    harder = grown("spice_figures", *snapshots, table="spice_fig3a")
    better = grown("spice_figures", *snapshots, table="spice_fig3b")
    corpus = change(
        "spice_figures", {"method": "without corpus"}, {"method": "with corpus"}
    )
    return {
        "sage_dataset_grows": 100 * accepted / (250 * 128),
        "spice_challenger_gets_harder": -harder,
        "spice_reasoner_gets_better": better,
        "spice_corpus": corpus,
        "spice_corpus_and_types": corpus,
    }


def of_comas() -> dict[str, float]:
    """Return the effects of CoMAS's costs and rewards."""
    cost = {"file": "comas_table3", "benchmark": "Interaction Sample"}
    (four,) = numbers(cell(setup="4 agents", **cost))
    (one,) = numbers(cell(setup="1 agents", **cost))
    steps = ("step 0", "step 30")
    return {
        "comas_cost_grows_squared": four / one,
        "comas_reward_precision": grown("comas_table6", *steps, metric="Precision"),
        "comas_reward_recall": grown("comas_table6", *steps, metric="Recall"),
        "comas_no_scoring_reward_rises": grown(
            "comas_figures", "start", "end", method="w/o Scoring"
        ),
    }


def of_conl() -> dict[str, float]:
    """Return the effects of CoNL's figures, and of its shares of conversations."""
    start, end = curve("conl_fig3_right", "CoNL")
    start_of_truth, end_of_truth = curve("conl_fig3_right", "RL-ground-truth")
    calm, surprised, *_ = curve("conl_fig3_left", "SRT-S")
    pass_4 = of_deepmath("conl_text_passk", metric="pass@4_pct")
    pass_1 = of_deepmath("conl_text_passk", metric="pass@1_pct")
    corrected = of_deepmath("conl_table4", method="Correction (incorrect->correct)")
    harmed = of_deepmath("conl_table4", method="Harm (correct->incorrect)")
    return {
        "conl_matches_ground_truth": (end - start) / (end_of_truth - start_of_truth),
        "conl_accuracy_rises": 100 * (end - start),
        "conl_srt_entropy_rises": surprised - calm,
        "conl_corrections": corrected,
        "conl_harm": harmed,
        "conl_pass_4_over_pass_1": pass_4 - pass_1,
    }


def test_all_other_effects_are_recomputed_too() -> None:
    recomputed = of_sage_and_spice() | of_comas() | of_conl()
    of_peaks = {"sage_accuracy_peaks", "conl_srt_s_peaks"}
    assert set(recomputed) == PRINTED - set(IN_TABLES) - of_peaks
    for name, effect in recomputed.items():
        (printed,) = claims.printed_effects(claims.CLAIMS[name], steps=1)
        assert printed == approx(effect, rel=0.01), name
