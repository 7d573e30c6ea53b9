"""The papers' data sets and corpora, and a real model and questions that come in packages."""

from importlib import import_module

from coevolve.worlds import World

WORLD_MODULES = {"data": "published.world", "gym": "published.gym"}


def named(name: str, paper: str, seeds: bool = True) -> World:
    """Return the world data, data:KEY,KEY or gym:FAMILY,FAMILY from its module in WORLD_MODULES."""
    kind = name.partition(":")[0]
    module = import_module(WORLD_MODULES[kind])
    world: World = module.named(name, paper, seeds)
    return world
