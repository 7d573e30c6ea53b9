"""Tables: what the papers printed, derived averages, comparisons, and files that read back."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduce.analysis import stats, tables

IN = "GSM8K MATH ARC-C MMLU GPQA CQA OBQA NQ TriviaQA SQuAD BoolQ HellaSwag MBPP+ HumanEval+".split()
OUT = "TruthfulQA BBH LiveBench-Reasoning AMC Minerva Winogrande OlympiadBench MMLU-Pro".split()
AVERAGES = {"ID Avg.": IN, "OOD Avg.": OUT, "Overall Avg.": IN + OUT}


def records(method: str, answers: dict[str, list[list[int]]], run: str = "") -> pd.DataFrame:
    """Records of {benchmark: seeds x items}."""
    return pd.DataFrame(
        {
            "run": run or f"{method}-{seed}",
            "method": method,
            "seed": seed,
            "benchmark": benchmark,
            "item": item,
            "correct": correct,
        }
        for benchmark, rows in answers.items()
        for seed, row in enumerate(rows)
        for item, correct in enumerate(row)
    )


def test_paper_numbers_keep_what_was_printed() -> None:
    frame = tables.paper_numbers("mae_table1")
    assert len(frame) == 175
    cell = frame[(frame["method"] == "Base") & (frame["benchmark"] == "GSM8K")].iloc[0]
    assert (cell["value"], cell["printed"]) == (85.2, "85.20")
    settings = tables.paper_numbers("mae_table3")
    assert settings.set_index("benchmark").loc["Learning Rate", "value"] == "1e-6"


def test_paper_numbers_of_no_table_are_refused() -> None:
    with pytest.raises(ValueError, match="table_id must be one of"):
        tables.paper_numbers("../mae_table1")


def test_printed_average_that_does_not_follow_is_found() -> None:
    frame = tables.recomputed_averages(tables.paper_numbers("mae_table1"), AVERAGES)
    assert len(frame) == 21
    odd = frame[frame["differs"]].set_index(["method", "average"])
    assert list(odd.index) == [
        ("MAE (zero)", "ID Avg."),
        ("MAE (zero)", "Overall Avg."),
        ("MAE (half reference)", "ID Avg."),
    ]
    zero = odd.loc[("MAE (zero)", "ID Avg.")]
    assert zero["printed"] == 68.37 and round(zero["recomputed"], 2) == 67.93
    assert zero["known"].startswith("mae-01: 67.93 / 58.67")
    assert (frame.loc[~frame["differs"], "known"] == "").all()


def test_garbled_cells_explain_a_difference() -> None:
    frame = tables.recomputed_averages(tables.paper_numbers("mae_table2"), AVERAGES)
    row = frame[(frame["method"] == "MAE (no format reward)") & (frame["average"] == "OOD Avg.")].iloc[0]
    assert row["differs"] and "OlympiadBench garbled-leading-digit-lost" in row["known"]
    with pytest.raises(ValueError, match="no benchmark"):
        tables.recomputed_averages(tables.paper_numbers("mae_table2"), {"ID Avg.": ["gsm"]})


def test_accuracy_matrix_pivots_and_averages_samples() -> None:
    scores = records("mae", {"sums": [[1, 0, 1], [0, 0, 1]], "facts": [[1], [1]]})
    again = scores[(scores["seed"] == 0) & (scores["item"] == 1) & (scores["benchmark"] == "sums")]
    shuffled = pd.concat([scores, again.assign(correct=1)]).sample(frac=1, random_state=0)
    matrices = tables.accuracy_matrix(shuffled, "mae")
    assert set(matrices) == {"sums", "facts"}
    assert matrices["sums"].to_numpy().tolist() == [[1, 0.5, 1], [0, 0, 1]]


def test_accuracy_matrix_refuses_gaps_and_mixtures() -> None:
    scores = records("mae", {"sums": [[1, 0], [0, 1]]})
    with pytest.raises(ValueError, match="lacks items of 'sums'"):
        tables.accuracy_matrix(scores.drop(index=3), "mae")
    with pytest.raises(ValueError, match="several runs with one seed"):
        tables.accuracy_matrix(pd.concat([scores, records("mae", {"sums": [[1, 1]]}, "other")]), "mae")
    with pytest.raises(ValueError, match="method must be one of"):
        tables.accuracy_matrix(scores, "sage")


def test_every_cell_is_its_k_over_n_and_averages_are_derived() -> None:
    rng = np.random.default_rng(0)
    draw = lambda seeds, items: rng.integers(0, 2, (seeds, items)).tolist()  # noqa: E731
    scores = pd.concat(
        [
            records("base", {"sums": draw(1, 40), "facts": draw(1, 10)}),
            records("mae", {"sums": draw(3, 40), "facts": draw(3, 10)}),
        ]
    )
    table = tables.accuracy_table(scores, {"Average": ["sums", "facts"]})
    cells = table[table["kind"] == "cell"]
    assert np.allclose(cells["accuracy"], 100 * cells["k"] / cells["n"])
    assert cells["n"].tolist() == [40, 10, 120, 30]
    for method, part in table.groupby("method"):
        averaged = part.loc[part["kind"] == "average", "accuracy"].item()
        assert averaged == pytest.approx(part.loc[part["kind"] == "cell", "accuracy"].mean()), method
    first = cells.iloc[0]
    assert (first["low"], first["high"]) == pytest.approx(tuple(100 * x for x in stats.wilson(int(first["k"]), 40)))
    with pytest.raises(ValueError, match="has no scores on"):
        tables.accuracy_table(scores, {"Average": ["sums", "stories"]})


def test_compare_rows_gives_delta_interval_p_and_verdict() -> None:
    base = {"sums": [[0] * 30], "facts": [[1, 0] * 10]}
    ours = {"sums": [[1] * 25 + [0] * 5] * 3, "facts": [[1, 0] * 10] * 3}
    scores = pd.concat([records("base", base), records("mae", ours)])
    frame = tables.compare_rows(scores, "base", "mae", paper_signs={"sums": 1, "Average": -1}).set_index("benchmark")
    assert frame.loc["sums", ["base", "method", "delta"]].tolist() == pytest.approx([0, 250 / 3, 250 / 3])
    assert frame.loc["facts", ["delta", "low", "high"]].tolist() == [0, 0, 0]
    assert frame["verdict"].to_dict() == {"sums": "agrees", "facts": "", "Average": "disagrees"}
    assert frame.loc["Average", "delta"] == pytest.approx(125 / 3)
    assert frame.loc["sums", "p_holm"] == 0 and frame.loc["facts", "p_holm"] == 1
    one = tables.compare_rows(scores[scores["seed"] == 0], "base", "mae").set_index("benchmark")
    assert one.loc["sums", "p"] == pytest.approx(2.0**-25)
    assert one.loc["sums", "p_holm"] == pytest.approx(2.0**-24)


def test_compare_rows_refuses_what_is_not_paired() -> None:
    base = records("base", {"sums": [[1, 0]]})
    with pytest.raises(ValueError, match="not scored on the same items"):
        tables.compare_rows(pd.concat([base, records("mae", {"sums": [[1, 0, 1]]})]), "base", "mae")
    with pytest.raises(ValueError, match="differ in benchmarks"):
        tables.compare_rows(pd.concat([base, records("mae", {"facts": [[1, 0]]})]), "base", "mae")
    three = records("mae", {"sums": [[1, 0]] * 3})
    two = records("base", {"sums": [[1, 0]] * 2})
    with pytest.raises(ValueError, match="different seeds"):
        tables.compare_rows(pd.concat([two, three]), "base", "mae")


def test_percent_formats() -> None:
    assert tables.percent_ci(565, 1000) == "56.5 [53.4, 59.5]"
    assert tables.percent_ci(0, 0) == "no items"
    assert tables.percent(3.14, -0.2, 6.4, signed=True) == "+3.1 [-0.2, +6.4]"


def test_saved_table_reads_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"method": ["a", "b"], "value": [1 / 3, 0.0001], "n": [10, 12], "clear": [True, False]})
    tables.save_table(frame, tmp_path / "mae_table1", "Caption", "Note")
    back = pd.read_csv(tmp_path / "mae_table1" / "table.csv")
    pd.testing.assert_frame_equal(back.astype({"method": frame["method"].dtype}), frame, check_exact=True)
    tex = (tmp_path / "mae_table1" / "table.tex").read_text()
    for part in (
        r"\toprule",
        r"\bottomrule",
        r"\label{tab:mae_table1}",
        r"\caption{Caption}",
        "a & 0.333 & 10 & yes",
    ):
        assert part in tex
    assert "| a " in (tmp_path / "mae_table1" / "table.md").read_text()
    first = [path.read_bytes() for path in sorted((tmp_path / "mae_table1").iterdir())]
    tables.save_table(frame, tmp_path / "mae_table1", "Caption", "Note")
    assert first == [path.read_bytes() for path in sorted((tmp_path / "mae_table1").iterdir())]


def test_saved_table_disarms_text(tmp_path: Path) -> None:
    nasty = ["=HYPERLINK(1)", "<script>x</script>", r"\input{/etc/passwd}", "a|b\nc"]
    nasty += ["50 % & $x_1$ #{~^}", "\x1b[2J\u202e"]
    gains = ["+1.5 [-0.1, +3.0]", "-2", "+", "@SUM(A1)", "+cmd|x", "[a](javascript:1)"]
    frame = pd.DataFrame({"met|hod_": nasty, "delta": gains})
    tables.save_table(frame, tmp_path, "50 % of \\x", "see A_1 & <b>")
    csv, md, tex = ((tmp_path / f"table.{kind}").read_text() for kind in ("csv", "md", "tex"))
    back = pd.read_csv(tmp_path / "table.csv")
    assert back["met|hod_"][0] == "'=HYPERLINK(1)"
    assert back["delta"].tolist() == [*gains[:3], "'@SUM(A1)", "'+cmd|x", gains[5]]
    for text in (csv, md, tex):
        assert "\x1b" not in text and "\u202e" not in text and "x1b" in text
    assert "<script" not in md and "<b>" not in md and r"a\|b" in md and r"[a\](javascript:1)" in md
    assert len([line for line in md.splitlines() if line.startswith("|")]) == len(nasty) + 2
    assert r"\input" not in tex and r"\textbackslash input\{/etc/passwd\}" in tex
    assert r"50 \% \& \$x\_1\$ \#\{\textasciitilde \textasciicircum \}" in tex
    assert r"\caption{50 \% of \textbackslash{}x}" in tex and r"see A\_1 \& <b>" in tex
