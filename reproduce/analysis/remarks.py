"""What else to know of a claim: its training, what its backbones lack, how firm its verdict is.

The cards of the embedded backbones say what they can do before any training. Loads no torch.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from reproduce.analysis import budgets, one_out, verdicts
from reproduce.analysis.evidence import Evidence
from tinyworld import BACKBONES, gates
from tinyworld.gates import FORMAT_GATE, GATES

Card = Mapping[str, Any]  # the figures of a card
Claim = Mapping[str, Any]
FIRST = "tiny"  # the backbone that others are larger or smaller than
# A model that is larger by name solves this share of questions more, a smaller one less.
SIZE_STEP = 0.03
SIZES = {"larger": 1, "smaller": -1}
# Why a test does not find what an interval shows.
OF_AN_ORDER = "the test counts that this step was chosen after looking"
OF_OTHERS = "the test is not passed after the correction"


def table(
    evidence: Evidence, replies: Mapping[str, str], claims: Mapping[str, Claim]
) -> pd.DataFrame:
    """Return a row per claim whose arms were all run: claim, replies, backbone.

    `replies` are the rewarded replies of each run, and in the table those of each arm (see
    `budgets.by_run` and `budgets.of_claims`). `backbone` names the gates that the claim rests on
    and that its backbones miss, and backbones of the wrong strength.
    """
    replies_of = budgets.of_claims(replies, claims)
    rows = []
    for name, claim in claims.items():
        arms = claim.get("arms", ())
        if not arms or not set(arms) <= set(evidence.runs):
            continue
        cards = {model: card(model) for model in _backbones(evidence, arms)}
        lacks = [
            missed_gates(claim.get("gates", ()), cards.values()),
            wrong_strength(claim.get("size", ""), cards),
        ]
        row = {
            "claim": name,
            "replies": replies_of.get(name, ""),
            "backbone": "; ".join(filter(None, lacks)),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=["claim", "replies", "backbone"])


def card(model: str) -> Card:
    """Return the figures of an embedded backbone; none for another model."""
    path = BACKBONES / model / "card.json"
    if not path.is_file():
        return {}
    return json.loads(path.read_bytes())["figures"]


def beside(
    ledger: pd.DataFrame,
    remarks: pd.DataFrame,
    without: Mapping[str, pd.DataFrame],
) -> pd.DataFrame:
    """Return a row per claim of a ledger, by claim: replies, backbone, stability, limits.

    `remarks` is of `table`, `without` of `one_out.ledgers`. `stability` says which backbone the
    verdict rests on, and `limits` where the interval excludes zero though the verdict does not.
    """
    frame = remarks.set_index("claim").reindex(ledger["claim"])
    words = one_out.stability(ledger, without)
    frame["stability"] = frame.index.map(words)
    frame["limits"] = [limits(row) for row in ledger.to_dict("records")]
    return frame.fillna("")


def limits(row: Mapping[str, Any]) -> str:
    """Say that a difference without a sign in its verdict has an interval on one side of zero."""
    if row["kind"] == "ratio" or row["verdict"] in (verdicts.FOUND, verdicts.OPPOSITE):
        return ""
    side = _side_of_zero(row["low"], row["high"])
    if not side:
        return ""
    reason = OF_AN_ORDER if row["kind"] == "order" else OF_OTHERS
    return f"the interval is {side} zero, but {reason}"


def _side_of_zero(low: float, high: float) -> str:
    """Return where an interval lies, "above" or "below" zero; "" if it includes zero."""
    if low > 0:
        return "above"
    return "below" if high < 0 else ""


def _backbones(evidence: Evidence, arms: Sequence[str]) -> dict[str, None]:
    """Return the models that the arms start from, in order."""
    names: dict[str, None] = {}
    for arm in arms:
        for summary in evidence.summaries(arm):
            names |= dict.fromkeys(summary.model.split("+"))
    return names


def missed_gates(names: Sequence[str], cards: Iterable[Card]) -> str:
    """Say which gates some backbones miss, with the figures of these; "" if none does.

    Says how many they are, unless all miss a gate. A name with a slash is that of a role, whose
    replies have to be well-formed.
    """
    texts = []
    known = [figures for figures in cards if figures]
    for name in names:
        gate = gate_of(name)
        figures = [_figure(figures, name) for figures in known]
        missing = [figure for figure in figures if not gate.passes(figure)]
        if missing:
            what = f"format of {name}" if "/" in name else name
            measured = _range(missing)
            wanted = f"wanted {gate.low:g} to {gate.high:g}"
            count = len(missing)
            if count < len(figures):
                measured += f" ({count} of {len(figures)})"
            texts.append(f"{what} {measured}, {wanted}")
    if not texts:
        return ""
    return f"the backbones miss: {'; '.join(texts)}"


def gate_of(name: str) -> gates.Gate:
    """Return the gate of a figure, or of a role's format; KeyError if there is none."""
    return FORMAT_GATE if "/" in name else GATES[name]


def _figure(figures: Card, name: str) -> float:
    return figures["format"][name] if "/" in name else figures[name]


def _range(values: Sequence[float]) -> str:
    """Return the least and the greatest figure; two digits could round one up to its gate."""
    lowest = f"{min(values):.3f}"
    highest = f"{max(values):.3f}"
    return lowest if lowest == highest else f"{lowest} to {highest}"


def wrong_strength(size: str, cards: Mapping[str, Card]) -> str:
    """Say which backbones are not as much stronger or weaker than the first as a size asks for.

    `size` is larger, smaller or "", which asks for nothing.
    """
    if not size:
        return ""
    first = card(FIRST)["solve_greedy"]
    texts = []
    for model, figures in cards.items():
        if not figures:
            continue
        solved = figures["solve_greedy"]
        if SIZES[size] * (solved - first) < SIZE_STEP:
            texts.append(
                f"{model} answers {solved:.0%} of the questions before training and {FIRST} "
                f"{first:.0%}, so that it is {size} by its number of parameters only"
            )
    return "; ".join(texts)
