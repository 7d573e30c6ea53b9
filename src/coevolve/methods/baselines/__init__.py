"""Baselines of the papers' tables: methods like the papers' own, some with a trainer of TRL's."""
