"""What the baselines that TRL trains have in common."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coevolve.config import Run


def message(role: str, text: str) -> dict[str, str]:
    """Return a message as chat templates read it."""
    return {"role": role, "content": text}


def arguments(run: "Run", scratch: str, batch: int) -> dict[str, Any]:
    """Return the arguments of any of TRL's trainers: the run's numbers, full precision, nothing kept in `scratch`."""
    return {
        "output_dir": scratch,
        "per_device_train_batch_size": batch,
        "learning_rate": run.learning_rate,
        "weight_decay": run.weight_decay,
        "max_grad_norm": run.grad_clip,
        "seed": run.seed,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 50,
        "disable_tqdm": True,
        "bf16": False,
        "fp16": False,
        "gradient_checkpointing": False,
    }
