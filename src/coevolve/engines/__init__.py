"""Engines that answer turns: policies in this process, vLLM and OpenAI-compatible servers."""
