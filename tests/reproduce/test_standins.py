"""Stand-ins beside the papers' columns: every family and column has its place, and averages are derived."""

import json
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import pytest

from coevolve.methods.baselines import absolute_zero
from coevolve.methods.sage import SAGE
from coevolve.training import config
from reproduce import plan
from reproduce.analysis import standins, tables
from tinyworld import tasks
from tinyworld.oracle import SOURCES

ROOT = Path(__file__).resolve().parents[2]
MAE, SAGES = standins.layout("mae"), standins.layout("sage")
ARTEFACTS = {p: tomllib.loads((ROOT / f"reproduce/{p}.toml").read_text("utf-8"))["artefacts"] for p in standins.LAYOUTS}
ALL = {id: table for group in ARTEFACTS.values() for id, table in group.items()}
SCORED = [
    id for id in ALL if ALL[id]["notebook"].endswith("/scores.ipynb") and "_table" in id
]  # figures leave rows out


def families_of(layout: standins.Layout, *averages: str) -> set[str]:
    """The families behind averages, or behind all stand-ins."""
    names = [name for average in averages for name in layout.groups[average]] if averages else layout.families
    return {family for name in names for family in layout.families[name]}


@pytest.mark.parametrize("paper", standins.LAYOUTS)
def test_every_layout_names_families_once_and_columns_that_were_printed(paper: str) -> None:
    layout = standins.layout(paper)
    families = [family for members in layout.families.values() for family in members]
    assert families and len(set(families)) == len(families) and set(families) <= set(tasks.NAMES)
    columns = [column for named in layout.columns.values() for column in named]
    printed = set(tables.paper_numbers(f"{paper}_table{2 if paper == 'conl' else 1}")["benchmark"])
    assert {*columns, *layout.without} <= printed and len(set(columns)) == len(columns)
    for members in layout.groups.values():
        assert members and set(members) <= set(layout.families)
    index = pd.read_csv(ROOT / "reproduce/paper_numbers/index.csv")
    assert set(index[index["paper"] == paper]["id"]) <= set(ARTEFACTS[paper]), "every id of the paper is claimed"


def test_mae_uses_every_family_in_its_own_distribution_and_every_column() -> None:
    assert families_of(MAE) == set(tasks.NAMES) and MAE.groups["Overall Avg."] == list(MAE.families)
    assert families_of(MAE, "ID Avg.") <= {*tasks.FAMILIES} - {*tasks.OUTSIDE}
    assert not families_of(MAE, "OOD Avg.") & ({*tasks.FAMILIES} - {*tasks.OUTSIDE})
    columns = [column for named in MAE.columns.values() for column in named]
    printed = set(tables.paper_numbers("mae_table1")["benchmark"]) - set(MAE.groups)
    assert sorted([*columns, *MAE.without]) == sorted(printed)


def test_in_distribution_is_what_sage_is_seeded_with_and_out_of_it_what_no_method_is() -> None:
    seeded = {family for _, families in SOURCES["sage"].values() for family in families}
    others = {family for mode in absolute_zero.MODES.values() for family in mode["families"]}
    others |= {family for _, families in SOURCES["mae"].values() for family in families}
    assert families_of(SAGES, "ID Avg.") == seeded and not families_of(SAGES, "OOD Avg.") & (seeded | others)
    assert families_of(SAGES) == set(tasks.NAMES)
    for names in (("C Avg.", "M Avg."), ("ID Avg.", "OOD Avg.")):
        assert sorted(name for group in names for name in SAGES.groups[group]) == sorted(SAGES.groups["O Avg."])
    assert sum(len(SAGES.columns[name]) for name in SAGES.groups["O Avg."]) == 9, "the paper's columns"


PRINTED = [  # table, row, further arguments, and the cells of it: printed ones, and means where nothing is printed
    ("mae_table1", "Base", {}, {"GSM8K": 85.20, "science": (80.60 + 63.40 + 34.67) / 3, "Overall Avg.": 55.33}),
    ("sage_table1", "SAGE", {}, {"HumanEval+": 68.9, "O Avg.": 42.0, "ID Avg.": (68.9 + 62.4 + 85.5 + 66.2) / 4}),
    ("sage_table1", "SAGE", {"backbone": "Qwen2.5-7B-Instruct"}, {"HumanEval+": 76.2}),
    ("sage_table1", "SAGE", {"backbone": "Qwen3-4B-Base"}, {"HumanEval+": 75.6}),
]


@pytest.mark.parametrize(("table", "row", "more", "cells"), PRINTED)
def test_printed_cells_are_means_of_their_columns(table: str, row: str, more: dict, cells: dict) -> None:
    paper = standins.printed(table, {row: row}, table.partition("_")[0], **more).set_index("benchmark")["paper"]
    assert {name: paper[name] for name in cells} == pytest.approx(cells)


