"""The policies of one run by name: separate models, or one LoRA adapter each on a shared base.

Knows which policies exist and which are trained, but neither their text nor their rewards.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch.nn.utils import get_total_norm
from torch.optim import AdamW, Optimizer

from coevolve.models.loading import load_local
from coevolve.models.lora import attach, base_dtype, load_in_4bit, load_unsloth
from coevolve.models.names import SERVERS
from coevolve.models.policy import Policy
from coevolve.rollout.engine import Engine

# Larger models recompute the activations of their layers in the backward pass.
CHECKPOINTING_MIN_PARAMETERS = 2 * 10**8


class Speaker(Protocol):
    """A policy that can answer turns, in this process or on a server."""

    def serve(self, temperature: float, max_tokens: int) -> Engine:
        """Return an engine that answers with this policy."""


class Stateful(Protocol):
    """An object whose state is part of a checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state."""

    def load_state_dict(self, state: dict[str, Any]) -> object:
        """Restore a state that `state_dict` returned."""


@dataclass(frozen=True)
class LoadOptions:
    """How models are loaded, beyond their names."""

    seed: int = 0
    """Of the initial weights of adapters that Unsloth makes; PEFT draws from torch's generator."""
    in_4bit: bool = False
    """Whether the frozen base of adapters has weights of 4 bits (QLoRA)."""
    template_options: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template, such as enable_thinking."""


class PolicySet:
    """The policies of a run; each trained one has an optimiser of its own."""

    def __init__(
        self,
        models: Mapping[str, str],
        trained: Sequence[str],
        lora: tuple[Any, ...] = (),
        unsloth: bool = False,
        load_frozen: Callable[[str, str, str], Speaker] = load_local,
        loading: LoadOptions | None = None,
    ):
        """Load {policy: model}; with `lora` (rank, alpha, dropout) policies of one model share it.

        `loading` has further settings. `load_frozen` loads a policy that is not trained, given its
        model, name and dtype. Raises ValueError if a trained policy's model is on a server.
        """
        for name in trained:
            if models[name].startswith(SERVERS):
                raise ValueError(
                    f"model of {name!r} is a server, which cannot be trained: {models[name]}"
                )
        loading = loading or LoadOptions()
        self.trained = tuple(trained)
        self.trainable: dict[str, Policy] = {}
        for model in dict.fromkeys(models[name] for name in trained):
            names = [name for name in trained if models[name] == model]
            self.trainable |= _load_trainable(model, names, lora, unsloth, loading)
        self.policies: dict[str, Speaker] = {}
        for name, model in models.items():
            if name in trained:
                self.policies[name] = self.trainable[name]
            else:
                self.policies[name] = load_frozen(model, name, base_dtype())
        for policy in self.policies.values():
            if isinstance(policy, Policy):
                policy.template_options = dict(loading.template_options)
        if not unsloth:  # it has its own way of recomputing activations
            _checkpoint_large_models(self.trainable.values())
        self.optimizers: dict[str, Optimizer] = {}
        self.reference_policies: dict[str, Policy] = {}
        self.baselines: dict[str, Stateful] = {}

    @property
    def primary(self) -> Policy:
        """The first trained policy, which is the only one in most methods."""
        return self.trainable[self.trained[0]]

    def optimize(
        self, learning_rate: float, weight_decay: float, kind: str = "adamw"
    ) -> None:
        """Give every trained policy a fresh AdamW; `adamw_8bit` keeps its moments in 8 bits."""
        self.optimizers = {}
        options: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay}
        for name, policy in self.trainable.items():
            parameters = list(policy.parameters())
            if kind == "adamw_8bit":
                from bitsandbytes.optim import AdamW8bit

                self.optimizers[name] = AdamW8bit(parameters, **options)
            else:
                self.optimizers[name] = AdamW(parameters, fused=True, **options)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate of every optimiser from the next update on."""
        for optimizer in self.optimizers.values():
            for group in optimizer.param_groups:
                group["lr"] = learning_rate

    def snapshot_reference_policies(self) -> None:
        """Keep a frozen copy of every trained policy for KL penalties (with LoRA, its base)."""
        self.reference_policies = {
            name: policy.reference() for name, policy in self.trainable.items()
        }

    def save(self, folder: Path) -> None:
        """Write every trained policy to its folder, see `folders`."""
        for name, policy_folder in self.folders(folder).items():
            self.trainable[name].save(policy_folder)

    def restore(self, folder: Path) -> None:
        """Load the weights that `save` wrote."""
        for name, policy_folder in self.folders(folder).items():
            self.trainable[name].restore(policy_folder)

    def folders(self, folder: Path) -> dict[str, Path]:
        """Return {trained policy: folder}: `folder` itself if there is one, else one below it."""
        if len(self.trained) == 1:
            return {self.trained[0]: folder}
        return {name: folder / name for name in self.trained}

    def save_optimizers(self, folder: Path) -> None:
        """Write one file per optimiser and one per learned baseline."""
        folder.mkdir(parents=True, exist_ok=True)
        for file, stateful in self._optimizer_files().items():
            torch.save(stateful.state_dict(), folder / file)

    def restore_optimizers(self, folder: Path) -> None:
        """Restore the optimisers and baselines bit for bit."""
        for file, stateful in self._optimizer_files().items():
            state = torch.load(folder / file, map_location="cpu", weights_only=True)
            stateful.load_state_dict(state)

    def _optimizer_files(self) -> dict[str, Stateful]:
        files: dict[str, Stateful] = {}
        for name, optimizer in self.optimizers.items():
            files[f"{name}.pt"] = optimizer
        for name, baseline in self.baselines.items():
            files[f"{name}.value.pt"] = baseline
        return files

    def finite(self) -> bool:
        """Return whether every trained weight is a finite number."""
        for policy in self.trainable.values():
            if not get_total_norm(list(policy.parameters())).isfinite():
                return False
        return True


def _load_trainable(
    model: str,
    names: Sequence[str],
    lora: tuple[Any, ...],
    unsloth: bool,
    loading: LoadOptions,
) -> Mapping[str, Policy]:
    """Load one base model for several policies: one adapter each, or else one copy each."""
    if unsloth:
        return load_unsloth(model, names, lora, loading.seed, loading.in_4bit)
    if lora:
        base = (
            load_in_4bit(model)
            if loading.in_4bit
            else load_local(model, dtype=base_dtype())
        )
        return attach(base, names, lora, model)
    return {name: load_local(model, name) for name in names}


def _checkpoint_large_models(policies: Iterable[Policy]) -> None:
    for policy in policies:
        if policy.model.num_parameters() > CHECKPOINTING_MIN_PARAMETERS:
            policy.checkpoint_activations()
