"""A policy as it was before training, for KL penalties: its adapter switched off, or a frozen copy.

Knows tokens only. A copy costs the memory of a second model, so nobody makes one without a penalty to compute.
"""

import copy
from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from coevolve.losses import selective_logprobs
from coevolve.policies.adapters import AdapterPolicy
from coevolve.policies.causal import Policy
from coevolve.policies.packing import Row, heated


class Reference:
    """Token log-probabilities under the weights that a policy has now; of a LoRA adapter, under its base."""

    def __init__(self, policy: Policy):
        """Remember the policy; call this before anything is trained or restored."""
        self.adapted = isinstance(policy, AdapterPolicy)
        if not self.adapted:
            policy = Policy(copy.deepcopy(policy.model).requires_grad_(False), policy.tokenizer, policy.name)
        self.policy = policy

    @torch.no_grad()
    def logprobs(self, rows: Sequence[Row], temperatures: Sequence[float]) -> Tensor:
        """Return log pi_ref of the completion tokens (T,) of (prompt ids, ids) rows, in order."""
        with self.policy.model.disable_adapter() if self.adapted else nullcontext():
            hidden_TH, targets_T = Policy.states(self.policy, rows)
            hidden_TH, temperature = heated(hidden_TH, temperatures, [len(ids) for _, ids in rows])
            return selective_logprobs(hidden_TH, self.policy.head_VH, targets_T, temperature)
