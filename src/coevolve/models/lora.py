"""LoRA adapters by PEFT: several policies that share one frozen base, each with its own adapter.

Knows models and adapters, but neither turns nor rewards.
"""

import copy
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from coevolve import plugins
from coevolve.models import environment
from coevolve.models.names import adapter_settings, find, locate
from coevolve.models.policy import Policy
from coevolve.validation import user_path

if TYPE_CHECKING:  # PEFT takes a second to import, and most runs have no adapter
    from peft import PeftModel

# PEFT's names for (rank, alpha, dropout).
PEFT_FIELDS = (
    "r",
    "lora_alpha",
    "lora_dropout",
)
SINGLE_ADAPTER = "default"  # PEFT's own name
# What PEFT adds to the names of layers that it adapts.
BASE_LAYER = ".base_layer"
BASE_WEIGHTS = f"{BASE_LAYER}.weight"
UNSLOTH_MODULES = [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
]


class AdapterPolicy(Policy):
    """One adapter of a shared model; it is activated whenever this policy generates or learns."""

    def __init__(
        self,
        model: "PeftModel",
        tokenizer: Any,
        name: str,
        source: str,
        adapter: str = "",
    ):
        """Wrap a PEFT model whose adapter of this name (default: the policy's) is the policy."""
        super().__init__(model, tokenizer, name, probed=True)
        self.source = source
        self.adapter = adapter or name

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over this adapter's parameters."""
        ending = f".{self.adapter}.weight"
        for name, parameter in self.model.named_parameters():
            if "lora_" in name and name.endswith(ending):
                yield parameter

    def _weights_to_perturb(self) -> list[nn.Parameter]:
        """Return the second factors, which are zero in a fresh adapter."""
        chosen = []
        for name, parameter in self.model.named_parameters():
            if name.endswith(f"lora_B.{self.adapter}.weight"):
                chosen.append(parameter)
        return chosen

    def active(self) -> AbstractContextManager[Any]:
        """Activate this adapter in the shared model."""
        if self.model.active_adapter != self.adapter:
            self.model.set_adapter(self.adapter)
        return nullcontext()

    def reference(self) -> Policy:
        """Return the base model as a policy, without a copy; see `Policy.reference`."""
        return BasePolicy(self.model, self.tokenizer, self.name, probed=True)

    def save(self, folder: str | Path) -> None:
        """Write the adapter (in PEFT's layout) and the tokenizer, but not the base."""
        folder = user_path(folder)
        self.model.save_pretrained(
            folder, selected_adapters=[self.adapter], save_embedding_layers=False
        )
        # PEFT writes an adapter that is not named "default" into a subfolder.
        subfolder = folder / self.adapter
        if subfolder.is_dir():
            shutil.copytree(subfolder, folder, dirs_exist_ok=True)
            shutil.rmtree(subfolder)
        self.tokenizer.save_pretrained(folder)

    def save_for_engine(self, folder: str | Path, dtype: torch.dtype) -> None:
        """Write what another engine in this run reads: the adapter alone, rounded to `dtype`."""
        from peft import get_peft_model_state_dict

        folder = user_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = get_peft_model_state_dict(
            self.model, adapter_name=self.adapter, save_embedding_layers=False
        )
        rounded = {}
        for name, weights in state.items():
            rounded[name] = weights.detach().to("cpu", dtype).contiguous()
        save_file(rounded, folder / "adapter_model.safetensors")
        config = copy.copy(self.model.peft_config[self.adapter])
        config.inference_mode = True
        config.save_pretrained(str(folder))

    def served_shapes(self) -> Iterator[tuple[str, torch.Size]]:
        """Yield (name, shape) of all `served_weights`, without computing them."""
        for name, parameter in self.model.get_base_model().named_parameters():
            if "lora_" not in name:
                yield name.replace(BASE_LAYER, ""), parameter.shape

    @torch.no_grad()
    def served_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, weights) of the base with this adapter added, layer by layer."""
        base = self.model.get_base_model()
        for name, parameter in base.named_parameters():
            if "lora_" in name:
                continue
            weights = parameter.detach()
            layer_name, is_adapted, _ = name.partition(BASE_WEIGHTS)
            if is_adapted:
                layer: Any = base.get_submodule(layer_name)
                change = layer.get_delta_weight(self.adapter)
                weights = (weights.float() + change.float()).to(weights.dtype)
            yield name.replace(BASE_LAYER, ""), weights

    def restore(self, folder: str | Path) -> None:
        """Load the adapter that `save` wrote into the shared model."""
        self.model.load_adapter(
            str(folder), self.adapter, is_trainable=True, torch_device="cpu"
        )


class BasePolicy(Policy):
    """The base of adapters, which are disabled while it computes."""

    def active(self) -> Any:
        """Return the context in which the adapters are disabled."""
        return self.model.disable_adapter()


def attach(
    policy: Policy, names: Sequence[str], lora: tuple[Any, ...], source: str
) -> dict[str, AdapterPolicy]:
    """Put one fresh LoRA adapter per name on every linear layer; return {name: policy}.

    `lora` is (rank, alpha, dropout). The adapters draw their initial weights from torch's generator
    in the order of `names`. Saved adapters name their base as `source`.
    """
    from peft import LoraConfig, get_peft_model

    policy.model.name_or_path = _absolute(source)
    config = LoraConfig(
        **_peft_fields(lora), target_modules="all-linear", task_type="CAUSAL_LM"
    )
    # A single adapter has the name by which TRL makes its reference.
    adapters = [SINGLE_ADAPTER] if len(names) == 1 else list(names)
    model = get_peft_model(policy.model, config, adapter_name=adapters[0])
    for adapter in adapters[1:]:
        model.add_adapter(adapter, config)
    policies = {}
    for name, adapter in zip(names, adapters, strict=True):
        policies[name] = AdapterPolicy(
            model, policy.tokenizer, name, policy.source, adapter
        )
    return policies


def _absolute(source: str) -> str:
    """Return a folder's full path, so that its adapters find it from anywhere; names stay."""
    folder = user_path(source)
    is_folder = str(source) not in plugins.announced(plugins.MODELS) and folder.is_dir()
    return str(folder.resolve()) if is_folder else source


