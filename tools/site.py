"""The site: `make site` builds the folder `site`, which any static host can serve.

It holds a front page, the committed reports, the documentation, and the notebooks that are
committed with outputs. Links within the site are relative. A link to a file that only the
repository has, such as code, leads to the repository's address in CITATION.cff.
`python -m tools.site --check` lists dead links.
"""

import argparse
import os
import posixpath
import re
import shutil
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import mistune
import yaml
from bs4 import BeautifulSoup

from reproduce.registry import read_toml
from reproduce.report_pictures import size_of

ROOT = Path(__file__).resolve().parents[1]
TEMPLATE = "site.html.j2"
PAGES = (
    "*.md",
    "docs/*.md",
    "reproduce/README.md",
    "src/*/README.md",
    "src/*/*/README.md",
)
REPORTS = ("results/standard", "results/real")
TABLES = tuple(f"{report}/*/table.md" for report in REPORTS)
PLAY = "results/play.html"
NOTEBOOKS = ("notebooks/start_here.ipynb", "notebooks/episodes/*.ipynb")
FRONT = Path("index.html")
SOURCES = (".md", ".ipynb")  # what the site has as pages
LINK_TO_SOURCE = re.compile(r'(?<=<a href=")([^":#]+\.(?:md|ipynb))(?=["#])')
PICTURES = (".png", ".svg")
HEADINGS = ("h1", "h2", "h3")
CAPTION = re.compile(r"<p><strong>([^<]+)</strong></p>")
SLUG = re.compile(r"[^\w\- ]")
ABOUT = "Five papers on language models that teach themselves, played and checked on a laptop."
LONGEST_DESCRIPTION = 160  # characters that search engines show


@dataclass(frozen=True)
class Repository:
    """The published repository: its address, and the files and folders that it has."""

    address: str
    files: frozenset[str]
    folders: frozenset[str]

    @classmethod
    def of(cls, root: Path) -> "Repository":
        """Return the repository of a clone, with the address of its CITATION.cff."""
        citation = yaml.safe_load((root / "CITATION.cff").read_text("utf-8"))
        files = _tracked(root, (".",))
        folders = {parent.as_posix() for file in files for parent in Path(file).parents}
        return cls(citation["repository-code"], frozenset(files), frozenset(folders))

    def address_of(self, path: str) -> str | None:
        """Return the address of a file or folder; None if the repository does not have it."""
        if path in self.files:
            return f"{self.address}/blob/main/{path}"
        if path in self.folders:
            return f"{self.address}/tree/main/{path}"
        return None


def build(root: Path, site: Path) -> None:
    """Build the site of a repository into a new folder."""
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    copied = _tracked(root, REPORTS)
    if (root / PLAY).is_file():
        copied.append(PLAY)
    for name in copied:
        _copy(root / name, site / name)
    notebooks = list(_files(root, NOTEBOOKS))
    bodies = {}
    for notebook in notebooks:
        bodies[notebook] = notebook_to_html(root / notebook)
    for page in _files(root, (*PAGES, *TABLES)):
        bodies[page] = to_html((root / page).read_text("utf-8"))
    for source, body in bodies.items():
        for picture in _pictures(root, source, body):
            _copy(root / picture, site / picture)
        _write(site, source, body)
    _write_front(root, site, notebooks)
    repository = Repository.of(root)
    for page in [FRONT, *bodies]:
        file = site / page.with_suffix(".html")
        file.write_text(_with_living_links(repository, site, file), "utf-8")
    for name in copied:
        if name.endswith(".html"):
            file = site / name
            file.write_text(_with_links_to_pages(site, file), "utf-8")


def _files(root: Path, patterns: Iterable[str]) -> Iterator[Path]:
    """Yield the files of some patterns, relative to the repository, in order."""
    for pattern in patterns:
        for file in sorted(root.glob(pattern)):
            yield file.relative_to(root)


def _tracked(root: Path, folders: Iterable[str]) -> list[str]:
    """Return the files below some folders that git tracks."""
    command = ["git", "ls-files", "--", *folders]
    process = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=True
    )
    return process.stdout.splitlines()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _pictures(root: Path, page: Path, body: str) -> Iterator[Path]:
    """Yield the pictures that a page shows, for a light and for a dark screen."""
    html = BeautifulSoup(body, "html.parser")
    for tag in html.find_all(["img", "source"]):
        target = tag.get("src") or tag.get("srcset") or ""
        if ":" in target:  # an address, or the picture itself
            continue
        file = (root / page.parent / target).resolve()
        if file.suffix in PICTURES and file.is_file():
            yield file.relative_to(root)


