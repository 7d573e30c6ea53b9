"""The untrained model: a method without episodes, so that every row of a table is a run."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from coevolve.methods import registry
from coevolve.methods.base import Method


class Base(Method):
    """Evaluate the model without training, with the solver's prompt of one paper."""

    needs_seed_questions: ClassVar[bool] = False
    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = {"steps": 0}

    paper: Literal["mae", "sage", "spice", "comas", "conl"] = "mae"
    """The paper whose prompt is used."""

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
        """Return the answer in a reply, in the paper's form; None if there is none."""
        return self.method.read_answer(text)
