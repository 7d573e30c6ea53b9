"""The memory and the download of a run, from its configuration, before any weights load.

Two moments count on a GPU: while learning, when a single vLLM sleeps, and while sampling, when the
learner rests. Activations follow activations.toml, which was measured.
"""

import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from coevolve.engines.limits import VLLM_SHARE
from coevolve.losses.dispatch import CUDA_LOGIT_BYTES
from coevolve.models.names import SERVERS, locate
from coevolve.models.policy import cache_bytes
from coevolve.models.policy_set import CHECKPOINTING_MIN_PARAMETERS
from coevolve.training import machine
from coevolve.training.config import assign_models

if TYPE_CHECKING:
    from coevolve.training.config import Run

GIB = 2**30
BFLOAT16_BYTES = 2
FLOAT32_BYTES = 4
FOUR_BIT_BYTES = 0.55  # NF4 with its doubly quantised scales
# The two moments of AdamW, in float32 or in 8 bits.
ADAMW_BYTES = 8
ADAMW_8BIT_BYTES = 2
# The part of the names of TRL's optimisers whose moments have 8 bits.
IN_8_BITS = "8bit"
CONTEXT_GIB = 0.6  # CUDA's own, and fragments
ASLEEP_GIB = 1.5  # what a sleeping vLLM keeps: graphs, workspaces, its own context
# Activations and graphs of a vLLM that samples, beside its weights and its cache.
AWAKE_GIB = 2.0
# Replies that vLLM must hold at once to be worth starting.
REPLIES_AT_ONCE = 16
PROMPT_TOKENS = 1024
# Between the values of max_tokens that a refusal tries.
STEP_TOKENS = 256
ACTIVATIONS = tomllib.loads(
    Path(__file__).with_name("activations.toml").read_text(encoding="utf-8")
)
LoadConfig = Callable[[str], Any]


@dataclass(frozen=True)
class Memory:
    """GiB of one process: on its GPU, and `in_ram` in the host's memory."""

    weights: float = 0.0
    """Of trained, frozen and reference policies, in the learner."""
    copied: float = 0.0
    """Of the weights, TRL's copy, or this process's shard of it."""
    whole_copy: float = 0.0
    """TRL's copy before several processes shard it; 0 if they do not."""
    moments: float = 0.0
    """Of the optimisers."""
    gradients: float = 0.0
    activations: float = 0.0
    """Of one micro-batch: layer inputs, one layer, and the loss."""
    sampler: float = 0.0
    """What the engine needs beside that to sample: vLLM's own weights and a small cache, or copies
    and cache of the torch engine."""
    engine_while_learning: float = 0.0
    """What the engine keeps while the policies learn."""
    in_ram: float = 0.0
    """Weights that the engine keeps in the host's memory while it sleeps."""
    largest_parameters: int = 0
    """Of the largest trained model."""

    @property
    def resting(self) -> float:
        """What the learner keeps between updates."""
        return CONTEXT_GIB + self.weights + self.moments

    @property
    def later(self) -> float:
        """The part of `resting` that the learner allocates after the engine has started."""
        return self.copied + self.moments

    @property
    def copying(self) -> float:
        """The peak of TRL's start, when the copy of the weights and its shards lie side by side."""
        loaded = CONTEXT_GIB + self.weights
        return loaded + self.whole_copy + self.engine_while_learning

    @property
    def updating(self) -> float:
        """The peak of an update."""
        update = self.gradients + self.activations
        return self.resting + update + self.engine_while_learning

    @property
    def learning(self) -> float:
        """The larger of `copying` and `updating`."""
        return max(self.copying, self.updating)

    @property
    def sampling(self) -> float:
        """The least that sampling takes."""
        return self.resting + self.sampler

    @property
    def needed(self) -> float:
        """The most that the run takes at any moment."""
        return max(self.learning, self.sampling)


