"""A warm start from demonstrations of a user's own: a file of prompts and completions."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import PositiveInt

from coevolve.methods.baselines.trl_trainers import SFT, Example, assistant
from coevolve.validation import PathText, user_path

FORM = '{"prompt": TEXT, "completion": TEXT}'


class WarmStart(SFT):
    """Fine-tuning on demonstrations, so that a model speaks the form that a method reads.

    The reported accuracy is that of MAE's solver; other abilities are the method's to measure.
    """

    PAPER_RUN_VALUES: ClassVar[Mapping[str, Any]] = {
        "steps": 1,  # `fit` takes its own number
        "lora": (),
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "max_tokens": 64,
        "eval_every": 0,
        "eval_items": 10,
    }

    demonstrations: PathText = ""
    """A .jsonl file: a prompt and a completion in each line; a prompt may be a list of messages."""

    sft_batch: PositiveInt = 8
    """Demonstrations per step."""

    epochs: PositiveInt = 3
    """Passes over the demonstrations."""

    def before_run(self) -> None:
        """Read the file; raise ValueError, with the line, unless it holds demonstrations."""
        self.examples()

    def examples(self) -> list[Example]:
        """Return the demonstrations as TRL reads them."""
        path = user_path(self.demonstrations)
        if not path.is_file():
            raise ValueError(
                f"demonstrations must be a .jsonl file, got {self.demonstrations!r}"
            )
        examples = []
        for number, line in enumerate(_lines(path), start=1):
            if line.strip():
                examples.append(_read(line, f"{path} line {number}"))
        if not examples:
            raise ValueError(f"demonstrations: {path} is empty")
        return examples


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8-sig").split("\n")


def _read(line: str, place: str) -> Example:
    """Return the demonstration in a line; `place` says where it stands."""
    try:
        row = json.loads(line)
        prompt = row["prompt"]
        completion = row["completion"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"demonstrations: {place} must be {FORM}") from None
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    if not _are_messages(prompt) or not isinstance(completion, str) or not completion:
        raise ValueError(f"demonstrations: {place} must be {FORM}, both filled")
    return {"prompt": prompt, "completion": assistant(completion)}


def _are_messages(prompt: object) -> bool:
    """Whether a value is a list of messages, each with a role and some content."""
    if not isinstance(prompt, list) or not prompt:
        return False
    for message in prompt:
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            return False
        if not all(isinstance(text, str) and text for text in message.values()):
            return False
    return True
