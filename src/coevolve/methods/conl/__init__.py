"""CoNL, conversation for non-verifiable learning: personas propose, rank, criticise and revise."""

from coevolve.methods.conl.method import CoNL as CoNL
