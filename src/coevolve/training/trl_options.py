"""What `trainer=trl` can do: checked from the configuration, without loading TRL or a model."""

from collections.abc import Sequence
from typing import Any, Protocol

from coevolve.methods.base import Method
from coevolve.validation import check_choice

PASSES = "gradient_accumulation_steps"
DEFAULT_PASSES = 8

# Fields of TRL's GRPOConfig that a run may set in `trl`. All others follow from the run's fields,
# or belong to sampling and scoring, which TRL does not do here.
OPTIONS = (
    PASSES,
    "bf16",
    "ddp_find_unused_parameters",
    "ddp_timeout",
    "fp16",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "hub_model_id",
    "hub_private_repo",
    "hub_revision",
    "hub_strategy",
    "liger_kernel_config",
    "optim",
    "optim_args",
    "push_to_hub",
    "save_total_limit",
    "tf32",
    "torch_compile",
    "use_liger_kernel",
)


class TrainerChoice(Protocol):
    """The fields of a run that decide whether TRL can train it."""

    trainer: Any
    trl: dict[str, Any]
    method: Method
    method_name: str
    minibatches: int
    engine: Any


def check_trainer(run: TrainerChoice, trained: Sequence[str]) -> None:
    """Raise ValueError in one line if the run asks TRL's trainer for what it cannot do.

    `trained` are the names of the policies that the run trains.
    """
    if run.trainer == "own":
        if run.trl:
            raise ValueError(f"trl must be {{}} unless trainer is 'trl', got {run.trl}")
        return
    for name in run.trl:
        check_choice("option in trl", name, OPTIONS)
    passes = run.trl.get(PASSES, DEFAULT_PASSES)
    if type(passes) is not int or passes < 1:
        raise ValueError(f"{PASSES} in trl must be at least 1, got {passes!r}")
    if len(trained) != 1:
        raise ValueError(
            "trainer must be 'own' for a method that trains several policies, "
            f"got 'trl' for {', '.join(trained)}"
        )
    if type(run.method).fit is not Method.fit:
        raise ValueError(
            f"trainer must be 'own' for {run.method_name}, which has a trainer of its own, "
            "got 'trl'"
        )
    if run.minibatches > 1:
        raise ValueError(
            f"minibatches must be 1 with trainer=trl, got {run.minibatches}"
        )
    if run.engine.startswith("unsloth"):
        raise ValueError(
            f"engine must be 'torch' or 'vllm' with trainer=trl, got {run.engine!r}"
        )
