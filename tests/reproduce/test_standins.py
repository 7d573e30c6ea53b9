"""Stand-ins beside the papers' columns: each family and column has its place."""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pytest import approx

from coevolve.methods.baselines import absolute_zero
from reproduce.analysis import standins, tables
from tinyworld import tasks
from tinyworld.oracle import SOURCES

ROOT = Path(__file__).resolve().parents[2]
MAE = standins.layout("mae")
SAGE_LAYOUT = standins.layout("sage")


@cache
def artefacts_of(paper: str) -> dict[str, Any]:
    text = (ROOT / f"reproduce/{paper}.toml").read_text("utf-8")
    return tomllib.loads(text)["artefacts"]


def score_tables() -> dict[str, Any]:
    """The artefacts that are whole tables of scores; figures leave rows out."""
    found = {}
    for paper in standins.LAYOUTS:
        for id, artefact in artefacts_of(paper).items():
            is_scores = artefact["notebook"].endswith("/scores.ipynb")
            if is_scores and "_table" in id:
                found[id] = artefact
    return found


SCORE_TABLES = score_tables()


def families_of(layout: standins.Layout, *averages: str) -> set[str]:
    """The families behind averages, or behind all stand-ins."""
    names = list(layout.families)
    if averages:
        names = [name for average in averages for name in layout.groups[average]]
    families: set[str] = set()
    for name in names:
        families |= set(layout.families[name])
    return families


def columns_of(layout: standins.Layout) -> list[str]:
    return [column for columns in layout.columns.values() for column in columns]


@pytest.mark.parametrize("paper", standins.LAYOUTS)
def test_a_layout_names_existing_families_once(paper: str) -> None:
    layout = standins.layout(paper)
    families = [family for names in layout.families.values() for family in names]
    assert families
    assert len(set(families)) == len(families)
    assert set(families) <= set(tasks.NAMES)


@pytest.mark.parametrize("paper", standins.LAYOUTS)
def test_a_layout_names_printed_columns_once(paper: str) -> None:
    layout = standins.layout(paper)
    number = 2 if paper == "conl" else 1
    printed = tables.paper_numbers(f"{paper}_table{number}")
    columns = columns_of(layout)
    assert {*columns, *layout.without} <= set(printed["benchmark"])
    assert len(set(columns)) == len(columns)


@pytest.mark.parametrize("paper", standins.LAYOUTS)
def test_averages_are_over_stand_ins_of_the_layout(paper: str) -> None:
    layout = standins.layout(paper)
    for members in layout.groups.values():
        assert members
        assert set(members) <= set(layout.families)


@pytest.mark.parametrize("paper", standins.LAYOUTS)
def test_every_table_and_figure_of_a_paper_is_an_artefact(paper: str) -> None:
    index = pd.read_csv(ROOT / "reproduce/paper_numbers/index.csv")
    is_paper = index["paper"] == paper
    assert set(index[is_paper]["id"]) <= set(artefacts_of(paper))


def test_mae_uses_every_family_in_its_own_distribution_and_every_column() -> None:
    inside = {*tasks.FAMILIES} - {*tasks.OUTSIDE}
    assert families_of(MAE) == set(tasks.NAMES)
    assert MAE.groups["Overall Avg."] == list(MAE.families)
    assert families_of(MAE, "ID Avg.") <= inside
    assert not families_of(MAE, "OOD Avg.") & inside
    printed = set(tables.paper_numbers("mae_table1")["benchmark"])
    columns = columns_of(MAE) + MAE.without
    assert sorted(columns) == sorted(printed - set(MAE.groups))


def seed_families(method: str) -> set[str]:
    families: set[str] = set()
    for source in SOURCES[method].values():
        families |= set(source.families)
    return families


def test_sage_s_in_distribution_is_what_it_is_seeded_with() -> None:
    assert families_of(SAGE_LAYOUT, "ID Avg.") == seed_families("sage")


def test_sage_s_out_of_distribution_is_what_no_method_is_seeded_with() -> None:
    seeded = seed_families("sage") | seed_families("mae")
    for mode in absolute_zero.MODES.values():
        seeded |= set(mode["families"])
    assert not families_of(SAGE_LAYOUT, "OOD Avg.") & seeded


@pytest.mark.parametrize("halves", [("C Avg.", "M Avg."), ("ID Avg.", "OOD Avg.")])
def test_sage_s_averages_split_its_overall_average(halves: tuple[str, str]) -> None:
    groups = SAGE_LAYOUT.groups
    first, second = halves
    assert sorted(groups[first] + groups[second]) == sorted(groups["O Avg."])


def test_sage_has_a_stand_in_for_all_nine_columns_and_every_family() -> None:
    assert len(SAGE_LAYOUT.columns_of("O Avg.")) == 9
    assert families_of(SAGE_LAYOUT) == set(tasks.NAMES)


