"""Pages of scores on small made-up runs: parts, gains, sizes, bars and saved files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text

from coevolve.runs.record import Recorder, write_json
from reproduce import HOME, registry
from reproduce.analysis import claims, paper_checks, scores, standins, tables
from tools import readme_numbers

ITEMS = 4
CORRECT = {  # run: correct answers of 4 in every family, by strategy
    "base": {"vanilla": 1, "consistency": 2},
    "ours": {"vanilla": 3, "consistency": 4},
}


def variables(results: Path, **changed: Any) -> dict[str, Any]:
    """The variables of a notebook with two methods of CoMAS's paper."""
    values = {
        "preset": "quick",
        "results": str(results),
        "runs": {"base": [0], "ours": [0, 1]},
        "title": "CoMAS, Table 1: main results",
        "table": "comas_table1",
        "backbones": {"tiny": "Qwen2.5-3B-Instruct"},
        "labels": {"tiny": {"base": "Untrained", "ours": "CoMAS (Ours)"}},
        "rows": {},
        "unprinted": {},
        "strategies": {"vanilla": "Vanilla"},
        "inference": {},
        "averages": [],
        "sizes": False,
        "comparisons": {"gains": {"Untrained": []}},
        "facts": [],
        "unmatched": {},
        "behind": "",
        "from_cells": False,
        "cells_of": {},
        "asked": "asked once",
        "remark": "",
    }
    return {**values, **changed, "out": "not a field"}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    for run, seeds in {"base": 1, "ours": 2}.items():
        for seed in range(seeds):
            recorder = Recorder(folder / "quick" / "runs" / f"{run}-s{seed}")
            steps = 0 if run == "base" else 5
            summary = {"steps": steps, "scored": ["agent_1", "agent_2"]}
            write_json(recorder.out / "summary.json", summary)
            config = {
                "method": "comas",
                "model": ["tiny", "tiny-small"],
                "method_fields": {"agents": 2},
            }
            (recorder.out / "config.json").write_text(json.dumps(config))
            recorder.rows("metrics", metrics(steps))
            recorder.scores(answers(CORRECT[run]))
    return folder


def metrics(steps: int) -> Iterator[dict[str, float]]:
    for step in range(steps + 1):
        yield {"step": step, "gold_correct": step / 10, "samples/solution": 600}


def answers(correct_by_setup: dict[str, int]) -> Iterator[dict[str, Any]]:
    families = standins.layout("comas").benchmark_of
    for setup, correct in correct_by_setup.items():
        number = 0
        for family in families:
            for item in range(ITEMS):
                yield {
                    "stage": "after",
                    "strategy": setup,
                    "split": "test",
                    "family": family,
                    "level": 1,
                    "item": number,
                    "question": f"{family} {item}",
                    "correct": int(item < correct),
                }
                number += 1


def page_of(results: Path, **changed: Any) -> scores.Page:
    spec = scores.Spec.of(variables(results, **changed))
    return scores.build(spec)


def test_a_page_has_a_line_per_stand_in_average_and_gain(results: Path) -> None:
    page = page_of(results)
    layout = standins.layout("comas")
    lines = page.table["questions"].tolist()
    assert len(lines) == len(layout.families) + 1 + 1
    assert lines[-2:] == ["Average", "Average, over Untrained"]
    average = page.table.iloc[-2]
    assert average["Untrained"].startswith("25.0 [")
    assert average["CoMAS (Ours)"].startswith("75.0 [")


def test_gains_are_over_each_base(results: Path) -> None:
    (gain,) = page_of(results).gains["gains"].to_dict("records")
    assert gain["method"] == "CoMAS (Ours)"
    assert gain["over"] == "Untrained"
    assert gain["delta"] == 50
    assert gain["verdict"] == "as printed"


def test_a_page_without_comparisons_has_no_gains(results: Path) -> None:
    page = page_of(results, comparisons={})
    assert page.gains == {}
    assert page.table["questions"].iloc[-1] == "Average"


def test_several_set_ups_are_parts_of_one_table(results: Path) -> None:
    strategies = {"vanilla": "Vanilla", "consistency": "Consistency"}
    page = page_of(results, strategies=strategies)
    assert set(page.table["setup"]) == {"Vanilla", "Consistency"}
    is_average = page.table["questions"] == "Average"
    averages = page.table[is_average].set_index("setup")["CoMAS (Ours)"]
    assert averages["Vanilla"].startswith("75.0")
    assert averages["Consistency"].startswith("100.0")
    assert "setup" in page.cells


def test_a_set_up_of_the_first_run_can_be_a_row(results: Path) -> None:
    page = page_of(results, inference={"consistency": "Self-Consistency"})
    cells = page.cells[page.cells["benchmark"] == "Average"]
    accuracy = cells.set_index("method")["accuracy"]
    assert accuracy["Untrained"] == 25
    assert accuracy["Self-Consistency"] == 50


