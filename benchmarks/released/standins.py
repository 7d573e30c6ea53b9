"""Stand-ins for what the authors' code needs around its rewards: data, models, executors.

A tokenizer whose tokens are characters, batches in memory, a model that speaks from a script, an
executor that compares texts. None of them computes a reward.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

Row = dict[str, Any]


class CharacterTokenizer:
    """Every character is a token."""

    eos_token_id = 0
    pad_token_id = 0

    def encode(self, text: str) -> list[int]:
        """Return the code points of a text."""
        return [ord(character) for character in text]

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        """Return the text of code points."""
        return "".join(chr(int(token)) for token in ids)


TOKENIZER = CharacterTokenizer()


def ids_of(text: str) -> torch.Tensor:
    """Return the code points of a text as a tensor."""
    return torch.tensor(TOKENIZER.encode(text), dtype=torch.long)


@dataclass
class Item:
    """One sequence of a batch."""

    batch: dict[str, torch.Tensor]
    non_tensor_batch: Row


def item(prompt: str, reply: str, **fields: Any) -> Item:
    """Return a sequence that consists of a prompt and a reply."""
    prompt_ids = ids_of(prompt)
    reply_ids = ids_of(reply)
    length = len(prompt_ids) + len(reply_ids)
    batch = {
        "prompts": prompt_ids,
        "responses": reply_ids,
        "attention_mask": torch.ones(length, dtype=torch.long),
    }
    return Item(batch, fields)


@dataclass
class Batch:
    """Sequences, or rows of a data set; `batch` holds their padded replies."""

    items: list[Item]
    batch: dict[str, torch.Tensor] = field(default_factory=dict)
    meta_info: Row = field(default_factory=dict)

    @classmethod
    def of(cls, items: list[Item]) -> "Batch":
        """Return a batch with room for the longest reply."""
        longest = max(len(one.batch["responses"]) for one in items)
        room = torch.zeros(len(items), max(1, longest))
        return cls(items, {"responses": room})

    @classmethod
    def from_single_dict(cls, rows: list[Row]) -> "Batch":
        """Return rows of a data set as items without tokens."""
        return cls([Item({}, row) for row in rows])

    def pop(self, names: Sequence[str]) -> "Batch":
        """Return the same items, from which a model will speak."""
        return Batch(self.items)

    def union(self, other: "Batch") -> "Batch":
        """Return the other batch, whose items hold these fields and the replies."""
        return other

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Item:
        return self.items[index]

    def __iter__(self) -> Iterator[Item]:
        return iter(self.items)


class Rows:
    """A data set that reads a parquet file into rows."""

    def __init__(self, parquet_files: str, **_: Any) -> None:
        self.rows = pd.read_parquet(parquet_files).to_dict("records")

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]


class Actor:
    """A model that says one wave of replies per batch, from the start again where it is short."""

    world_size = 1

    def __init__(self, waves: Sequence[Sequence[str]]) -> None:
        self.waves = list(waves)

    def generate_sequences(self, batch: Batch) -> Batch:
        """Return the batch with replies."""
        wave = self.waves.pop(0)
        items = []
        for i, one in enumerate(batch):
            responses = ids_of(wave[i % len(wave)])
            items.append(Item({"responses": responses}, one.non_tensor_batch))
        return Batch(items)


def not_padded(batch: Batch, *_: Any) -> tuple[Batch, int]:
    """Return a batch that needs no padding."""
    return batch, 0


def not_unpadded(batch: Batch, **_: Any) -> Batch:
    """Return a batch that was not padded."""
    return batch


class Silent:
    """Print nothing, whatever is called."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class Executor:
    """Run nothing: programs that hold `invalid` fail, and outputs are compared as texts."""

    def check_all(self, code: str, **_: Any) -> tuple[bool, str]:
        """Return whether a program is valid, and its output."""
        return "invalid" not in code, "right"

    def eval_output_prediction(
        self, gold_output: str, agent_output: str, **_: Any
    ) -> float:
        """Return 1.0 for the right output."""
        return float(agent_output == gold_output)


class Stopit:
    """The timeouts of the package stopit, without a clock."""

    @staticmethod
    def threading_timeoutable(default: str) -> Callable:
        """Return a decorator whose functions take a `timeout` and ignore it."""

        def decorate(function: Callable) -> Callable:
            @functools.wraps(function)
            def without_a_clock(*arguments: Any, timeout: float) -> Any:
                return function(*arguments)

            return without_a_clock

        return decorate


class AgglomerativeClustering:
    """The class of scikit-learn, which calls the same function of SciPy.

    Clusters whose distance equals the threshold stay apart.
    """

    def __init__(self, distance_threshold: float, linkage: str, **_: Any) -> None:
        self.threshold = distance_threshold
        self.linkage = linkage

    def fit_predict(self, distances: np.ndarray) -> list[int]:
        """Return the number of each item's cluster."""
        if len(distances) < 2:
            return [0] * len(distances)
        tree = linkage(squareform(distances, checks=False), self.linkage)
        below = np.nextafter(self.threshold, -np.inf)
        labels: list[int] = fcluster(tree, below, "distance").tolist()
        return labels


class Fields:
    """Settings as attributes; those that are not named are False."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return NOTHING if name.endswith("_reward") else False


NOTHING = Fields({"enabled": False})
