"""Progress: log lines, the time left, and a notebook's display that is updated in place."""

from xml.etree import ElementTree

import IPython
import pytest
from IPython import display as ipython_display

from coevolve import progress as module
from coevolve.progress import duration, progress


class Clock:
    """A clock that goes forward only when told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticking = Clock()
    monkeypatch.setattr(module, "time", ticking)
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    monkeypatch.delenv("COEVOLVE_PROGRESS", raising=False)
    return ticking


def test_log_lines_every_few_steps_or_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with progress(7, "train", every=3, seconds=10) as bar:
        for step in range(1, 8):
            clock.now += 12 if step == 5 else 1
            bar.update(step, reward=step / 8, note="a\nb\x1b")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["3/7", "5/7", "6/7", "7/7"]
    assert lines[0] == r"train step 3/7 reward 0.375 note a b\x1b eta 0:04"
    assert lines[-1] == r"train step 7/7 reward 0.875 note a b\x1b took 0:18"


def test_resumed_run_counts_its_own_pace(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), progress(40, "train", every=1) as bar:
        clock.now += 2
        bar.update(31)
        raise RuntimeError
    assert capsys.readouterr().out.splitlines() == ["train step 31/40 eta 0:18", "train step 31/40 stopped after 0:02"]


class Handle:
    """Remembers what a notebook was told to show."""

    def __init__(self, shown: object):
        self.shown = [shown.data]

    def update(self, shown: object) -> None:
        self.shown.append(shown.data)


@pytest.mark.parametrize("lines", [False, True])
def test_notebook_updates_one_display(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: bool
) -> None:
    handles = []
    shell = type("Shell", (), {"kernel": object()})()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.setattr(
        ipython_display, "display", lambda shown, display_id: handles.append(Handle(shown)) or handles[-1]
    )
    if lines:
        monkeypatch.setenv("COEVOLVE_PROGRESS", "lines")
    with progress(40, "<b>", every=20) as bar:
        for step in range(1, 41):
            clock.now += 0.125
            bar.update(step, reward=0.5)
    (handle,) = handles
    assert len(handle.shown) == 22  # the start, every other step, the end
    assert handle.shown[-1].startswith('<div><progress value="40" max="40">')
    assert "&lt;b&gt; step 40/40 reward 0.5 took 0:05" in handle.shown[-1]
    assert len(capsys.readouterr().out.splitlines()) == (3 if lines else 0)


def test_notebook_draws_a_curve_of_every_number(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    handles = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: type("Shell", (), {"kernel": object()})())
    monkeypatch.setattr(
        ipython_display, "display", lambda shown, display_id: handles.append(Handle(shown)) or handles[-1]
    )
    with progress(1000, "run") as bar:
        for step in range(1, 1001):
            clock.now += 1.0
            score = {"<a>": 1.0 - step / 1000} if step % 500 == 0 else {}
            bar.update(step, reward=step / 1000, bad=float("nan"), note="text", **score)
    page = ElementTree.fromstring(handles[0].shown[-1].replace("<br>", "<br/>"))
    lines = [
        [tuple(map(float, point.split(","))) for point in line.get("points").split()] for line in page.iter("polyline")
    ]
    assert len(lines) == 2, "neither texts nor what is not a number has a curve"
    rising, falling = lines
    assert rising[0] == (0, 48) and rising[-1] == (180, 0) and len(rising) < 200, "thinned, from corner to corner"
    assert falling == [(90, 0), (180, 48), (180, 48)], "a number that comes rarely stands at its own steps"
    says = ["".join(span.find("code").itertext()) for span in page.iter("span")]
    assert says == ["reward 1" + "0.001 to 1", "<a> 0" + "0 to 0.5"]


def test_terminal_draws_a_bar(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with progress(2, "train [red]") as bar:
        clock.now += 1
        bar.update(1, reward=0.25)
        bar.update(2, reward=0.5)
    assert "train [red] step 2/2 reward 0.5 took 0:01" in " ".join(capsys.readouterr().out.split())


def test_duration_and_refusals() -> None:
    assert [duration(s) for s in (0.4, 42, 3599.6, 3723)] == ["0:00", "0:42", "1:00:00", "1:02:03"]
    with pytest.raises(ValueError, match="total must not be negative"):
        progress(-1, "train")
