"""SFT as in MAE's Table 1: supervised fine-tuning on the seed questions with their gold answers, by TRL.

The only method here that is shown answers of the seed set. LoRA of rank 128, five epochs (section 5).
"""

import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from coevolve.baselines.tuning import arguments, message
from coevolve.checks import at_least
from coevolve.method import Method

if TYPE_CHECKING:
    from coevolve.config import Run
    from coevolve.policies.causal import Policy


@dataclass(kw_only=True)
class SFT(Method):
    """Supervised fine-tuning; `fit` takes the place of the training loop."""

    paper: ClassVar[str] = "mae"

    epochs: int = 5  # section 5
    lora_rank: int = 128  # section 5; 0: train all weights
    sft_batch: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, epochs=1, lora_rank=0, sft_batch=1)
        self.solver = self.role("solver")

    def examples(self) -> list[dict[str, Any]]:
        """Return the seed rows (repeats included, as published) as prompt and completion messages."""
        return [
            {
                "prompt": list(self.solver(question=task.question).messages),
                "completion": [message("assistant", f"<answer>{task.answer}</answer>")],
            }
            for _, task in self.world.seed_rows()
        ]

    def fit(self, policy: "Policy", run: "Run") -> int:
        """Fine-tune the policy's model in place (adapters are merged at the end); return the steps taken."""
        from datasets import Dataset
        from peft import LoraConfig
        from transformers import Trainer
        from trl.trainer.sft_config import SFTConfig
        from trl.trainer.sft_trainer import SFTTrainer

        class OnCPU(SFTTrainer):
            """TRL's fused loss is a CUDA kernel; anywhere else the model's own loss takes its place."""

            compute_loss = Trainer.compute_loss

        rank, adapter = self.lora_rank, None
        if rank:
            adapter = LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear", task_type="CAUSAL_LM")
        with tempfile.TemporaryDirectory() as scratch:
            numbers = arguments(run, scratch, self.sft_batch)
            trainer = (SFTTrainer if policy.head_VH.is_cuda else OnCPU)(
                policy.model,
                args=SFTConfig(**numbers, num_train_epochs=self.epochs, max_length=1024),
                train_dataset=Dataset.from_list(self.examples()),
                processing_class=policy.tokenizer,
                peft_config=adapter,
            )
            trainer.train()
        if adapter:
            tuned: Any = trainer.model
            policy.replace(tuned.merge_and_unload())
        return trainer.state.global_step