@dataclass(frozen=True)
class Model:
    """The numbers of a network that memory depends on."""

    parameters: int
    linear_parameters: int
    """Of the layers that adapters adapt."""
    linear_widths: int
    """Inputs and outputs of those layers, added up; an adapter has rank times as many."""
    width: int
    inner_width: int
    layers: int
    vocabulary: int
    cache_bytes: int
    """Of one position of a key-value cache in bfloat16."""
    is_tied: bool
    """Whether input and output weights are the same, so that two gradients meet in them."""

    @classmethod
    def read(cls, config: Any) -> "Model":
        """Return the numbers of a configuration of `transformers`; no weights are made."""
        with torch.device("meta"):
            network = cast(PreTrainedModel, AutoModelForCausalLM.from_config(config))
        head = network.get_output_embeddings()
        linear_parameters = 0
        linear_widths = 0
        for module in network.modules():
            if isinstance(module, nn.Linear) and module is not head:
                linear_parameters += module.in_features * module.out_features
                linear_widths += module.in_features + module.out_features
        text = config.get_text_config()
        return cls(
            parameters=network.num_parameters(),
            linear_parameters=linear_parameters,
            linear_widths=linear_widths,
            width=text.hidden_size,
            inner_width=getattr(text, "intermediate_size", 4 * text.hidden_size),
            layers=text.num_hidden_layers,
            vocabulary=text.vocab_size,
            cache_bytes=cache_bytes(text, BFLOAT16_BYTES),
            is_tied=bool(text.tie_word_embeddings),
        )


def load_config(model: str) -> Any:
    """Return the configuration of a model, from its folder or the hub."""
    return AutoConfig.from_pretrained(locate(model).base, trust_remote_code=False)


def activation_gib(model: Model, tokens: int, kind: str) -> float:
    """Return the GiB that an update of `tokens` in one micro-batch adds to weights and gradients.

    `kind` is a table of activations.toml: "lora", "unsloth" (LoRA by Unsloth) or "all".

    Large models keep the input of every layer and recompute one layer at a time. Beside it lie the
    gradient of the output weights, where they are trained, and the loss's buffers.
    """
    table = ACTIVATIONS[kind]
    per_layer = table["inner"] * model.inner_width
    layers_at_once = 1
    # Unsloth recomputes the layers of any model.
    if model.parameters <= CHECKPOINTING_MIN_PARAMETERS and kind != "unsloth":
        layers_at_once = model.layers
    inputs = table["inputs"] * model.width * model.layers
    per_head_weight = table["head"] + (table["tied"] if model.is_tied else 0.0)
    head = per_head_weight * model.width * model.vocabulary
    in_layers = tokens * (inputs + layers_at_once * per_layer)
    logits = tokens * model.vocabulary * FLOAT32_BYTES
    in_loss = min(logits, CUDA_LOGIT_BYTES)
    peak: float = max(in_layers, in_loss) + head
    return peak / GIB


def estimate(run: "Run", load: LoadConfig = load_config) -> Memory:
    """Return the memory of a run; `load` returns a model's configuration by its name."""
    return memory_of(run, read_models(run, load))


def read_models(run: "Run", load: LoadConfig = load_config) -> dict[str, Model]:
    """Return {name: model} of the models that a run loads, without those on servers."""
    assigned, _ = assign_models(run.method, run.model)
    models = {}
    for name in assigned.values():
        if name not in models and not name.startswith(SERVERS):
            models[name] = Model.read(load(name))
    return models


