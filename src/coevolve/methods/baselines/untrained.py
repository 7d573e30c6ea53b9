"""The untrained model: a method without episodes, so that every line of a table is a run."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from coevolve.methods import registry
from coevolve.methods.base import Method


class Base(Method):
    """Evaluate the model as it comes, asked the way one paper asks."""

    seeded: ClassVar[bool] = False
    TRAINING: ClassVar[Mapping[str, Any]] = {"steps": 0}

    paper: Literal["mae", "sage", "spice", "comas", "conl"] = "mae"
    """The paper whose prompt the model is asked with."""

    @property
    def paper_name(self) -> str:  # type: ignore[override]
        """The paper that the user chose."""
        return self.paper

    def define_roles(self) -> None:
        """Make the solver of the paper's method."""
        cls = registry.get_method(self.paper)
        self.method = cls(prompt=self.prompt, prompt_folder=self.prompt_folder)
        self.solver = self.method.answering

    def read_answer(self, text: str) -> str | None:
        """Return what a reply answers, in the paper's form."""
        return self.method.read_answer(text)
