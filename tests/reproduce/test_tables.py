"""Tables: what the papers printed, derived averages, comparisons, and files that read back."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from reproduce.analysis import standins, stats, tables

IN = "GSM8K MATH ARC-C MMLU GPQA CQA OBQA NQ TriviaQA SQuAD BoolQ HellaSwag MBPP+ HumanEval+".split()
OUT = "TruthfulQA BBH LiveBench-Reasoning AMC Minerva Winogrande OlympiadBench MMLU-Pro".split()
AVERAGES = {"ID Avg.": IN, "OOD Avg.": OUT, "Overall Avg.": IN + OUT}
ONE = {"Average": ["sums"]}


def records(method: str, answers: dict[str, list[list[int]]], run: str = "") -> pd.DataFrame:
    """Records of {benchmark: seeds x items}."""
    rows = []
    for benchmark, by_seed in answers.items():
        for seed, row in enumerate(by_seed):
            rows += [(run or f"{method}-{seed}", method, seed, benchmark, item, said) for item, said in enumerate(row)]
    return pd.DataFrame(rows, columns=["run", "method", "seed", "benchmark", "item", "correct"])


def test_paper_numbers_keep_what_was_printed() -> None:
    frame = tables.paper_numbers("mae_table1")
    assert len(frame) == 175
    cell = frame[(frame["method"] == "Base") & (frame["benchmark"] == "GSM8K")].iloc[0]
    assert (cell["value"], cell["printed"]) == (85.2, "85.20")
    settings = tables.paper_numbers("mae_table3")
    assert settings.set_index("benchmark").loc["Learning Rate", "value"] == "1e-6"
    with pytest.raises(ValueError, match="table_id must be one of"):
        tables.paper_numbers("../mae_table1")


def test_printed_averages_that_do_not_follow_are_found_and_explained() -> None:
    frame = tables.recomputed_averages(tables.paper_numbers("mae_table1"), AVERAGES)
    assert len(frame) == 21 and (frame.loc[~frame["differs"], "known"] == "").all()
    odd = frame[frame["differs"]].set_index(["method", "average"])
    wrong = [("MAE (zero)", "ID Avg."), ("MAE (zero)", "Overall Avg."), ("MAE (half reference)", "ID Avg.")]
    assert list(odd.index) == wrong
    zero = odd.loc[("MAE (zero)", "ID Avg.")]
    assert zero["printed"] == 68.37 and round(zero["recomputed"], 2) == 67.93
    assert zero["known"].startswith("mae-01: 67.93 / 58.67")
    frame = tables.recomputed_averages(tables.paper_numbers("mae_table2"), AVERAGES)
    row = frame[(frame["method"] == "MAE (no format reward)") & (frame["average"] == "OOD Avg.")].iloc[0]
    assert row["differs"] and "OlympiadBench garbled-leading-digit-lost" in row["known"]
    with pytest.raises(ValueError, match="no benchmark"):
        tables.recomputed_averages(tables.paper_numbers("mae_table2"), {"ID Avg.": ["gsm"]})


def test_table_2_of_sage_recomputed_from_table_1_shows_the_swap() -> None:
    layout = standins.layout("sage")
    groups = {name: [c for row in layout.groups[name] for c in layout.columns[row]] for name in ("ID Avg.", "OOD Avg.")}
    cells = pd.concat([tables.paper_numbers("sage_table1"), tables.paper_numbers("sage_table2")])
    found = tables.recomputed_averages(cells[~cells["benchmark"].isin(["C Avg.", "M Avg.", "O Avg."])], groups)
    wrong = found[found["differs"]].set_index(["backbone", "method", "average"])["recomputed"]
    assert len(found) == 3 * 4 * 2 and set(wrong.index.get_level_values("average")) == {"ID Avg."}
    assert wrong["Qwen2.5-7B-Instruct", "MAE", "ID Avg."] == pytest.approx((76.2 + 65.3 + 91.7 + 76.2) / 4)
    assert wrong["Qwen2.5-7B-Instruct", "SAGE", "ID Avg."] == pytest.approx((76.2 + 64.0 + 92.2 + 74.7) / 4, abs=1e-3)
    assert wrong["Qwen2.5-3B-Instruct", "Base Model", "ID Avg."] == pytest.approx(68.475), "truncated in print"


def test_accuracy_matrix_pivots_averages_samples_and_refuses_gaps_and_mixtures() -> None:
    scores = records("mae", {"sums": [[1, 0, 1], [0, 0, 1]], "facts": [[1], [1]]})
    again = scores[(scores["seed"] == 0) & (scores["item"] == 1) & (scores["benchmark"] == "sums")]
    shuffled = pd.concat([scores, again.assign(correct=1)]).sample(frac=1, random_state=0)
    matrices = tables.accuracy_matrix(shuffled, "mae")
    assert set(matrices) == {"sums", "facts"}
    assert matrices["sums"].to_numpy().tolist() == [[1, 0.5, 1], [0, 0, 1]]
    with pytest.raises(ValueError, match="lacks items of 'sums'"):
        tables.accuracy_matrix(scores.drop(index=3), "mae")
    with pytest.raises(ValueError, match="several runs with one seed"):
        tables.accuracy_matrix(pd.concat([scores, records("mae", {"sums": [[1, 1]]}, "other")]), "mae")
    with pytest.raises(ValueError, match="method must be one of"):
        tables.accuracy_matrix(scores, "sage")


def test_every_cell_is_its_k_over_n_and_averages_are_derived() -> None:
    rng = np.random.default_rng(0)
    parts = []
    for name, seeds in (("base", 1), ("mae", 3)):
        sizes = {"sums": (seeds, 40), "facts": (seeds, 10)}
        parts.append(records(name, {family: rng.integers(0, 2, size).tolist() for family, size in sizes.items()}))
    scores = pd.concat(parts)
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


def test_compare_rows_gives_delta_limits_p_and_verdict() -> None:
    base = {"sums": [[0] * 30], "facts": [[1, 0] * 10]}
    ours = {"sums": [[1] * 25 + [0] * 5] * 2 + [[1] * 20 + [0] * 10], "facts": [[1, 0] * 10] * 3}
    both = [records("base", base).assign(trained=False), records("mae", ours).assign(trained=True)]
    scores, groups = pd.concat(both), {"Average": ["sums", "facts"]}
    frame = tables.compare_rows(scores, "base", "mae", groups, {"sums": 1, "Average": -1}).set_index("benchmark")
    assert frame.loc["sums", ["base", "method", "delta"]].tolist() == pytest.approx([0, 700 / 9, 700 / 9])
    assert frame.loc["facts", ["delta", "low", "high", "p_holm"]].tolist() == [0, 0, 0, 1]
    assert frame["verdict"].to_dict() == {"sums": "same sign", "facts": "", "Average": "other sign"}
    assert frame.loc["Average", "delta"] == pytest.approx(350 / 9)
    one = tables.compare_rows(scores[scores["seed"] == 0], "base", "mae", groups, {"sums": 1}).set_index("benchmark")
    assert one.loc["sums", "verdict"] == "one seed" and one[["low", "high", "p"]].isna().all(axis=None)


UNPAIRED = {"not scored on the same items": {"sums": [[1, 0, 1]]}, "differ in benchmarks": {"facts": [[1, 0]]}}


@pytest.mark.parametrize(("message", "ours"), UNPAIRED.items())
def test_compare_rows_refuses_what_is_not_paired(message: str, ours: dict) -> None:
    with pytest.raises(ValueError, match=message):
        tables.compare_rows(pd.concat([records("base", {"sums": [[1, 0]]}), records("mae", ours)]), "base", "mae", ONE)


def test_percent_formats() -> None:
    assert tables.percent_ci(565, 1000) == "56.5 [53.4, 59.5]"
    assert tables.percent_ci(0, 0) == "no items"
    assert tables.percent(3.14, -0.2, 6.4, signed=True) == "+3.1 [-0.2, +6.4]"
    assert tables.percent(3.14, float("nan"), float("nan"), signed=True) == "+3.1"


def test_saved_table_reads_back(tmp_path: Path) -> None:
    frame = pd.DataFrame({"method": ["a", "b"], "value": [1 / 3, 0.0001], "n": [10, 12], "clear": [True, False]})
    out = tmp_path / ".mae_table1.part"  # as in the batch
    tables.save_table(frame, out, "Caption", "Note")
    back = pd.read_csv(out / "table.csv")
    pd.testing.assert_frame_equal(back.astype({"method": frame["method"].dtype}), frame, check_exact=True)
    tex = (out / "table.tex").read_text()
    for part in (r"\toprule", r"\label{tab:mae_table1}", r"\caption{Caption}", "a & 0.333 & 10 & yes"):
        assert part in tex
    assert "| a " in (out / "table.md").read_text()
    first = [path.read_bytes() for path in sorted(out.iterdir())]
    tables.save_table(frame, out, "Caption", "Note")
    assert first == [path.read_bytes() for path in sorted(out.iterdir())]


def test_saved_table_disarms_text(tmp_path: Path) -> None:
    nasty = ["=HYPERLINK(1)", "<script>x</script>", r"\input{/etc/passwd}", "a|b\nc"]
    nasty += ["50 % & $x_1$ #{~^}", "\x1b[2J\u202e"]
    gains = ["+1.5 [-0.1, +3.0] (one seed)", "-2", "+", "@SUM(A1)", "+cmd|x", "[a](javascript:1)"]
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
