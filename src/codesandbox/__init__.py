"""Untrusted programs, run in guarded processes of the standard library alone."""
