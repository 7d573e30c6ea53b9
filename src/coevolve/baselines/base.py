"""The untrained model: a protocol without episodes, so that every row of a table is a run."""

from dataclasses import dataclass

from coevolve import prompts
from coevolve.pools import Pool


@dataclass(kw_only=True)
class Base:
    """Evaluate the model as it comes; set `steps` to 0."""

    prompt: str = "compact"
    prompt_folder: str | None = None

    def __post_init__(self) -> None:
        self.solver = prompts.load("mae", "solver", self.prompt, folder=self.prompt_folder)

    @property
    def pools(self) -> dict[str, Pool]:
        """No pools."""
        return {}