def test_sizes_are_the_first_lines_and_explained(results: Path) -> None:
    page = page_of(results, sizes=True)
    agents, steps = page.table.head(2).to_dict("records")
    assert agents["questions"] == "agents"
    assert agents["CoMAS (Ours)"] == "2"
    assert steps["CoMAS (Ours)"] == "5"
    text = "\n".join(scores.remarks(page))
    assert "Rows trained by CoMAS: CoMAS (Ours): agents 2, steps 5." in text
    # Of four items of a family, the first is correct; agent 1 answers every other item.
    assert "Untrained, agent 1 (tiny): 50.0 % of its 30 items" in text
    assert "Untrained, agent 2 (tiny-small): 0.0 % of its 30 items" in text


def test_without_sizes_there_are_no_remarks(results: Path) -> None:
    assert scores.remarks(page_of(results)) == []


def test_oracle_facts_are_means_of_the_first_and_last_fifth(results: Path) -> None:
    oracle = page_of(results, facts=["gold_correct", "absent"]).oracle
    assert list(oracle.columns) == [
        "gold_correct, first fifth",
        "gold_correct, last fifth",
    ]
    assert oracle.loc["CoMAS (Ours)", "gold_correct, first fifth"] == 0.1
    assert oracle.loc["CoMAS (Ours)", "gold_correct, last fifth"] == 0.5


def test_dots_have_a_panel_per_part(results: Path) -> None:
    strategies = {"vanilla": "Vanilla", "consistency": "Consistency"}
    fig = scores.draw_bars(page_of(results, strategies=strategies))
    texts = [text.get_text() for text in fig.findobj(Text)]
    assert any("Vanilla" in text for text in texts)
    assert any("Consistency" in text for text in texts)
    values = set()
    for line in fig.axes[0].lines:
        values |= {float(value) for value in line.get_xdata()}
    assert {25, 75} <= values
    plt.close(fig)


def test_bars_name_the_sizes(results: Path) -> None:
    fig = scores.draw_bars(page_of(results, sizes=True))
    names = [tick.get_text() for tick in fig.axes[0].get_yticklabels()]
    assert names[1] == "CoMAS (Ours)\nagents 2, steps 5"
    plt.close(fig)


def test_a_page_is_saved_with_caption_and_note(results: Path, tmp_path: Path) -> None:
    page = page_of(results, facts=["gold_correct"])
    scores.save(page, tmp_path)
    files = {path.name for path in tmp_path.iterdir()}
    assert {"table.csv", "table.md", "table.tex"} <= files
    assert {"cells.csv", "gains.csv", "oracle.csv"} <= files
    text = (tmp_path / "table.md").read_text()
    assert "2 seeds: CoMAS (Ours); 1 seed: Untrained" in text
    assert "asked once" in text
    assert "for each agent that answers test questions: CoMAS (Ours) 1,800." in text


def spec_of(results: Path, **changed: Any) -> scores.Spec:
    return scores.Spec.of(variables(results, **changed))


def test_printed_averages_are_recomputed_from_their_cells(results: Path) -> None:
    spec = spec_of(results, table="sage_table1", averages=["O Avg."])
    averages = paper_checks.recomputed_averages(spec)
    assert set(averages["average"]) == {"O Avg."}
    assert averages["backbone"].nunique() == 3
    error = (averages["printed"] - averages["recomputed"]).abs()
    assert error.median() < 0.05


def test_printed_changes_are_recomputed_from_their_cells(results: Path) -> None:
    changes = paper_checks.recomputed_changes(spec_of(results))
    wrong = paper_checks.differing(changes)
    assert 0 < len(wrong) < len(changes)
    error = (wrong["printed"] - wrong["recomputed"]).abs()
    assert error.max() < 0.02, "as if taken before rounding"


def test_a_paper_without_changes_has_none_recomputed(results: Path) -> None:
    spec = spec_of(results, table="mae_table1")
    assert paper_checks.recomputed_changes(spec).empty


def test_oddities_are_those_of_the_table_or_the_headline(results: Path) -> None:
    mismatches = tables.paper_numbers("mismatches")
    odd = paper_checks.oddities(spec_of(results, table="mae_table1"), mismatches)
    assert len(odd) > 0
    assert odd["where"].str.contains("table1|headline").all()


def test_stand_ins_are_listed_with_the_paper_s_columns() -> None:
    table = scores.standin_table(standins.layout("mae"))
    row = table.set_index("stand-in").loc["GSM8K"]
    assert isinstance(row, pd.Series)
    assert row["families"] == "word, word2"
    assert row["the paper's columns"] == "GSM8K"


MAIN_TABLES = {
    "mae": "mae_table1",
    "sage": "sage_table1",
    "spice": "spice_table1",
    "comas": "comas_table1",
    "conl": "conl_table2",
}


@pytest.mark.parametrize("paper", readme_numbers.PAPERS, ids=lambda paper: paper.key)
def test_the_paper_s_best_setting_stands_beside_what_it_is_compared_with(
    paper: readme_numbers.Paper,
) -> None:
    _, entries = registry.read(HOME, "quick")
    table = entries.artefacts[MAIN_TABLES[paper.key]]
    labels = table.parameters["labels"]["tiny"]
    own, untrained = claims.CLAIMS[paper.over_untrained]["arms"]
    assert list(labels)[:2] == [untrained, own]
