"""AdamW whose states, and in stage 2 gradients, are shared out over the ranks by DeepSpeed (ZeRO).

Weights stay whole on every rank. `accelerate launch` asks for it with its DeepSpeed settings (docs/deepspeed.yaml).
"""

import math
import os
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

MOMENTS = ("exp_avg", "exp_avg_sq")
SETTINGS = {  # what accelerate's settings may say; the last is what silence means
    "ZERO_STAGE": ("1", "2"),
    "OFFLOAD_OPTIMIZER_DEVICE": ("cpu", "none"),
    "OFFLOAD_PARAM_DEVICE": ("none",),
    "CONFIG_FILE": ("none",),
}


def wanted() -> bool:
    """Whether this process was launched with DeepSpeed among others."""
    return os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true" and int(os.environ.get("WORLD_SIZE", "1")) > 1


def check(protocol: object = None) -> None:
    """Raise ValueError in one line when DeepSpeed is asked for what is not here."""
    if not wanted():
        return
    for name, allowed in SETTINGS.items():
        if _asked(name) not in allowed:
            may = f"{name.lower()} may be {' or '.join(allowed)}, got {_asked(name)!r}"
            raise ValueError(f"of DeepSpeed's settings {may}; to shard weights as well launch with docs/fsdp.yaml")
    if hasattr(protocol, "fit"):
        raise ValueError(f"{type(protocol).__name__} has a trainer of its own, which does not go with DeepSpeed")
    if find_spec("deepspeed") is None:
        raise ValueError("launched with DeepSpeed, which is not installed: pip install deepspeed")


def stage() -> int:
    """The stage asked for: 1 shares out the optimiser's states, 2 the gradients as well."""
    return int(_asked("ZERO_STAGE"))


def _asked(name: str) -> str:
    return os.environ.get(f"ACCELERATE_DEEPSPEED_{name}", SETTINGS[name][-1])


class Zero(AdamW):
    """An AdamW over whole parameters whose work is done by DeepSpeed's over this rank's part of them."""

    def __init__(self, params: Iterable, **settings: Any):
        """Take AdamW's arguments; every rank must have made its own before any goes on."""
        super().__init__(params, **settings)
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
        import deepspeed

        deepspeed.ops.__compatible_ops__ = {}  # or it compiles a kernel for sums on CPUs, where gloo will do
        parts = [part.requires_grad_() for part in self._parts()]  # PEFT freezes adapters while they are not active
        zero: dict[str, Any] = {"stage": stage()}
        zero["reduce_bucket_size"] = min(5 * 10**8, sum(part.numel() for part in parts))
        if _asked("OFFLOAD_OPTIMIZER_DEVICE") == "cpu":
            zero["offload_optimizer"] = {"device": "cpu"}
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero, "zero_force_ds_cpu_optimizer": False}
        # the parameters alone, not the model: several policies may share one, and nothing else is DeepSpeed's business
        self.engine, *_ = deepspeed.initialize(
            model=nn.ParameterList(parts), optimizer=AdamW(parts, **settings), config=config
        )

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add a micro-batch to the gradient; the `last` one of a step ends the sum. Every rank takes as many."""
        self.engine.set_gradient_accumulation_boundary(last)
        count = self.engine.dp_world_size  # DeepSpeed takes the mean over the ranks, of shares of one sum
        self.engine.backward(loss * count, scale_wrt_gas=False)

    def clip(self, most: float) -> float:
        """Let the next step scale the gradient to a norm of at most `most`; return the norm it has."""
        self.engine.optimizer.clip_grad = most
        norm = float(self.engine.optimizer.scaled_global_norm())
        return norm if norm >= 0 else math.nan  # -1 stands for one that is not finite

    def step(self, closure: Callable | None = None) -> None:
        """Update this rank's part and gather those of the others."""
        self.engine.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient, also one that no step was taken on."""
        zero = self.engine.optimizer
        zero.zero_grad(set_to_none=True)
        for group in zero.averaged_gradients:
            zero.averaged_gradients[group] = None
        if zero.cpu_offload:
            zero.micro_step_id = -1
            zero.reset_cpu_buffers()

    def state_dict(self) -> dict[str, Any]:
        """Return what AdamW would, whole; every rank must ask."""
        from deepspeed.utils import safe_get_full_optimizer_state as whole

        own, rows = next(iter(self._inner.state.values()), {}), {}
        for i, part in enumerate(self._parts() if own else ()):
            rows[i] = {"step": own["step"].cpu().clone(), **{key: whole(part, key).cpu() for key in MOMENTS}}
        return {**super().state_dict(), "state": rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over this rank's part of a whole state, and of the weights as they are now."""
        from deepspeed.utils import safe_set_full_optimizer_state as put

        zero, rows = self.engine.optimizer, state_dict["state"]
        zero.refresh_fp32_params()  # DeepSpeed steps on a copy of this rank's part
        super().load_state_dict({**state_dict, "state": {}})
        for own, group in zip(self._inner.param_groups, self.param_groups, strict=True):
            own |= {key: value for key, value in group.items() if key != "params"}
        if not rows:
            return
        for flat in zero.single_partition_of_fp32_groups:
            steps = torch.tensor(max(float(row["step"]) for row in rows.values()), device=flat.device)
            self._inner.state[flat] |= {"step": steps, **{key: torch.zeros_like(flat) for key in MOMENTS}}
        zero._hp_optimizer_states_linked = False
        zero._lazy_init_hp_params_optimizer_state()
        for i, part in enumerate(self._parts()):
            for key in MOMENTS if i in rows else ():
                put(part, rows[i][key], key)

    @property
    def _inner(self) -> AdamW:
        return self.engine.optimizer.optimizer

    def _parts(self) -> list[nn.Parameter]:
        return [part for group in self.param_groups for part in group["params"]]
