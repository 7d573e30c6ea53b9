"""CoNL, conversation for non-verifiable learning: personas propose, rank and criticise, revise, and rank again."""

from coevolve.methods.conl.method import CoNL as CoNL
