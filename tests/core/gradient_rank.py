"""What test_ranks.py runs in every process of a run, and once in one alone: one batch's gradient, written down.

`plain` takes the batch in a single pass in which no two samples share a prompt; otherwise it is packed, in many passes.
"""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from tensors import batch_of, gradient, policy_of

from coevolve.models.policy import Policy
from coevolve.training.distributed import Distributed


def main(out: Path, plain: bool) -> None:
    distributed, passes, states = Distributed(), [], Policy.states
    Policy.states = lambda self, examples: passes.append(len(examples)) or states(self, examples)
    policy = policy_of()
    samples = batch_of(policy, 7) + batch_of(policy, 6, heats=(0.7,))
    assert len({sample.reply.prompt_ids for sample in samples}) < len(samples)
    if plain:
        Policy.shares_prompts = False
    # In double precision, sums of parts differ far less than any mistake would make them.
    found, _ = gradient(samples, entropy_coef=0.01, micro_tokens=10**6 if plain else 20)
    save_file({str(i): part for i, part in enumerate(found)}, out / f"{distributed.rank}.safetensors")
    (out / f"{distributed.rank}.json").write_text(json.dumps({"passes": passes, "packed": policy.shares_prompts}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "plain" in sys.argv)
