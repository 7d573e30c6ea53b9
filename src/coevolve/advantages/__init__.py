"""Rewards become one advantage per token."""
