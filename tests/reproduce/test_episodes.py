"""The episode notebooks show their point: what they say about their seed happens, and the exercises' solutions run."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks" / "episodes"
SOLUTION = re.compile(r"```python\n(.*?)```", re.DOTALL)


def played(name: str, folder: Path) -> dict[str, Any]:
    """Run a notebook with the solutions of its exercises as one script; return its names."""
    code = []
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        code += [text] if cell["cell_type"] == "code" else SOLUTION.findall(text)
    script = folder / f"{name}.py"
    script.write_text("\n".join(code).replace("../../results/scratch", str(folder)), encoding="utf-8")
    return runpy.run_path(str(script))


def mae(n: dict[str, Any], f: dict[str, Any]) -> None:
    assert f["accepted"] and f["quality"] == 1 and len(n["sampled"]) >= 3 and len({r.text for r in n["greedy"]}) == 1
    assert sum(n["truths"]) == 1 and f["true_difficulty"] - f["difficulty"] > 0.3, "the Judge believed wrong attempts"
    assert f["right"] == 0 and min(f["judged"], n["judge_score"](n["episode"].replies[-1].text)) > 0.7
    assert n["by_hand"].outcome.samples[1].reward < n["episode"].outcome.samples[1].reward


def sage(n: dict[str, Any], f: dict[str, Any]) -> None:
    assert f["accepted"] and f["valid"] and f["gold_right"] == 0 and len({r.text for r in n["tried"]}) >= 3
    assert f["difficulty"] == 1 and f["true_difficulty"] < 0.5 and f["plan_used"] and f["plan_right"] and f["right"]
    assert n["honest"].outcome.samples[0].reward < n["episode"].outcome.samples[0].reward
    assert not n["protocol"].world.sound(*n["protocol"].read_task(n["best_reply"].text))


def spice(n: dict[str, Any], f: dict[str, Any]) -> None:
    assert 0 < f["gold_right"] < 1 and f["fault/type"] and f["right"] == 0.5 and len({r.text for r in n["answers"]}) > 2
    assert all(p == 0 for _, gold, p in n["tasks"] if gold == "wrong")


def comas(n: dict[str, Any], f: dict[str, Any]) -> None:
    assert f["right_first"] == 0 and n["score"] == 3 and f["right_last"] == 1 and f["tn"] and f["normalised"] == 0.5
    assert [r.text for r in n["strict"].replies[3:6]] == [r.text for r in n["episode"].replies[3:6]]


def conl(n: dict[str, Any], f: dict[str, Any]) -> None:
    assert f["right_before"] == f["fixed"] == 1 and f["harmed"] == 0
    assert f["scores_before"][1] == max(f["scores_before"])
    moved = [before != after for before, after in n["scores"].values[:, :2]]
    assert [rise > 0 for rise in n["scores"]["rose by"]] == moved
    assert [paid > 0 for paid in n["table"]["diagnostic"]] == [2 in targets for targets in n["criticised"]]


@pytest.mark.parametrize("shows", [mae, sage, spice, comas, conl])
def test_an_episode_shows_its_point(shows, tmp_path: Path) -> None:
    names = played(shows.__name__, tmp_path)
    shows(names, names["episode"].outcome.facts)
    assert [*tmp_path.glob("*/table.md")]
