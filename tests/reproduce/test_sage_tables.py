"""SAGE's printed tables beside ours: layout of the stand-ins, training settings, recomputed averages."""

import pandas as pd
import pytest

from coevolve import config, prompts
from coevolve.baselines import azr
from coevolve.papers.sage.method import SAGE
from reproduce.analysis import standins, tables
from tinyworld import tasks
from tinyworld.oracle import SEED_SHARES, VERIFIED_SHARES


def test_in_distribution_is_what_sage_is_seeded_with_and_out_of_it_what_no_method_is() -> None:
    layout = standins.layout("sage")
    seeded = {family for _, families in VERIFIED_SHARES.values() for family in families}
    others = {family for _, families in SEED_SHARES.values() for family in families} | {*sum(azr.MODES.values(), ())}
    inside = {family for name in layout.groups["ID Avg."] for family in layout.families[name]}
    outside = {family for name in layout.groups["OOD Avg."] for family in layout.families[name]}
    assert inside == seeded and not outside & (seeded | others)
    rest = layout.families["AZR's or MAE's seeds only"]
    assert set(rest) == others - seeded and inside | outside | set(rest) == set(tasks.NAMES)


def test_the_averages_are_over_the_papers_nine_columns() -> None:
    layout = standins.layout("sage")
    for names in (("C Avg.", "M Avg."), ("ID Avg.", "OOD Avg.")):
        assert sorted(name for group in names for name in layout.groups[group]) == sorted(layout.groups["O Avg."])
    columns = [column for name in layout.groups["O Avg."] for column in layout.columns[name]]
    assert (
        len(columns) == 9 and [name for name in layout.columns if not layout.columns[name]] == [*layout.families][-1:]
    )
    assert set(columns) | {"C Avg.", "M Avg.", "O Avg."} == set(tables.paper_numbers("sage_table1")["benchmark"])


def test_training_settings_are_those_of_table_4() -> None:
    printed = tables.paper_numbers("sage_table4").set_index("benchmark")["printed"]
    ours = SAGE.TRAINING
    assert ours["batch_size"] == int(printed["Batch Size"]) and ours["steps"] == int(printed["Training Steps"])
    assert ours["learning_rate"] == float(printed["Learning Rate"])
    assert ours["max_tokens"] == int(printed["Maximum Response Length"])
    for role in ("Challenger", "Planner", "Solver"):
        assert ours["temperature"] == float(printed[f"{role} Temperature"])
    assert SAGE().critic_temperature == float(printed["Critic Temperature"])
    rank, alpha, dropout = ours["lora"]
    assert (rank, alpha) == (int(printed["LoRA Rank"]), int(printed["LoRA Alpha"]))
    assert dropout == pytest.approx(1 - float(printed["LoRA Dropout"])), "0.95 is read as 0.05"
    run = config.build("sage", "gpu", out="x")
    assert (run.lora, run.temperature, run.protocol.estimator) == ((128, 256, 0.05), 0.6, "task_relative")
    assert run.protocol.prompt == "full" and not hasattr(run.protocol, "kl_coef"), "KL regularisation is disabled"


def test_base_asks_with_the_solver_prompt_of_this_paper() -> None:
    base = config.build("base", "quick", out="x", overrides={"paper": "sage"}).protocol
    assert base.solver.prompt == prompts.text("sage", "solver_unplanned", "compact")
    assert base.solver.fields == {"question"}


def test_printed_cells_come_from_the_backbone_asked_for() -> None:
    backbones = {"Qwen2.5-3B-Instruct": 68.9, "Qwen2.5-7B-Instruct": 76.2, "Qwen3-4B-Base": 75.6}
    for backbone, value in backbones.items():
        paper = standins.printed("sage_table1", {"SAGE": "SAGE"}, "sage", backbone=backbone).set_index("benchmark")
        assert paper["paper"]["HumanEval+"] == value
    first = standins.printed("sage_table1", {"SAGE": "SAGE"}, "sage").set_index("benchmark")["paper"]
    assert (first["HumanEval+"], first["O Avg."]) == (68.9, 42.0)
    assert first["ID Avg."] == pytest.approx((68.9 + 62.4 + 85.5 + 66.2) / 4), "not printed in this table: a mean"


def test_table_2_recomputed_from_table_1_shows_the_swap() -> None:
    layout = standins.layout("sage")
    groups = {name: [c for row in layout.groups[name] for c in layout.columns[row]] for name in ("ID Avg.", "OOD Avg.")}
    cells = pd.concat([tables.paper_numbers("sage_table1"), tables.paper_numbers("sage_table2")])
    found = tables.recomputed_averages(cells[~cells["benchmark"].isin(["C Avg.", "M Avg.", "O Avg."])], groups)
    assert len(found) == 3 * 4 * 2
    wrong = found[found["differs"]].set_index(["backbone", "method", "average"])["recomputed"]
    assert wrong["Qwen2.5-7B-Instruct", "MAE", "ID Avg."] == pytest.approx((76.2 + 65.3 + 91.7 + 76.2) / 4)
    assert wrong["Qwen2.5-7B-Instruct", "SAGE", "ID Avg."] == pytest.approx((76.2 + 64.0 + 92.2 + 74.7) / 4, abs=1e-3)
    assert wrong["Qwen2.5-3B-Instruct", "Base Model", "ID Avg."] == pytest.approx(68.475), "truncated in print"
    assert not found[found["differs"] & (found["average"] == "OOD Avg.")].size
