"""What tests/test_zero.py runs in every process of a run, and once in one alone; each writes down what it held."""

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from test_team import ask, made, weights

from coevolve.__main__ import main as command
from coevolve.learner import learn
from coevolve.policies.zero import Zero
from coevolve.ranks import Ranks


def left(optimizer) -> int:
    """How many numbers of gradients are on the parameters."""
    parts = [part for group in optimizer.param_groups for part in group["params"]]
    return sum(part.grad.numel() for part in parts if part.grad is not None)


def watch() -> dict:
    """Have every `Zero` of this process note what it holds of how much."""
    facts = {"process": os.getpid(), "steps": 0, "held": [], "whole": [], "between": []}
    step, backward = Zero.step, Zero.backward

    def noting_step(self, closure=None):
        step(self)
        facts["ranks"], facts["steps"] = torch.distributed.get_world_size(), facts["steps"] + 1
        facts["held"].append(sum(row["exp_avg"].numel() for row in self.engine.optimizer.optimizer.state.values()))
        facts["whole"].append(sum(part.numel() for group in self.param_groups for part in group["params"]))

    def noting_backward(self, loss, last):
        backward(self, loss, last)
        facts["between"] += [] if last else [left(self)]

    Zero.step, Zero.backward = noting_step, noting_backward
    return facts


def steps(out: Path, lora: tuple) -> None:
    """Two policies learn, one of them also from samples that break the gradient of one rank; then all is restored."""
    ranks = Ranks()
    team, again, batches, tensors, seen = made(lora=lora), made(lora=lora), {}, {}, []
    for name in "pq":
        said = team.generate([ask(name, key, max_tokens=3 + key) for key in range(7)])
        batches[name] = [reply.earns(i * 0.618 % 1) for i, reply in enumerate(said)]
    last = batches["p"][-1].reply
    batches["broken"] = [*batches["p"][:-1], replace(last, logprobs=(-math.inf,) * len(last.ids)).earns(0.0)]

    def teach(one, name, samples, grad_clip=0.1):
        return learn(
            one.policies[name],
            one.optimizers[name],
            batches[samples],
            estimator="task_relative",
            kind="importance",
            micro_tokens=1,
            grad_clip=grad_clip,
            ranks=ranks,
        )

    for number, (name, samples, clip) in enumerate(
        (("p", "p", None), ("q", "q", None), ("p", "broken", None), ("p", "p", 0.1), ("q", "q", 0.1))
    ):
        before = weights(team, name)
        metrics = teach(team, name, samples, clip)
        seen.append([metrics["grad_norm"], metrics["skipped_update"]])
        tensors[f"moved.{number}"] = weights(team, name) - before
        assert left(team.optimizers[name]) == 0
    states = team.optimizer_states()
    ranks.alone(lambda: (team.save(out / "policy"), team.save_optimizers(out / "optimizers", states)))
    again.restore(out / "policy"), again.restore_optimizers(out / "optimizers")
    for name in "pq":
        teach(team, name, name), teach(again, name, name)
        assert torch.equal(weights(team, name), weights(again, name)), "the next step is the same as well"
        tensors[f"end.{name}"] = weights(team, name)
    save_file(tensors, out / f"{ranks.index}.safetensors")
    (out / f"{ranks.index}.json").write_text(json.dumps(seen))


def main(out: Path, *arguments: str) -> int:
    facts = watch()
    if arguments:
        code = command(arguments)
    else:
        code = 0
        for kind, lora in (("whole", ()), ("lora", (4, 8, 0.0))):
            steps(out / kind, lora)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(facts))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
