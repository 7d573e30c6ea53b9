"""CoMAS's tables and figures: what stands beside what, and that every id of the paper is claimed consistently."""

import json
import tomllib
from pathlib import Path

import pandas as pd
import pytest

from reproduce import plan
from reproduce.analysis import standins, tables

ROOT = Path(__file__).resolve().parents[2]
ARTEFACTS = tomllib.loads((ROOT / "reproduce" / "comas.toml").read_text("utf-8"))["artefacts"]
SETUPS = ["Vanilla", "Consistency", "AutoGen", "Debate"]
SHARED = ("comas_setups.ipynb", "comas_averages.ipynb")  # notebooks that several ids share
GRIDS = [id for id, table in ARTEFACTS.items() if table["notebook"].endswith(SHARED)]


@pytest.mark.parametrize("paper", ["mae", "sage", "comas", "conl", "spice"])
def test_every_id_of_a_paper_is_claimed(paper: str) -> None:
    index = pd.read_csv(ROOT / "reproduce" / "paper_numbers" / "index.csv")
    claimed = tomllib.loads((ROOT / "reproduce" / f"{paper}.toml").read_text("utf-8"))["artefacts"]
    assert set(index[index["paper"] == paper]["id"]) <= set(claimed)


@pytest.mark.parametrize("setup", SETUPS)
def test_printed_cells_are_those_of_the_set_up_and_averages_are_derived(setup: str) -> None:
    cells = tables.paper_numbers("comas_table1")
    mine = cells[(cells["setup"] == setup) & (cells["metric"] == "accuracy_pct") & (cells["method"] == "TTRL")]
    frame = standins.printed("comas_table1", {"TTRL": "TTRL"}, "comas", setup).set_index("benchmark")["paper"]
    assert len(mine) == 7 and frame.drop("Average").to_dict() == dict(
        zip(mine["benchmark"], mine["value"].astype(float), strict=True)
    )
    assert frame["Average"] == pytest.approx(mine["value"].astype(float).mean())


def test_averages_of_the_paper_s_figures_follow_from_its_cells() -> None:
    # Figure 5 (left) as its text says: Consistency -0.19 with one agent, +2.02 with four; Debate -0.16 and +1.75.
    names = {name: name for name in ("Untrained", "CoMAS (1-Agent)", "CoMAS (4-Agent)")}
    for setup, one, four in (("Consistency", -0.19, 2.02), ("Debate", -0.16, 1.75)):
        frame = standins.printed("comas_table8", names, "comas", setup)
        mean = frame[frame["benchmark"] == "Average"].set_index("method")["paper"]
        assert mean["CoMAS (1-Agent)"] - mean["Untrained"] == pytest.approx(one, abs=0.006)
        assert mean["CoMAS (4-Agent)"] - mean["Untrained"] == pytest.approx(four, abs=0.006)


@pytest.mark.parametrize("id", GRIDS)
def test_labels_are_the_paper_s_rows_or_marked_as_ours(id: str) -> None:
    given = {"setups": SETUPS} | ARTEFACTS[id]["parameters"]
    printed = tables.paper_numbers(given["table"])
    ours = set(given["labels"].values()) - set(given.get("unprinted", ()))
    assert ours == set(printed["method"]) and set(given["setups"]) == set(printed["setup"])
    assert set(given["labels"]) == set(ARTEFACTS[id]["runs"])


@pytest.mark.parametrize("preset", ["smoke", "quick", "full", "gpu"])
def test_gains_are_over_teams_that_differ_in_what_they_are_about(preset: str) -> None:
    items = plan.load(ROOT, preset).items
    config = {
        id.removeprefix("runs/").removesuffix("-s0"): item.config for id, item in items.items() if id.endswith("-s0")
    }
    assert config["comas_mixed"] | {"steps": 0} == config["comas_mixed_base"]
    for name in ("evaluation", "scoring"):
        assert config["comas_2_long"] | {"without": name} == config[f"comas_no_{name}"]


def test_teams_are_read_from_their_runs(tmp_path: Path) -> None:
    for run, model, agents, steps in (("base", "tiny", {}, 0), ("mixed", ["tiny", "tiny-small"], {"agents": 3}, 7)):
        home = tmp_path / f"{run}-s0"
        home.mkdir()
        (home / "config.json").write_text(json.dumps({"method": run, "model": model, "protocol": agents}))
        (home / "metrics.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in range(steps + 1)))
    teams = standins.teams(tmp_path, {"base": [0], "mixed": [0, 1]}, {"base": "Untrained", "mixed": "Mixed"})
    assert teams[["method", "agents", "steps", "seeds"]].to_numpy().tolist() == [
        ["Untrained", 1, 0, 1],
        ["Mixed", 3, 7, 2],
    ]
    assert teams["models"].to_list() == [["tiny"], ["tiny", "tiny-small", "tiny"]]