@dataclass(frozen=True)
class PrintedRow:
    """A row of a paper's table, and some of its cells as stand-ins and averages."""

    table: str
    row: str
    cells: dict[str, float]
    choice: dict[str, str] = field(default_factory=dict)


PRINTED = [
    PrintedRow(
        table="mae_table1",
        row="Base",
        cells={
            "GSM8K": 85.20,
            "science": (80.60 + 63.40 + 34.67) / 3,
            "Overall Avg.": 55.33,
        },
    ),
    PrintedRow(
        table="sage_table1",
        row="SAGE",
        cells={
            "HumanEval+": 68.9,
            "O Avg.": 42.0,
            "ID Avg.": (68.9 + 62.4 + 85.5 + 66.2) / 4,  # not printed there
        },
    ),
    PrintedRow(
        table="sage_table1",
        row="SAGE",
        cells={"HumanEval+": 76.2},
        choice={"backbone": "Qwen2.5-7B-Instruct"},
    ),
    PrintedRow(
        table="sage_table1",
        row="SAGE",
        cells={"HumanEval+": 75.6},
        choice={"backbone": "Qwen3-4B-Base"},
    ),
]


@pytest.mark.parametrize("case", PRINTED)
def test_printed_cells_are_means_of_their_columns(case: PrintedRow) -> None:
    paper = case.table.partition("_")[0]
    names = {case.row: case.row}
    frame = standins.printed(case.table, names, paper, **case.choice)
    values = frame.set_index("benchmark")["paper"]
    assert {name: values[name] for name in case.cells} == approx(case.cells)


# Gains of Figure 5 (left) as its text has them: with one agent, and with four.
FIGURE_5 = [
    ("Consistency", -0.19, 2.02),
    ("Debate", -0.16, 1.75),
]


@pytest.mark.parametrize(("setup", "one_agent", "four_agents"), FIGURE_5)
def test_averages_of_comas_s_figure_5_follow_from_the_cells(
    setup: str, one_agent: float, four_agents: float
) -> None:
    names = ["Untrained", "CoMAS (1-Agent)", "CoMAS (4-Agent)"]
    labels = {name: name for name in names}
    frame = standins.printed("comas_table8", labels, "comas", setup)
    averages = frame[frame["benchmark"] == "Average"]
    paper = averages.set_index("method")["paper"]
    gains = paper - paper["Untrained"]
    assert gains["CoMAS (1-Agent)"] == approx(one_agent, abs=0.006)
    assert gains["CoMAS (4-Agent)"] == approx(four_agents, abs=0.006)


def row_names(parameters: dict[str, Any], backbone: str) -> set[str]:
    """The paper's names of a table's rows."""
    labels = list(parameters["labels"][backbone].values())
    labels += parameters.get("inference", {}).values()
    renamed = parameters.get("rows", {})
    return {renamed.get(label, label) for label in labels}


@pytest.mark.parametrize("id", SCORE_TABLES)
def test_every_printed_row_of_a_score_table_has_a_label(id: str) -> None:
    parameters = SCORE_TABLES[id]["parameters"]
    printed = tables.paper_numbers(parameters["table"])
    for backbone, model in parameters["backbones"].items():
        is_model = printed["backbone"] == model
        rows = set(printed[is_model]["method"])
        assert rows <= row_names(parameters, backbone)


@pytest.mark.parametrize("id", SCORE_TABLES)
def test_a_score_table_labels_exactly_its_runs(id: str) -> None:
    labels = SCORE_TABLES[id]["parameters"]["labels"]
    labelled: set[str] = set()
    for of_backbone in labels.values():
        labelled |= set(of_backbone)
    assert labelled == set(SCORE_TABLES[id]["runs"])


COMAS_TABLES = [
    id for id in SCORE_TABLES if "strategies" in SCORE_TABLES[id]["parameters"]
]


@pytest.mark.parametrize("id", COMAS_TABLES)
def test_comas_s_tables_have_every_set_up_and_say_which_rows_are_not_printed(
    id: str,
) -> None:
    parameters = SCORE_TABLES[id]["parameters"]
    printed = tables.paper_numbers(parameters["table"])
    assert set(parameters["strategies"].values()) == set(printed["setup"])
    *_, backbone = parameters["backbones"]
    unprinted = row_names(parameters, backbone) - set(printed["method"])
    assert unprinted == set(parameters.get("unprinted", ()))


def write_run(home: Path, config: dict[str, Any], steps: int) -> None:
    home.mkdir()
    (home / "config.json").write_text(json.dumps(config))
    lines = [json.dumps({"step": step}) + "\n" for step in range(steps + 1)]
    (home / "metrics.jsonl").write_text("".join(lines))


