"""The report on hand-made results.

Every item is shown or named, no completion becomes a tag, and equal results give equal bytes.
"""

import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pandas as pd
import pytest
from bs4 import BeautifulSoup
from report_pages import (
    EVIL,
    FORBIDDEN_TAGS,
    LEDGER,
    build,
    build_front,
    build_mae,
    made_up,
    squeezed,
    write_table,
)

from reproduce import places, plan, report, report_claims
from reproduce.analysis import tables, verdicts
from reproduce.plan import Plan


@pytest.fixture
def results(tmp_path: Path) -> Plan:
    return made_up(tmp_path)


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


def test_pages_lead_to_the_documentation_of_a_clone(results: Plan) -> None:
    assert not any(link.endswith(".md") for link in build_front(results).links)
    for name in report.GUIDES.values():
        file = results.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text("a page")
    linked = set()
    for path, page in build(results).items():
        guides = [link for link in page.links if link.endswith(".md")]
        assert len(guides) >= 2
        linked |= {(path.parent / link).resolve() for link in guides}
    assert linked == {results.root / name for name in report.GUIDES.values()}


def test_pages_describe_themselves_and_the_keyboard_reaches_what_scrolls(
    results: Plan,
) -> None:
    descriptions = set()
    labels = set()
    for path in build(results):
        page = BeautifulSoup(path.read_text(), "html.parser")
        descriptions.add(page.find("meta", {"name": "description"})["content"])
        for frame in page.find_all(class_=["scroll", "figure"]):
            assert frame["tabindex"] == "0"
            labels.add(frame["aria-label"])
    assert len(descriptions) == len(build(results))
    assert {"How to read this", "MAE, Table 1: main results", "figure"} <= labels


def test_the_front_page_names_what_is_missing(results: Plan) -> None:
    front = build_front(results)
    artefacts = [item for item in results.items.values() if item.kind == "artefact"]
    assert f"3 of {len(artefacts)} tables and figures exist; missing:" in front.text
    assert "sage_table1: not made yet" in front.text


def test_the_front_page_shows_the_claims(results: Plan) -> None:
    text = squeezed(build_front(results).text)
    assert "4 claims: 1 found 1 undecided 2 not decidable here" in text
    assert "✓ found +19.8 [+7.2, +32.5] points · paper +4.5" in text
    assert "here · headline claim" in text
    assert "seeds 10 / 1, units 5 / 1" in text
    assert "? undecided +0.8 [no limits] times · paper +0.9" in text
    for verdict, meaning in verdicts.MEANINGS.items():
        assert verdict.capitalize() in text
        assert meaning in text
    assert "– one seed +563 questions a step" in text
    assert "needs sage_large" in text


def test_bars_have_the_proportions_of_the_counts(results: Plan) -> None:
    build_front(results)
    page = (results.folder / "index.html").read_text()
    first_bar = BeautifulSoup(page, "html.parser").find(class_="bar")
    styles = [part["style"] for part in first_bar.find_all("span")]
    found = 1
    undecided = 1
    not_decidable = 2
    sizes = [found, undecided, not_decidable]
    assert styles == [f"flex: {size} 0 0" for size in sizes]


def test_the_filter_has_the_groups_of_the_counts(results: Plan) -> None:
    build_front(results)
    page = BeautifulSoup((results.folder / "index.html").read_text(), "html.parser")
    names = [label.text.strip() for label in page.find(class_="filter")("label")]
    groups = [name.partition(" ")[2] for name in names[2:]]
    assert names[:2] == ["all", "headline claims"]
    assert groups == list(verdicts.GROUPS) == list(report_claims.LOOKS)


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
    positions = [
        mae.text.index("2 claims:"),
        claim or mae.text.index("✓ found"),
        mae.text.rindex("MAE, Table 1: main results"),
        mae.text.rindex("MAE, Table 2: ablations"),
        mae.text.index("Roles, prompts and settings"),
    ]
    assert positions == sorted(positions)


