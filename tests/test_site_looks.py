"""The checks of how the site's pages look find faults, and none on a page without."""

import pytest

from tools import lab, site_looks

pytestmark = pytest.mark.skipif(
    lab.CHROMIUM is None, reason="Chromium is not installed"
)
GOOD = """<html lang="en"><head><title>A page</title>
<meta name="viewport" content="width=device-width">
<style>:root { color-scheme: light dark }</style></head><body>
<h1 id="a">Heading</h1><h2 id="b">Section</h2><p>Text on the plain page.</p>
<img alt="" src="data:,"><label>Seed <input id="seed"></label></body></html>"""
# What is put in the place of a part of the good page, and the only check that notices.
FAULTS = {
    "width": ("<p>", "<p style='width: 900px'>"),
    "contrast": ("<p>", "<p style='color: #999; background: #fff'>"),
    "names": ("<label>Seed <input", "<label>Seed</label><input"),
    "ids": ('id="b"', 'id="a"'),
    "headings": ('<h2 id="b">Section</h2>', '<h3 id="b">Section</h3>'),
}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[site_looks.View]:
    """The views of a good page, and of one for each fault."""
    site = tmp_path_factory.mktemp("site")
    (site / "good.html").write_text(GOOD)
    for name, (part, fault) in FAULTS.items():
        assert GOOD.count(part) == 1
        (site / f"{name}.html").write_text(GOOD.replace(part, fault))
    assert lab.CHROMIUM is not None
    return list(site_looks.views(site, lab.CHROMIUM))


def checks_of(seen: list[site_looks.View], page: str) -> dict[tuple[int, str], set]:
    """Return the checks with findings in each view of a page."""
    checks = {}
    for view in seen:
        if view.page == page:
            found = {check for check, findings in view.findings.items() if findings}
            checks[view.width, view.theme] = found
    return checks


def test_a_good_page_has_no_findings_in_any_view(seen: list[site_looks.View]) -> None:
    checks = checks_of(seen, "good.html")
    assert len(checks) == 4
    assert not any(checks.values())


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found_by_its_check_alone(
    check: str, seen: list[site_looks.View]
) -> None:
    checks = checks_of(seen, f"{check}.html")
    assert checks[400, "light"] == {check}
    if check == "width":
        assert checks[1400, "light"] == set(), "900 px fit"


def test_the_table_counts_pages_with_findings(seen: list[site_looks.View]) -> None:
    row = "| 400 | light | 6 | 1 | 1 | 1 | 1 | 1 |"
    assert row in site_looks.table(seen)
