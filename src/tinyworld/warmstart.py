"""The recipe of the tiny backbones: tokenizer, random Qwen2, warm start on demonstrations of every role.

Loss on completion tokens only; tokens that decide something (scores, verdicts, rankings) count more.
One thread, fp32, a fixed number of steps: the same seed gives the same file on the same kind of machine.
"""

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from tinyworld.demonstrations import SEASONED, SOLVERS, demonstrate
from tinyworld.demonstrator import HABITS, TRUTH, Demonstrator

SPECIAL = ("<pad>", "<bos>", "<user>", "<assistant>", "<end>")
TAGS = (
    "question",
    "answer",
    "think",
    "score",
    "plan",
    "doc",
    "ref",
    "type",
    "tests",
    "solution",
    "evaluation",
    "judgment",
    "initial_ranking",
    "final_ranking",
    "critique",
    "revised_solution",
)
PHRASES = (
    "\\boxed{",
    "}",
    "ANSWER: ",
    "Agent ",
    " > Agent ",
    " = Agent ",
    '<critique target="Agent ',
    '">',
    '{"question": "',
    '", "answer": "',
    '", "answer_type": "',
    '"}',
    '{"multiple_choice_question": "',
    '", "multiple_choice_correct": "',
    '{"suitable_for_mcq": ',
    ', "suitable_for_free_form": ',
    ', "best_answer_type": ',
    ', "reason": "',
    "assert f(",
    'assert g("',
    ")==",
    '")=="',
)
WORDS = Regex(r" [A-D]\)| ?[A-Za-z]+|\d|[fg]\(|\)=| ?[^\sA-Za-z\d]|\s")  # digits stay single
TEMPLATE = (
    "<bos>{% for message in messages %}{% if message['role'] == 'assistant' %}"
    "<assistant>{{ message['content'] }}<end>{% else %}<user>{{ message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
VOCABULARY = 512
CONTEXT = 1024
DECISIVE_AFTER, DECISIVE = ("<score>", "<judgment>"), (" > Agent ", " = Agent ", " right", " wrong")
DECISIVE_WEIGHT = 3.0


def make_tokenizer(seed: int = 0, transcripts: int = 8000) -> PreTrainedTokenizerFast:
    """Train the byte-level BPE tokenizer (every string encodes) on demonstrations, with tags as single tokens."""
    rng = Demonstrator(f"tokenizer {seed}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(WORDS, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    added = [mark for tag in TAGS for mark in (f"<{tag}>", f"</{tag}>")] + list(PHRASES)
    texts = []
    for _ in range(transcripts):
        _, prompt, completion = demonstrate(rng)
        text = prompt + completion
        for mark in added:
            text = text.replace(mark, "\n")
        texts.append(text)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(added),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in added])
    return _fast(tokenizer)


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<pad>",
        bos_token="<bos>",
        eos_token="<end>",
        padding_side="left",
        additional_special_tokens=["<user>", "<assistant>"],
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATE,
        model_max_length=CONTEXT,
    )


def make_model(hidden: int, layers: int, heads: int, vocabulary: int, seed: int = 0) -> Qwen2ForCausalLM:
    """A random Qwen2 with tied embeddings, initialised the way that learnt fastest (0.7 / sqrt(fan-in))."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=4,
        pad_token_id=0,
    )
    model = Qwen2ForCausalLM(config).float()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            std = 0.05 if "embed" in name else 0.7 * parameter.shape[1] ** -0.5
            torch.nn.init.normal_(parameter, std=std)
    return model


class Demonstrations:
    """A stream of length-bucketed batches of demonstrations, as token tensors.

    The first `truthful` batches show the truth and favour solvers; those after it show habits and favour `favoured`.
    With `seasoned` CoNL's reviews, revisions and verdicts come that many times as often, as seasoned agents give them.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        batch: int,
        seed: int,
        truthful: int,
        habits: Mapping[int, float] = HABITS,
        favoured: tuple[str, ...] = (),
        seasoned: float = 0.0,
    ):
        self.tokenizer, self.batch, self.rng = tokenizer, batch, Demonstrator(f"warm start {seed}")
        self.truthful, self.habits, self.favoured = truthful, habits, favoured
        if seasoned:
            self.favoured, self.rng.favour, self.rng.seasoned = SEASONED, seasoned, True
        vocabulary = tokenizer.get_vocab()
        spelled = {text: tokenizer(text, add_special_tokens=False).input_ids for text in DECISIVE}
        self.after = {vocabulary[text] for text in DECISIVE_AFTER}
        self.itself = {ids[0] for ids in spelled.values() if len(ids) == 1}

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        count = 0
        while True:
            early = count < self.truthful
            self.rng.skill, self.rng.favoured = (TRUTH, SOLVERS) if early else (self.habits, self.favoured)
            pairs = self._encode(self.batch * 32)
            count += 32
            pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
            batches = [pairs[i : i + self.batch] for i in range(0, len(pairs), self.batch)]
            self.rng.shuffle(batches)
            yield from map(self._collate, batches)

    def _encode(self, count: int) -> list[tuple[list[int], list[int]]]:
        texts = [demonstrate(self.rng)[1:] for _ in range(count)]
        prompts = self.tokenizer([f"<bos><user>{prompt}<assistant>" for prompt, _ in texts]).input_ids
        completions = self.tokenizer([f"{completion}<end>" for _, completion in texts]).input_ids
        return list(zip(prompts, completions, strict=True))

    def _collate(self, pairs: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor, Tensor]:
        """Return ids_BT, right padded, targets_BT (-100 outside completions) and weights_BT."""
        length = max(len(prompt) + len(completion) for prompt, completion in pairs)
        ids_BT = torch.zeros(len(pairs), length, dtype=torch.long)
        targets_BT = torch.full((len(pairs), length), -100)
        weights_BT = torch.zeros(len(pairs), length)
        for row, (prompt, completion) in enumerate(pairs):
            start, end = len(prompt), len(prompt) + len(completion)
            ids_BT[row, :end] = torch.tensor(prompt + completion)
            targets_BT[row, start:end] = torch.tensor(completion)
            before = [prompt[-1], *completion[:-1]]
            weights_BT[row, start:end] = torch.tensor(
                [
                    DECISIVE_WEIGHT if prior in self.after or token in self.itself else 1.0
                    for prior, token in zip(before, completion, strict=True)
                ]
            )
        return ids_BT, targets_BT, weights_BT


