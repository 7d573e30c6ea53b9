"""Rollouts: episodes of turns, played against an engine that answers them."""
