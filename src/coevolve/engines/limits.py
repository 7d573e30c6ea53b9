"""Limits of vLLM, for checks that must not import it."""

# LoRA ranks for which vLLM can reserve room; an adapter takes the next larger one.
VLLM_RANKS = (
    1,
    8,
    16,
    32,
    64,
    128,
    256,
    320,
    512,
)
# The fraction of the GPU's memory for the weights and caches of all engines; the rest is the
# learner's.
VLLM_SHARE = 0.45
