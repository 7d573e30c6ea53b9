"""Pools of items that episodes sample from and add to.

An episode sees the pool as of the start of the step plus its own additions. Additions travel in the
episodes' outcomes and are committed after the step, in episode order.
"""

from collections.abc import Hashable, Iterable
from random import Random
from typing import Any


def frozen(item: Any) -> Any:
    """Turn the lists of an item that was loaded from JSON back into tuples, at every depth."""
    if not isinstance(item, list):
        return item
    return tuple(frozen(element) for element in item)


class Pool:
    """An ordered collection of distinct items that grows only between steps.

    `distinct=False` keeps repeats (a pair dataset may hold the same question and answer twice).
    """

    def __init__(self, items: Iterable = (), *, distinct: bool = True):
        self.distinct = distinct
        self.reset(items)

    def __len__(self) -> int:
        return len(self.items)

    def extend(self, items: Iterable) -> None:
        """Append the new items, in order."""
        for item in items:
            if not self.distinct or item not in self._seen:
                self._seen.add(item)
                self.items.append(item)

    def reset(self, items: Iterable) -> None:
        """Replace the content by these items (those of a resumed run)."""
        self.items: list[Any] = []
        self._seen: set[Hashable] = set()
        self.extend(items)

    def view(self) -> "View":
        """Return one episode's view: the current items plus the episode's own additions."""
        return View(self)


class View:
    """One episode's view of a pool, created and sampled in constant time."""

    def __init__(self, pool: Pool):
        self._pool = pool
        self._items = pool.items
        self._size = len(pool.items)  # later items belong to other episodes
        self.added: list[Any] = []

    def __len__(self) -> int:
        return self._size + len(self.added)

    def add(self, item: Hashable) -> None:
        """Add an item, which other episodes see after the step; a distinct pool ignores repeats."""
        if self._pool.distinct and (item in self._pool._seen or item in self.added):
            return
        self.added.append(item)

    def sample(self, rng: Random) -> Any:
        """Draw one item uniformly, or return None if the pool is empty."""
        if len(self) == 0:
            return None
        i = rng.randrange(len(self))
        if i < self._size:
            return self._items[i]
        return self.added[i - self._size]
