"""Our side of the comparison with the authors' released code, without that code.

`benchmarks/authors.json` holds inputs and what our functions made of them when both were compared.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import authors
from benchmarks.released import ours, replies
from benchmarks.released.causes import close

RESULTS = json.loads(authors.RESULTS.read_text(encoding="utf-8"))
COMPARISONS = RESULTS["comparisons"]
OURS = ours.by_comparison()
# Here our functions claim to be the released code.
CLAIMED = [name for name in COMPARISONS if name.endswith(", official")]
# The exception, which docs/authors-code.md explains.
CLAIMED.remove("MAE Solver, official")


def kept(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the inputs of a comparison that its results keep, with our values."""
    yield from result["sample"]
    for difference in result["differences"].values():
        yield difference["example"]


def test_every_comparison_has_results() -> None:
    assert set(COMPARISONS) == set(OURS)


def test_the_replies_are_those_that_were_compared() -> None:
    texts = [reply.text for reply in replies.replies()]
    assert len(texts) == replies.REPLIES
    assert authors.fingerprint(texts) == RESULTS["replies"]


@pytest.mark.parametrize("name", COMPARISONS)
def test_our_functions_return_what_was_compared(name: str) -> None:
    of_ours = OURS[name]
    for case in kept(COMPARISONS[name]):
        value = of_ours(case["input"])
        assert close(value, case["ours"]), case["input"]


@pytest.mark.parametrize("name", CLAIMED)
def test_the_official_variant_is_the_released_code(name: str) -> None:
    result = COMPARISONS[name]
    assert result["equal"] == result["inputs"] > 0


@pytest.mark.parametrize("name", COMPARISONS)
def test_every_difference_has_a_cause(name: str) -> None:
    result = COMPARISONS[name]
    differences = result["differences"]
    assert authors.UNEXPLAINED not in differences
    count = result["equal"]
    for difference in differences.values():
        count += difference["count"]
        example = difference["example"]
        assert difference["cause"]
        assert not close(example["ours"], example["theirs"])
    assert count == result["inputs"]
