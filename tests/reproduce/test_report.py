"""The report on hand-made results.

Every item is shown or named, no completion becomes a tag, and equal results give equal bytes.
"""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from toy_repository import ROOT

from coevolve.cli import main
from coevolve.runs import record
from coevolve.training import config
from reproduce import plan, report, report_claims, transcripts
from reproduce.analysis import tables, verdicts
from reproduce.plan import Plan

EVIL = "<script>alert('&lt;')</script>"
FORBIDDEN_TAGS = {"script", "iframe", "object", "form"}


class Page:
    """A page's text, ids and tags, and the addresses of its links and pictures."""

    def __init__(self, html: str) -> None:
        page = BeautifulSoup(html, "html.parser")
        self.text = page.get_text()
        self.ids = {tag["id"] for tag in page.find_all(id=True)}
        self.tags: set[str] = set()
        self.links: list[str] = []
        for tag in page.find_all():
            self.tags.add(tag.name)
            self.links += [tag[name] for name in ("href", "src") if name in tag.attrs]


def episode(step: int, reward: Any, text: str) -> str:
    """Return a line of episodes.jsonl: an episode with three equal samples."""
    sample = {
        "role": "solver",
        "policy": "shared",
        "prompt": EVIL,
        "text": text,
        "tokens": 3,
        "reward": reward,
    }
    row = {"step": step, "episode": 0, "facts": {}, "samples": [sample] * 3}
    return json.dumps(row) + "\n"


EPISODES = [
    episode(1, 0.25, "worst!"),
    episode(1, 0.75, "best!"),
    episode(1, 0.5, "so-so!"),
    episode(2, 0.1, "later!"),
    episode(3, {"a": None, "b": 0.5}, EVIL),
    "{",  # a kill cuts the last line
]
ORIGIN = {
    "source": {"commit": "c0ffee" * 6, "dirty": True},
    "versions": {"torch": "2"},
    "machine": {"cpu": None},
    "wall_seconds": 120.0,
    "configuration": {"runs": {"base": [0], "mae_half": [0, 1]}},
}
LEDGER = f"""\
claim,tests,paper,where,says,kind,paper_effect,why,seeds,units,effect,low,high,verdict
mae_half_over_base,headline,mae,here,"{EVIL}",greater,4.5,,10 / 1,5 / 1,19.83,7.175,32.49,found
sage_dataset_grows,other,sage,there,It grows.,ratio,,needs sage_large,,,,,,not run
mae_pool_grows,other,mae,there,It grows.,trend,,,5,5,562.7,,,one seed
conl_matches_ground_truth,other,conl,there,It is as good.,ratio,0.9,,5,5,0.8,-inf,inf,undecided
"""


