"""The role diagrams of the papers, from the boxes and arrows in the batch's files."""

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from coevolve.methods.registry import get_method
from reproduce import HOME
from reproduce.analysis import figures


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
        arrows.append(figures.Edge(source, target, label.format(**fields), **options))
    figures.style()
    return figures.diagram("", "", places, roles, arrows)
