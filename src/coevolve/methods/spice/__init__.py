"""SPICE, self-play in corpus environments.

A Challenger reads a document and asks; a Reasoner answers without the document.
"""

from coevolve.methods.spice.method import SPICE as SPICE
