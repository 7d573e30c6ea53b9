"""What vLLM takes, for checks that must not load it."""

VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # the sizes that vLLM has room for; an adapter takes the next one
VLLM_SHARE = 0.45  # of the GPU's memory, for the weights and caches of all engines; the learner has the rest