def loss_of(model: Qwen2ForCausalLM, ids_BT: Tensor, targets_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Weighted mean cross-entropy of the completion tokens; the head is applied to those positions only."""
    hidden_BTH = model.model(input_ids=ids_BT).last_hidden_state[:, :-1]
    keep_BT = targets_BT[:, 1:] >= 0
    logits_NV = model.lm_head(hidden_BTH[keep_BT])
    losses_N = F.cross_entropy(logits_NV, targets_BT[:, 1:][keep_BT], reduction="none")
    weights_N = weights_BT[:, 1:][keep_BT]
    return (losses_N * weights_N).sum() / weights_N.sum()


def learning_rate(step: int, steps: int, peak: float, decay: float, warmup: int = 50) -> float:
    """Linear warm-up, constant, then linear decay to 1 % over the last `decay` share of the steps."""
    left = (steps - step) / max(1, decay * steps)
    return peak * min(1.0, (step + 1) / warmup) * max(0.01, min(1.0, left))


def warm_start(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    *,
    steps: int,
    peak: float,
    truthful: float,
    decay: float,
    habits: Mapping[int, float] = HABITS,
    favoured: tuple[str, ...] = (),
    seasoned: float = 0.0,
    seed: int = 0,
    batch: int = 24,
    watch: Callable[[int, float], None] = lambda step, loss: None,
) -> None:
    """Train in place with AdamW for `steps` steps, the share `truthful` of them without habits (see Demonstrations).

    The learning rate falls over the last `decay` share. `watch` sees (step, mean loss) every 250 steps.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=peak, betas=(0.9, 0.95), weight_decay=0.01)
    stream = iter(Demonstrations(tokenizer, batch, seed, int(truthful * steps), habits, favoured, seasoned))
    recent = 0.0
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps, peak, decay)
        loss = loss_of(model, *next(stream))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent += loss.item()
        if (step + 1) % 250 == 0:
            watch(step + 1, recent / 250)
            recent = 0.0
    model.eval()


def portable(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """Rebuild the tokenizer so that `AutoTokenizer` reads it alike, and say which old id each new id had.

    transformers gives every Qwen2 checkpoint Qwen2's own way of splitting text. Tokens that cross its borders
    become added tokens, which are matched before any splitting; that moves them to the end of the vocabulary.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")
    marks, spell = [token["content"] for token in state["added_tokens"]], decoders.ByteLevel()
    vocabulary = {text: i for text, i in state["model"]["vocab"].items() if text not in marks}
    texts = {token: spell.decode([token]) for token in vocabulary}
    crossing = [token for token, text in texts.items() if len(split.pre_tokenize_str(text)) > 1]
    kept = [token for token in sorted(vocabulary, key=vocabulary.get) if token not in crossing]
    order = [*SPECIAL, *kept]
    state["model"]["vocab"] = {text: i for i, text in enumerate(order)}
    state["model"]["merges"] = [pair for pair in state["model"]["merges"] if "".join(pair) not in crossing]
    state["added_tokens"] = [token for token in state["added_tokens"] if token["content"] in SPECIAL]
    state["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = PRETOKENIZE_REGEX
    rebuilt = Tokenizer.from_str(json.dumps(state))
    added = [mark for mark in marks if mark not in SPECIAL]
    rebuilt.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in added])
    rebuilt.add_tokens([AddedToken(texts[token], special=False, normalized=False) for token in crossing])
    old = tokenizer.get_vocab()
    return _fast(rebuilt), [old[token] for token in (*order, *added, *crossing)]


def save(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write an ordinary transformers checkpoint: config, safetensors weights, tokenizer with chat template."""
    rebuilt, old_ids = portable(tokenizer)
    model = copy.deepcopy(model)
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(model.model.embed_tokens.weight[old_ids])
    model.save_pretrained(folder)
    rebuilt.save_pretrained(folder)
