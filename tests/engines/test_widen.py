"""The wide copy that the engines' tests use is the tiny backbone, and what was added never learns."""

import torch
from widen import widen

from coevolve import policies, prompts
from coevolve.learner import learn
from coevolve.types import Turn

TURN = prompts.load("mae", "solver", "compact")(question="3+4*2=?")


def test_the_wide_copy_computes_the_same_and_its_padding_stays_zero(tmp_path):
    tiny, wide = policies.load("tiny"), policies.load(str(widen("tiny", tmp_path / "wide")))
    assert wide.head_VH.shape[1] == 2 * tiny.head_VH.shape[1]
    turns = [Turn(TURN.role, TURN.messages, key=(0, i)) for i in range(8)]
    mine, its = tiny.generate(turns), wide.generate(turns)
    for one, other in zip(mine, its, strict=True):
        assert one.ids == other.ids
        torch.testing.assert_close(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=1e-4, rtol=0)
    zeros = {name: part == 0 for name, part in wide.model.named_parameters()}
    kept = {name: part.detach().clone() for name, part in wide.model.named_parameters()}
    samples = [reply.earns(float(i % 2)) for i, reply in enumerate(its)]
    learn(wide, torch.optim.AdamW(wide.parameters(), lr=1e-3), samples, estimator="task_relative")
    for name, part in wide.model.named_parameters():
        assert not torch.equal(part, kept[name]), name
        if "norm" not in name and "bias" not in name:
            assert zeros[name].any() and not part[zeros[name]].any(), name
