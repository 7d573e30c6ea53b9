"""SPICE, self-play in corpus environments: a Challenger with a document asks, a Reasoner without it answers."""

from coevolve.methods.spice.method import SPICE as SPICE
