"""LoRA adapters by PEFT: several policies that share one frozen base and own only their adapters.

Knows models and adapters, neither turns nor rewards.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from coevolve.models.names import find
from coevolve.models.policy import Policy

if TYPE_CHECKING:  # PEFT takes a second to load, and most runs have no adapter
    from peft import PeftModel

NUMBERS = ("r", "lora_alpha", "lora_dropout")  # PEFT's names of those in `lora`


class AdapterPolicy(Policy):
    """One adapter of a model that others may share; it is switched on whenever this policy speaks or learns."""

    def __init__(self, model: "PeftModel", tokenizer: Any, name: str, source: str, adapter: str = ""):
        super().__init__(model, tokenizer, name)
        self.source, self.adapter = source, adapter or name

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over this adapter's parameters."""
        named, own = self.model.named_parameters(), f".{self.adapter}.weight"
        return (part for key, part in named if "lora_" in key and key.endswith(own))

    def active(self) -> AbstractContextManager[Any]:
        """Make this the adapter that the shared model computes with."""
        if self.model.active_adapter != self.adapter:
            self.model.set_adapter(self.adapter)
        return nullcontext()

    def reference(self) -> Policy:
        """Return the base model as a policy, at no cost; see `Policy.reference`."""
        return BasePolicy(self.model, self.tokenizer, self.name)

    def save(self, folder: str | Path) -> None:
        """Write the adapter alone (PEFT's layout) and the tokenizer; the base stays where it is."""
        folder = Path(folder)
        self.model.save_pretrained(folder, selected_adapters=[self.adapter], save_embedding_layers=False)
        nested = folder / self.adapter  # where PEFT puts an adapter that is not called "default"
        if nested.is_dir():
            shutil.copytree(nested, folder, dirs_exist_ok=True)
            shutil.rmtree(nested)
        self.tokenizer.save_pretrained(folder)

    def restore(self, folder: str | Path) -> None:
        """Take over the adapter that `save` wrote."""
        self.model.load_adapter(str(folder), self.adapter, is_trainable=True, torch_device="cpu")


class BasePolicy(Policy):
    """The base of adapters, which are switched off while it computes."""

    def active(self) -> Any:
        """EngineRouter the adapters off."""
        return self.model.disable_adapter()


def attach(policy: Policy, names: Sequence[str], lora: tuple[Any, ...], source: str) -> dict[str, AdapterPolicy]:
    """Put one fresh LoRA adapter (rank, alpha, dropout) per name on every linear layer; return them as policies.

    They draw their first weights from torch's generator, in the order of `names`. `source` is how the saved
    adapters will name their base.
    """
    from peft import LoraConfig, get_peft_model

    policy.model.name_or_path = source
    config = LoraConfig(**dict(zip(NUMBERS, lora, strict=True)), target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(policy.model, config, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, config)
    return {name: AdapterPolicy(model, policy.tokenizer, name, policy.source) for name in names}


def base_dtype() -> str:
    """The type of weights that are not trained: bfloat16 on a GPU, float32 on a CPU; adapters are always float32."""
    return "bfloat16" if torch.cuda.is_available() else "float32"


def load_unsloth(model: str, names: Sequence[str], lora: tuple[Any, ...]) -> dict[str, AdapterPolicy]:
    """Load a model with one LoRA adapter through Unsloth; ValueError in one line when that cannot be.

    Unsloth patches the model's classes for the whole process.
    """
    if not lora or len(names) != 1:
        raise ValueError(f"engine 'unsloth' trains one policy per base model with lora set, got {list(names)}, {lora}")
    os.environ.setdefault("UNSLOTH_COMPILE_LOCATION", str(Path(tempfile.gettempdir()) / "unsloth_compiled_cache"))
    from unsloth import FastLanguageModel

    source, on_gpu = str(find(model)), torch.cuda.is_available()
    dtype = torch.bfloat16 if on_gpu else torch.float32
    as_named = {"max_seq_length": None, "use_exact_model_name": True}  # or Unsloth takes a repository of its own
    base, tokenizer = FastLanguageModel.from_pretrained(source, load_in_4bit=False, dtype=dtype, **as_named)
    parts = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    again = "unsloth" if on_gpu else False  # whether and how activations are computed again
    how = {"target_modules": parts, "use_gradient_checkpointing": again, **dict(zip(NUMBERS, lora, strict=True))}
    adapted = FastLanguageModel.get_peft_model(base, **how)
    adapted.peft_config["default"].base_model_name_or_path = str(model)  # what a merge loads, in 16 bits or more
    return {names[0]: AdapterPolicy(adapted, tokenizer, names[0], source, adapter="default")}


def merged(folder: str | Path, base: Policy) -> Policy:
    """Load a saved adapter onto a base policy and merge it: a plain policy with the adapter's weights.

    Raises ValueError when the base is quantised: what was rounded to 4 bits makes no 16-bit model.
    """
    from peft import PeftModel

    if getattr(base.model, "is_quantized", False):
        cure = "name its 16-bit weights in adapter_config.json (base_model_name_or_path)"
        raise ValueError(f"the base of {str(folder)!r} is quantised, {base.source}: nothing merges into it; {cure}")
    with torch.no_grad():
        model = PeftModel.from_pretrained(base.model, str(folder)).merge_and_unload()
    return Policy(model, base.tokenizer, base.name)
