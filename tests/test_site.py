"""The site: pages of Markdown, links that lead somewhere, and a checker that finds dead ones."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from tools import site

PAGE = "<html><body><h1 id='top'>Title</h1>{}</body></html>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A site of two pages and a picture."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/first.html").write_text(PAGE.format(""))
    (tmp_path / "docs/second.html").write_text(PAGE.format(""))
    (tmp_path / "picture.png").write_bytes(b"drawn")
    (tmp_path / "play.html").write_text(PAGE.format(""))
    return tmp_path


LINKS = {
    "<a href='second.html#top'>x</a>": [],
    "<a href='https://arxiv.org/abs/2510.23595'>x</a>": [],
    "<img src='../picture.png'>": [],
    "<a href='../play.html#mae/17'>x</a>": [],
    "<a href='#nowhere'>x</a>": ["docs/first.html: #nowhere"],
    "<a href='third.html'>x</a>": ["docs/first.html: third.html"],
    "<a href='second.html#nowhere'>x</a>": ["docs/first.html: second.html#nowhere"],
    "<img src='gone.png'>": ["docs/first.html: gone.png"],
}


@pytest.mark.parametrize(("html", "dead"), LINKS.items())
def test_dead_links_are_found(folder: Path, html: str, dead: list[str]) -> None:
    (folder / "docs/first.html").write_text(PAGE.format(html))
    assert site.dead_links(folder) == dead


ADDRESS = "https://example.org/project"
REPOSITORY = site.Repository(
    ADDRESS, files=frozenset({"src/code.py"}), folders=frozenset({"src"})
)
LIVING = {
    "second.md#top": "second.html#top",
    "../picture.png": "../picture.png",
    "../README.md": "../index.html",
    "../src/code.py#L12": f"{ADDRESS}/blob/main/src/code.py#L12",
    "../src/": f"{ADDRESS}/tree/main/src",
    "https://arxiv.org/abs/2510.23595": "https://arxiv.org/abs/2510.23595",
}


@pytest.mark.parametrize(("link", "target"), LIVING.items())
def test_a_link_leads_to_a_page_or_to_the_repository(
    folder: Path, link: str, target: str
) -> None:
    (folder / "index.html").write_text(PAGE.format(""))
    file = folder / "docs/first.html"
    file.write_text(f"<a href='{link}'>text</a>")
    html = site._with_living_links(REPOSITORY, folder, file)
    assert html == f'<a href="{target}">text</a>'


def test_a_link_to_a_file_that_nobody_has_becomes_text(folder: Path) -> None:
    file = folder / "docs/first.html"
    file.write_text("<a href='../src/gone.py'>code</a>")
    assert site._with_living_links(REPOSITORY, folder, file) == "code"


def test_a_copied_page_keeps_all_but_its_links_to_markdown(folder: Path) -> None:
    file = folder / "docs/first.html"
    rest = "<table><tr><td>1<td>2</table><a href='gone.csv'>3</a><script>'<a>'</script>"
    file.write_text(f'<a href="second.md#top">page</a> {rest}')
    html = site._with_links_to_pages(folder, file)
    assert html == f'<a href="second.html#top">page</a> {rest}'


def test_headings_have_the_ids_that_links_use() -> None:
    html = site.to_html("## What is `compared`, and how?\n\n| a |\n|---|\n| 1 |\n")
    assert '<h2 id="what-is-compared-and-how">' in html
    assert "<table>" in html


def test_equal_headings_are_numbered_as_on_github() -> None:
    html = site.to_html("## Added\n\n## Added\n\n## Added\n")
    ids = [part.partition('"')[0] for part in html.split('id="')[1:]]
    assert ids == ["added", "added-1", "added-2"]


def test_the_caption_of_a_table_of_results_is_its_heading() -> None:
    html = site.to_html(
        "**Table 1: main results (tiny world)**\n\n| a |\n|---|\n| 1 |\n"
    )
    assert html.startswith("<h1>Table 1: main results</h1>\n<p>(tiny world)</p>")
    assert "<h1>" not in site.to_html("Some **bold (word)** in a sentence.\n")


def page_of(folder: Path, body: str) -> BeautifulSoup:
    """The page of the site that is made from a body."""
    site._write(folder, Path("page.md"), body)
    return BeautifulSoup((folder / "page.html").read_text(), "html.parser")


def test_a_page_describes_itself_by_its_first_words(tmp_path: Path) -> None:
    long = "word " * 100
    page = page_of(tmp_path, f"<h1>A</h1><p><img></p><p>The first\n{long}</p><p>B</p>")
    description = page.find("meta", {"name": "description"})["content"]
    assert description.startswith("The first word word")
    assert description.endswith(" …")
    assert len(description) <= site.LONGEST_DESCRIPTION


def test_the_keyboard_reaches_every_table(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<h2>Speed</h2><table><tr><td>1</td></tr></table>")
    frame = page.find("table").parent
    assert frame["tabindex"] == "0"
    assert frame["aria-label"] == "Speed"


def test_an_empty_heading_of_a_table_is_a_plain_cell(tmp_path: Path) -> None:
    row = "<tr><th></th><th>steps</th></tr>"
    page = page_of(tmp_path, f"<table>{row}</table>")
    cells = [(cell.name, cell.get_text()) for cell in page.find_all(["th", "td"])]
    assert cells == [("td", ""), ("th", "steps")]


def test_pictures_of_a_page_have_their_sizes(tmp_path: Path) -> None:
    (tmp_path / "wide.svg").write_text('<svg width="30" height="20"/>')
    pictures = "<img src='wide.svg'><img src='wide.svg' width='9'><img src='data:,'>"
    page = page_of(tmp_path, pictures)
    sizes = [(tag.get("width"), tag.get("height")) for tag in page.find_all("img")]
    assert sizes == [("30", "20"), ("9", None), (None, None)]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a page and a notebook, and no commit."""
    import nbformat  # which takes two seconds, so no module of tests imports it

    (tmp_path / "CITATION.cff").write_text(f"repository-code: {ADDRESS}\n")
    (tmp_path / "docs").mkdir()
    links = "[gone](gone.md) [code](../src/code.py)"
    (tmp_path / "docs/page.md").write_text(f"# A page\n\n{links}\n")
    dark = '<source srcset="docs/dark.svg">'
    picture = f'<picture>{dark}<img src="docs/light.svg"></picture>'
    caption = "*One episode.*"
    cite = "```bibtex\n@software{coevolve}\n```"
    (tmp_path / "README.md").write_text(
        f"# Read me\n\n{picture}\n\n{caption}\n\n{cite}\n"
    )
    for name in ("light", "dark"):
        (tmp_path / "docs" / f"{name}.svg").write_text("<svg/>")
    (tmp_path / "notebooks").mkdir()
    output = nbformat.v4.new_output("stream", text="what it printed")
    cell = nbformat.v4.new_code_cell("print(1)", outputs=[output])
    badge = "![badge](../docs/badge.svg)"
    (tmp_path / "docs/badge.svg").write_text("<svg/>")
    text = nbformat.v4.new_markdown_cell(f"# One page\n\n[up](#One-page) {badge}")
    notebook = nbformat.v4.new_notebook(cells=[text, cell])
    nbformat.write(notebook, tmp_path / "notebooks/start_here.ipynb")
    return tmp_path


