"""The only method."""

FACTOR = 3