class _Renderer(mistune.HTMLRenderer):
    """Renders headings with the ids by which other pages link them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.uses: Counter[str] = Counter()

    def heading(self, text: str, level: int, **attributes: Any) -> str:
        id = slug(text)
        earlier = self.uses[id]
        self.uses[id] += 1
        if earlier:  # as GitHub numbers equal headings
            id = f"{id}-{earlier}"
        return f'<h{level} id="{id}">{text}</h{level}>\n'


def slug(heading: str) -> str:
    """Return the id that GitHub gives a heading."""
    text = BeautifulSoup(heading, "html.parser").get_text()
    return SLUG.sub("", text.strip().lower()).replace(" ", "-")


def to_html(text: str) -> str:
    """Turn a page in Markdown into HTML."""
    renderer = _Renderer(escape=False)
    markdown = mistune.create_markdown(renderer=renderer, plugins=["table"])
    return _with_heading(str(markdown(text)))


def _with_heading(body: str) -> str:
    """Return a body whose caption, as tables of results begin, is its heading."""
    caption = CAPTION.match(body)
    if caption is None:
        return body
    title, bracket, settings = caption[1].partition(" (")
    paragraph = f"<p>({settings}</p>" if bracket else ""
    return f"<h1>{title}</h1>\n{paragraph}{body[caption.end() :]}"


def notebook_to_html(notebook: Path) -> str:
    """Return the text, code and committed outputs of a notebook as HTML."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(template_name="basic", exclude_anchor_links=True)
    body, _ = exporter.from_filename(str(notebook))
    page = BeautifulSoup(body, "html.parser")
    for heading in page.find_all(HEADINGS):
        # As Jupyter names them.
        heading["id"] = heading.get_text().strip().replace(" ", "-")
    return str(page)


def _write(site: Path, source: Path, body: str) -> None:
    """Write the page that is made from a file."""
    page = BeautifulSoup(body, "html.parser")
    heading = page.find(["h1", "h2", "p"])
    title = source.stem
    if heading:
        title = heading.get_text()
    description = _description(page) or title
    file = source.with_suffix(".html")
    _render(site, file, title=title, description=description, body=body)


def _description(page: BeautifulSoup) -> str:
    """Return the beginning of the first paragraph that has text; "" if none has."""
    for paragraph in page.find_all("p"):
        text = paragraph.get_text().strip()
        if text:
            return textwrap.shorten(text, LONGEST_DESCRIPTION, placeholder=" …")
    return ""


def _write_front(root: Path, site: Path, notebooks: list[Path]) -> None:
    readme = BeautifulSoup(
        to_html((root / "README.md").read_text("utf-8")), "html.parser"
    )
    _render(
        site,
        FRONT,
        title="coevolve",
        description=ABOUT,
        front=True,
        papers=read_toml(root / "reproduce/papers.toml"),
        total=_total(site),
        has_play=(site / PLAY).is_file(),
        notebooks=notebooks,
        picture=_picture(readme),
        citation=str(readme.find("code", class_="language-bibtex") or ""),
        docs=_table_of_docs(root),
    )


def _picture(readme: BeautifulSoup) -> str:
    """Return the picture at the head of the README with its caption."""
    picture = readme.find("picture")
    if picture is None:
        return ""
    caption = picture.find_next("em")
    return f"{picture}<figcaption>{caption.decode_contents() if caption else ''}</figcaption>"


def _table_of_docs(root: Path) -> str:
    """Return the first table of the documentation's front page, with links from the root."""
    page = root / "docs/README.md"
    if not page.is_file():
        return ""
    table = BeautifulSoup(to_html(page.read_text("utf-8")), "html.parser").find("table")
    if table is None:
        return ""
    for link in table.find_all("a"):
        if ":" not in link["href"]:
            link["href"] = posixpath.normpath(posixpath.join("docs", link["href"]))
    return str(table)


def _total(site: Path) -> str:
    """Return the first line and the bar of the ledger, as its page has them."""
    page = site / "results/standard/index.html"
    if not page.is_file():
        return ""
    ledger = BeautifulSoup(page.read_text("utf-8"), "html.parser")
    html = ""
    for name in ("total", "bar", "key"):
        part = ledger.find(class_=name)
        if part is not None:
            html += str(part)
    return html


