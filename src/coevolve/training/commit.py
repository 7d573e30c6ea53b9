"""Adds what a step's episodes found to the pools of their method."""

from collections.abc import Iterable, Mapping

from coevolve.rollout.pools import Pool
from coevolve.types import Outcome
from coevolve.validation import suggestion


def commit(outcomes: Iterable[Outcome], pools: Mapping[str, Pool]) -> None:
    """Add the items of a step's outcomes to the pools, in episode order.

    Raises ValueError if an outcome names a pool that does not exist, or if a checkpoint could not
    hold an item.
    """
    for outcome in outcomes:
        for name, items in outcome.adds.items():
            if name not in pools:
                raise ValueError(
                    f"Outcome.adds has items for a pool {name!r} that the method does not declare "
                    f"in `pools`, which has {', '.join(pools) or 'none'}{suggestion(name, pools)}"
                )
            for item in items:
                if not _can_be_kept(item):
                    raise ValueError(
                        "an item of a pool must be a text, a number, None or a tuple of these, so "
                        f"that a checkpoint can hold it; {name!r} gets {item!r}"
                    )
            pools[name].extend(items)


def _can_be_kept(item: object) -> bool:
    """Whether an item is hashable and comes back from JSON, see `frozen`."""
    if isinstance(item, tuple):
        return all(map(_can_be_kept, item))
    return item is None or isinstance(item, (str, int, float))
