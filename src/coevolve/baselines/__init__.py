"""Baselines of the papers' tables, each with the same interface as a protocol or its own way to train."""
