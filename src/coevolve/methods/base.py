"""The contract of a method: everything that the training loop calls, with documented defaults.

A method is a pydantic model. Its fields are the numbers that a user may set, `define_roles` makes
its roles, and `episode` is the algorithm, the only member without a default.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from random import Random
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    cast,
)

from pydantic import (
    ConfigDict,
    Field,
    NonNegativeFloat,
    SkipValidation,
    field_serializer,
    field_validator,
)

from coevolve import plugins, worlds
from coevolve.advantages.estimators import WITH_KL, Estimator
from coevolve.rollout.errors import MethodError
from coevolve.rollout.pools import Pool
from coevolve.text import prompts
from coevolve.text.parse import tag
from coevolve.types import Episode, Outcome, RewardError, Role
from coevolve.validation import Allowed, PathText, Settings, check_choice

if TYPE_CHECKING:
    from coevolve.models.policy import Policy
    from coevolve.rollout.engine import Engine
    from coevolve.runs.record import Recorder


Strategy = Literal[
    "vanilla",
    "consistency",
    "consistency_summed",
    "autogen",
    "debate",
    "debate_summed",
    "self_refine",
    "top_ranked",
]


def paper_table(paper: str, table: str = "run") -> Mapping[str, Any]:
    """Return a table of methods/<paper>/paper.toml: the paper's values of fields.

    "run" holds fields of a Run; "printed" holds fields whose default here differs from the paper,
    and "benchmark" such fields of all methods that the paper compares.
    """
    file = Path(__file__).parent / paper / "paper.toml"
    values = tomllib.loads(file.read_text(encoding="utf-8"))[table]
    return {
        field: tuple(value) if isinstance(value, list) else value
        for field, value in values.items()
    }


class FitSettings(Protocol):
    """What `Method.fit` reads of a run: the folder, the seed, and numbers for another trainer."""

    out: Path
    seed: int
    learning_rate: float
    weight_decay: float
    grad_clip: float
    save_every: int


class Method(Settings):
    """One way for a model to learn from playing roles.

    Subclasses add fields, roles (in `define_roles`) and `episode`. Whatever `define_roles` assigns
    to `self` is an ordinary attribute: only annotated names of the class are fields.
    """

    # Names without annotation are ordinary class attributes, such as `policies = ("a", "b")`.
    model_config = ConfigDict(ignored_types=(object,))

    paper_name: ClassVar[str] = ""
    """The paper whose prompt files and published tests are used; empty for your own method."""

    needs_seed_questions: ClassVar[bool] = True
    """Whether training starts from published questions, which a data world must then have."""

    filters: ClassVar[Mapping[str, str]] = {}
    """{name of a filter: the metric that is the share it lets pass}, see `diagnostics.activity`."""

    unread: ClassVar[tuple[str, ...]] = ()
    """Fields that nobody reads, because `fit` trains in another way; a user may not set them."""

    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = {}
    """The paper's values of the fields of a Run."""

    PAPER_METHOD_VALUES: ClassVar[Mapping[str, Any]] = {}
    """The paper's values of the fields whose default differs from the paper."""

    estimator: Estimator = "task_relative"
    """How rewards become advantages, as `coevolve.advantages` describes. A reward per segment
    needs segment_centred, gae or rae."""

    kl_coef: NonNegativeFloat = 0.0
    """Weight of the token-level KL penalty in the reward, towards the starting model; needs the
    estimator reinforce_pp or reinforce_pp_by_role. As a loss: kl_loss_coef."""

    strategies: tuple[Strategy, ...] = ("vanilla",)
    """Inference strategies of the final evaluation; vanilla asks once."""

    prompt: prompts.Variant = "compact"
    """Prompt files: compact (embedded models), plain (small real models) or full."""

    prompt_folder: PathText | None = None
    """A folder with your own prompts of the same names."""

    world: Annotated[worlds.World, SkipValidation, Allowed(worlds.NAMES)] = Field(
        default=cast(worlds.World, "tiny"), repr=False
    )
    """Where questions come from: tiny, data, data:KEY,KEY, file:PATH or another world's name."""

    @field_validator("world", mode="before")
    @classmethod
    def check_world(cls, world: Any) -> Any:
        """Refuse values, such as numbers, that are neither a name nor a world."""
        if world is None or isinstance(world, int | float | list | tuple | dict):
            raise ValueError("neither a name nor a world")
        return world

    def model_post_init(self, context: Any, /) -> None:
        """Check combinations of fields, resolve the world's name, and make the roles."""
        if self.kl_coef:
            check_choice("estimator with a kl_coef", self.estimator, WITH_KL)
        self.world = worlds.resolve(
            self.world, self.paper_name, self.needs_seed_questions
        )
        self.define_roles()

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        """Refuse constructors, which would leave out what every method needs."""
        super().__pydantic_init_subclass__(**options)
        for name in ("__init__", "__post_init__", "model_post_init"):
            constructor = vars(cls).get(name)
            # Pydantic makes one of its own for a class with private attributes.
            if getattr(constructor, "__module__", None) == cls.__module__:
                raise TypeError(
                    f"{cls.__name__} must not define {name}: make roles, and whatever else "
                    "episodes need, in define_roles(self), which runs once the fields are set"
                )

    def define_roles(self) -> None:
        """Assign the roles, and whatever else episodes need, to attributes. Fields are set by then.

        A subclass that adds roles to those of another method calls `super().define_roles()`.
        """

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field, or an attribute that is not a field, such as a role."""
        if name in type(self).model_fields:
            super().__setattr__(name, value)
        else:
            object.__setattr__(self, name, value)

    @field_serializer("world")
    def world_name(self, world: worlds.World) -> str:
        """Describe a world by its name."""
        return world.name

    def describe(self) -> dict[str, Any]:
        """Return the fields and their values, the world by its name."""
        return self.model_dump()

    def replace(self, **changes: Any) -> Self:
        """Return a method with other values of some fields, and with roles made from them."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**(fields | changes))

    # The algorithm.

    def episode(self, rng: Random) -> Episode:
        """Play one episode: yield turns, receive replies, return an Outcome. Must be overridden."""
        raise NotImplementedError(
            f"{type(self).__name__} must define episode(self, rng)"
        )

    def observe(self, outcome: Outcome, world: worlds.World) -> dict[str, Any]:
        """Return facts to record about an episode, from `outcome.trace` and from the oracle."""
        return {}

    def observed(self, rng: Random) -> Episode:
        """Play one episode and add the facts of `observe` to its outcome."""
        episode = self.episode(rng)
        if not isinstance(episode, Generator):
            raise MethodError(
                f"episode of {type(self).__name__} returned {episode!r} at once: it must be a "
                "generator, which yields a Turn and returns an Outcome"
            )
        try:
            outcome = yield from episode
        except (AttributeError, TypeError) as error:
            if "generator" in str(error):
                error.args = (f"{error}; did you forget `yield from`?",)
            raise
        except RewardError as error:
            error.args = (f"{error}{self._hint_at_hook(error.role)}",)
            raise
        if not isinstance(outcome, Outcome):  # the stepper says so
            return outcome
        facts = self.observe(outcome, self.world)
        if not isinstance(facts, Mapping):
            raise MethodError(
                f"observe of {type(self).__name__} returned {facts!r}: return a dict of facts"
            )
        return dataclasses.replace(outcome, facts=dict(facts))

    def _hint_at_hook(self, role: str) -> str:
        """Say where the reward hook of a role is defined; empty unless a user's file defines it."""
        hook = getattr(type(self), f"{role}_reward", None)
        code = getattr(hook, "__code__", None)
        if code is None or not plugins.is_users_file(code.co_filename):
            return ""
        return (
            f": {code.co_name} of {type(self).__name__} must return one on every path "
            f"({code.co_filename}, line {code.co_firstlineno})"
        )

    # Who speaks.

    @property
    def roles(self) -> dict[str, Role]:
        """All roles by attribute name. The one called `solver` answers held-out questions.

        Roles in an attribute that is a list, a tuple or a dict are called `name_0` or `name_key`.
        """
        roles = {}
        for name, value in vars(self).items():
            if isinstance(value, Role):
                roles[name] = value
                continue
            members: Iterable[tuple[object, object]] = ()
            if isinstance(value, (list, tuple)):
                members = enumerate(value)
            elif isinstance(value, dict):
                members = value.items()
            for key, member in members:
                if isinstance(member, Role):
                    roles[f"{name}_{key}"] = member
        return roles

    @property
    def answering(self) -> Role:
        """The role that answers held-out questions; its prompt has exactly one placeholder."""
        role = vars(self).get("solver")
        if not isinstance(role, Role):
            name = type(self).__name__
            raise ValueError(
                f"{name} must have a role `solver`, which answers held-out questions"
            )
        return role

    def role(self, prompt: str, name: str | None = None, **options: Any) -> Role:
        """Return the role that speaks a prompt file of the method's paper.

        `options` may set a policy, a temperature and max_tokens.
        """
        return prompts.load_role(
            self.paper_name,
            prompt,
            self.prompt,
            name=name,
            folder=self.prompt_folder,
            **options,
        )

    def read_answer(self, text: str) -> str | None:
        """Return the answer in a solver's reply: the content of its one <answer> pair, or None."""
        return tag(text, "answer")

    @property
    def policies(self) -> tuple[str, ...]:
        """Names of the policies that the roles speak with, in the order of the roles."""
        names = dict.fromkeys(role.policy for role in self.roles.values())
        return tuple(names) or ("shared",)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The policies that are never trained: by default those with a model of their own."""
        return tuple(self.models)

    @property
    def models(self) -> dict[str, str]:
        """{policy: model} for the policies that do not start from the run's model."""
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
        """Fetch the data that episodes need, before any model loads.

        Raises ValueError in one line when something is missing.
        """

    def fit(self, policy: "Policy", run: FitSettings, engine: "Engine") -> int | None:
        """Train the policy with another trainer and return the steps; None: the loop trains.

        The engine sleeps. `engine.load_weights()` wakes it with the policy's current weights, and
        `engine.sleep()` frees its memory again.
        """
        return None

    def after_step(self, step: int, keep: Callable[[str], None]) -> None:
        """Act after a step. `keep(name)` saves the trained policies in that folder of the run."""

    def after_run(
        self, engine: "Engine", key: tuple[int, ...], log: "Recorder"
    ) -> dict[str, Any]:
        """Act after the final evaluation and return entries of the summary.

        `key` seeds the sampling noise of further episodes.
        """
        return {}
