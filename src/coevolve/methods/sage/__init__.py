"""SAGE: Challenger, Planner, Solver and Critic around a verifier that decides what is correct."""

from coevolve.methods.sage.method import SAGE as SAGE
