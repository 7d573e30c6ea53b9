"""The role diagrams of the papers, from the boxes and arrows in the batch's files."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from coevolve.methods.comas import CoMAS
from coevolve.methods.registry import get_method
from reproduce import HOME
from reproduce.analysis import figures
from reproduce.analysis.figures import Edge

DISCUSSION = "discussion, round by round"
PAYMENT = """\
rewards: r = (score - 1) / 2 for the solution, 1 - r for the
evaluation; a scoring gets 0, or -1 if it cannot be parsed"""


def of_artefact(id: str) -> Figure:
    """Draw the diagram of an artefact such as mae_fig1, without title and caption.

    Raises KeyError if its paper's file in reproduce/ has no such diagram.
    """
    paper = id.partition("_")[0]
    text = (HOME / "reproduce" / f"{paper}.toml").read_text(encoding="utf-8")
    parameters = tomllib.loads(text)["artefacts"][id]["parameters"]
    return draw(parameters["method"], parameters["boxes"], parameters["edges"])


def draw(
    method: str, boxes: Mapping[str, Mapping[str, Any]], edges: Sequence[Sequence[Any]]
) -> Figure:
    """Draw boxes and arrows, as notebooks/figures/diagrams.ipynb describes them.

    A field of the method in braces, in the label of an arrow, becomes its value.
    """
    roles = {}
    places = {}
    for name, box in boxes.items():
        places[name] = box["at"]
        if "role" in box:
            owner = get_method(box.get("method", method))()
            roles[name] = getattr(owner, box["role"])
    fields = get_method(method)().describe()
    arrows = []
    for source, target, label, *more in edges:
        options = dict(*more)
        arrows.append(Edge(source, target, label.format(**fields), **options))
    figures.style()
    return figures.diagram("", "", places, roles, arrows)


def of_discussion(method: CoMAS) -> Figure:
    """Draw Figure 2 of CoMAS, one round of a discussion, for the agents of this method."""
    buffers = f"{method.agents} agents: each learns from a buffer of its own replies"
    horizon = f"last {method.horizon}\nrounds"
    places = {
        "problem": (49, 93),
        "Solution": (15, 69),
        "Evaluation": (49, 69),
        "Scoring": (89, 69),
        DISCUSSION: (31, 36),
        PAYMENT: (50, 19),
        buffers: (50, 4),
    }
    edges = [
        Edge("problem", "Solution", "", bend=[(15, 93)]),
        Edge("problem", "Evaluation", ""),
        Edge("problem", "Scoring", "", bend=[(89, 93)]),
        Edge("Solution", "Evaluation", "solution"),
        Edge("Evaluation", "Scoring", "evaluation"),
        Edge("Solution", DISCUSSION, "kept"),
        Edge(DISCUSSION, "Solution", horizon),
        Edge("Evaluation", DISCUSSION, "kept"),
        Edge(DISCUSSION, "Evaluation", horizon),
        Edge("Scoring", PAYMENT, "score:\n1, 2 or 3"),
        Edge(PAYMENT, buffers, ""),
    ]
    roles = {
        "Solution": method.solution,
        "Evaluation": method.evaluation,
        "Scoring": method.scoring,
    }
    title = "CoMAS, Figure 2: one round of a discussion"
    caption = "A random agent takes each turn and is rewarded for its reply."
    figures.style()
    return figures.diagram(title, caption, places, roles, edges)