def test_averages_of_the_paper_s_figures_follow_from_its_cells() -> None:
    # Figure 5 (left) as its text says: Consistency -0.19 with one agent, +2.02 with four; Debate -0.16 and +1.75.
    names = {name: name for name in ("Untrained", "CoMAS (1-Agent)", "CoMAS (4-Agent)")}
    for setup, one, four in (("Consistency", -0.19, 2.02), ("Debate", -0.16, 1.75)):
        frame = standins.printed("comas_table8", names, "comas", setup)
        mean = frame[frame["benchmark"] == "Average"].set_index("method")["paper"]
        assert mean["CoMAS (1-Agent)"] - mean["Untrained"] == pytest.approx(one, abs=0.006)
        assert mean["CoMAS (4-Agent)"] - mean["Untrained"] == pytest.approx(four, abs=0.006)


@pytest.mark.parametrize("id", SCORED)
def test_every_printed_row_of_a_score_table_has_a_label(id: str) -> None:
    given = {"rows": {}, "inference": {}} | ALL[id]["parameters"]
    printed = tables.paper_numbers(given["table"])
    for ours, theirs in given["backbones"].items():
        labels = [*given["labels"][ours].values(), *given["inference"].values()]
        names = {given["rows"].get(name, name) for name in labels}
        assert {*printed[printed["backbone"] == theirs]["method"]} <= names
    if "setups" in given:  # CoMAS
        assert {*given["setups"].values()} == {*printed["setup"]} and names - {*printed["method"]} == {
            *given.get("unprinted", ())
        }
    assert {run for labels in given["labels"].values() for run in labels} == {*ALL[id]["runs"]}


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "gpu"])
def test_gains_are_over_teams_that_differ_in_what_they_are_about(preset: str) -> None:
    items = plan.load(ROOT, preset).items
    config = {name: items[f"runs/comas_{name}-s0"].config for name in ("mixed", "mixed_base", "2_long")}
    assert config["mixed"] | {"steps": 0} == config["mixed_base"]
    for name in ("evaluation", "scoring"):
        assert config["2_long"] | {"without": name} == items[f"runs/comas_no_{name}-s0"].config


def built(preset: str, items: Iterable[plan.Item]) -> dict[str, dict]:
    """The whole configuration of every run, by item."""
    runs = [item for item in items if item.kind == "run"]
    told = [config.build(run.protocol, preset, out=".", overrides=run.config).describe() for run in runs]
    return {run.id: one | one.pop("protocol") for run, one in zip(runs, told, strict=True)}


@pytest.mark.parametrize("preset", ["smoke", "quick", "standard", "full", "real"])
def test_rows_of_a_table_are_scored_on_the_same_questions_and_rivals_train_as_long(preset: str) -> None:
    items = plan.load(ROOT, preset).items.values()
    runs = built(preset, items)
    for item in items:
        if item.kind == "artefact" and item.paper != "all":  # those take the questions that all their runs have
            asked = {(runs[id]["world"], runs[id]["eval_items"]) for id in item.needs}
            assert len(asked) == len({world for world, _ in asked}), (item.id, asked)
    for rivals in (("comas", "maporl", "ttrl"), ("conl", "srt_s", "srt_m", "ground_truth")):
        assert len({runs[f"runs/{name}-s0"]["steps"] for name in rivals}) == 1, rivals


SIZES = ("_small", "_large")


def test_preset_gpu_trains_real_models_on_real_data_for_as_long_as_the_papers_say() -> None:
    runs = {id[5:-3]: run for id, run in built("gpu", plan.load(ROOT, "gpu").items.values()).items()}
    for name, run in runs.items():
        assert "tiny" not in json.dumps(run, default=str), name
        assert run["world"] == "data" and run["prompt"] == "full", name
        assert run.get("corpus", "none") not in ("math", "general", "both"), name
    both = runs["spice"]["corpus"]
    assert {runs["spice_math"]["corpus"], runs["spice_general"]["corpus"]} == set(both) and len(both) == 2
    spices = {"base_spice", *(name for name in runs if name.startswith("spice") and name[5:] not in SIZES)}
    assert {runs[name]["model"] for name in spices} == {"Qwen/Qwen3-4B-Base"}
    for size in SIZES:
        assert runs[f"spice{size}"]["model"] == runs[f"base_spice{size}"]["model"] != runs["spice"]["model"]
    backbones = {"": "Qwen/Qwen2.5-3B-Instruct", "_small": "Qwen/Qwen3-4B-Base", "_large": "Qwen/Qwen2.5-7B-Instruct"}
    for size, model in backbones.items():
        assert runs[f"sage{size}"]["model"] == runs[f"sage_base{size}"]["model"] == model
    for rival in ("azr", "mae"):  # section 5.1
        small, large = runs[f"{rival}_small"], runs[f"{rival}_large"]
        assert [small["steps"], large["steps"]] == [200, 200]
        assert [small["model"], large["model"]] == [backbones["_small"], backbones["_large"]]


