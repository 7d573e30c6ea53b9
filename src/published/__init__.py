"""The data sets and corpora that the papers train and test on, and a real model and questions that packages hold."""

from importlib import import_module

from coevolve.worlds import World

MODULES = {"data": "published.world", "gym": "published.gym"}  # by the beginning of a world's name


def named(name: str, paper: str, seeds: bool = True) -> World:
    """Return the world data, data:KEY,KEY or gym:FAMILY,FAMILY, see the functions of this name in MODULES."""
    return import_module(MODULES[name.partition(":")[0]]).named(name, paper, seeds)