def test_teams_are_read_from_their_runs(tmp_path: Path) -> None:
    base = {"method": "base", "model": "tiny", "method_fields": {}}
    mixed = {
        "method": "mixed",
        "model": ["tiny", "tiny-small"],
        "method_fields": {"agents": 3},
    }
    write_run(tmp_path / "base-s0", base, steps=0)
    write_run(tmp_path / "mixed-s0", mixed, steps=7)
    labels = {"base": "Untrained", "mixed": "Mixed"}
    teams = standins.teams(tmp_path, {"base": [0], "mixed": [0, 1]}, labels)
    numbers = teams[["method", "agents", "steps", "seeds"]].to_numpy()
    assert numbers.tolist() == [["Untrained", 1, 0, 1], ["Mixed", 3, 7, 2]]
    assert teams["models"].to_list() == [["tiny"], ["tiny", "tiny-small", "tiny"]]


def answers(method: str, *correct_by_seed: Sequence[int]) -> pd.DataFrame:
    """The same answers to every stand-in of MAE, by seed."""
    rows = []
    for seed, correct_I in enumerate(correct_by_seed):
        for benchmark in MAE.families:
            for item, correct in enumerate(correct_I):
                row = {
                    "method": method,
                    "run": method,
                    "seed": seed,
                    "benchmark": benchmark,
                    "item": item,
                    "correct": correct,
                    "trained": method != "Base",
                }
                rows.append(row)
    return pd.DataFrame(rows)


HALF = [1, 0] * 20
PAPER = standins.printed("mae_table1", {"Base": "Base", "MAE (zero)": "MAE (zero)"})


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    """A base, a method that the paper prints, and one that it does not print."""
    frames = [
        answers("Base", HALF),
        answers("MAE (zero)", [1] * 40, [0] + [1] * 39),
        answers("ours alone", HALF),
    ]
    return pd.concat(frames)


@pytest.fixture(scope="module")
def gains(scores: pd.DataFrame) -> pd.DataFrame:
    return standins.gains(scores, "Base", PAPER)


def test_a_gain_stands_beside_the_printed_one_with_a_verdict(
    gains: pd.DataFrame,
) -> None:
    overall = gains[gains["benchmark"] == "Overall Avg."].set_index("method")
    zero = overall.loc["MAE (zero)"]
    assert zero["delta"] == approx(48.75)
    assert zero["paper delta"] == approx(58.51 - 55.33)
    assert list(overall["verdict"]) == ["as printed", ""]


@pytest.fixture(scope="module")
def table(scores: pd.DataFrame, gains: pd.DataFrame) -> pd.DataFrame:
    accuracy = tables.accuracy_table(scores, MAE.groups)
    return standins.beside(accuracy, PAPER, gains).set_index("questions")


def test_a_method_that_is_not_printed_has_one_column(table: pd.DataFrame) -> None:
    assert list(table.columns) == [
        "Base",
        "Base, the paper",
        "MAE (zero)",
        "MAE (zero), the paper",
        "ours alone",
    ]


def test_a_line_names_the_families_and_their_benchmark(table: pd.DataFrame) -> None:
    stories = table.loc["stories (for GSM8K)"]
    assert stories["Base"].startswith("50.0 [")
    assert stories["Base, the paper"] == "85.2"


def test_the_last_lines_are_gains(table: pd.DataFrame) -> None:
    last_lines = list(table.index[-3:])
    assert last_lines == [f"{name}, over Base" for name in MAE.groups]
    gain = table.loc["Overall Avg., over Base"]
    tie = ("+48.7 [", "+48.8 [")  # 48.75, whose last bit decides
    assert gain["MAE (zero)"].startswith(tie)
    assert gain["MAE (zero)"].endswith("] (as printed)")
    assert gain["MAE (zero), the paper"] == "+3.2"
    assert gain["ours alone"] == "+0.0"


def test_seeds_are_counted_by_label(tmp_path: Path) -> None:
    runs = {"a": [0], "b": [0, 1], "c": [3]}
    labels = {"a": "A", "b": "B", "c": "C"}
    assert standins.seeds(tmp_path, runs, labels) == "2 seeds: B; 1 seed: A, C"


def test_seeds_of_several_backbones_are_counted_apart(tmp_path: Path) -> None:
    models = {"a-s0": "tiny", "a-s1": "tiny-1", "b-s0": "tiny", "b-s1": "tiny"}
    for name, model in models.items():
        home = tmp_path / name
        home.mkdir()
        (home / "config.json").write_text(json.dumps({"model": model}))
    runs = {"a": [0, 1], "b": [0, 1]}
    said = standins.seeds(tmp_path, runs, {"a": "A", "b": "B"})
    assert said == "2 seeds on 2 backbones: A; 2 seeds: B"
