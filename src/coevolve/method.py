"""What protocols and baselines have in common: they speak one paper's prompts, and most of them keep no pools."""

from typing import ClassVar

from coevolve import prompts
from coevolve.pools import Pool
from coevolve.types import Role


class Method:
    """A base of dataclasses that have the fields `prompt` and `prompt_folder`; it has no fields of its own."""

    PROMPTS: ClassVar[str]  # the paper whose prompts are spoken

    @property
    def pools(self) -> dict[str, Pool]:
        """No pools: what episodes start from is given."""
        return {}

    def _role(self, prompt: str, name: str | None = None, **more: str | float | None) -> Role:
        """The role that speaks a prompt of the paper; `more` are a policy and a temperature."""
        return prompts.load(self.PROMPTS, prompt, self.prompt, name=name, folder=self.prompt_folder, **more)
