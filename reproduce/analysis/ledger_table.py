"""The table of the ledger: complete as CSV, and in Markdown and LaTeX what a reader needs first.

Computes nothing; `claims` does.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from reproduce import HOME
from reproduce.analysis import one_out, verdicts, writing
from reproduce.analysis.claims import OVER_CONTROL
from reproduce.places import artefact_of
from reproduce.registry import read, read_toml

TITLE = "Verdict on each claim"
NOTE = (
    "*here* is the effect of the reproduction with its 95 % interval, in points for shares of "
    "answers and otherwise in the metric's own unit. A positive effect supports the claim; "
    "ratios and shares are shown as measured. *the paper's* is the effect that the paper prints, "
    "for an order or a peak that of the step or side which is named. *remark* says what a verdict "
    "rests on: gates that the backbones miss, backbones that are larger or smaller by name only, "
    "other verdicts that the claim would have without one of its backbones, and intervals that "
    "exclude zero although the test does not."
)
MORE = (
    "[How verdicts are given](../../../docs/ledger.md) · [all columns](table.csv): seeds, units, "
    "corrected p-values, smallest detectable effects, gains over shuffled rewards"
)
FILES = {  # which file of an artefact shows a place of a paper best
    "table": ("table.md", "figure.png"),
    "fig": ("figure.png", "table.md"),
}


def complete(ledger: pd.DataFrame, remarks: pd.DataFrame) -> pd.DataFrame:
    """Return every column of a ledger in words, a row per claim.

    `remarks` is of `remarks.beside`.
    """
    beside = remarks.reindex(ledger["claim"])
    control = ledger[list(OVER_CONTROL)].set_axis(["effect", "low", "high"], axis=1)
    return pd.DataFrame(
        {
            "verdict": ledger["verdict"],
            "paper": _names(ledger),
            "claim": ledger["says"],
            "here, 95 % interval": _effects(ledger),
            "the paper's": ledger["paper_effect"],
            "over its control": _effects(control),
            "tests": ledger["tests"],
            "seeds": ledger["seeds"],
            "units": ledger["units"],
            "replies": beside["replies"].to_numpy(),
            "p, corrected": ledger["p_corrected"],
            "smallest detectable effect": ledger["smallest"],
            "where": ledger["where"],
            "why": ledger["why"],
            "backbone": beside["backbone"].to_numpy(),
            "without one backbone": beside["stability"].to_numpy(),
            "limits": beside["limits"].to_numpy(),
        }
    )


def short(ledger: pd.DataFrame, remarks: pd.DataFrame) -> pd.DataFrame:
    """Return what a reader needs first. The reason of a verdict stands beside its numbers.

    `remarks` is of `remarks.beside`.
    """
    printed = ledger["paper_effect"].map("{:+.3g}".format, na_action="ignore")
    here = []
    for effect, why in zip(_effects(ledger), ledger["why"], strict=True):
        here.append(f"{effect} ({why})" if effect and why else effect or why)
    return pd.DataFrame(
        {
            "verdict": ledger["verdict"],
            "paper": _names(ledger),
            "claim": ledger["says"],
            "here": here,
            "the paper's": printed,
            "remark": _remarks(remarks.reindex(ledger["claim"])),
            "where": ledger["where"],
        }
    )


def _remarks(beside: pd.DataFrame) -> list[str]:
    """Return what a verdict rests on, a text per row of `remarks.beside`."""
    texts = []
    for row in beside.itertuples():
        stability = "" if row.stability == one_out.KEPT else row.stability
        parts = [row.backbone, stability, row.limits]
        texts.append("; ".join(filter(None, parts)))
    return texts


def _names(ledger: pd.DataFrame) -> pd.Series:
    """Return the names of the papers, such as MAE."""
    papers = read_toml(HOME / "reproduce" / "papers.toml")
    return ledger["paper"].map(lambda key: papers[key]["name"])


def _effects(frame: pd.DataFrame) -> list[str]:
    return [_effect_in_words(row) for row in frame.itertuples()]


def _effect_in_words(row: Any) -> str:
    if pd.isna(row.effect):
        return ""
    if pd.isna(row.low):
        return f"{row.effect:+.3g}"
    if np.isinf(row.low):
        return f"{row.effect:+.3g} [no limits]"
    return f"{row.effect:+.3g} [{row.low:+.3g}, {row.high:+.3g}]"


def headline(ledger: pd.DataFrame) -> str:
    """Return the number of claims in each group of verdicts, as a line."""
    parts = []
    for group, count in verdicts.counts_of(ledger["verdict"]).items():
        parts.append(f"{count} {group}")
    return f"{len(ledger)} claims: {' · '.join(parts)}"


def against(ledger: pd.DataFrame) -> str:
    """Return how many differences without a sign in their verdict lean against their claim.

    "" if there is none. Ratios and shares are left out: they are judged by their size.
    """
    differences = ledger[(ledger["kind"] != "ratio") & ledger["effect"].notna()]
    groups = differences["verdict"].map(verdicts.group_of)
    parts = []
    for group in verdicts.GROUPS:
        effects = differences.loc[groups == group, "effect"]
        if len(effects) and group not in (verdicts.FOUND, verdicts.OPPOSITE):
            parts.append(f"{(effects < 0).sum()} of {len(effects)} *{group}*")
    if not parts:
        return ""
    return (
        f"Measured differences that lean against their claim: {', '.join(parts)}. An order or a "
        "peak shows its weakest step or side, which leans that way more often than the others."
    )


def firm(ledger: pd.DataFrame, remarks: pd.DataFrame) -> str:
    """Return how many verdicts of each group no single backbone changes, as a sentence; or "".

    `remarks` is of `remarks.beside`. Claims that lose no data without a backbone are left out.
    """
    stability = remarks.reindex(ledger["claim"])["stability"].to_numpy()
    groups = ledger["verdict"].map(verdicts.group_of).to_numpy()
    parts = []
    for group in verdicts.GROUPS:
        in_group = stability[(groups == group) & (stability != "")]
        if len(in_group):
            kept = (in_group == one_out.KEPT).sum()
            parts.append(f"{kept} of {len(in_group)} *{group}*")
    if not parts:
        return ""
    return (
        "Verdicts that keep their word, whichever backbone is left out: "
        f"{', '.join(parts)}. Claims whose units are seeds of one backbone are not counted."
    )


def addresses(ledger: pd.DataFrame, preset: str) -> list[str]:
    """Return the file that shows each claim's place in its paper, from the ledger's folder.

    Return "" for a place that is no table or figure, or is not reproduced.
    """
    _, entries = read(HOME, preset)
    outputs_of = {}
    for id, artefact in entries.artefacts.items():
        if artefact.skip is None:
            outputs_of[id] = artefact.outputs
    pairs = zip(ledger["paper"], ledger["where"], strict=True)
    return [_address(paper, where, outputs_of) for paper, where in pairs]


def _address(paper: str, where: str, outputs_of: Mapping[str, Sequence[str]]) -> str:
    id = artefact_of(paper, where, outputs_of)
    kind = "table" if id.startswith(f"{paper}_table") else "fig"
    for name in FILES[kind]:
        if name in outputs_of.get(id, ()):
            return f"../{id}/{name}"
    return ""


def save(ledger: pd.DataFrame, remarks: pd.DataFrame, out: Path, preset: str) -> None:
    """Write table.csv with every column, and table.md and table.tex with those of `short`.

    The page in Markdown begins with the counts of verdicts and with what its columns mean. It links
    each place of a paper to its reproduction.
    """
    out.mkdir(parents=True, exist_ok=True)
    writing.write_csv(complete(ledger, remarks), out / "table.csv")
    table = short(ledger, remarks)
    paragraphs = [
        f"# {TITLE}",
        f"**{headline(ledger)}** (tiny world, preset {preset})",
        *filter(None, [against(ledger), firm(ledger, remarks)]),
        NOTE,
        MORE,
        writing.markdown_table(table, {"where": addresses(ledger, preset)}),
    ]
    (out / "table.md").write_text("\n\n".join(paragraphs) + "\n", "utf-8")
    note = NOTE.replace("*", '"')
    writing.write_latex(
        table,
        out / "table.tex",
        caption=f"{TITLE} (tiny world, preset {preset})",
        note=f"{headline(ledger)}. {note}",
        label="tab:claims",
    )
