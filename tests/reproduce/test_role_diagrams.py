"""The role diagrams at the head of the episode notebooks."""

import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text

from coevolve.methods.comas import CoMAS
from reproduce.analysis import role_diagrams

SPEAKERS = {
    "mae_fig1": ("Proposer", "Solver", "Judge"),
    "sage_fig1": ("Challenger", "Planner", "Solver", "Critic"),
    "spice_fig2": ("Challenger", "Reasoner"),
    "conl_fig1": ("Proposal", "Review", "Revision", "Verdict"),
}


@pytest.mark.parametrize("id", SPEAKERS)
def test_a_diagram_names_every_role(id: str) -> None:
    figure = role_diagrams.of_artefact(id)
    texts = [text.get_text() for text in figure.findobj(Text)]
    plt.close(figure)
    for speaker in SPEAKERS[id]:
        assert any(speaker in text for text in texts), speaker


def test_the_diagram_of_a_discussion_has_the_numbers_of_its_method() -> None:
    figure = role_diagrams.of_discussion(CoMAS(agents=3))
    texts = [text.get_text() for text in figure.findobj(Text)]
    plt.close(figure)
    for label in ("Solution", "Evaluation", "Scoring", "3 agents: each learns"):
        assert any(text.startswith(label) for text in texts), label


def test_an_artefact_without_a_diagram_is_refused() -> None:
    with pytest.raises(KeyError):
        role_diagrams.of_artefact("mae_fig99")
