"""The learning rate of a step: a warm-up, then constant, or falling to zero at the last step."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def learning_rate_at(
    step: int, peak: float, schedule: Schedule, warmup_steps: int, steps: int
) -> float:
    """Return the learning rate of `step`, which counts from 1 to `steps`.

    It rises in equal parts over the warm-up. A falling rate is `peak` after that, and would be 0 in
    the step after the last one.
    """
    if step <= warmup_steps:
        return peak * step / warmup_steps
    if schedule == "constant":
        return peak
    progress = (step - 1 - warmup_steps) / max(1, steps - warmup_steps)
    if schedule == "linear":
        return peak * (1 - progress)
    return peak * (1 + math.cos(math.pi * progress)) / 2
