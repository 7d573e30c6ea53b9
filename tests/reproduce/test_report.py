"""The report on hand-made results: everything is there or named, nothing a model says is a tag, equal results equal bytes."""

import json
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from toy_repository import ROOT

from coevolve.cli import main
from coevolve.runs import record
from coevolve.training import config
from reproduce import plan, report
from reproduce.analysis import tables
from reproduce.plan import Plan

EVIL = "<script>alert('&lt;')</script>"


class Links:
    """Where a page's links and pictures lead, the ids it has, its tags, and what is read there."""

    def __init__(self, text: str) -> None:
        page = BeautifulSoup(text, "html.parser")
        found = page.find_all()
        self.to = [tag[name] for tag in found for name in ("href", "src") if name in tag.attrs]
        self.ids, self.tags = {tag["id"] for tag in page.find_all(id=True)}, {tag.name for tag in found}
        self.read = page.get_text()


def episode(step: int, reward: object, text: str) -> str:
    said = {"role": "solver", "policy": "shared", "prompt": EVIL, "text": text, "tokens": 3, "reward": reward}
    return json.dumps({"step": step, "episode": 0, "facts": {}, "samples": [said] * 3}) + "\n"


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    """Results of the registry with one table, one figure, a ledger of three claims, and episodes of one run."""
    for name in ("reproduce", "notebooks", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    found = plan.load(tmp_path, "quick")
    folder = found.folder
    table = pd.DataFrame({"says": [EVIL, "a|b"], "earns": [0.5, 1.0]})
    tables.save_table(table, folder / "mae_table1", "MAE, Table 1", "A note.")
    origin = {"source": {"commit": "c0ffee" * 6, "dirty": True}, "versions": {"torch": "2"}, "machine": {"cpu": None}}
    origin |= {"wall_seconds": 120.0, "configuration": {"runs": {"base": [0], "mae_half": [0, 1]}}}
    (folder / "mae_table1/provenance.json").write_text(json.dumps(origin))
    (folder / "mae_table1/notebook.html").write_text("executed")
    (folder / "mae_fig1").mkdir()
    for name in ("figure.png", "figure.svg"):
        (folder / "mae_fig1" / name).write_text("drawn")
    (folder / "claims").mkdir()
    header = "claim,paper,where,says,kind,paper_effect,why,seeds,effect,low,high,smallest,p,verdict,p_holm\n"
    claims = [f'mae_half_over_base,mae,here,"{EVIL}",greater,4.5,,3 / 1,19.83,7.175,32.49,15.7,0.02,found,0.02']
    claims += ["sage_dataset_grows,sage,there,It grows.,ratio,,needs sage_large,,,,,,,not run,"]
    claims += ["mae_pool_grows,mae,there,It grows.,trend,,,5,562.7,,,,,one seed,"]
    (folder / "claims/ledger.csv").write_text(header + "\n".join(claims) + "\n")
    (folder / "runs/mae_half-s0").mkdir(parents=True)
    said = [(1, 0.25, "worst!"), (1, 0.75, "best!"), (1, 0.5, "so-so!"), (2, 0.1, "later!")]
    episodes = [episode(*words) for words in [*said, (3, {"a": None, "b": 0.5}, EVIL)]]
    (folder / "runs/mae_half-s0/episodes.jsonl").write_text("".join(episodes) + "{")  # a kill cuts the last line
    return found


def pages(found: Plan) -> dict[Path, Links]:
    front = report.build(found)
    assert front == found.folder / "index.html"
    return {path: Links(path.read_text()) for path in (front, *sorted((found.folder / "report").glob("*.html")))}


def test_every_artefact_has_a_place_or_is_named(made: Plan) -> None:
    shown = pages(made)
    artefacts = [item for item in made.items.values() if item.kind == "artefact"]
    for item in artefacts:
        assert item.id in shown[made.folder / f"report/{item.paper}.html"].ids
    front, mae = shown[made.folder / "index.html"], shown[made.folder / "report/mae.html"]
    assert f"3 of {len(artefacts)} tables and figures are here; not here:" in front.read
    assert "sage_table1: not made yet" in front.read
    assert "found +19.8 [+7.17, +32.5] points" in front.read and "seeds 3 / 1 · printed +4.5 points" in front.read
    assert "-32.5 points +32.5" in front.read and "one seed +563 questions" in front.read
    assert "needs sage_large" in front.read and "1 found" in front.read and "1 not run" in front.read
    assert "c0ffeec0ffee: 1 items" in front.read and "1 items with changes" in front.read
    assert "2 minutes" in front.read and "torch 2" in front.read
    for part in ("MAE, Table 1: main results", "The untrained model, AZR,", "A note."):
        assert part in mae.read
    assert re.search(r"seeds 0: base;\s+seeds 0 1: mae_half", mae.read) and "Not made yet." in mae.read
    assert "../mae_fig1/figure.svg" in mae.to and "../mae_table1/notebook.html" in mae.to


def test_the_best_and_the_worst_paid_episode_of_the_ends_are_shown(made: Plan) -> None:
    mae = pages(made)[made.folder / "report/mae.html"].read
    steps = re.findall(r"Step (\d), mean reward ([\d.]+)", mae)
    assert steps == [("1", "0.75"), ("1", "0.25"), ("3", "0.5")]
    assert mae.count("best!") == 2 and "so-so!" not in mae and "later!" not in mae  # of each role the first two replies
    assert "1 more replies" in mae and "a nothing, b 0.5" in mae


def test_what_models_say_is_text(made: Plan) -> None:
    for page in pages(made).values():
        assert not page.tags & {"script", "iframe", "object", "form"}
    front, mae = (pages(made)[made.folder / name].read for name in ("index.html", "report/mae.html"))
    assert front.count(EVIL) == 1 and mae.count(EVIL) == 1 + 3 * 2 + 2  # a cell, prompts, replies


def test_links_lead_somewhere_and_nowhere_else(made: Plan) -> None:
    shown = pages(made)
    for path, page in shown.items():
        for link in page.to:
            target, _, anchor = unquote(link).partition("#")
            assert ":" not in link and (path.parent / target).exists(), link
            assert not anchor or anchor in (shown[(path.parent / target).resolve()] if target else page).ids


def test_equal_results_give_equal_bytes_and_no_results_give_a_report(made: Plan) -> None:
    first = [path.read_bytes() for path in pages(made)]
    assert first == [path.read_bytes() for path in pages(made)]
    shutil.rmtree(made.folder)
    front = pages(made)[made.folder / "index.html"].read
    assert "The ledger of claims was not made" in front and "0 of " in front


def test_a_run_has_a_page_from_the_beginning_to_the_end(tmp_path: Path) -> None:
    record.write_json(tmp_path / "config.json", config.build("mae", "smoke", out=tmp_path).describe())
    assert main(["report", str(tmp_path)]) == 0 and main(["report", str(tmp_path / "nowhere")]) == 2
    assert "mae, seed 0: not finished, 0 of 3 steps so far" in (tmp_path / "report.html").read_text()
    (tmp_path / "episodes.jsonl").write_text(episode(1, 0.5, EVIL))
    summary = {"held_out": {"before": {"k": 1, "n": 8}}, "steps": 3, "acted": {EVIL: 0.1}, "warnings": [EVIL]}
    record.write_json(tmp_path / "summary.json", summary)
    assert main(["report", str(tmp_path), "--to", str(tmp_path / "page.html")]) == 0
    shown = Links((tmp_path / "page.html").read_text())
    assert shown.read.count(EVIL) == 2 + 3 * 2 + 1, "mechanism and warning, replies and prompts, what was idle"
    assert "1 of 8 right (12.5%, 95 % 2.2% to 47.1%)" in shown.read and not shown.tags & {"script", "iframe", "form"}
    assert {link[1:] for link in shown.to if link[0] == "#"} <= shown.ids
