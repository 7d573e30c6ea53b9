"""The untrained model: a protocol without episodes, so that every row of a table is a run."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from coevolve import config
from coevolve.checks import among
from coevolve.method import Method
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

PAPERS = ("mae", "sage", "spice", "comas", "conl")


@dataclass(kw_only=True)
class Base(Method):
    """Evaluate the model as it comes, asked the way one paper asks."""

    TRAINING: ClassVar[dict[str, Any]] = {"steps": 0}

    paper: str = "mae"  # whose solver prompt and answer format
    setups: tuple[str, ...] = ("vanilla",)  # inference set-ups of the final scoring
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        among("paper", self.paper, PAPERS)
        protocol = config.method(self.paper)(prompt=self.prompt, prompt_folder=self.prompt_folder)
        self.solver = protocol.solver
        if hasattr(protocol, "read"):
            self.read = protocol.read
