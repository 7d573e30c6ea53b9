"""CoMAS, co-evolving multi-agent systems: agents discuss, and a scorer decides between solver and evaluator."""

from coevolve.methods.comas.method import CoMAS as CoMAS
