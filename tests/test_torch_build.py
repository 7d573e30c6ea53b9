"""`make setup` takes torch's CPU build where it is enough, and pip's own choice elsewhere."""

import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tools import torch_build


class Index(BaseHTTPRequestHandler):
    """An index that has torch and nothing else."""

    def do_HEAD(self) -> None:
        self.send_response(200 if self.path == "/torch/" else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture
def index() -> Iterator[str]:
    """The address of a server on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def laptop(index: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without a GPU on Linux, with pip as it comes, that reaches torch's index."""
    monkeypatch.setattr(torch_build, "CPU_INDEX", index)
    monkeypatch.setattr(torch_build, "PATIENCE", 60.0)  # however slow this machine is
    for name, value in {
        "is_for_cuda": True,
        "has_gpu": False,
        "has_own_sources": False,
    }.items():
        monkeypatch.setattr(torch_build, name, lambda value=value: value)
    return monkeypatch


class Pip:
    """Commands of pip in place of their execution, and the exit status of each."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = iter(statuses)
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str]) -> subprocess.CompletedProcess:
        self.commands.append(command)
        return subprocess.CompletedProcess(command, next(self.statuses))


def install(laptop: pytest.MonkeyPatch, *statuses: int) -> list[list[str]]:
    """Install torch with a pip that exits with `statuses`; return its commands."""
    pip = Pip(*statuses)
    laptop.setattr(subprocess, "run", pip)
    assert torch_build.main() == statuses[-1]
    return pip.commands


def test_a_laptop_gets_the_pinned_cpu_build_alone(
    laptop: pytest.MonkeyPatch, index: str
) -> None:
    (command,) = install(laptop, 0)
    assert torch_build.pinned() in command
    assert command[-3:] == ["--no-deps", "--index-url", index]


@pytest.mark.parametrize(
    ("name", "value"),
    [("is_for_cuda", False), ("has_gpu", True), ("has_own_sources", True)],
)
def test_elsewhere_pip_chooses(
    name: str, value: bool, laptop: pytest.MonkeyPatch
) -> None:
    laptop.setattr(torch_build, name, lambda: value)
    (command,) = install(laptop, 0)
    assert "--index-url" not in command


def test_pip_chooses_if_torchs_index_is_out_of_reach(
    laptop: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    laptop.setattr(torch_build, "CPU_INDEX", "http://127.0.0.1:9")
    (command,) = install(laptop, 0)
    assert "--index-url" not in command
    assert "does not answer" in capsys.readouterr().out


def test_pip_chooses_after_torchs_index_failed(laptop: pytest.MonkeyPatch) -> None:
    first, second = install(laptop, 1, 0)
    assert "--index-url" in first
    assert "--index-url" not in second


def test_an_index_without_torch_does_not_answer(index: str) -> None:
    assert torch_build.answers(f"{index}/torch/", 60.0)
    assert not torch_build.answers(f"{index}/other/", 60.0)


@pytest.mark.parametrize(
    ("settings", "has_sources"),
    [
        ("", False),
        ("global.timeout='60'\n:env:.disable-pip-version-check='1'\n", False),
        ("global.timeout='60'\nuser.index-url='https://mirror.example/simple'\n", True),
        (":env:.find-links='/wheels'\n", True),
    ],
)
def test_settings_of_pip_that_name_a_source_are_found(
    settings: str, has_sources: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = subprocess.CompletedProcess([], 0, stdout=settings)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: listed)
    assert torch_build.has_own_sources() == has_sources
