"""A model's decoder layers sharded over the ranks while the learner works (torch's FSDP2), whole at any other time.

Sampling, scoring and saving see plain weights; gradients and optimiser states are never whole. Embeddings and output
weights stay on every rank. `accelerate launch` asks for it with its FSDP settings (docs/fsdp.yaml).
"""

import os
from collections.abc import Iterable, Mapping
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer
from transformers import PreTrainedModel


def wanted() -> bool:
    """Whether this process was launched with FSDP among others."""
    return os.environ.get("ACCELERATE_USE_FSDP") == "true" and int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_sharded(tensor: Tensor | None) -> bool:
    """Whether this rank holds only its part of the tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return the whole of a tensor; every rank must ask."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, list[nn.Parameter]]]:
    """Parameter groups for an optimiser, which cannot take whole and sharded ones in one call; in order."""
    return [{"params": list(its)} for _, its in groupby(parameters, is_sharded)]


def clip_gradients(optimizer: Optimizer, most: float) -> float:
    """Scale the gradients of all parameter groups to a norm of at most `most` and return the norm they had."""
    grads = [[p.grad for p in group["params"] if p.grad is not None] for group in optimizer.param_groups]
    norms = [whole(get_total_norm(its)) for its in grads if its]
    norm = norms[0] if len(norms) == 1 else torch.stack(norms).norm()
    for group in optimizer.param_groups:
        clip_grads_with_norm_(group["params"], most, norm)
    return float(norm)


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return the layers that a model says not to split."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [part for part in model.modules() if type(part).__name__ in names]


class Shards:
    """The layers of one model; sharded once made."""

    def __init__(self, model: PreTrainedModel):
        """Shard every layer; ValueError when the model does not say which modules are its layers."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.model, self.layers = model, layers_of(model)
        if not self.layers:
            raise ValueError(f"model {type(model).__name__} cannot be sharded: it does not name its layers")
        mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (int(os.environ["WORLD_SIZE"]),))
        for layer in self.layers:
            fully_shard(layer, mesh=mesh)
            layer.set_gradient_divide_factor(1.0)  # each rank's loss is its share of one sum
            layer.set_force_sum_reduction_for_comms(True)  # which every backend knows
        self.spread()

    def spread(self) -> None:
        """Keep only this rank's part from now on; a layer is whole while it computes."""
        for layer in self.layers:
            layer.set_reshard_after_forward(True)
            layer.reshard()

    def gather(self) -> None:
        """Make all layers whole again, for anything but learning."""
        for layer in self.layers:
            layer.set_reshard_after_forward(False)
            layer.unshard()

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over whole weights by name."""
        self.spread()
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(part_of(state[name].to(parameter), parameter))
        self.gather()


def part_of(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a tensor sharded as another is; as it is when that one is whole."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements) if is_sharded(like) else tensor


def optimizer_state(optimizer: Optimizer) -> dict:
    """Return an optimiser's state with whole tensors; every rank must ask."""
    state = optimizer.state_dict()
    rows = {
        i: {key: whole(v) if isinstance(v, Tensor) else v for key, v in row.items()}
        for i, row in state["state"].items()
    }
    return {**state, "state": rows}


def shard_state(optimizer: Optimizer) -> None:
    """Shard a restored optimiser's state as its parameters are."""
    for parameter, row in optimizer.state.items():
        if is_sharded(parameter):
            same = {key: v for key, v in row.items() if isinstance(v, Tensor) and v.shape == parameter.shape}
            row |= {key: part_of(v, parameter) for key, v in same.items()}