def memory_of(run: "Run", models: Mapping[str, Model]) -> Memory:
    """Return the memory of a run with these models, see `read_models`."""
    assigned, trained = assign_models(run.method, run.model)
    samples_here_by_vllm = run.engine.endswith("vllm") and not run.vllm_server
    weights = moments = gradients = activations = sampler = 0.0
    copied = whole_copy = served_weights = 0.0
    largest = 0
    engines = 0
    for name, model in models.items():
        policies = [policy for policy in assigned if assigned[policy] == name]
        count = sum(policy in trained for policy in policies)
        frozen_gib = BFLOAT16_BYTES * model.parameters / GIB
        weights += frozen_gib * (len(policies) - count)
        if count:
            learner = _learner(model, run, count)
            if run.trainer == "trl":
                learner = _with_trl(learner, model, run)
            weights += learner.weights
            copied += learner.copied
            whole_copy += learner.whole_copy
            moments += learner.moments
            # One policy learns at a time.
            gradients = max(gradients, learner.gradients)
            activations = max(activations, learner.activations)
            largest = max(largest, model.parameters)
        served = 1 if run.lora else len(policies)
        engines += served
        served_weights += served * BFLOAT16_BYTES * model.parameters / GIB
        if samples_here_by_vllm:
            sampler += served * _vllm_gib(model, run.max_tokens)
        elif not run.vllm_server:
            sampler = max(sampler, _torch_sampler_gib(model, run))
    sleeps = samples_here_by_vllm and engines == 1
    kept = sampler if samples_here_by_vllm else 0.0
    return Memory(
        weights=weights,
        copied=copied,
        whole_copy=whole_copy,
        moments=moments,
        gradients=gradients,
        activations=activations,
        sampler=sampler,
        engine_while_learning=ASLEEP_GIB if sleeps else kept,
        in_ram=served_weights if sleeps else 0.0,
        largest_parameters=largest,
    )


def _learner(model: Model, run: "Run", count: int) -> Memory:
    """Return weights, moments, gradients and activations of policies that share a model's shape."""
    if run.lora:
        adapter = run.lora[0] * model.linear_widths
        base_bytes = BFLOAT16_BYTES * model.parameters
        if run.quantize:
            saved = (BFLOAT16_BYTES - FOUR_BIT_BYTES) * model.linear_parameters
            base_bytes -= int(saved)
        weight_bytes = base_bytes + FLOAT32_BYTES * adapter * count
        trained = adapter
    else:
        copies = count
        if run.method.kl_coef or run.kl_loss_coef:
            copies += count  # the frozen reference of each
        weight_bytes = FLOAT32_BYTES * model.parameters * copies
        trained = model.parameters
    return Memory(
        weights=weight_bytes / GIB,
        moments=_moment_bytes(run) * trained * count / GIB,
        gradients=FLOAT32_BYTES * trained / GIB,
        activations=activation_gib(
            model, run.max_tokens_per_micro_batch, _kind_of_update(run)
        ),
    )


def _moment_bytes(run: "Run") -> int:
    """Return the bytes of an optimiser's moments for each weight; at most, if TRL's are others."""
    optimizer: str = run.trl.get("optim", run.optimizer)
    return ADAMW_8BIT_BYTES if IN_8_BITS in optimizer else ADAMW_BYTES


def _kind_of_update(run: "Run") -> str:
    """Return the table of activations.toml that a run's updates follow."""
    if not run.lora:
        return "all"
    return "unsloth" if run.engine.startswith("unsloth") else "lora"


def _with_trl(learner: Memory, model: Model, run: "Run") -> Memory:
    """Add TRL's copy of the policy; the policy itself answers the turns."""
    count = machine.shards()
    copy = learner.weights
    if not run.lora:  # a reference policy, which the learner has as well, is not copied
        copy = FLOAT32_BYTES * model.parameters / GIB
    elif not machine.is_sharded():  # both copies share the frozen base
        copy = FLOAT32_BYTES * run.lora[0] * model.linear_widths / GIB
    return replace(
        learner,
        weights=learner.weights + copy / count,
        copied=copy / count,
        whole_copy=copy if count > 1 else 0.0,
        moments=learner.moments / count,
        gradients=learner.gradients / count,
    )


def _vllm_gib(model: Model, max_tokens: int) -> float:
    """Return the least that a vLLM of a model takes to sample."""
    positions = REPLIES_AT_ONCE * (PROMPT_TOKENS + max_tokens)
    cache = positions * model.cache_bytes / GIB
    return BFLOAT16_BYTES * model.parameters / GIB + cache + AWAKE_GIB


def _torch_sampler_gib(model: Model, run: "Run") -> float:
    """Return the copies of weights of the torch engine, and a cache for one reply."""
    element = BFLOAT16_BYTES if run.lora else FLOAT32_BYTES
    copies = element * model.linear_parameters
    positions = PROMPT_TOKENS + run.max_tokens
    grown = 1.5 * model.cache_bytes * element / BFLOAT16_BYTES
    return (copies + positions * grown) / GIB


