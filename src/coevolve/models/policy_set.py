"""The policies of one run by name: separate models, or one LoRA adapter each on a shared base.

Knows which policies there are and which of them learn, neither what they say nor what they earn.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn.utils import get_total_norm
from torch.optim import AdamW

from coevolve.models.loading import load_local
from coevolve.models.lora import attach, base_dtype, load_unsloth
from coevolve.models.names import SERVERS
from coevolve.models.policy import Policy
from coevolve.rollout.engine import Engine

LARGE = 2 * 10**8  # parameters from which on layers are computed twice rather than remembered


class Speaker(Protocol):
    """A policy that can answer turns, in this process or on a server."""

    def serve(self, temperature: float, max_tokens: int) -> Engine:
        """Return an engine that answers with this policy."""


class Stateful(Protocol):
    """What a checkpoint keeps the state of."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Take over a state."""


class PolicySet:
    """Policies that speak together; each that is trained has an optimiser of its own."""

    def __init__(
        self,
        models: Mapping[str, str],
        trained: Sequence[str],
        lora: tuple[Any, ...] = (),
        unsloth: bool = False,
        load_frozen: Callable[[str, str, str], Speaker] = load_local,
    ):
        """Load {policy: model}; with `lora` (rank, alpha, dropout) policies of one model share its weights.

        `load_frozen` loads a policy that is not trained, given model, name and dtype.
        """
        for name in trained:
            if models[name].startswith(SERVERS):
                raise ValueError(f"model of {name!r} is a server, which cannot be trained: {models[name]}")
        self.trained = tuple(trained)
        self.trainable: dict[str, Policy] = {}
        for model in dict.fromkeys(models[name] for name in trained):
            names = [name for name in trained if models[name] == model]
            if unsloth:
                self.trainable |= load_unsloth(model, names, lora)
            elif lora:
                self.trainable |= attach(load_local(model, dtype=base_dtype()), names, lora, model)
            else:
                self.trainable |= {name: load_local(model, name) for name in names}
        self.policies: dict[str, Speaker] = {
            name: self.trainable[name] if name in trained else load_frozen(model, name, base_dtype())
            for name, model in models.items()
        }
        for policy in self.trainable.values():
            if not unsloth and policy.model.num_parameters() > LARGE:  # Unsloth has a way of its own
                policy.checkpoint_activations()
        self.optimizers: dict[str, AdamW] = {}
        self.reference_policies: dict[str, Policy] = {}
        self.baselines: dict[str, Stateful] = {}

    def optimize(self, learning_rate: float, weight_decay: float) -> None:
        """Give every trained policy a fresh AdamW."""
        settings: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay, "fused": True}
        self.optimizers = {name: AdamW(policy.parameters(), **settings) for name, policy in self.trainable.items()}

    def snapshot_reference_policies(self) -> None:
        """Keep every trained policy as it is now for KL penalties (with LoRA its base, at no cost)."""
        self.reference_policies = {name: policy.reference() for name, policy in self.trainable.items()}

    @property
    def primary(self) -> Policy:
        """The first policy that is trained (the only one of most methods)."""
        return self.trainable[self.trained[0]]

    def save(self, folder: Path) -> None:
        """Write every trained policy: a single one into the folder itself, several into folders by name."""
        for name, place in self.folders(folder).items():
            self.trainable[name].save(place)

    def restore(self, folder: Path) -> None:
        """Take over the weights that `save` wrote."""
        for name, place in self.folders(folder).items():
            self.trainable[name].restore(place)

    def save_optimizers(self, folder: Path) -> None:
        """Write one file per optimiser, and one per learned baseline."""
        folder.mkdir(parents=True, exist_ok=True)
        for file, part in self._states().items():
            torch.save(part.state_dict(), folder / file)

    def restore_optimizers(self, folder: Path) -> None:
        """Restore the optimisers and baselines bit for bit."""
        for file, part in self._states().items():
            part.load_state_dict(torch.load(folder / file, map_location="cpu", weights_only=True))

    def _states(self) -> dict[str, Stateful]:
        baselines = {f"{name}.value.pt": baseline for name, baseline in self.baselines.items()}
        return {**{f"{name}.pt": optimizer for name, optimizer in self.optimizers.items()}, **baselines}

    def folders(self, folder: Path) -> dict[str, Path]:
        """The folder of each trained policy below `folder`."""
        alone = len(self.trained) == 1
        return {name: folder if alone else folder / name for name in self.trained}

    def finite(self) -> bool:
        """Whether every trained weight is a finite number."""
        sizes = (get_total_norm(list(policy.parameters())) for policy in self.trainable.values())
        return all(bool(size.isfinite()) for size in sizes)
