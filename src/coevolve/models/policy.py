"""A language model that speaks (turns to replies) and can be trained (token ids to hidden states).

Knows tokens and text, but neither methods nor rewards.
"""

import copy
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers.decoders import DecodeStream
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from coevolve.losses import selective_logprobs
from coevolve.models import sampler
from coevolve.models.decoder import Decoder, supports
from coevolve.models.packing import Example, MicroBatch, micro_batches, pack
from coevolve.models.sampler import Completion, Request
from coevolve.rollout.engine import BatchedEngine
from coevolve.types import Reply, Turn

logging.disable_progress_bar()  # loading and saving a checkpoint should not write into a training log
SCALES = {"logit_scale": 1, "lm_head_multiplier": 1, "logits_scaling": -1}  # field of a configuration: power


class Policy:
    """A causal language model, its tokenizer and the name that turns address it by."""

    def __init__(self, model: Any, tokenizer: Any, name: str = "shared"):
        """Wrap a model; raise ValueError when its logits are not hidden states times output weights and a scale."""
        self.tokenizer, self.name = tokenizer, name
        self.model = model.eval()
        self.plain_model = plain = model.get_base_model() if hasattr(model, "get_base_model") else model  # without PEFT
        self.head_VH: Tensor = plain.get_output_embeddings().weight  # logits are scale * hidden_TH @ head_VH.T
        self.scale = prod((getattr(plain.config, field, None) or 1.0) ** power for field, power in SCALES.items())
        if plain.get_output_embeddings().bias is not None or getattr(plain.config, "final_logit_softcapping", None):
            raise ValueError(f"model {type(plain).__name__} adds a bias to its logits or caps them")
        self.source: str = plain.name_or_path  # where the starting weights came from
        declared = plain.generation_config.eos_token_id
        declared = declared if isinstance(declared, list) else [declared]
        self.end_ids = frozenset({tokenizer.eos_token_id, *declared} - {None})
        if not self.end_ids:
            raise ValueError("tokenizer: no end token is set (eos_token)")
        self._said = lru_cache(4096)(self._read)  # short replies come again and again

    def active(self) -> AbstractContextManager[Any]:
        """Return the context in which the model computes what this policy is; several policies may share a model."""
        return nullcontext()

    @classmethod
    def load(cls, path: str | Path, name: str = "shared", dtype: str = "float32") -> "Policy":
        """Load a folder in the layout of `transformers` with safetensors weights, or a model id of the hub.

        No code that comes with a model is run. The model goes to the GPU if there is one. Its weights are of
        `dtype`; on a GPU the passes of the learner run in bfloat16 all the same.
        """
        safe = {"trust_remote_code": False, "local_files_only": Path(path).is_dir()}
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, **safe)  # first: it is small, and may not do
            if not tokenizer.chat_template:
                needed = "choose an instruct model, or put a chat_template.jinja into the folder"
                raise ValueError(f"its tokenizer has no chat template, which every prompt is written in; {needed}")
            model: Any = AutoModelForCausalLM.from_pretrained(path, use_safetensors=True, dtype=dtype, **safe)
        except (OSError, ValueError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"model {str(path)!r} cannot be loaded: {reason}") from None
        return cls(model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer, name)

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors), configuration and tokenizer in the layout that `load` reads."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def restore(self, folder: str | Path) -> None:
        """Take over the weights that `save` wrote."""
        saved = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, local_files_only=True, dtype="auto")
        self.model.load_state_dict(saved.state_dict())

    def checkpoint_activations(self) -> None:
        """Keep no activations inside the layers while learning; the backward pass computes them again."""
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.model.enable_input_require_grads()

    def reference(self) -> "Policy":
        """Return a frozen policy with the weights of now, for KL penalties. It takes the memory of a second model."""
        return Policy(copy.deepcopy(self.model).requires_grad_(False), self.tokenizer, self.name)

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the parameters that training may change."""
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)

    def render(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation under the chat template, ready for the answer."""
        return list(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False))

    @torch.no_grad()
    def generate(self, turns: Sequence[Turn], temperature: float = 1.0, max_tokens: int = 64) -> list[Reply]:
        """Answer turns as one batch; a turn's own temperature and max_tokens come first.

        Turns of equal key, prompt and settings get equal replies. Raises ValueError when a prompt leaves no
        room in the model's context.
        """
        context = getattr(self.model.config, "max_position_embeddings", None) or sys.maxsize
        distinct = {str(turn.messages): turn for turn in turns}  # siblings read the same: it is rendered once
        prompts, requests = {text: self.render(turn.messages) for text, turn in distinct.items()}, []
        for turn in turns:
            prompt = prompts[str(turn.messages)]
            if len(prompt) >= context:
                size = f"a prompt of {len(prompt)} tokens fills the model's context of {context}"
                raise ValueError(f"role {turn.role!r}: {size}")
            heat, limit = turn.sampling(temperature, max_tokens)
            requests.append(Request(tuple(prompt), turn.key, heat, min(limit, context - len(prompt))))
        plain = self.plain_model
        with self.active():
            answer = partial(sampler.decode, Decoder(plain)) if supports(plain) else partial(sampler.generate, plain)
            done = sampler.sample(requests, partial(answer, self.end_ids))
        asked = zip(turns, requests, done, strict=True)
        return [self.reply(turn, request.prompt, said, request.temperature) for turn, request, said in asked]

    def serve(self, temperature: float, max_tokens: int) -> BatchedEngine:
        """Return the engine in which this policy answers; both numbers are for turns that have none of their own."""
        return BatchedEngine(partial(self.generate, temperature=temperature, max_tokens=max_tokens))

    def states(self, examples: Sequence[Example]) -> tuple[Tensor, Tensor]:
        """Return (hidden_TH, targets_T) over the completion tokens of (prompt ids, ids) examples, in order.

        hidden_TH[t] is the differentiable state that predicts targets_T[t], times the scale of the model's logits.
        Examples of one prompt share what they begin with where the model can; see `packing`.
        """
        if any(not len(prompt) for prompt, _ in examples):
            raise ValueError("examples: every prompt needs at least one token")
        packed = pack(examples, self.shares_prompts, self.head_VH)
        with self.active(), torch.autocast(self.head_VH.device.type, torch.bfloat16, enabled=self.head_VH.is_cuda):
            output = self.plain_model.base_model(input_ids=packed.input_BS, use_cache=False, **packed.attention)
        return output.last_hidden_state.flatten(0, 1)[packed.places_T] * self.scale, packed.targets_T

    def forward_micro_batches(
        self, replies: Sequence[Reply], max_tokens: int
    ) -> Iterator[MicroBatch]:
        """Run replies through the model, in micro-batches of at most `max_tokens` tokens."""
        examples = [(reply.prompt_ids, reply.completion_ids) for reply in replies]
        for indices in micro_batches(examples, max_tokens, self.shares_prompts):
            hidden_TH, targets_T = self.states([examples[i] for i in indices])
            yield MicroBatch(indices, [replies[i] for i in indices], hidden_TH, targets_T)

    @torch.no_grad()
    def logprobs(self, replies: Sequence[Reply], max_tokens: int = 16384) -> Tensor:
        """Return the log-probabilities (T,) of the replies' tokens at their sampling temperatures."""
        logprobs_of: dict[int, Tensor] = {}
        for micro_batch in self.forward_micro_batches(replies, max_tokens):
            hidden_TH, temperature = micro_batch.at_sampling_temperature()
            logprobs_T = selective_logprobs(
                hidden_TH, self.head_VH, micro_batch.targets_T, temperature
            )
            lengths = [len(reply.completion_ids) for reply in micro_batch.replies]
            for i, reply_logprobs_T in zip(
                micro_batch.indices, logprobs_T.split(lengths), strict=True
            ):
                logprobs_of[i] = reply_logprobs_T
        return torch.cat([logprobs_of[i] for i in range(len(replies))])

    @property
    def shares_prompts(self) -> bool:
        """Whether `states` computes shared beginnings once: on a CPU, where the model's attention takes any mask.

        A GPU's fast attention takes none, and Unsloth's patched models have masks of their own.
        """
        plain = type(self.plain_model.base_model).forward.__module__.startswith("transformers.")
        sdpa = self.plain_model.config._attn_implementation == "sdpa"
        return self.head_VH.device.type == "cpu" and plain and sdpa and supports(self.plain_model)

    def reply(self, turn: Turn, prompt: Sequence[int], done: Completion, temperature: float) -> Reply:
        """Make a reply of (ids, log-probabilities) that this policy was sampled to say at a temperature."""
        ids, logprobs = done
        text, ends = self._said(tuple(ids))
        finished = bool(ids) and ids[-1] in self.end_ids
        # Greedy replies report their log-probabilities at temperature 1.
        return Reply(turn, text, tuple(prompt), tuple(ids), tuple(logprobs), ends, finished, temperature or 1.0)

    def _read(self, ids: Sequence[int]) -> tuple[str, tuple[int, ...]]:
        """Return the text, and how many characters of it are settled after each id; after the last one, all of them."""
        text = str(self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))
        stream, tokenizer = DecodeStream(skip_special_tokens=True), self.tokenizer.backend_tokenizer
        settled = list(accumulate(len(stream.step(tokenizer, token) or "") for token in ids))
        return text, (*settled[:-1], len(text)) if settled else ()
