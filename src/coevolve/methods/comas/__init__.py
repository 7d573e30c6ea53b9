"""CoMAS, co-evolving multi-agent systems.

Agents discuss a question, and a scorer decides between the solver and its evaluators.
"""

from coevolve.methods.comas.method import CoMAS as CoMAS
