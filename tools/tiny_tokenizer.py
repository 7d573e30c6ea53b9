"""Make a tokenizer for tiny backbones: `python tools/tiny_tokenizer.py FOLDER`.

Byte-level BPE trained on demonstrations, with tags and phrases as single tokens. Writes the
tokenizer, and numbers.json: the id of each token while a backbone is trained. The shipped one was
made in this way from the demonstrations of release 0.2, whose families were smaller, and is kept:
it says everything, and new backbones read the same tokens as old ones.
"""

import json
import sys
from pathlib import Path

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

from tinyworld.demonstrations import demonstrate
from tinyworld.demonstrator import Demonstrator

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


def _marks() -> list[str]:
    """Return the texts that are single tokens."""
    marks = []
    for tag in TAGS:
        marks += [f"<{tag}>", f"</{tag}>"]
    return [*marks, *PHRASES]


MARKS = _marks()
# Digits stay single.
WORDS = Regex(r" [A-D]\)| ?[A-Za-z]+|\d|[fg]\(|\)=| ?[^\sA-Za-z\d]|\s")
TEMPLATE = (
    "<bos>{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<assistant>{{ message['content'] }}<end>"
    "{% else %}<user>{{ message['content'] }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
SIZE = 512
CONTEXT = 1024


def train(seed: int = 0, transcripts: int = 8000) -> PreTrainedTokenizerFast:
    """Train the tokenizer on demonstrations; every string encodes."""
    tokenizer = Tokenizer(models.BPE())
    split_words = pre_tokenizers.Split(WORDS, "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split_words, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    rng = Demonstrator(f"tokenizer {seed}")
    texts = []
    for _ in range(transcripts):
        _, prompt, completion = demonstrate(rng)
        text = prompt + completion
        for mark in MARKS:
            text = text.replace(mark, "\n")
        texts.append(text)
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(MARKS),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _fast(tokenizer, MARKS)


def _fast(tokenizer: Tokenizer, added: list[str]) -> PreTrainedTokenizerFast:
    tokenizer.add_tokens(
        [AddedToken(text, special=False, normalized=False) for text in added]
    )
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


def portable(
    tokenizer: PreTrainedTokenizerFast,
) -> tuple[PreTrainedTokenizerFast, list[int]]:
    """Rebuild the tokenizer for `AutoTokenizer`; return it and the old id of each new id.

    transformers splits text for every Qwen2 checkpoint in Qwen2's way. Tokens across its borders
    become added tokens, which are matched before any splitting; that moves them to the end of the
    vocabulary.
    """
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    model = state["model"]
    added = state["added_tokens"]
    split = pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), "isolated")
    decoder = decoders.ByteLevel()

    def crosses_a_border(token: str) -> bool:
        return len(split.pre_tokenize_str(decoder.decode([token]))) > 1

    marks = [token["content"] for token in added if token["content"] not in SPECIAL]
    learnt = [token for token in model["vocab"] if token not in (*SPECIAL, *marks)]
    crossing = [token for token in learnt if crosses_a_border(token)]
    order = [*SPECIAL, *(token for token in learnt if token not in crossing)]
    model["vocab"] = {token: i for i, token in enumerate(order)}
    model["merges"] = [
        pair for pair in model["merges"] if "".join(pair) not in crossing
    ]
    state["added_tokens"] = [token for token in added if token["content"] in SPECIAL]
    first_step = state["pre_tokenizer"]["pretokenizers"][0]
    first_step["pattern"]["Regex"] = PRETOKENIZE_REGEX
    crossing_texts = [decoder.decode([token]) for token in crossing]
    rebuilt = _fast(Tokenizer.from_str(json.dumps(state)), marks + crossing_texts)
    old_ids = tokenizer.get_vocab()
    return rebuilt, [old_ids[token] for token in (*order, *marks, *crossing)]


def main(folder: Path) -> None:
    """Write the tokenizer and numbers.json into a folder."""
    shipped, numbers = portable(train())
    shipped.save_pretrained(folder)
    (folder / "numbers.json").write_text(json.dumps(numbers) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