def _peft_fields(lora: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(PEFT_FIELDS, lora, strict=True))


def base_dtype() -> str:
    """Return the dtype of frozen weights: bfloat16 on a GPU, float32 on a CPU.

    Adapters are always float32.
    """
    return "bfloat16" if torch.cuda.is_available() else "float32"


def load_unsloth(
    model: str,
    names: Sequence[str],
    lora: tuple[Any, ...],
    seed: int = 0,
    in_4bit: bool = False,
) -> dict[str, AdapterPolicy]:
    """Load a model with one LoRA adapter through Unsloth; return {name: policy}.

    `seed` draws the adapter's initial weights. Unsloth patches the model's classes for the whole
    process. Raises ValueError without `lora`, or for several names.
    """
    if not lora or len(names) != 1:
        raise ValueError(
            "engine 'unsloth' trains one policy per base model with lora set, "
            f"got {list(names)}, {lora}"
        )
    environment.prepare("unsloth")
    environment.spare_older_processors()
    from transformers import AutoConfig
    from unsloth import FastLanguageModel

    source = str(find(model))
    sizes = AutoConfig.from_pretrained(source).get_text_config()
    on_gpu = torch.cuda.is_available()
    base, tokenizer = FastLanguageModel.from_pretrained(
        source,
        load_in_4bit=in_4bit,
        dtype=torch.bfloat16 if on_gpu else torch.float32,
        # Nothing is cut off. On a GPU, Unsloth compares the length with a number.
        max_seq_length=sizes.max_position_embeddings,
        use_exact_model_name=True,  # else Unsloth loads its own copy of the model
        # The sampler reads the embedding on the GPU.
        offload_embedding=False,
    )
    adapted = FastLanguageModel.get_peft_model(
        base,
        target_modules=UNSLOTH_MODULES,
        use_gradient_checkpointing="unsloth" if on_gpu else False,
        random_state=seed,
        **_peft_fields(lora),
    )
    # A merge loads this base, with weights of 16 bits or more.
    adapted.peft_config[SINGLE_ADAPTER].base_model_name_or_path = _absolute(model)
    name = names[0]
    return {name: AdapterPolicy(adapted, tokenizer, name, source, SINGLE_ADAPTER)}


def load_in_4bit(model: str) -> Policy:
    """Load frozen weights of 4 bits (NF4) for adapters, by bitsandbytes."""
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    return Policy.load(
        locate(model).base, dtype="bfloat16", quantization_config=quantization
    )


def load_merged(folder: str | Path, base: Policy) -> Policy:
    """Load a saved adapter and merge it into a base policy; return a plain policy.

    Raises ValueError if the base is quantised: weights rounded to 4 bits make no 16-bit model.
    """
    from peft import PeftConfig, PeftModel

    if getattr(base.model, "is_quantized", False):
        raise ValueError(
            f"the base of {str(folder)!r} is quantised, {base.source}: nothing merges into it; "
            "name its 16-bit weights in adapter_config.json (base_model_name_or_path)"
        )
    with torch.no_grad():
        # PEFT itself would not read a file that begins with a byte-order mark.
        config = PeftConfig.from_peft_type(**adapter_settings(folder))
        adapted = PeftModel.from_pretrained(base.model, str(folder), config=config)
        model = adapted.merge_and_unload()
    return Policy(model, base.tokenizer, base.name, probed=True)
