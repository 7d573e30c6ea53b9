"""The gallery of hacked rewards quotes what its commands print."""

import re
import shlex
from pathlib import Path

import pytest

from coevolve.cli import main
from coevolve.runs import record

PAGE = Path(__file__).resolve().parents[2] / "docs" / "hacked-rewards.md"
EXAMPLES = re.findall(
    r"```sh\ncoevolve (play .*?)\n```\n\n```text\n(.*?)\n```",
    PAGE.read_text(encoding="utf-8"),
    flags=re.DOTALL,
)


def test_every_section_has_a_command_and_every_paper_an_example():
    *sections, conclusion = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    assert conclusion.startswith("What they have in common")
    for section in sections:
        assert "```sh\ncoevolve " in section, section.splitlines()[0]
    methods = {shlex.split(command)[1] for command, _ in EXAMPLES}
    assert methods == {"comas", "conl", "mae", "sage", "spice"}


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


@pytest.mark.thorough
def test_a_reward_for_the_form_alone_rises_while_the_accuracy_stays(tmp_path):
    (command,) = re.findall(
        r"coevolve (train .*) --out \S+ (control=format)",
        PAGE.read_text(encoding="utf-8"),
    )
    words = [*shlex.split(" ".join(command)), "--out", str(tmp_path)]
    assert main(words) == 0
    curve = record.read(tmp_path)
    rewards = curve["reward/solver"].dropna()
    assert rewards.tail(6).mean() > rewards.head(6).mean() + 0.02
    accuracies = curve["validation"].dropna()
    assert accuracies.iloc[-1] - accuracies.iloc[0] < 0.03
