"""A language model that speaks (turns to replies) and can be trained (token ids to hidden states).

Knows tokens and text, but neither protocols nor rewards. A plain Qwen2 is sampled by `sampler`, any other
causal model of `transformers` by its own `generate`.
"""

import codecs
from collections.abc import Iterator, Sequence
from itertools import accumulate
from os.path import commonprefix
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from coevolve.losses import selective_logprobs
from coevolve.policies import HUB_ID
from coevolve.policies.packing import pack
from coevolve.policies.qwen2 import Decoder, supports
from coevolve.policies.sampler import Completion, Rows, batches, choose, noise, sample_together
from coevolve.policies.sharding import Shards
from coevolve.types import Reply, Turn

logging.disable_progress_bar()  # loading and saving a checkpoint should not write into a training log
RESCALED = ("final_logit_softcapping", "logit_scale", "logits_scaling")
# A byte-level tokenizer writes these bytes as the character of the same number, the others from U+0100 on.
PRINTED = [*range(33, 127), *range(161, 173), *range(174, 256)]
HIDDEN = [byte for byte in range(256) if byte not in PRINTED]
BYTE_OF = {chr(byte): byte for byte in PRINTED} | {chr(256 + i): byte for i, byte in enumerate(HIDDEN)}


def default_device() -> str:
    """The GPU if there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


class Policy:
    """A causal language model, its tokenizer and the name that turns address it by."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str = "shared"):
        """Wrap a model; raise ValueError when its logits are not just hidden states times output weights."""
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        rescaled = [field for field in RESCALED if getattr(inner.config, field, None) not in (None, 1.0)]
        if model.get_output_embeddings().bias is not None or rescaled:
            kind = type(inner).__name__
            raise ValueError(f"model {kind} adds a bias to its logits or rescales them {rescaled}")
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.source: str | Path = inner.name_or_path  # where the starting weights came from
        self.shards: Shards | None = None
        self.end_ids = self._end_ids()
        self._inner = inner
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, path: str | Path, name: str = "shared", device: str = "", dtype: str = "") -> "Policy":
        """Load a folder in the layout of `transformers` with safetensors weights, or a model id of the hub.

        No code that comes with a model is run. Without a device: the GPU if there is one. Weights are float32 unless
        `dtype` says otherwise; on a GPU the passes of the learner run in bfloat16 all the same.
        """
        if not (Path(path) / "config.json").is_file() and (Path(path).exists() or not HUB_ID.fullmatch(str(path))):
            raise ValueError(f"path {str(path)!r} is not a model folder: it holds no config.json")
        safe = {"trust_remote_code": False, "local_files_only": Path(path).is_dir()}
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, **safe)  # first: it is small, and may not do
            if not tokenizer.chat_template:
                raise ValueError(
                    "its tokenizer has no chat template, which every prompt is written in; choose an "
                    "instruct model, or put a chat_template.jinja into the folder"
                )
            model = AutoModelForCausalLM.from_pretrained(path, use_safetensors=True, dtype=dtype or "float32", **safe)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"model {str(path)!r} cannot be loaded: {reason}") from None
        policy = cls(model.to(device or default_device()), tokenizer, name)
        policy.source = path
        return policy

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors), configuration and tokenizer in the layout that `load` reads."""
        parts = self.model.named_parameters(remove_duplicate=False)
        self.model.save_pretrained(folder, state_dict=dict(parts) if self.shards else None)
        self.tokenizer.save_pretrained(folder)

    def shard(self) -> None:
        """Share the layers with the other ranks while learning; see `sharding`."""
        self.shards = Shards(self.model)

    def save_memory(self) -> None:
        """Keep no activations inside the layers while learning; they are computed again in the backward pass."""
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        if hasattr(self.model, "enable_input_require_grads"):
            self.model.enable_input_require_grads()

    def restore(self, folder: str | Path) -> None:
        """Take over the weights that `save` wrote."""
        saved = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True, local_files_only=True, dtype="auto")
        (self.shards.load if self.shards else self.model.load_state_dict)(saved.state_dict())

    def replace(self, model: PreTrainedModel) -> None:
        """Speak with another model of the same kind and tokenizer from now on (merged adapters, say)."""
        self.__init__(model, self.tokenizer, self.name)

    @property
    def head_VH(self) -> nn.Parameter:
        """Output weights: logits are hidden_TH @ head_VH.T."""
        return self.model.get_output_embeddings().weight

    @property
    def vocabulary(self) -> int:
        """How many tokens the model can sample (rows of the output weights)."""
        return self.head_VH.shape[0]

    def parameters(self) -> Iterator[nn.Parameter]:
        """Iterate over the parameters that training may change."""
        return (parameter for parameter in self.model.parameters() if parameter.requires_grad)

    def render(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of a conversation under the chat template, ready for the answer."""
        messages = list(messages)
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)

    def generate(self, turns: Sequence[Turn], temperature: float = 1.0, max_tokens: int = 64) -> list[Reply]:
        """Answer turns as one batch; a turn's own temperature and max_tokens come first.

        Turns of equal key, prompt and settings get equal replies. Raises ValueError when a prompt leaves no
        room in the model's context.
        """
        if not turns:
            return []
        rows, decoder = self.rows(turns, temperature, max_tokens), self.decoder()
        done = self._generate(rows) if decoder is None else sample_together([decoder], [rows])[0]
        return self.replies(turns, rows, done)

    def rows(self, turns: Sequence[Turn], temperature: float, max_tokens: int) -> Rows:
        """Return what the sampler is to be asked for these turns; see `generate`."""
        prompts = self._prompts(turns)
        heats = [temperature if turn.temperature is None else turn.temperature for turn in turns]
        limits = [max_tokens if turn.max_tokens is None else turn.max_tokens for turn in turns]
        context = getattr(self.model.config, "max_position_embeddings", None) or float("inf")
        for turn, prompt in zip(turns, prompts, strict=True):
            if len(prompt) >= context:
                size = f"a prompt of {len(prompt)} tokens fills the model's context of {context}"
                raise ValueError(f"role {turn.role!r}: {size}")
        limits = [min(limit, context - len(prompt)) for limit, prompt in zip(limits, prompts, strict=True)]
        return Rows(prompts, [turn.key for turn in turns], heats, limits, self.end_ids)

    @torch.no_grad()
    def decoder(self) -> Decoder | None:
        """Return the model as the sampler computes it, with the weights of now; None if `transformers` has to."""
        return Decoder.of(self._inner) if supports(self._inner) else None

    def replies(self, turns: Sequence[Turn], rows: Rows, done: Sequence[Completion]) -> list[Reply]:
        """Make the replies to turns of what was sampled for their rows."""
        return [self.reply(*each) for each in zip(turns, rows.prompts, done, strict=True)]

    def states(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> tuple[Tensor, Tensor]:
        """Return (hidden_TH, targets_T) over the completion tokens of (prompt ids, ids) rows, in order.

        hidden_TH[t] is the differentiable state that predicts targets_T[t]. Rows of one prompt share it where the
        model can; see `packing`.
        """
        if any(not len(prompt) for prompt, _ in rows):
            raise ValueError("rows: every prompt needs at least one token")
        device = self.head_VH.device
        packed = pack(rows, self.shares_prompts, device)
        more = {"attention_mask": packed.mask_B1SS, "position_ids": packed.positions_BS} if packed.shared else {}
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            hidden_BSH = self._inner.base_model(input_ids=packed.input_BS, use_cache=False, **more).last_hidden_state
        return hidden_BSH.flatten(0, 1)[packed.places_T], packed.targets_T

    @property
    def shares_prompts(self) -> bool:
        """Whether `states` computes equal prompts once: on a CPU, where the model's attention takes any mask.

        A GPU's fast attention takes none, and Unsloth's patched models have masks of their own.
        """
        plain = type(self._inner.base_model).forward.__module__.startswith("transformers.")
        sdpa = self._inner.config._attn_implementation == "sdpa"
        return self.head_VH.device.type == "cpu" and plain and sdpa and supports(self._inner)

    def _end_ids(self) -> frozenset[int]:
        declared = self.model.generation_config.eos_token_id if self.model.generation_config else None
        declared = declared if isinstance(declared, list) else [declared]
        ends = frozenset({self.tokenizer.eos_token_id, *declared} - {None})
        if not ends:
            raise ValueError("tokenizer: no end token is set (eos_token)")
        return ends

    def _prompts(self, turns: Sequence[Turn]) -> list[list[int]]:
        said = [tuple(tuple(message.items()) for message in turn.messages) for turn in turns]
        distinct = dict(zip(said, ([*turn.messages] for turn in turns), strict=True))
        done = self.tokenizer.apply_chat_template([*distinct.values()], add_generation_prompt=True, return_dict=False)
        rendered = dict(zip(distinct, done, strict=True))
        return [rendered[key] for key in said]

    def reply(self, turn: Turn, prompt: list[int], done: Completion) -> Reply:
        """Make a reply of (ids, log-probabilities) that this policy was sampled to say."""
        ids, logprobs = done
        text = self._decode(ids)
        finished = bool(ids) and ids[-1] in self.end_ids
        return Reply(turn, text, tuple(prompt), tuple(ids), tuple(logprobs), self._ends(ids, text), finished)

    def _decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _ends(self, ids: Sequence[int], text: str) -> tuple[int, ...]:
        """Return how many characters of `text` are settled after each id; after the last one, all of them."""
        stream = codecs.getincrementaldecoder("utf-8")("replace")
        parts = [stream.decode(self._spelling(token), i == len(ids) - 1) for i, token in enumerate(ids)]
        if "".join(parts) == text:
            return tuple(accumulate(map(len, parts)))
        # Not a byte-level tokenizer: how far does each decoded prefix agree with the whole?
        agreed = [len(commonprefix([self._decode(ids[: i + 1]), text])) for i in range(len(ids))]
        return tuple(accumulate(reversed(agreed), min))[::-1]

    def _spelling(self, token: int) -> bytes:
        """Return the bytes a byte-level tokenizer writes for a token; none for special and unknown ones."""
        if token not in self._bytes:
            piece = self.tokenizer.convert_ids_to_tokens([token], skip_special_tokens=True)
            letters = piece[0] if piece and piece[0] else ""
            known = all(letter in BYTE_OF for letter in letters)
            self._bytes[token] = bytes(map(BYTE_OF.get, letters)) if known else letters.encode()
        return self._bytes[token]

    def _generate(self, rows: Rows) -> list[Completion]:
        """Sample with `transformers`, in batches that fit into memory: the same keyed noise as the sampler's."""
        done: list[Completion] = [([], [])] * len(rows.prompts)
        for chosen in batches(rows.prompts, rows.limits):
            parts = ([its[row] for row in chosen] for its in (rows.prompts, rows.keys, rows.temperatures, rows.limits))
            for row, completion in zip(chosen, self._generate_batch(*parts), strict=True):
                done[row] = completion
        return done

    def _generate_batch(self, prompts: list, keys: list, heats: list[float], limits: list[int]) -> list[Completion]:
        """Sample rows together; log-probabilities come from a forward pass each."""
        width, device = max(map(len, prompts)), self.head_VH.device
        padded = [[0] * (width - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        kept, self.model.generation_config = self.model.generation_config, GenerationConfig()
        try:  # the model's own generation settings may hold penalties that the log-probabilities do not know
            whole = self.model.generate(
                torch.tensor(padded, device=device),
                attention_mask=torch.tensor(mask, device=device),
                logits_processor=LogitsProcessorList([_Keyed(keys, heats, max(limits), width)]),
                generation_config=GenerationConfig(
                    max_new_tokens=max(limits),
                    eos_token_id=sorted(self.end_ids),
                    pad_token_id=0,
                    do_sample=False,
                ),
            )
        finally:
            self.model.generation_config = kept
        done = []
        for prompt, heat, limit, row in zip(prompts, heats, limits, whole[:, width:].tolist(), strict=True):
            stop = next((i + 1 for i, token in enumerate(row[:limit]) if token in self.end_ids), limit)
            done.append((row[:stop], self._logprobs(prompt, row[:stop], heat)))
        return done

    @torch.no_grad()
    def _logprobs(self, prompt: Sequence[int], ids: Sequence[int], heat: float) -> list[float]:
        hidden_TH, targets_T = self.states([(prompt, ids)])
        return selective_logprobs(hidden_TH, self.head_VH, targets_T, temperature=heat or 1.0).tolist()


class _Keyed(LogitsProcessor):
    """Leaves `generate` only the token that the row's own noise chooses."""

    def __init__(self, keys: Sequence[tuple[int, ...]], heats: Sequence[float], room: int, width: int):
        self.noise_BT = torch.from_numpy(np.stack([noise(key, room) for key in keys]))
        self.heats_B, self.width = torch.tensor(heats, dtype=torch.float32), width

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return `scores` with every token but the chosen one at minus infinity."""
        uniforms_B = self.noise_BT[:, input_ids.shape[1] - self.width].to(scores.device)
        tokens_B, _ = choose(scores, self.heats_B.to(scores.device), uniforms_B)
        return torch.full_like(scores, -torch.inf).scatter(-1, tokens_B[:, None], 0.0)
