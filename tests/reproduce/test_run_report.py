"""The page of one run, `coevolve report RUN`: unfinished and finished, with every reply."""

import re
from pathlib import Path

from report_pages import EVIL, FORBIDDEN_TAGS, Page, dialogue, episode, squeezed

from coevolve.cli import main
from coevolve.runs import record
from coevolve.training import config


def test_a_run_without_a_folder_has_no_page(tmp_path: Path) -> None:
    assert main(["report", str(tmp_path / "nowhere")]) == 2


def test_a_run_that_has_not_finished_has_a_page(tmp_path: Path) -> None:
    run = config.build("mae", "smoke", out=tmp_path)
    record.write_json(tmp_path / "config.json", run.describe())
    assert main(["report", str(tmp_path)]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "mae, seed 0: not finished, 0 of 3 steps so far" in page


SUMMARY = {
    "held_out": {"before": {"k": 1, "n": 8}},
    "steps": 3,
    "acted": {EVIL: 0.1},
    "warnings": [EVIL],
}


def test_the_page_of_a_finished_run_shows_completions_as_text(tmp_path: Path) -> None:
    run = config.build("mae", "smoke", out=tmp_path)
    record.write_json(tmp_path / "config.json", run.describe())
    record.write_json(tmp_path / "summary.json", SUMMARY)
    (tmp_path / "episodes.jsonl").write_text(episode(1, 0.5, EVIL))
    target = tmp_path / "page.html"
    assert main(["report", str(tmp_path), "--to", str(target)]) == 0
    page = Page(target.read_text())
    mechanism_and_warning = 2
    prompts_and_completions = 3 * 2
    idle_mechanism = 1
    expected = mechanism_and_warning + prompts_and_completions + idle_mechanism
    assert page.text.count(EVIL) == expected
    assert "1 of 8 correct (12.5%, 95 % 2.2% to 47.1%)" in page.text
    assert not page.tags & FORBIDDEN_TAGS - {"object"}
    anchors = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert anchors <= page.ids
    assert "main" in page.tags


def test_the_page_of_a_run_has_replies_without_a_reward_and_dialogues(
    tmp_path: Path,
) -> None:
    run = config.build("mae", "smoke", out=tmp_path)
    record.write_json(tmp_path / "config.json", run.describe())
    (tmp_path / "episodes.jsonl").write_text(dialogue())
    assert main(["report", str(tmp_path)]) == 0
    text = squeezed(Page((tmp_path / "report.html").read_text()).text)
    assert re.search(
        r"solver 1 of 2: <answer>12</answer> · ✓ right · 3 tokens · earns nothing", text
    )
    assert "assistant<answer>11</answer>" in text
    assert "solver 2 of 2: paid · 3 tokens · reward +0.25" in text