def test_a_built_site_has_a_front_page_and_no_dead_links(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    papers = repository / "reproduce/papers.toml"
    papers.parent.mkdir()
    papers.write_text("")
    report = repository / "results/standard"
    files = ("index.html", "report/style.css")
    for name in files:
        file = report / name
        file.parent.mkdir(parents=True, exist_ok=True)
        rules = '<a href="../../docs/page.md">rules</a>'
        file.write_text(f"<p class='total'>99 claims</p>{rules}")
    reports = [f"results/standard/{name}" for name in files]
    tracked = {site.REPORTS: reports}
    monkeypatch.setattr(
        site,
        "_tracked",
        lambda root, folders: tracked.get(folders, [*reports, "src/code.py"]),
    )
    links = f"[a page](page.md), [elsewhere]({ADDRESS})"
    table = f"| you | read |\n|---|---|\n| have an idea | {links} |\n"
    (repository / "docs/README.md").write_text(f"# Docs\n\n{table}")
    out = repository / "site"
    site.build(repository, out)
    front = (out / "index.html").read_text()
    assert "99 claims" in front
    assert '<a href="docs/page.html">a page</a>' in front
    assert f'<a href="{ADDRESS}">elsewhere</a>' in front
    assert "<figcaption>One episode.</figcaption>" in front
    assert "@software{coevolve}" in front
    page = (out / "docs/page.html").read_text()
    assert "gone.md" not in page
    assert f'<a href="{ADDRESS}/blob/main/src/code.py">code</a>' in page
    ledger = (out / "results/standard/index.html").read_text()
    assert '<a href="../../docs/page.html">rules</a>' in ledger
    assert "what it printed" in (out / "notebooks/start_here.html").read_text()
    assert (out / "docs/light.svg").is_file()
    assert (out / "docs/dark.svg").is_file()
    assert (out / "docs/badge.svg").is_file()
    assert site.dead_links(out) == []
