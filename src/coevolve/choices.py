"""What a run's fields may be: one list for each, for the code that checks them and the code that acts on them."""

ENGINES = ("torch", "vllm", "unsloth", "unsloth+vllm")  # what samples and what trains
LOSSES = ("ppo", "importance", "reinforce")
LENGTH_NORMS = ("token_mean", "sequence_mean", "constant", "token_sum")
OLD_LOGPROBS = ("sampler", "learner")  # who computes the old log-probabilities of the importance ratio
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # the sizes that vLLM has room for; an adapter takes the next one
