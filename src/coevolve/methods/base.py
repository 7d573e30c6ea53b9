"""The contract of a method: what the training loop asks of it, with a documented default for everything but `episode`.

A method is a dataclass. Its fields are the numbers that a user may set, its roles are attributes, and `episode` is
the algorithm. The loop calls what stands here and probes for nothing else.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from pydantic import NonNegativeFloat

from coevolve import worlds
from coevolve.advantages.estimators import ESTIMATORS, WITH_KL
from coevolve.rollout.pools import Pool
from coevolve.text import prompts
from coevolve.text.parse import tag
from coevolve.types import Episode, Outcome, Role
from coevolve.validation import among, settle

if TYPE_CHECKING:
    from coevolve.models.policy import Policy
    from coevolve.rollout.engine import Engine
    from coevolve.runs.record import Recorder
    from coevolve.training.config import Run


PAPERS = tomllib.loads(Path(__file__).with_name("training.toml").read_text(encoding="utf-8"))


def training(name: str) -> Mapping[str, Any]:
    """Return a table of papers/training.toml: a paper's values of fields of a Run, or of its method."""
    return {field: tuple(value) if isinstance(value, list) else value for field, value in PAPERS[name].items()}


@dataclass(kw_only=True)
class Method:
    """One way for a model to learn from playing roles. Subclasses add fields, roles and `episode`."""

    paper: ClassVar[str] = ""  # whose prompt files and published tests it uses; empty: a method of your own
    seeded: ClassVar[bool] = True  # whether it starts from published questions, which a data world must then have
    TRAINING: ClassVar[Mapping[str, Any]] = {}  # the paper's values of the fields of a Run
    gates: ClassVar[Mapping[str, str]] = {}  # {what lets some pass: the metric that is the share passed}, see `alive`
    PAPER: ClassVar[Mapping[str, Any]] = {}  # the paper's values of fields whose default here is another

    estimator: Annotated[str, (*ESTIMATORS,)] = "task_relative"  # how rewards become advantages, see `advantages`
    kl_coef: NonNegativeFloat = 0.0  # weight of the token-level penalty for leaving the starting model
    setups: tuple[str, ...] = ("vanilla",)  # inference set-ups of the final scoring, see `setups`
    prompt: str = "compact"  # which prompt files: compact (embedded models), plain (small real ones) or full
    prompt_folder: str | None = None  # a folder with your own prompts of the same names
    world: worlds.World = field(default=cast(worlds.World, "tiny"), repr=False)  # a name: where questions come from

    def __post_init__(self) -> None:
        """Bring every field into its type and resolve the world's name; ValueError in one line for a wrong value.

        A subclass with a `__post_init__` of its own calls this one first.
        """
        settle(self, "world")
        if self.kl_coef:
            among("estimator with a kl_coef", self.estimator, WITH_KL)
        self.world = worlds.resolve(self.world, self.paper, self.seeded)

    # The algorithm.

    def episode(self, rng: Random) -> Episode:
        """Play one episode: yield turns, receive replies, return an Outcome. The one thing that must be written."""
        raise NotImplementedError(f"{type(self).__name__} must define episode(self, rng)")

    def observe(self, outcome: Outcome, world: worlds.World) -> dict[str, Any]:
        """Return the facts to record about an episode: what `outcome.trace` shows, and what only an oracle can see."""
        return {}

    def observed(self, rng: Random) -> Episode:
        """Play one episode, with the facts of `observe` in its outcome."""
        outcome = yield from self.episode(rng)
        return replace(outcome, facts=self.observe(outcome, self.world))

    # Who speaks.

    @property
    def roles(self) -> dict[str, Role]:
        """All roles by attribute name. The one called `solver` answers held-out questions."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Role)}

    @property
    def answering(self) -> Role:
        """The role that answers held-out questions; its prompt has exactly one placeholder."""
        if "solver" not in self.roles:
            raise ValueError(f"{type(self).__name__} must have a role `solver`, which answers held-out questions")
        return self.roles["solver"]

    def role(self, prompt: str, name: str | None = None, **more: Any) -> Role:
        """Return the role that speaks a prompt file of the method's paper; `more`: a policy and a temperature."""
        return prompts.load_role(self.paper, prompt, self.prompt, name=name, folder=self.prompt_folder, **more)

    def read_answer(self, text: str) -> str | None:
        """Return what a reply of the solver answers, here the content of its one <answer> pair; None without one."""
        return tag(text, "answer")

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that the roles speak with, in the order of the roles."""
        return tuple(dict.fromkeys(role.policy for role in self.roles.values())) or ("shared",)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Those of the policies that are never trained: the ones with a model of their own."""
        return tuple(self.models)

    @property
    def models(self) -> dict[str, str]:
        """{policy: model} where a policy is not the run's own model."""
        return {}

    @property
    def scored(self) -> tuple[str, ...]:
        """The policies that answer held-out questions, in turn."""
        return tuple(name for name in self.policies if name not in self.frozen)

    # What grows.

    @property
    def pools(self) -> dict[str, Pool]:
        """The pools that episodes read and add to, by the names in `Outcome.adds`."""
        return {}

    def measure(self) -> dict[str, float | None]:
        """Return numbers about the pools or the corpus for the metrics of every step."""
        return {}

    # Before, during and after a run.

    def before_run(self) -> None:
        """Fetch what episodes need. Runs before any model is loaded; ValueError in one line when it is missing."""

    def fit(self, policy: "Policy", run: "Run") -> int | None:
        """Train the policy with a trainer of the method's own and return its steps; None: the loop trains."""
        return None

    def after_step(self, step: int, keep: Callable[[str], None]) -> None:
        """Act after a step. `keep(name)` writes the trained policies into a folder of that name in the run's."""

    def after_run(self, engine: "Engine", key: tuple[int, ...], log: "Recorder") -> dict[str, Any]:
        """Act after the final scoring, with `key` for the noise of further episodes; return entries of the summary."""
        return {}
