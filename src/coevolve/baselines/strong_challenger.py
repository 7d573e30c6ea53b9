"""Strong Challenger as SPICE's Table 1 uses it: a frozen, stronger model asks, ours learns to answer."""

from dataclasses import dataclass

from coevolve.checks import among
from coevolve.papers.spice.method import SPICE


@dataclass(kw_only=True)
class StrongChallenger(SPICE):
    """SPICE in which another model is the Challenger and only the Reasoner is trained (section 3.1)."""

    challenger: str = "fixed"  # the strong model is not trained
    strong: str = "Qwen/Qwen3-32B"  # the paper's Qwen3-32B-Instruct; a backbone, a model folder or a hub id

    def __post_init__(self) -> None:
        super().__post_init__()
        among("challenger", self.challenger, ("fixed",))

    @property
    def models(self) -> dict[str, str]:
        """The policy that is not the run's own model."""
        return {"challenger": self.strong}