def check(run: "Run") -> Memory:
    """Return the memory of a run, all zero without a GPU, where nothing is checked.

    Raises ValueError in one line if the GPU or the host's memory is too small for the run, or the
    disk for the models that it downloads. Warns on stderr of a large model that would sample in a
    Python loop.
    """
    if not torch.cuda.is_available():
        return Memory()
    models = read_models(run)
    need = memory_of(run, models)
    by_vllm = run.engine.endswith("vllm")
    if need.largest_parameters > CHECKPOINTING_MIN_PARAMETERS and not by_vllm:
        print(
            f"warning: engine {run.engine!r} samples token by token in Python: a model of "
            f"{need.largest_parameters / 1e9:.1f} billion parameters takes minutes to hours a "
            "step; engine=vllm or unsloth+vllm samples many times faster",
            file=sys.stderr,
        )
    free_bytes, _ = torch.cuda.mem_get_info()
    _check_gpu(run, models, need, free_bytes / GIB)
    _check_ram(need)
    _check_downloads(models)
    return need


def _check_gpu(
    run: "Run", models: Mapping[str, Model], need: Memory, free: float
) -> None:
    """Raise ValueError unless `free` GiB of a GPU suffice."""
    adapter = "" if run.lora else "set lora or "
    smaller = f"{adapter}choose a smaller model"
    fewer_tokens = f"{adapter}lower max_tokens_per_micro_batch"
    if need.learning > free:
        # TRL's copy of the weights takes the same with any micro-batch.
        cure = smaller if need.copying > free else fewer_tokens
        raise ValueError(
            f"model must fit the GPU: learning needs about {need.learning:.1f} GiB and "
            f"{free:.1f} are free; {cure}"
        )
    if need.sampling > free:
        longest = _longest_replies(run, models, free)
        cure = f"{adapter}lower max_tokens to {longest}" if longest else smaller
        raise ValueError(
            f"model must fit the GPU: sampling needs about {need.sampling:.1f} GiB beside the "
            f"learner and {free:.1f} are free; {cure}"
        )
    keeps_awake = need.engine_while_learning > ASLEEP_GIB
    if keeps_awake and need.learning > free * (1 - VLLM_SHARE) + need.sampler:
        raise ValueError(
            f"model must fit the GPU: several engines stay awake on {VLLM_SHARE:.0%} of it, and "
            f"learning needs about {need.learning:.1f} GiB in all; {fewer_tokens}"
        )


def _longest_replies(run: "Run", models: Mapping[str, Model], free: float) -> int:
    """Return the largest max_tokens with which sampling fits into `free` GiB; 0 if none does."""
    longest = run.max_tokens - run.max_tokens % STEP_TOKENS
    for max_tokens in range(longest, 0, -STEP_TOKENS):
        shorter = run.model_copy(update={"max_tokens": max_tokens})
        if memory_of(shorter, models).sampling <= free:
            return max_tokens
    return 0


def _check_ram(need: Memory) -> None:
    """Raise ValueError unless the host has room for the weights of all engines that sleep."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    in_ram = processes * need.in_ram
    free = machine.free_ram_gib()
    if in_ram > free:
        raise ValueError(
            "model must fit the host's memory, where vLLM keeps its weights while it sleeps: "
            f"{processes} x {need.in_ram:.1f} GiB, and {free:.1f} are free; choose a smaller "
            "model, or a machine with more RAM"
        )


def _check_downloads(models: Mapping[str, Model]) -> None:
    """Raise ValueError unless the disk has room for the weights that the hub has yet to send."""
    for name, model in models.items():
        place = locate(name).base
        if isinstance(place, Path):
            continue
        weights_gib = BFLOAT16_BYTES * model.parameters / GIB
        missing = weights_gib - machine.cached_gib(place)
        cache = machine.hub_cache()
        free = machine.free_disk_gib(cache)
        if missing > free:
            raise ValueError(
                f"model {place!r} is a download of about {missing:.0f} GiB, and {free:.0f} are "
                f"free on the disk of {cache}; set HF_HOME to a folder on a larger disk"
            )
