"""Baselines of the papers' tables: methods like the papers' own, some trained by TRL."""
