"""The gallery of hacked rewards quotes what its commands print."""

import re
import shlex
from pathlib import Path

import pytest

from coevolve.cli import main

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hacked-rewards.md"
EXAMPLES = re.findall(
    r"```sh\ncoevolve (.*?)\n```\n\n```text\n(.*?)\n```",
    PAGE.read_text(encoding="utf-8"),
    flags=re.DOTALL,
)


def test_the_gallery_has_an_example_of_each_paper():
    methods = [shlex.split(command)[1] for command, _ in EXAMPLES]
    assert sorted(methods) == ["comas", "conl", "mae", "sage", "spice"]


@pytest.mark.parametrize("command, quoted", EXAMPLES, ids=[c for c, _ in EXAMPLES])
def test_the_command_prints_the_quoted_lines_in_this_order(
    command, quoted, capsys, monkeypatch
):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    assert main(shlex.split(command)) == 0
    printed = iter(capsys.readouterr().out.splitlines())
    for line in quoted.splitlines():
        assert line in printed  # looks on from where the last line was
