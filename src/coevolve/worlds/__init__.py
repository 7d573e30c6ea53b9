"""Worlds of verifiable tasks: the procedural tiny world, its documents and its demonstrations.

Text only: nothing here knows about models or tokens.
"""
