"""MAE, Multi-Agent Evolve: one model proposes questions, answers them and judges both."""

from coevolve.methods.mae.method import MAE as MAE
