"""The play page in Chromium: guessing first, folded turns, another seed."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tools import lab, site_looks

PAGE = Path(__file__).resolve().parents[2] / "results/play.html"
pytestmark = pytest.mark.skipif(
    lab.CHROMIUM is None, reason="Chromium is not installed"
)

PATIENCE = 300  # s; a busy machine is slow
LECTURE = "#mae/17/1/before/step"
# The status line ends so where no turn is being sampled.
IS_PLAYED = "/ turns$/.test(document.querySelector('#status')?.textContent)"
ENTER: dict[str, Any] = {
    "key": "Enter",
    "code": "Enter",
    "windowsVirtualKeyCode": 13,
    "text": "\r",
}


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.Page]:
    """A tab of a browser."""
    assert lab.CHROMIUM is not None
    with ExitStack() as stack:
        yield lab.start_chromium(
            stack, tmp_path_factory.mktemp("chromium"), lab.CHROMIUM
        )


def visit(tab: lab.Page, address: str) -> None:
    """Load the page at an address and wait for its episode."""
    # An address that differs in its hash alone would load nothing.
    tab.call("Page.navigate", url="about:blank")
    blank = "location.href === 'about:blank' && document.readyState === 'complete'"
    lab.wait(lambda: tab.value(blank), PATIENCE, "an empty page")
    tab.call("Page.navigate", url=PAGE.as_uri() + address)
    wait_until_played(tab)


def wait_until_played(tab: lab.Page) -> None:
    lab.wait(lambda: tab.value(IS_PLAYED), PATIENCE, "an episode")


def press_enter(tab: lab.Page) -> None:
    for kind in ("keyDown", "keyUp"):
        tab.call("Input.dispatchKeyEvent", type=kind, **ENTER)


def text(tab: lab.Page, selector: str) -> str:
    """Return what a visitor reads in all elements of a selector."""
    script = f"[...document.querySelectorAll('{selector}')].map((one) => one.innerText).join('\\n')"
    return str(tab.value(script))


def click(tab: lab.Page, selector: str) -> None:
    tab.value(f"document.querySelector('{selector}').click()")


def seed(tab: lab.Page) -> int:
    """Return the seed in the form, which is that of the address."""
    shown = int(str(tab.value("document.querySelector('#seed').value")))
    assert tab.value("location.hash.split('/')[1]") == str(shown)
    return shown


def test_enter_alone_leads_through_a_lecture(tab: lab.Page) -> None:
    visit(tab, LECTURE)
    assert text(tab, "#status").startswith("1 of ")
    assert tab.value("document.querySelector('#guess').checked")
    count = int(text(tab, "#status").split(" of ")[1].split()[0])
    hidden_pay = False
    for _ in range(4 * count):
        if tab.value("document.activeElement.id") == "remark":
            break
        focused = text(tab, ":focus")
        if focused == "Show":
            assert "the oracle says" not in tab.value(
                "document.activeElement.closest('.turn').innerText"
            )
        hidden_pay |= "?" in text(tab, "#board .reward")
        press_enter(tab)
    assert tab.value("document.activeElement.id") == "remark"
    assert hidden_pay
    assert "?" not in text(tab, "#board .reward")
    assert "Zoe" in text(tab, "#remark"), "the remark on this episode"
    assert tab.value("location.hash") == LECTURE


def test_no_verdict_is_read_before_the_guess(tab: lab.Page) -> None:
    visit(tab, LECTURE)
    click(tab, "#all")
    everything = text(tab, "main")
    assert "the oracle says" not in everything
    assert not any(sign in everything for sign in "✓✗")
    click(tab, "#guess")
    everything = text(tab, "main")
    assert "the oracle says" in everything
    assert "?" not in text(tab, "#board .reward")
    assert not text(tab, ".show")


def test_an_opened_fold_stays_open_and_one_step_goes_over_it(tab: lab.Page) -> None:
    visit(tab, LECTURE)
    click(tab, "#next")
    click(tab, "#next")
    folded = int(tab.value("document.querySelectorAll('.fold .turn').length"))
    assert folded > 1
    assert text(tab, "#status").startswith(f"{2 + folded} of ")
    click(tab, ".fold summary")
    # The event of an opened fold comes later.
    tab.value("new Promise((resolve) => setTimeout(resolve, 100))")
    click(tab, "#next")
    assert tab.value("document.querySelector('.fold details').open")


def test_another_is_the_same_seed_each_time_and_a_typed_one_is_kept(
    tab: lab.Page,
) -> None:
    found = []
    for _ in range(2):
        visit(tab, "#mae/17/1/before")
        click(tab, "#another")
        lab.wait(lambda: seed(tab) != 17, PATIENCE, "another seed")
        wait_until_played(tab)
        found.append(seed(tab))
    assert found[0] == found[1]
    signs = text(tab, "#board .verdict")
    assert "✓" in signs
    assert "✗" in signs
    typed = """(() => {
        const field = document.querySelector("#seed");
        field.value = 18;
        field.dispatchEvent(new Event("change", { bubbles: true }));
    })()"""
    tab.value(typed)
    wait_until_played(tab)
    assert seed(tab) == 18


@pytest.mark.parametrize("theme", site_looks.THEMES)
@pytest.mark.parametrize("width", site_looks.WIDTHS)
def test_a_lecture_looks_right(tab: lab.Page, width: int, theme: str) -> None:
    tab.resize(width, lab.HEIGHT, 1.0)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    tab.call("Emulation.setEmulatedMedia", features=features)
    visit(tab, LECTURE)
    click(tab, "#all")
    click(tab, ".turn .show")
    findings = tab.value(site_looks.SCRIPT.read_text(encoding="utf-8"))
    assert isinstance(findings, dict)
    assert not any(findings.values()), findings
