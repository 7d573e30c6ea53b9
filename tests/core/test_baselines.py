"""Fields of the baselines that nothing can be made of: one line names the field."""

import pytest

from coevolve import config

NOT_POSITIVE = {
    "azr": "attempts solves",
    "rzero": "rollouts requests answers",
    "ttrl": "votes samples",
    "maporl": "agents turns",
    "srlm": "iterations questions judgements dpo_batch candidates",
    "sft": "epochs sft_batch",
    "ground_truth": "agents",
}
WRONG = [(method, field, 0) for method, fields in NOT_POSITIVE.items() for field in fields.split()]
WRONG += [("azr", "paper", "conl"), ("base", "paper", "azr"), ("rzero", "band", 0.6)]
WRONG += [("rzero", "similarity", -0.1), ("rzero", "repetition", -1.0), ("rzero", "accuracy_weight", 1.1)]
WRONG += [("rzero", "template", "base")]
WRONG += [("maporl", "discount", 1.5), ("maporl", "discount", -0.1), ("srlm", "candidates", 1)]
WRONG += [("srlm", "dpo_beta", -1.0), ("srt", "form", "both")]
WRONG += [("srt", "judge_temperature", -1.0), ("strong_challenger", "challenger", "trained")]


@pytest.mark.parametrize(("method", "field", "value"), WRONG)
def test_a_wrong_field_is_named(method: str, field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^{field} must .* got {value!r}"):
        config.method(method)(**{field: value})
