"""The untrained model: a method without episodes, so that every line of a table is a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from coevolve.methods import registry
from coevolve.methods.base import Method


@dataclass(kw_only=True)
class Base(Method):
    """Evaluate the model as it comes, asked the way one paper asks."""

    seeded: ClassVar[bool] = False
    TRAINING: ClassVar[Mapping[str, Any]] = {"steps": 0}

    paper: Annotated[str, ("mae", "sage", "spice", "comas", "conl")] = "mae"  # type: ignore[misc]  # whose prompt

    def __post_init__(self) -> None:
        super().__post_init__()
        self.method: Method = registry.get_method(self.paper)(prompt=self.prompt, prompt_folder=self.prompt_folder)
        self.solver = self.method.answering

    def read_answer(self, text: str) -> str | None:
        """Return what a reply answers, in the paper's form."""
        return self.method.read_answer(text)
