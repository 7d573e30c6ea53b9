"""What test_ranks.py runs in every process of a run, and once in one alone: one batch's gradient, written down.

`plain` takes the batch in a single pass in which no two samples share a prompt; otherwise it is packed, in many passes.
"""

import json
import sys
from pathlib import Path

from safetensors.torch import save_file
from tensors import ask

from coevolve.learner import learn
from coevolve.policies.causal import Policy
from coevolve.policies.team import Team
from coevolve.ranks import Ranks


def main(out: Path, plain: bool) -> None:
    ranks, passes = Ranks(), []
    team = Team({"p": "tiny"}, ("p",))
    policy = team.first
    said = team.generate([ask("p", key, max_tokens=3 + key % 5) for key in range(13)])
    policy.model.double()  # sums of parts then differ far less than any mistake would make them
    team.optimize(1e-3, 0.0)
    samples = [reply.earns(i * 0.618 % 1) for i, reply in enumerate(said)]
    assert len({sample.reply.prompt_ids for sample in samples}) < len(samples)
    if plain:
        Policy.shares_prompts = False
    states, found = policy.states, {}
    policy.states = lambda examples: passes.append(len(examples)) or states(examples)
    team.optimizers["p"].step = lambda: found.update({k: p.grad.clone() for k, p in policy.model.named_parameters()})
    settings = {"estimator": "task_relative", "entropy_coef": 0.01, "grad_clip": None}
    learn(policy, team.optimizers["p"], samples, micro_tokens=10**6 if plain else 20, **settings)
    save_file(found, out / f"{ranks.index}.safetensors")
    (out / f"{ranks.index}.json").write_text(json.dumps({"passes": passes, "packed": policy.shares_prompts}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), "plain" in sys.argv)
