"""Pools that episodes read as of the step's start, plus what they add themselves.

Additions travel in the episodes' outcomes and are committed after the step, in episode order.
"""

from collections.abc import Hashable, Iterable
from random import Random
from typing import Any


def frozen(item: Any) -> Any:
    """Return an item as it was before JSON, which knows no tuples."""
    return tuple(map(frozen, item)) if isinstance(item, list) else item


class Pool:
    """An ordered collection that grows only between steps, and only with items it does not hold yet.

    `distinct=False` keeps repeats (a pair dataset may hold the same question and answer twice).
    """

    def __init__(self, items: Iterable = (), *, distinct: bool = True):
        self.distinct = distinct
        self.reset(items)

    def __len__(self) -> int:
        return len(self.items)

    def extend(self, items: Iterable) -> None:
        """Append the items that are new, in order."""
        for item in items:
            if not self.distinct or item not in self._seen:
                self._seen.add(item)
                self.items.append(item)

    def reset(self, items: Iterable) -> None:
        """Hold exactly these items (a resumed run's)."""
        self.items: list[Any] = []
        self._seen: set[Hashable] = set()
        self.extend(items)

    def view(self) -> "View":
        """A read-and-add view for one episode: the pool as it stands now plus the episode's own additions."""
        return View(self)


class View:
    """One episode's sight of a pool: constant time to make, to sample from and to add to."""

    def __init__(self, pool: Pool):
        self._pool, self._items, self._size = pool, pool.items, len(pool.items)
        self.added: list[Any] = []

    def __len__(self) -> int:
        return self._size + len(self.added)

    def add(self, item: Hashable) -> None:
        """Add an item that this episode sees at once and the others after the step, unless the pool holds it."""
        if not self._pool.distinct or (item not in self._pool._seen and item not in self.added):
            self.added.append(item)

    def sample(self, rng: Random) -> Any:
        """Draw one item uniformly, or None from an empty pool."""
        if not (count := len(self)):
            return None
        i = rng.randrange(count)
        return self._items[i] if i < self._size else self.added[i - self._size]
