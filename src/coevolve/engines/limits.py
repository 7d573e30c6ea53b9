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
# The share of a GPU for all engines if they stay awake while the policies learn; the rest is the
# learner's.
VLLM_SHARE = 0.45
# The largest share of a GPU that vLLM may take beside a learner that sleeps while it samples.
LARGEST_SHARE = 0.9
# GiB that stay free beside vLLM: CUDA's context, fragments, and the learner's short forward passes.
RESERVE_GIB = 1.5
# Arguments of vLLM that the field `vllm` may set.
VLLM_OPTIONS = (
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_batched_tokens",
    "max_num_seqs",
    "tensor_parallel_size",
)


def share_beside_learner(free_gib: float, total_gib: float, later_gib: float) -> float:
    """Return vLLM's share of a GPU on which the learner's weights already lie.

    `free_gib` is free now, `later_gib` is what the learner will keep between steps and has not
    allocated yet: the moments of AdamW, and TRL's copy of the weights. Raises ValueError if too
    little is left for any engine.
    """
    share = (free_gib - later_gib - RESERVE_GIB) / total_gib
    if share <= 0:
        raise ValueError(
            f"engine 'vllm' has no room: {free_gib:.1f} of {total_gib:.0f} GiB are free, and the "
            f"learner will take {later_gib:.1f} of them; choose a smaller model, or set lora"
        )
    return min(share, LARGEST_SHARE)