@pytest.fixture
def results(tmp_path: Path) -> Plan:
    """A plan with results: a table, a figure, a ledger of four claims, episodes of one run."""
    for name in ("reproduce", "notebooks", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    quick = plan.load(tmp_path, "quick")
    write_table(quick.folder / "mae_table1")
    write_figure(quick.folder / "mae_fig1")
    claims = quick.folder / "claims"
    claims.mkdir()
    (claims / "ledger.csv").write_text(LEDGER)
    run = quick.folder / "runs/mae_half-s0"
    run.mkdir(parents=True)
    (run / "episodes.jsonl").write_text("".join(EPISODES))
    return quick


def write_table(folder: Path) -> None:
    table = pd.DataFrame({"says": [EVIL, "a|b"], "earns": [0.5, 1.0]})
    tables.save_table(table, folder, "MAE, Table 1", "A note.")
    (folder / "provenance.json").write_text(json.dumps(ORIGIN))
    (folder / "notebook.html").write_text("executed")


def write_figure(folder: Path) -> None:
    folder.mkdir()
    for name in ("figure.png", "figure.svg"):
        (folder / name).write_text("drawn")


def build(results: Plan) -> dict[Path, Page]:
    """Build the report; return its pages, the front page first."""
    front = report.build(results)
    assert front == results.folder / "index.html"
    papers = sorted((results.folder / "report").glob("*.html"))
    return {path: Page(path.read_text()) for path in (front, *papers)}


def build_front(results: Plan) -> Page:
    """Build the report; return its front page."""
    return build(results)[results.folder / "index.html"]


def build_mae(results: Plan) -> Page:
    """Build the report; return the page of MAE."""
    return build(results)[results.folder / "report/mae.html"]


def test_every_artefact_has_a_place_on_the_page_of_its_paper(results: Plan) -> None:
    pages = build(results)
    for item in results.items.values():
        if item.kind == "artefact":
            page = pages[results.folder / f"report/{item.paper}.html"]
            assert item.id in page.ids


def test_pages_lead_to_an_episode_in_the_browser(results: Plan) -> None:
    assert "../play.html" not in build_front(results).links
    (results.folder.parent / "play.html").write_text("an episode")
    assert "../play.html" in build_front(results).links
    assert "../../play.html#mae" in build_mae(results).links


def test_the_front_page_names_what_is_missing(results: Plan) -> None:
    front = build_front(results)
    artefacts = [item for item in results.items.values() if item.kind == "artefact"]
    assert f"3 of {len(artefacts)} tables and figures exist; missing:" in front.text
    assert "sage_table1: not made yet" in front.text


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def test_the_front_page_shows_the_claims(results: Plan) -> None:
    text = squeezed(build_front(results).text)
    assert "4 claims: 1 found · 0 opposite · 1 undecided · 2 other" in text
    assert "✓ found +19.8 [+7.2, +32.5] points · paper +4.5" in text
    assert "here · headline claim" in text
    assert "seeds 10 / 1, units 5 / 1" in text
    assert "? undecided +0.8 [no limits] times · paper +0.9" in text
    for verdict, meaning in verdicts.MEANINGS.items():
        assert verdict.capitalize() in text
        assert meaning in text
    assert "– one seed +562.7 questions" in text
    assert "needs sage_large" in text


def test_bars_have_the_proportions_of_the_counts(results: Plan) -> None:
    build_front(results)
    page = (results.folder / "index.html").read_text()
    first_bar = BeautifulSoup(page, "html.parser").find(class_="bar")
    styles = [part["style"] for part in first_bar.find_all("span")]
    assert styles == ["flex: 1 0 0"] * 4


def test_every_claim_can_be_linked_and_leads_to_its_evidence(results: Plan) -> None:
    ledger = results.folder / "claims/ledger.csv"
    ledger.write_text(LEDGER.replace("mae,here", 'mae,"section 5.1, Table 1"'))
    front = build_front(results)
    assert "claim-mae_half_over_base" in front.ids
    assert "report/mae.html#mae_table1" in front.links


def test_the_page_of_a_paper_begins_with_its_claims_and_main_result(
    results: Plan,
) -> None:
    mae = build_mae(results)
    assert "https://arxiv.org/abs/2510.23595" in mae.links
    claim = mae.text.index("found +19.8") if "found +19.8" in mae.text else 0
    places = [
        mae.text.index("2 claims:"),
        claim or mae.text.index("✓ found"),
        mae.text.rindex("MAE, Table 1: main results"),
        mae.text.rindex("MAE, Table 2: ablations"),
        mae.text.index("Roles, prompts and settings"),
    ]
    assert places == sorted(places)


def test_a_short_preset_stands_beside_the_evidence(results: Plan) -> None:
    folder = results.root / "results/standard/claims"
    folder.mkdir(parents=True)
    (folder / "ledger.csv").write_text(LEDGER.replace("19.83", "20.5"))
    text = squeezed(build_front(results).text)
    assert "yours +19.8 [+7.2, +32.5] · five seeds +20.5 [+7.2, +32.5]" in text
    assert "1 of your 1 effects lie inside the interval" in text


def test_claims_of_a_paper_in_points_share_one_scale() -> None:
    rows = []
    for effect in (1.0, 10.0):
        row = dict.fromkeys(report_claims.NUMBERS) | {"effect": effect}
        rows.append(row | {"paper": "mae", "unit": "points", "five": None})
    report_claims._add_pictures(rows)
    first, second = rows
    assert first["picture"]["span"] == second["picture"]["span"]


WORDS = {
    "found": "found",
    "opposite": "opposite",
    "smaller than printed": "size",
    "other size": "size",
    "no effect beyond 5 points": "size",
    "undecided": "undecided",
    "one seed": "untested",
}


@pytest.mark.parametrize(("verdict", "css"), WORDS.items())
def test_only_opposite_claims_look_opposite(verdict: str, css: str) -> None:
    assert report_claims.look_of(verdict).css == css


PLACES = {
    "section 5.1, Table 1": "mae_table1",
    "section 5.2.1, Figure 3 (left)": "mae_fig3_left",
    "section 5.2.2, Figure 3 (middle)": "mae_fig3_mid",
    "section 5.3.2": "",
}


@pytest.mark.parametrize(("where", "id"), PLACES.items())
def test_a_place_in_a_paper_is_a_table_or_figure_here(
    results: Plan, where: str, id: str
) -> None:
    assert report_claims.evidence_of(results, "mae", where) == id


def test_averages_come_first() -> None:
    table = "\n".join(
        [
            "**Title**",
            "",
            "| q | x |",
            "|:--|:--|",
            "| sums | 1 |",
            "| Overall Avg. | 2 |",
        ]
    )
    rows = report.averages_first(table).splitlines()[4:]
    assert rows == ["| **Overall Avg.** | **2** |", "| sums | 1 |"]


def test_ours_and_the_papers_column_share_a_heading() -> None:
    """A column without one of the paper's beside it spans both rows of headings."""
    page = report.to_html(
        "| q | MAE | MAE, the paper | n |\n|:-|:-|:-|:-|\n| a | 1 | 2 | 3 |"
    )
    table = BeautifulSoup(report.pair_headings(page), "html.parser")
    upper, lower = table.thead("tr", recursive=False)
    spans = [
        (th.text.strip(), th.get("colspan"), th.get("rowspan")) for th in upper("th")
    ]
    assert spans == [("q", None, "2"), ("MAE", "2", None), ("n", None, "2")]
    assert [th.text for th in lower("th")] == ["here", "paper"]


def test_a_table_without_the_papers_columns_keeps_its_headings() -> None:
    page = report.to_html("| q | MAE |\n|:-|:-|\n| a | 1 |")
    assert report.pair_headings(page) == page


def test_committed_pages_do_not_link_what_is_not_committed(results: Plan) -> None:
    standard = plan.load(results.root, "standard")
    write_table(standard.folder / "mae_table1")
    assert report.facts_of(standard, standard.items["mae_table1"])["executed"] is None


ASKED = "solve<question>3*4</question>"


def test_answers_are_marked_by_the_oracle() -> None:
    right = transcripts.mark(ASKED, "<answer>12</answer>")
    wrong = transcripts.mark(ASKED, "<answer>13</answer>")
    assert right == transcripts.Mark(True, "12")
    assert wrong == transcripts.Mark(False, "12")
    assert transcripts.mark(ASKED, "<score>3</score>") is None
    assert (
        transcripts.mark("solve<question>dk?</question>", "<answer>1</answer>") is None
    )


def test_the_front_page_shows_the_origin_of_the_results(results: Plan) -> None:
    text = build_front(results).text
    assert "c0ffeec0ffee: 1 items" in text
    assert "1 items made with uncommitted changes" in text
    assert "2 minutes" in text
    assert "torch 2" in text


def test_the_page_of_a_paper_shows_its_tables_and_figures(results: Plan) -> None:
    mae = build_mae(results)
    assert "MAE, Table 1: main results" in mae.text
    assert "The untrained model, AZR," in mae.text
    assert "A note." in mae.text
    assert re.search(r"Seeds 0: base;\s+Seeds 0 1: mae_half", mae.text)
    assert "Not made yet." in mae.text
    assert "../mae_fig1/figure.svg" in mae.links
    assert "../mae_table1/notebook.html" in mae.links


def test_episodes_with_the_highest_and_lowest_reward_of_the_first_and_last_step_are_shown(
    results: Plan,
) -> None:
    text = build_mae(results).text
    steps = re.findall(r"The (\w+) .* of step (\d), mean reward ([\d.]+)", text)
    assert steps == [
        ("best", "1", "0.75"),
        ("worst", "1", "0.25"),
        ("only", "3", "0.5"),
    ]
    assert text.count("best!") == 2, "the first two completions of each role"
    assert "so-so!" not in text
    assert "later!" not in text
    assert "1 more replies" in text
    assert "a none, b 0.5" in text


def test_a_reply_that_is_not_paid_stands_in_its_place(results: Plan) -> None:
    row = json.loads(episode(1, 0.25, "paid"))
    row["samples"] = [{**row["samples"][0], "turn": 2}]
    unpaid = {name: row["samples"][0][name] for name in ("role", "policy", "prompt")}
    row["unpaid"] = [{**unpaid, "text": "in vain", "tokens": 2, "turn": 1}]
    file = results.folder / "runs/mae_half-s0/episodes.jsonl"
    file.write_text(json.dumps(row) + "\n")
    text = squeezed(build_mae(results).text)
    assert re.search(r"solver, not paid .*in vain.*solver, reward 0.25 .*paid", text)


def test_completions_are_text(results: Plan) -> None:
    for page in build(results).values():
        assert not page.tags & FORBIDDEN_TAGS
    assert build_front(results).text.count(EVIL) == 1
    claims = 1
    cells = 1
    prompts = 3 * 2
    completions = 2
    assert build_mae(results).text.count(EVIL) == claims + cells + prompts + completions


def test_links_lead_to_existing_files_or_to_a_paper(results: Plan) -> None:
    pages = build(results)
    addresses = set()
    for paper in report.PAPERS.values():
        addresses |= {paper["paper"], paper.get("code")}
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = unquote(link).partition("#")
            if link.startswith("https://"):
                assert link in addresses
                continue
            assert ":" not in link
            file = path.parent / target
            assert file.exists(), link
            if anchor:
                linked = pages[file.resolve()] if target else page
                assert anchor in linked.ids


def test_equal_results_give_equal_bytes(results: Plan) -> None:
    first = [path.read_bytes() for path in build(results)]
    assert first == [path.read_bytes() for path in build(results)]


def test_no_results_give_a_report(results: Plan) -> None:
    shutil.rmtree(results.folder)
    front = build_front(results)
    assert "The ledger of claims was not made" in front.text
    assert "0 of " in front.text


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