def _render(site: Path, page: Path, **facts: Any) -> None:
    import jinja2

    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    template = jinja2.Environment(loader=loader, autoescape=True).get_template(TEMPLATE)
    up = "../" * (len(page.parts) - 1)
    file = site / page
    file.parent.mkdir(parents=True, exist_ok=True)
    html = BeautifulSoup(template.render(up=up, **facts), "html.parser")
    _make_tables_accessible(html)
    _set_sizes(html, file.parent)
    file.write_text(str(html), "utf-8")


def _make_tables_accessible(page: BeautifulSoup) -> None:
    """Let the keyboard scroll every table, and turn empty headings into plain cells."""
    for table in page.find_all("table"):
        heading = table.find_previous(HEADINGS)
        frame = page.new_tag("div", attrs={"class": "wide", "tabindex": "0"})
        frame["role"] = "group"
        frame["aria-label"] = heading.get_text().strip() if heading else "table"
        table.wrap(frame)
    for heading in page.find_all("th"):
        if not heading.get_text().strip():
            heading.name = "td"


def _set_sizes(page: BeautifulSoup, folder: Path) -> None:
    """Name the size of every picture that is a file, so that no text moves when it loads."""
    for picture in page.find_all("img", src=True, width=False):
        file = folder / picture["src"]
        if file.suffix in PICTURES and file.is_file():
            size = size_of(file)
            if size is not None:
                picture["width"] = str(size.width)
                picture["height"] = str(size.height)


def _with_living_links(repository: Repository, site: Path, file: Path) -> str:
    """Return a page whose links to Markdown and notebooks lead to their pages.

    Links to other files lead to the repository, or are replaced by their text if it lacks them too.
    """
    page = BeautifulSoup(file.read_text("utf-8"), "html.parser")
    folder = file.parent.relative_to(site).as_posix()
    for link in page.find_all("a", href=True):
        path, hash_sign, anchor = link["href"].partition("#")
        if not path or ":" in path:
            continue
        target = _page_of(site, file, path)
        if target is None:
            source = posixpath.normpath(posixpath.join(folder, path))
            target = repository.address_of(source)
        if target is None:
            link.unwrap()
        else:
            link["href"] = f"{target}{hash_sign}{anchor}"
    return str(page)


def _with_links_to_pages(site: Path, file: Path) -> str:
    """Return a copied page whose links to Markdown and notebooks lead to their pages.

    All else stays as it was: reports leave out closing tags, and one page is mostly a program.
    """
    text = file.read_text("utf-8")
    return LINK_TO_SOURCE.sub(
        lambda match: _page_of(site, file, match[1]) or match[1], text
    )


def _page_of(site: Path, file: Path, path: str) -> str | None:
    """Return where a link of a page leads on the site; None if the site has no such page."""
    target = Path(path)
    if target.suffix in SOURCES:
        target = target.with_suffix(".html")
    linked = (file.parent / target).resolve()
    if linked == site.resolve() / "README.html":
        target = target.with_name(FRONT.name)  # which takes the README's place
        linked = site.resolve() / FRONT
    return target.as_posix() if linked.is_file() else None


def dead_links(site: Path) -> list[str]:
    """List the links of all pages that lead nowhere, a line each."""
    pages = {}
    for file in sorted(site.rglob("*.html")):
        text = file.read_text("utf-8")
        pages[file.resolve()] = BeautifulSoup(text, "html.parser")
    dead = []
    for file, page in pages.items():
        for target in _targets(page):
            if not _leads_somewhere(pages, file, target):
                dead.append(f"{os.path.relpath(file, site)}: {target}")
    return dead


def _targets(page: BeautifulSoup) -> Iterator[str]:
    """Yield what a page links and shows, without addresses of the network and data."""
    for tag in page.find_all(["a", "img", "link", "script"]):
        target = tag.get("href") or tag.get("src")
        if target and not re.match(r"(https?|data|mailto):", target):
            yield target


def _leads_somewhere(pages: dict[Path, BeautifulSoup], file: Path, target: str) -> bool:
    path, _, anchor = unquote(target).partition("#")
    linked = (file.parent / path).resolve() if path else file
    if not linked.is_file():
        return False
    # The anchors of the page with an episode are a visitor's choices.
    if not anchor or linked not in pages or linked.name == Path(PLAY).name:
        return True
    return pages[linked].find(id=anchor) is not None


def main() -> int:
    """Build the site, or check it; the exit code is 1 with dead links."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site")
    parser.add_argument("--check", action="store_true", help="only look for dead links")
    arguments = parser.parse_args()
    if not arguments.check:
        build(ROOT, arguments.out)
    dead = dead_links(arguments.out)
    print(*dead, f"{len(dead)} dead links in {arguments.out}", sep="\n")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
