"""Prompts, parsers and verifiers: everything that reads text. Loads no tensor library."""
