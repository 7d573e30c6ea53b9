"""Write down one batch's gradient: test_distributed.py runs this alone and in several processes.

Arguments: the folder to write to and, optionally, `plain`. A plain batch is one pass in which no
two samples share a prompt; otherwise the batch is packed, in many passes.
"""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from tensors import batch_of, gradient, policy_of

from coevolve.models import probe
from coevolve.models.policy import Policy
from coevolve.training.distributed import Distributed


def record_passes() -> list[int]:
    """Return a list to which every forward pass from now on adds its number of examples."""
    passes: list[int] = []
    forward = Policy.hidden_states
    probe.check = lambda policy: None  # its passes take no gradient

    def recorded_forward(self, examples):
        passes.append(len(examples))
        return forward(self, examples)

    Policy.hidden_states = recorded_forward
    return passes


def main(out: Path, plain: bool) -> None:
    """Write the gradient to RANK.safetensors, and how it was computed to RANK.json."""
    rank = Distributed().rank
    policy = policy_of()
    samples = batch_of(policy, 7) + batch_of(policy, 6, heats=(0.7,))
    passes = record_passes()
    prompts = {sample.reply.prompt_ids for sample in samples}
    assert len(prompts) < len(samples)
    if plain:
        Policy.max_shared = 0
    # In double precision, sums of parts differ far less than any mistake would make them.
    max_tokens_per_micro_batch = 10**6 if plain else 20
    parts, _ = gradient(
        samples,
        entropy_coef=0.01,
        max_tokens_per_micro_batch=max_tokens_per_micro_batch,
    )
    tensors = {str(index): part for index, part in enumerate(parts)}
    save_file(tensors, out / f"{rank}.safetensors")
    how = {"passes": passes, "packed": bool(policy.max_shared)}
    (out / f"{rank}.json").write_text(json.dumps(how))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "plain" in sys.argv)