def test_teams_are_read_from_their_runs(tmp_path: Path) -> None:
    for run, model, agents, steps in (("base", "tiny", {}, 0), ("mixed", ["tiny", "tiny-small"], {"agents": 3}, 7)):
        home = tmp_path / f"{run}-s0"
        home.mkdir()
        (home / "config.json").write_text(json.dumps({"method": run, "model": model, "protocol": agents}))
        (home / "metrics.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in range(steps + 1)))
    teams = standins.teams(tmp_path, {"base": [0], "mixed": [0, 1]}, {"base": "Untrained", "mixed": "Mixed"})
    numbers = teams[["method", "agents", "steps", "seeds"]].to_numpy().tolist()
    assert numbers == [["Untrained", 1, 0, 1], ["Mixed", 3, 7, 2]]
    assert teams["models"].to_list() == [["tiny"], ["tiny", "tiny-small", "tiny"]]


def answers(method: str, *correct: list[int]) -> pd.DataFrame:
    """The same answers to every stand-in of MAE, by seed."""
    rows = [(s, name, i, v) for s, mine in enumerate(correct) for name in MAE.families for i, v in enumerate(mine)]
    made = pd.DataFrame(rows, columns=["seed", "benchmark", "item", "correct"])
    return made.assign(method=method, run=method, trained=method != "Base")


def test_ours_stands_beside_the_paper_with_its_delta_and_a_verdict() -> None:
    right = [1] * 40, [0] + [1] * 39
    parts = [answers("Base", [1, 0] * 20), answers("MAE (zero)", *right), answers("ours alone", [1, 0] * 20)]
    scores = pd.concat(parts)
    paper = standins.printed("mae_table1", {"Base": "Base", "MAE (zero)": "MAE (zero)"})
    gains = standins.gains(scores, "Base", paper)
    overall = gains[gains["benchmark"] == "Overall Avg."].set_index("method")
    assert overall.loc["MAE (zero)", "delta"] == 48.75 and list(overall["verdict"]) == ["same sign", ""]
    assert overall.loc["MAE (zero)", "paper delta"] == pytest.approx(58.51 - 55.33)
    wide = standins.beside(tables.accuracy_table(scores, MAE.groups), paper, gains).set_index("questions")
    columns = ["Base", "Base, the paper", "MAE (zero)", "MAE (zero), the paper", "ours alone"]
    assert list(wide.columns) == columns and list(wide.index[-3:]) == [f"{name}, over Base" for name in MAE.groups]
    story, gain = wide.loc["stories (for GSM8K)"], wide.loc["Overall Avg., over Base"]
    assert story["Base"].startswith("50.0 [") and story["Base, the paper"] == "85.2"
    assert gain["MAE (zero)"].startswith("+48.8 [") and gain["MAE (zero)"].endswith("] (same sign)")
    assert gain["MAE (zero), the paper"] == "+3.2" and gain["ours alone"] == "+0.0"
    seeds = standins.seeds({"a": [0], "b": [0, 1], "c": [3]}, {"a": "A", "b": "B", "c": "C"})
    assert seeds == "2 seeds: B; 1 seed: A, C"


def test_sage_trains_with_the_settings_of_table_4() -> None:
    printed = tables.paper_numbers("sage_table4").set_index("benchmark")["printed"]
    ours, (rank, alpha, dropout) = SAGE.TRAINING, SAGE.TRAINING["lora"]
    settings = {"Batch Size": ours["batch_size"], "Training Steps": ours["steps"]}
    settings |= {"Learning Rate": ours["learning_rate"], "Maximum Response Length": ours["max_tokens"]}
    settings |= {"LoRA Rank": rank, "LoRA Alpha": alpha, "Critic Temperature": SAGE().critic_temperature}
    settings |= {f"{role} Temperature": ours["temperature"] for role in ("Challenger", "Planner", "Solver")}
    assert {name: float(printed[name]) for name in settings} == settings
    assert dropout == pytest.approx(1 - float(printed["LoRA Dropout"])), "0.95 is read as 0.05"
    run = config.build("sage", "gpu", out="x")
    assert (run.lora, run.temperature, run.protocol.prompt) == ((128, 256, 0.05), 0.6, "full")
    assert run.protocol.estimator == "task_relative" and run.protocol.kl_coef == 0, "KL regularisation is disabled"