def test_a_short_preset_stands_beside_the_evidence(results: Plan) -> None:
    folder = results.root / "results/standard/claims"
    folder.mkdir(parents=True)
    (folder / "ledger.csv").write_text(LEDGER.replace("19.83", "20.5"))
    text = squeezed(build_front(results).text)
    assert "yours +19.8 [+7.2, +32.5] · all seeds +20.5 [+7.2, +32.5]" in text
    assert "1 of your 1 effects lie inside the interval" in text


def row_of_effect(effect: float, tests: str = "other") -> report_claims.Row:
    row = dict.fromkeys(report_claims.NUMBERS) | {"effect": effect}
    return row | {"paper": "mae", "unit": "points", "tests": tests, "beside": None}


def test_claims_of_a_paper_in_points_share_one_scale() -> None:
    rows = [row_of_effect(1), row_of_effect(10)]
    report_claims._add_pictures(rows)
    first, second = rows
    assert first["picture"]["span"] == second["picture"]["span"]


def test_a_headline_claim_lies_inside_the_scale() -> None:
    usual = [row_of_effect(1) for _ in range(20)]
    outlier = [row_of_effect(30)]
    report_claims._add_pictures(usual + outlier)
    assert usual[0]["picture"]["span"] == 1
    headline = [row_of_effect(10, "headline")]
    report_claims._add_pictures(usual + outlier + headline)
    assert usual[0]["picture"]["span"] == 10


WORDS = {
    "found": "found",
    "opposite": "opposite",
    "smaller than printed": "size",
    "other size": "size",
    "no effect beyond 5 points": "size",
    "as small as printed": "small",
    "undecided": "undecided",
    "one seed": "untested",
    "a word of an older ledger": "untested",
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
    assert places.artefact_of("mae", where, results.items) == id


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


CAPTIONS = {  # caption of a table: what is left of it below the title "MAE & co: scores"
    "MAE &amp; co: scores (tiny world)": "<p>Tiny world</p>",
    "MAE &amp; co: scores": "",
    "MAE: others": "<p><strong>MAE: others</strong></p>",
}


@pytest.mark.parametrize(("caption", "left"), CAPTIONS.items())
def test_the_title_of_a_card_is_not_repeated(caption: str, left: str) -> None:
    page = f"<p><strong>{caption}</strong></p>\n<table>"
    assert report.without_title(page, "MAE & co: scores") == f"{left}\n<table>"


def test_a_title_stands_once_in_its_card(results: Plan) -> None:
    plain = pd.DataFrame({"a": [1]})
    caption = "MAE, Table 1: main results (tiny world)"
    tables.save_table(plain, results.folder / "mae_table1", caption, "A note.")
    build_mae(results)
    page = (results.folder / "report/mae.html").read_text()
    card = BeautifulSoup(page, "html.parser").find(id="mae_table1").text
    assert card.count("MAE, Table 1: main results") == 1
    assert "Tiny world" in card


def test_committed_pages_do_not_link_what_is_not_committed(results: Plan) -> None:
    standard = plan.load(results.root, "standard")
    write_table(standard.folder / "mae_table1")
    assert report.facts_of(standard, standard.items["mae_table1"])["executed"] is None


def test_the_front_page_shows_the_origin_of_the_results(results: Plan) -> None:
    text = build_front(results).text
    assert "c0ffeec0ffee: 1 items" in text
    assert "1 items made with uncommitted changes" in text
    assert "2 minutes" in text
    assert "torch 2" in text


def test_the_page_of_a_paper_shows_its_tables_and_figures(results: Plan) -> None:
    mae = build_mae(results)
    assert "MAE, Table 1: main results" in mae.text
    assert "The untrained model, MAE in the setting with" in mae.text
    assert "A note." in mae.text
    assert re.search(r"Seeds 0: base;\s+Seeds 0 1: mae_half", mae.text)
    assert "Not made yet." in mae.text
    assert "../mae_fig1/figure.svg" in mae.links
    assert "../mae_table1/notebook.html" in mae.links


def test_completions_are_text(results: Plan) -> None:
    for page in build(results).values():
        assert not page.tags & FORBIDDEN_TAGS
    assert build_front(results).text.count(EVIL) == 1
    claims = 1
    cells = 1
    prompts = 3 * 3
    completions = 3
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
            if link == "data:,":  # the icon: none, so that browsers ask for none
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
