"""What answers turns: policies in this process, vLLM, servers; one engine for the loop."""
