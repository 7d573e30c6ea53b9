"""A language model that answers turns and computes differentiable hidden states of its replies.

Knows tokens and text, but neither methods nor rewards.
"""

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers.decoders import DecodeStream
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from coevolve.losses import selective_logprobs
from coevolve.models import probe, sampler
from coevolve.models.decoder import Decoder, supports
from coevolve.models.packing import (
    MAX_SHARED_SEQUENCE,
    MAX_SHARED_SEQUENCE_GPU,
    Example,
    MicroBatch,
    micro_batches,
    pack_prefix_tree,
)
from coevolve.models.sampler import Completion, Request
from coevolve.models.templates import turn_end_token
from coevolve.rollout.engine import BatchedEngine
from coevolve.types import Reply, Turn
from coevolve.validation import expand_home, user_path

logging.disable_progress_bar()  # progress bars would write into a training log
INCOMPLETE = "\ufffd"  # stands for bytes that begin a character
# Standard deviation of what `Policy.perturbed` adds.
PERTURBATION = 0.05
# Fields of a model's configuration that scale its logits, and the power of each.
LOGIT_SCALES = {"logit_scale": 1, "lm_head_multiplier": 1, "logits_scaling": -1}


class Policy:
    """A causal language model, its tokenizer and the name by which turns address it."""

    def __init__(
        self, model: Any, tokenizer: Any, name: str = "shared", *, probed: bool = False
    ):
        """Wrap a model.

        Raises ValueError unless its logits are hidden states times output weights and a scale, and
        if its tokenizer has no end token. A model that is not yet `probed` answers three short
        prompts, and is refused if sampler or learner compute other probabilities than it does.
        """
        self.name = name
        self.tokenizer = tokenizer
        self.model = model.eval()
        # The model without PEFT's wrapper.
        self.plain_model = (
            model.get_base_model() if hasattr(model, "get_base_model") else model
        )
        plain = self.plain_model
        output_layer = plain.get_output_embeddings()
        cap = probe.capped_logits(plain.config)
        if output_layer.bias is not None or cap:
            reason = f" ({cap})" if cap else ""
            raise ValueError(
                f"model {type(plain).__name__} adds a bias to its logits or caps them{reason}"
            )
        # Logits are scale * hidden_TH @ head_VH.T.
        self.head_VH: Tensor = output_layer.weight
        self.backbone = _backbone(plain)
        text_config = plain.config.get_text_config()
        self.scale = _logit_scale(text_config)
        # Prompt and completion together.
        self.context: int = (
            getattr(text_config, "max_position_embeddings", None) or sys.maxsize
        )
        self.source: str = plain.name_or_path  # where the starting weights came from
        self.eos_token_ids = _eos_token_ids(plain, tokenizer)
        # Variables of the chat template, such as enable_thinking.
        self.template_options: dict[str, Any] = {}
        # Short replies are frequent.
        self._cached_text = lru_cache(4096)(self._text_and_char_ends)
        if not probed:
            probe.check(self)

    def active(self) -> AbstractContextManager[Any]:
        """Return the context in which the (perhaps shared) model computes this policy."""
        return nullcontext()

    @classmethod
    def load(
        cls,
        path: str | Path,
        name: str = "shared",
        dtype: str = "float32",
        *,
        probed: bool = False,
        quantization_config: Any = None,
    ) -> "Policy":
        """Load a folder in the layout of `transformers` (safetensors), or a model id of the hub.

        Code that comes with a model never runs. The model goes to the GPU if there is one, where
        forward passes of the learner run in bfloat16 whatever the `dtype` of the weights.
        `quantization_config` is that of transformers. Raises ValueError if the model cannot be
        loaded or has no chat template.
        """
        path = expand_home(path)
        options = {"trust_remote_code": False, "local_files_only": Path(path).is_dir()}
        quantization = {}
        if quantization_config is not None:  # None itself would undo a model's own
            quantization["quantization_config"] = quantization_config
        try:
            # The tokenizer comes first: it is small and may be unsuitable.
            tokenizer = AutoTokenizer.from_pretrained(path, **options)
            if not tokenizer.chat_template:
                raise ValueError(
                    "its tokenizer has no chat template, which every prompt is written in; choose "
                    "an instruct model, or put a chat_template.jinja into the folder"
                )
            model: Any = AutoModelForCausalLM.from_pretrained(
                path, use_safetensors=True, dtype=dtype, **options, **quantization
            )
        except (OSError, ValueError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(
                f"model {str(path)!r} cannot be loaded: {reason}"
            ) from None
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if quantization_config is None:  # such weights are on the GPU already
            model = model.to(device)
        return cls(model, tokenizer, name, probed=probed)

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors), configuration and tokenizer in the layout `load` reads."""
        folder = user_path(folder)
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def restore(self, folder: str | Path) -> None:
        """Load the weights that `save` wrote into this policy's model."""
        saved = AutoModelForCausalLM.from_pretrained(
            folder, use_safetensors=True, local_files_only=True, dtype="auto"
        )
        self.model.load_state_dict(saved.state_dict())

    def checkpoint_activations(self) -> None:
        """Recompute the layers' activations in the backward pass instead of storing them."""
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.enable_input_require_grads()

    def reference(self) -> "Policy":
        """Return a frozen copy for KL penalties, which takes the memory of a second model."""
        frozen = copy.deepcopy(self.model).requires_grad_(False)
        return Policy(frozen, self.tokenizer, self.name, probed=True)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the trainable parameters."""
        return (
            parameter
            for parameter in self.model.parameters()
            if parameter.requires_grad
        )

    def served_shapes(self) -> Iterator[tuple[str, torch.Size]]:
        """Yield (name, shape) of all `served_weights`, without computing them."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.shape

    def served_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, weights) of the plain model that answers as this policy does."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    @contextmanager
    def perturbed(self) -> Iterator[None]:
        """Change some trained weights for a while, always in the same way; see `canary.probe`."""
        chosen = self._weights_to_perturb()
        before = [parameter.detach().clone() for parameter in chosen]
        generator = torch.Generator().manual_seed(
            0
        )  # the run's own draws stay as they are
        with torch.no_grad():
            for parameter in chosen:
                noise = torch.randn(parameter.shape, generator=generator)
                parameter.add_(PERTURBATION * noise.to(parameter))
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, weights in zip(chosen, before, strict=True):
                    parameter.copy_(weights)

    def _weights_to_perturb(self) -> list[nn.Parameter]:
        """Return few weights that matter: scales and biases."""
        return [parameter for parameter in self.parameters() if parameter.ndim == 1]

    def render(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation under the chat template, up to the answer."""
        token_ids = self.tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=True,
            return_dict=False,
            **self.template_options,
        )
        return list(token_ids)

    @torch.no_grad()
    def generate(
        self, turns: Sequence[Turn], temperature: float = 1.0, max_tokens: int = 64
    ) -> list[Reply]:
        """Answer turns as one batch; a turn's own temperature and max_tokens come first.

        Turns of equal key, prompt and settings get equal replies. Raises ValueError if a prompt
        leaves no room in the model's context.
        """
        requests = self._requests(turns, temperature, max_tokens)
        with self.active():
            complete_batch = self.batch_sampler()
            # Measured after the sampler has made its own copies of weights.
            completions = sampler.sample(
                requests, complete_batch, self._cache_positions()
            )
        replies = []
        for turn, request, completion in zip(turns, requests, completions, strict=True):
            replies.append(
                self.reply(turn, request.prompt, completion, request.temperature)
            )
        return replies

    def _requests(
        self, turns: Sequence[Turn], temperature: float, max_tokens: int
    ) -> list[Request]:
        rendered: dict[
            str, tuple[int, ...]
        ] = {}  # a prompt that several turns share: once
        requests = []
        for turn in turns:
            text = str(turn.messages)
            if text not in rendered:
                rendered[text] = tuple(self.render(turn.messages))
            prompt = rendered[text]
            if len(prompt) >= self.context:
                raise ValueError(
                    f"role {turn.role!r}: a prompt of {len(prompt)} tokens fills the model's "
                    f"context of {self.context}"
                )
            turn_temperature, limit = turn.sampling(temperature, max_tokens)
            limit = min(limit, self.context - len(prompt))
            requests.append(Request(prompt, turn.key, turn_temperature, limit))
        return requests

    def batch_sampler(self) -> Callable[[list[Request]], list[Completion]]:
        """Return the fastest function that completes a batch of requests with this model."""
        if supports(self.plain_model):
            return partial(
                sampler.decode, Decoder(self.plain_model), self.eos_token_ids
            )
        return partial(sampler.generate, self.plain_model, self.eos_token_ids)

    def _cache_positions(self) -> int:
        """Return how many positions the sampler's cache may hold: on a GPU what fits."""
        if not self.head_VH.is_cuda:
            return sampler.MAX_CACHE_POSITIONS
        free_bytes, _ = torch.cuda.mem_get_info()
        # Torch keeps blocks that hold nothing, and uses them first.
        free_bytes += torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        config = self.plain_model.config.get_text_config()
        return sampler.positions_in(
            free_bytes, cache_bytes(config, self.head_VH.element_size())
        )

    def serve(self, temperature: float, max_tokens: int) -> BatchedEngine:
        """Return an engine that answers with this policy; turns may override both settings."""
        return BatchedEngine(
            partial(self.generate, temperature=temperature, max_tokens=max_tokens)
        )

    def hidden_states(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Return (hidden_TH, targets_T) of the completion tokens of examples, in their order.

        An example is (prompt ids, completion ids). hidden_TH[t] is the differentiable state that
        predicts targets_T[t], times the scale of the model's logits. Examples of one prompt share
        the computation of their common prefix where the model allows it (see `packing`). Raises
        ValueError for an empty prompt.
        """
        if any(not len(prompt) for prompt, _ in examples):
            raise ValueError("examples: every prompt needs at least one token")
        device = self.head_VH.device
        on_gpu = device.type != "cpu"
        in_bfloat16 = torch.autocast(device.type, torch.bfloat16, enabled=on_gpu)
        mask_dtype = torch.bfloat16 if on_gpu else self.head_VH.dtype
        like = torch.empty(0, dtype=mask_dtype, device=device)
        packed = pack_prefix_tree(examples, self.max_shared, like)
        with self.active(), in_bfloat16:
            output = self.backbone(
                input_ids=packed.input_BS, use_cache=False, **packed.attention
            )
        hidden_TH = output.last_hidden_state.flatten(0, 1)[packed.target_positions_T]
        return hidden_TH * self.scale, packed.targets_T

    def forward_micro_batches(
        self, replies: Sequence[Reply], max_tokens: int
    ) -> Iterator[MicroBatch]:
        """Run replies through the model, in micro-batches of at most `max_tokens` tokens."""
        examples = [(reply.prompt_ids, reply.completion_ids) for reply in replies]
        for indices in micro_batches(examples, max_tokens, self.max_shared):
            hidden_TH, targets_T = self.hidden_states([examples[i] for i in indices])
            yield MicroBatch(
                indices, [replies[i] for i in indices], hidden_TH, targets_T
            )

    @torch.no_grad()
    def logprobs(self, replies: Sequence[Reply], max_tokens: int = 16384) -> Tensor:
        """Return the tokens' log-probabilities (T,) at the sampling temperature of each reply."""
        logprobs_of: dict[int, Tensor] = {}
        for micro_batch in self.forward_micro_batches(replies, max_tokens):
            hidden_TH, temperature = micro_batch.at_sampling_temperature()
            logprobs_T = selective_logprobs(
                hidden_TH, self.head_VH, micro_batch.targets_T, temperature
            )
            lengths = [len(reply.completion_ids) for reply in micro_batch.replies]
            logprobs_of |= zip(
                micro_batch.indices, logprobs_T.split(lengths), strict=True
            )
        return torch.cat([logprobs_of[i] for i in range(len(replies))])

    @property
    def max_shared(self) -> int:
        """Tokens of a sequence in which completions of one prompt share it; 0: they do not.

        Attention must take any mask; Unsloth's patched models build masks of their own.
        """
        forward = type(self.backbone).forward
        is_patched = not forward.__module__.startswith("transformers.")
        takes_any_mask = self.plain_model.config._attn_implementation == "sdpa"
        if is_patched or not takes_any_mask or not supports(self.plain_model):
            return 0
        if self.head_VH.device.type == "cpu":
            return MAX_SHARED_SEQUENCE
        return MAX_SHARED_SEQUENCE_GPU

    def reply(
        self,
        turn: Turn,
        prompt_ids: Sequence[int],
        completion: Completion,
        temperature: float,
    ) -> Reply:
        """Return a completion sampled from this policy at a temperature as the reply to a turn."""
        token_ids = tuple(completion.token_ids)
        text, char_ends = self._cached_text(token_ids)
        return Reply(
            turn,
            text,
            prompt_ids=tuple(prompt_ids),
            completion_ids=token_ids,
            logprobs=tuple(completion.logprobs),
            char_ends=char_ends,
            finished=bool(token_ids) and token_ids[-1] in self.eos_token_ids,
            # Greedy replies report their log-probabilities at temperature 1.
            temperature=temperature or 1.0,
        )

    def _text_and_char_ends(
        self, token_ids: Sequence[int]
    ) -> tuple[str, tuple[int, ...]]:
        """Return the text, and the number of its characters that are complete after each token.

        After the last token all characters count as complete.
        """
        text: str = self.tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        if hasattr(self.tokenizer, "backend_tokenizer"):
            char_ends = self._streamed_char_ends(token_ids)
        else:
            char_ends = self._decoded_char_ends(token_ids)
        if char_ends:
            char_ends[-1] = len(text)
        return text, tuple(char_ends)

    def _streamed_char_ends(self, token_ids: Sequence[int]) -> list[int]:
        stream = DecodeStream(skip_special_tokens=True)
        char_ends = []
        complete = 0
        for token in token_ids:
            piece = stream.step(self.tokenizer.backend_tokenizer, token)
            complete += len(piece or "")
            char_ends.append(complete)
        return char_ends

    def _decoded_char_ends(self, token_ids: Sequence[int]) -> list[int]:
        """Return the same for a tokenizer in Python, which has no stream of pieces."""
        char_ends = []
        for count in range(1, len(token_ids) + 1):
            text = self.tokenizer.decode(
                token_ids[:count],
                skip_special_tokens=True,
                clean_up_tokenization_spaces=False,
            )
            char_ends.append(len(text.rstrip(INCOMPLETE)))
        return char_ends


def cache_bytes(config: Any, element_bytes: int) -> int:
    """Return the bytes of one position of a key-value cache, all layers together."""
    heads: int = config.num_attention_heads
    kv_heads: int = getattr(config, "num_key_value_heads", None) or heads
    head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // heads
    layers: int = config.num_hidden_layers
    keys_and_values = 2
    return keys_and_values * layers * kv_heads * head_dim * element_bytes


def _backbone(model: Any) -> Any:
    """Return the part of a model that computes hidden states, without its head."""
    if model.base_model is not model:
        return model.base_model
    decoder = getattr(model, "model", None)  # of models whose classes name no base
    if decoder is None:
        raise ValueError(
            f"model {type(model).__name__} gives no hidden states without its head"
        )
    return decoder


def _logit_scale(config: Any) -> float:
    scale = 1.0
    for field, power in LOGIT_SCALES.items():
        scale *= (getattr(config, field, None) or 1.0) ** power
    return scale


def _eos_token_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a reply, by the model, its tokenizer or its chat template."""
    declared = model.generation_config.eos_token_id
    if declared is None:
        declared = getattr(model.config.get_text_config(), "eos_token_id", None)
    if not isinstance(declared, list):
        declared = [declared]
    ends = {tokenizer.eos_token_id, turn_end_token(tokenizer), *declared}
    eos_token_ids = frozenset(ends - {None})
    if not eos_token_ids:
        raise ValueError("tokenizer: no end token is set (eos_token)")
    return eos_token_ids
