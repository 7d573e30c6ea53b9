"""Runs that tables compare: they differ only in what a table is about, and as the papers say."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pytest import approx

from coevolve.methods.sage import SAGE
from coevolve.training import config
from reproduce import plan
from reproduce.analysis import claims, tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "gpu"])
def test_gains_are_over_teams_that_differ_in_what_they_are_about(
    preset: str,
) -> None:
    items = plan.load(ROOT, preset).items

    def config_of(name: str) -> dict[str, Any]:
        return dict(items[f"runs/comas_{name}-s0"].config)

    assert config_of("mixed") | {"steps": 0} == config_of("mixed_base")
    for name in ("evaluation", "scoring"):
        assert config_of("2_long") | {"without": name} == config_of(f"no_{name}")


def configurations(
    preset: str, items: Iterable[plan.Item]
) -> dict[str, dict[str, Any]]:
    """The whole configuration of every run, by item."""
    by_id = {}
    for item in items:
        if item.kind == "run":
            run = config.build(item.method, preset, out=".", overrides=item.config)
            values = run.describe()
            by_id[item.id] = values | values.pop("method_fields")
    return by_id


@functools.cache
def all_runs(preset: str) -> dict[str, dict[str, Any]]:
    """The whole configuration of every run of a preset, by item."""
    return configurations(preset, plan.load(ROOT, preset).items.values())


RIVALS = [
    ("comas", "maporl", "ttrl"),
    ("conl", "srt_s", "srt_m", "ground_truth"),
]


def asked(run: dict[str, Any]) -> int:
    """Return how many test questions of a family a run asks."""
    return run["test_items"] or run["eval_items"]


@pytest.mark.parametrize("preset", ["smoke", "quick", "standard", "full", "real"])
def test_rows_of_a_table_are_scored_on_the_same_questions_and_rivals_train_as_long(
    preset: str,
) -> None:
    runs = all_runs(preset)
    for item in plan.load(ROOT, preset).items.values():
        # Artefacts of all papers take the questions that all their runs have.
        if item.kind == "artefact" and item.paper != "all":
            questions = {(runs[id]["world"], asked(runs[id])) for id in item.needs}
            worlds = {world for world, _ in questions}
            assert len(questions) == len(worlds), (item.id, questions)
    for rivals in RIVALS:
        steps = {runs[f"runs/{name}-s0"]["steps"] for name in rivals}
        assert len(steps) == 1, rivals


@pytest.mark.parametrize("preset", ["smoke", "quick", "standard", "full"])
def test_the_policies_of_one_room_are_asked_the_same_in_the_same_settings(
    preset: str,
) -> None:
    needs = plan.load(ROOT, preset).items["conl_one_room"].needs
    runs = {id: all_runs(preset)[id] for id in needs}
    for id, run in runs.items():
        assert {"vanilla", "consistency"} <= set(run["strategies"]), id
        assert run["examined"] <= asked(run), "others are not asked alone"
    conversations = set()
    for run in runs.values():
        conversations.add((run["examined"], run["agents"]))
    assert len(conversations) == 1


@pytest.mark.parametrize("preset", ["quick", "standard", "full", "real"])
def test_rivals_train_on_equally_many_replies_per_agent_that_is_scored(
    preset: str,
) -> None:
    runs = all_runs(preset)
    comas = runs["runs/comas-s0"]
    discussions = comas["batch_size"] * comas["reuse"]
    replies_of_a_round = 3  # a solution, its evaluation and a score
    rounds = discussions * comas["rounds_per_agent"]
    of_an_agent = rounds * replies_of_a_round
    for name in ("comas_1", "comas_2"):
        team = runs[f"runs/{name}-s0"]
        discussions_of_team = team["batch_size"] * team["reuse"]
        assert discussions_of_team == discussions
        assert team["rounds_per_agent"] == comas["rounds_per_agent"]
    maporl = runs["runs/maporl-s0"]
    of_a_debater = maporl["batch_size"] * maporl["turns"]
    assert of_a_debater == of_an_agent

    spice = runs["runs/spice-s0"]
    azr = runs["runs/spice_azr-s0"]
    of_the_reasoner = spice["batch_size"] * spice["group"]
    of_the_solver = azr["batch_size"] * azr["solves"]
    assert of_the_solver == of_the_reasoner
    assert azr["steps"] == spice["steps"]


@pytest.mark.parametrize("preset", ["quick", "standard", "full"])
@pytest.mark.parametrize("name", ["comas", "comas_2", "comas_1"])
def test_agents_of_comas_table_8_read_a_discussion(preset: str, name: str) -> None:
    runs = all_runs(preset)
    run = runs[f"runs/{name}-s0"]
    assert run["rounds_per_agent"] >= 2, "m = 2 l (section 4.1.1)"
    assert run["horizon"] > 0


DRAWN = (  # figures with curves of validation accuracy
    "mae_fig3_right",
    "sage_fig3",
    "spice_fig4a",
    "spice_fig4b",
    "comas_table6",
    "conl_fig3_right",
    "five_methods",
)


def test_claimed_and_drawn_curves_have_ten_looks_at_validation() -> None:
    items = plan.load(ROOT, "standard").items
    names = set()
    for claim in claims.CLAIMS.values():
        if claim.get("column") != "validation":
            continue
        for arm in claim["arms"]:
            names.add(f"runs/{arm}-s0")
    for figure in DRAWN:
        for id in items[figure].needs:
            if id.endswith("-s0"):
                names.add(id)
    runs = all_runs("standard")
    for id in sorted(names):
        run = runs[id]
        if run["method"] == "sft":  # which has a trainer of its own
            continue
        steps = run["steps"]
        if steps == 0:
            continue
        looks = steps / run["eval_every"]
        assert looks >= 10, id


@pytest.fixture(scope="module")
def gpu_runs() -> dict[str, dict[str, Any]]:
    """The configuration of every run of the preset gpu, by name."""
    runs = all_runs("gpu")
    return {
        id.removeprefix("runs/").rpartition("-s")[0]: run for id, run in runs.items()
    }


BACKBONES = {  # of SAGE and its rivals, by size
    "": "Qwen/Qwen2.5-3B-Instruct",
    "_small": "Qwen/Qwen3-4B-Base",
    "_large": "Qwen/Qwen2.5-7B-Instruct",
}


def test_preset_gpu_trains_real_models_on_real_data(gpu_runs: dict) -> None:
    for name, run in gpu_runs.items():
        assert "tiny" not in json.dumps(run, default=str), name
        assert run["world"] == "data", name
        assert run["prompt"] == "full", name
        assert run.get("corpus", "none") not in ("math", "general", "both"), name


def test_preset_gpu_asks_the_rows_of_comas_as_maslab_does(gpu_runs: dict) -> None:
    items = plan.load(ROOT, "quick").items  # preset gpu has no tables
    forms = {"vanilla", "consistency_summed", "autogen", "debate_summed"}
    tables_of_comas = [f"comas_table{number}" for number in (1, 5, 7, 8, 9)]
    for name in tables_of_comas:
        rows = [gpu_runs[run] for run in items[name].config["runs"]]
        strategies = {tuple(row["strategies"]) for row in rows}
        assert set().union(*strategies) <= forms, name
    table_1 = [gpu_runs[run] for run in items["comas_table1"].config["runs"]]
    assert all(set(row["strategies"]) == forms for row in table_1)


def test_preset_gpu_gives_spice_both_corpora_and_the_paper_s_backbone(
    gpu_runs: dict,
) -> None:
    both = gpu_runs["spice"]["corpus"]
    single = {gpu_runs["spice_math"]["corpus"], gpu_runs["spice_general"]["corpus"]}
    assert len(both) == 2
    assert single == set(both)
    for name, run in gpu_runs.items():
        is_spice = name.startswith("spice") or name == "base_spice"
        if is_spice and not name.endswith(("_small", "_large")):
            assert run["model"] == "Qwen/Qwen3-4B-Base", name


@pytest.mark.parametrize("size", ["_small", "_large"])
def test_preset_gpu_compares_spice_with_its_own_base(gpu_runs: dict, size: str) -> None:
    model = gpu_runs[f"spice{size}"]["model"]
    assert model == gpu_runs[f"base_spice{size}"]["model"]
    assert model != gpu_runs["spice"]["model"]


@pytest.mark.parametrize("size", BACKBONES)
def test_preset_gpu_trains_sage_on_the_paper_s_backbones(
    gpu_runs: dict, size: str
) -> None:
    assert gpu_runs[f"sage{size}"]["model"] == BACKBONES[size]
    assert gpu_runs[f"sage_base{size}"]["model"] == BACKBONES[size]


@pytest.mark.parametrize("rival", ["azr", "mae"])
@pytest.mark.parametrize("size", ["_small", "_large"])
def test_preset_gpu_trains_rivals_for_200_steps(
    gpu_runs: dict, rival: str, size: str
) -> None:
    run = gpu_runs[f"{rival}{size}"]  # section 5.1
    assert run["steps"] == 200
    assert run["model"] == BACKBONES[size]


def test_sage_trains_with_the_settings_of_table_4() -> None:
    table = tables.paper_numbers("sage_table4").set_index("benchmark")
    printed = table["printed"]
    values = SAGE.PAPER_RUN_VALUES
    rank, alpha, dropout = values["lora"]
    settings = {
        "Batch Size": values["batch_size"],
        "Training Steps": values["steps"],
        "Learning Rate": values["learning_rate"],
        "Maximum Response Length": values["max_tokens"],
        "LoRA Rank": rank,
        "LoRA Alpha": alpha,
        "Critic Temperature": SAGE().critic_temperature,
        "Challenger Temperature": values["temperature"],
        "Planner Temperature": values["temperature"],
        "Solver Temperature": values["temperature"],
    }
    for name, value in settings.items():
        assert float(printed[name]) == value, name
    assert dropout == approx(1 - float(printed["LoRA Dropout"])), "0.95 is read as 0.05"


def test_preset_gpu_trains_sage_with_the_paper_s_settings() -> None:
    run = config.build("sage", "gpu", out="x")
    assert run.lora == (128, 256, 0.05)
    assert run.temperature == 0.6
    assert run.method.prompt == "full"
    assert run.method.estimator == "task_relative"
    assert run.method.kl_coef == 0, "KL regularisation is disabled"
