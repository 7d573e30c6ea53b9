"""SFT as in MAE's Table 1: supervised fine-tuning on the seed questions with their gold answers, by TRL.

The only method here that is shown answers of the seed set. LoRA of rank 128, five epochs (section 5).
"""

import tempfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from coevolve.checks import at_least
from coevolve.method import Method
from coevolve.worlds import World
from tinyworld.oracle import TinyWorld

if TYPE_CHECKING:
    from coevolve.config import Run
    from coevolve.policies.causal import Policy


@dataclass(kw_only=True)
class SFT(Method):
    """Supervised fine-tuning; `fit` takes the place of the training loop."""

    PROMPTS: ClassVar[str] = "mae"

    epochs: int = 5  # section 5
    lora_rank: int = 128  # section 5; 0: train all weights
    sft_batch: int = 16
    prompt: str = "compact"
    prompt_folder: str | None = None
    world: World = field(default_factory=TinyWorld, repr=False)

    def __post_init__(self) -> None:
        at_least(self, epochs=1, lora_rank=0, sft_batch=1)
        self.solver = self._role("solver")

    def rows(self) -> list[dict[str, list[dict[str, str]]]]:
        """The seed rows (repeats included, as published) as prompt and completion messages."""
        rows = []
        for _, task in self.world.seed_rows():
            answer = {"role": "assistant", "content": f"<answer>{task.answer}</answer>"}
            rows.append({"prompt": list(self.solver(question=task.question).messages), "completion": [answer]})
        return rows

    def fit(self, policy: "Policy", run: "Run") -> int:
        """Fine-tune the policy's model in place (adapters are merged at the end); return the steps taken."""
        from datasets import Dataset
        from peft import LoraConfig
        from transformers import Trainer
        from trl import SFTConfig, SFTTrainer

        class OnCPU(SFTTrainer):
            """TRL's fused loss is a CUDA kernel; anywhere else the model's own loss takes its place."""

            compute_loss = Trainer.compute_loss

        adapter = None
        if self.lora_rank:
            adapter = LoraConfig(
                r=self.lora_rank, lora_alpha=self.lora_rank, target_modules="all-linear", task_type="CAUSAL_LM"
            )
        with tempfile.TemporaryDirectory() as scratch:
            arguments = SFTConfig(
                output_dir=scratch,
                num_train_epochs=self.epochs,
                per_device_train_batch_size=self.sft_batch,
                learning_rate=run.learning_rate,
                weight_decay=run.weight_decay,
                max_grad_norm=run.grad_clip,
                seed=run.seed,
                report_to="none",
                save_strategy="no",
                logging_steps=50,
                disable_tqdm=True,
                bf16=False,
                fp16=False,
                gradient_checkpointing=False,
                max_length=1024,
            )
            kind = SFTTrainer if policy.head_VH.is_cuda else OnCPU
            trainer = kind(
                policy.model,
                args=arguments,
                train_dataset=Dataset.from_list(self.rows()),
                processing_class=policy.tokenizer,
                peft_config=adapter,
            )
            trainer.train()
        if adapter:
            policy.replace(trainer.model.merge_and_unload())
        return trainer.state.global_step
