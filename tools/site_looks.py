"""Check how the pages of the site look: `python -m tools.site_looks SITE`, after `make site`.

Headless Chromium opens every page at two widths, light and dark. The checks are those of
tools/site_looks.js: no page wider than the screen, contrast of text, names of pictures and fields,
unique ids, order of headings. Exit code: 1 if a check has findings.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from coevolve.validation import user_path
from tools.lab import CHROMIUM, HEIGHT, ROOT, Page, start_chromium, wait
from tools.markdown_tables import markdown

WIDTHS = (400, 1400)
THEMES = ("light", "dark")
CHECKS = ("width", "contrast", "names", "ids", "headings")
SCRIPT = Path(__file__).with_suffix(".js")
MOST_SHOWN = 3  # findings of a check in a view of a page
# results/play.html writes its page with JavaScript, and Chromium needs seconds for it.
SETTLED = """new Promise(resolve => {
    let timer = setTimeout(resolve, 500);
    const restart = () => { clearTimeout(timer); timer = setTimeout(resolve, 500); };
    new MutationObserver(restart).observe(document, {childList: true, subtree: true});
    setTimeout(resolve, 20000);
})"""


@dataclass(frozen=True)
class View:
    """A page at a width and in a theme, with the findings of each check."""

    page: str
    width: int
    theme: str
    findings: dict[str, list[str]]


def look(page: Page, site: Path, file: Path) -> Iterator[View]:
    """Yield the views of a page."""
    page.call("Page.navigate", url=file.as_uri())
    wait(
        lambda: page.value("document.readyState === 'complete'"), 60, f"loading {file}"
    )
    page.value(SETTLED)
    script = SCRIPT.read_text(encoding="utf-8")
    for width in WIDTHS:
        page.resize(width, HEIGHT, 1.0)
        for theme in THEMES:
            features = [{"name": "prefers-color-scheme", "value": theme}]
            page.call("Emulation.setEmulatedMedia", features=features)
            findings = page.value(script)
            yield View(file.relative_to(site).as_posix(), width, theme, findings)


def views(site: Path, chromium: str) -> Iterator[View]:
    """Yield all views of all pages of a site."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        ExitStack() as stack,
    ):
        page = start_chromium(stack, Path(home), chromium)
        for file in sorted(site.resolve().rglob("*.html")):
            yield from look(page, site.resolve(), file)


def details(view: View) -> Iterator[str]:
    """Yield a line for each of a view's first findings."""
    for check in CHECKS:
        for finding in view.findings[check][:MOST_SHOWN]:
            yield f"{view.page}, {view.width} px, {view.theme}, {check}: {finding}"


def table(seen: Sequence[View]) -> str:
    """Return how many pages have findings, by width, theme and check."""
    rows = []
    for width in WIDTHS:
        for theme in THEMES:
            here = [view for view in seen if (view.width, view.theme) == (width, theme)]
            cells: list[object] = [width, theme, len(here)]
            for check in CHECKS:
                cells.append(sum(bool(view.findings[check]) for view in here))
            rows.append(cells)
    return markdown(["width", "theme", "pages", *CHECKS], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the first findings of every view and the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.site_looks", description=__doc__
    )
    parser.add_argument("site", type=user_path, nargs="?", default=ROOT / "site")
    parser.add_argument("--chromium", default=CHROMIUM)
    options = parser.parse_args(arguments)
    if options.chromium is None:
        parser.error("Chromium is not on the PATH: name it with --chromium")
    seen = []
    for view in views(options.site, options.chromium):
        seen.append(view)
        print(*details(view), sep="\n", end="\n" if any(details(view)) else "")
    if not seen:
        parser.error(f"{options.site} has no pages: run `make site` first")
    print(table(seen))
    return int(any(any(details(view)) for view in seen))


if __name__ == "__main__":
    sys.exit(main())
