"""What an advantage estimator is given, and what it returns."""

from collections.abc import Sequence
from dataclasses import dataclass

from coevolve.types import Sample

# One row per sample, one number per token of its completion; None where the token is masked.
Advantages = Sequence[Sequence[float | None]]


@dataclass
class EstimatorInputs:
    """A batch of samples of one policy, with the per-token quantities that some estimators need."""

    samples: Sequence[Sample]
    log_ratios: Sequence[Sequence[float]] = ()
    """log pi(token) - log pi_ref(token) of every token, for estimators with a KL penalty."""
    kl_coef: float = 0.0
    """Weight of that penalty (beta in CoMAS, Eq. 9)."""
    values: Sequence[Sequence[float]] = ()
    """The expected reward before every token, for estimators with a learned baseline."""
