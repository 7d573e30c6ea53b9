"""The program that test_ranks.py runs in each process: write down the gradient of one fixed batch.

With `plain` the batch takes a single pass in which no two samples share a prompt; otherwise it is
packed, in many passes.
"""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from tensors import batch_of, gradient, policy_of

from coevolve.models.policy import Policy
from coevolve.training.distributed import Distributed


def count_passes() -> list[int]:
    """Patch Policy; return a list that grows by the number of examples of each forward pass."""
    examples_of_passes = []
    hidden_states = Policy.hidden_states

    def counted(self, examples):
        examples_of_passes.append(len(examples))
        return hidden_states(self, examples)

    Policy.hidden_states = counted
    return examples_of_passes


def main(out: Path, plain: bool) -> None:
    distributed = Distributed()
    passes = count_passes()
    policy = policy_of()
    samples = batch_of(policy, 7) + batch_of(policy, 6, heats=(0.7,))
    prompts = {sample.reply.prompt_ids for sample in samples}
    assert len(prompts) < len(samples), "some samples share a prompt"
    micro_tokens = 20
    if plain:
        Policy.shares_prompts = False
        micro_tokens = 10**6
    # In double precision, sums of parts differ far less than any mistake would make them.
    gradients, _ = gradient(samples, entropy_coef=0.01, micro_tokens=micro_tokens)
    tensors = {str(i): part for i, part in enumerate(gradients)}
    save_file(tensors, out / f"{distributed.rank}.safetensors")
    facts = {"passes": passes, "packed": policy.shares_prompts}
    (out / f"{distributed.rank}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "plain" in sys.argv)
