"""Tables: what the papers printed, derived averages, comparisons, and files that read back."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pytest import approx

from reproduce.analysis import standins, stats, tables

IN = [
    "GSM8K",
    "MATH",
    "ARC-C",
    "MMLU",
    "GPQA",
    "CQA",
    "OBQA",
    "NQ",
    "TriviaQA",
    "SQuAD",
    "BoolQ",
    "HellaSwag",
    "MBPP+",
    "HumanEval+",
]
OUT = [
    "TruthfulQA",
    "BBH",
    "LiveBench-Reasoning",
    "AMC",
    "Minerva",
    "Winogrande",
    "OlympiadBench",
    "MMLU-Pro",
]
AVERAGES = {"ID Avg.": IN, "OOD Avg.": OUT, "Overall Avg.": IN + OUT}
GROUPS = {"Average": ["sums", "facts"]}


def records(
    method: str,
    answers: dict[str, list[list[int]]],
    run: str = "",
    trained: bool = True,
) -> pd.DataFrame:
    """Records of {benchmark: seeds x items}."""
    rows = []
    for benchmark, correct_SI in answers.items():
        for seed, correct_I in enumerate(correct_SI):
            for item, correct in enumerate(correct_I):
                row = {
                    "run": run or f"{method}-{seed}",
                    "method": method,
                    "seed": seed,
                    "benchmark": benchmark,
                    "item": item,
                    "correct": correct,
                    "trained": trained,
                }
                rows.append(row)
    return pd.DataFrame(rows)


def test_printed_numbers_keep_their_text() -> None:
    frame = tables.paper_numbers("mae_table1")
    assert len(frame) == 175
    is_cell = (frame["method"] == "Base") & (frame["benchmark"] == "GSM8K")
    cell = frame[is_cell].iloc[0]
    assert cell["value"] == 85.2
    assert cell["printed"] == "85.20"


def test_settings_stay_text() -> None:
    settings = tables.paper_numbers("mae_table3").set_index("benchmark")
    assert settings.loc["Learning Rate", "value"] == "1e-6"


def test_an_unknown_table_is_refused() -> None:
    with pytest.raises(ValueError, match="table_id must be one of"):
        tables.paper_numbers("../mae_table1")


def test_printed_averages_that_do_not_follow_are_found() -> None:
    averages = tables.recomputed_averages(tables.paper_numbers("mae_table1"), AVERAGES)
    assert len(averages) == 21
    consistent = averages[~averages["differs"]]
    assert (consistent["known"] == "").all()
    wrong = averages[averages["differs"]].set_index(["method", "average"])
    assert list(wrong.index) == [
        ("MAE (zero)", "ID Avg."),
        ("MAE (zero)", "Overall Avg."),
        ("MAE (half reference)", "ID Avg."),
    ]
    zero = wrong.loc[("MAE (zero)", "ID Avg.")]
    assert zero["printed"] == 68.37
    assert round(zero["recomputed"], 2) == 67.93
    assert zero["known"].startswith("mae-01: 67.93 / 58.67")


def test_the_known_reason_for_a_wrong_average_stands_beside_it() -> None:
    averages = tables.recomputed_averages(tables.paper_numbers("mae_table2"), AVERAGES)
    by_name = averages.set_index(["method", "average"])
    row = by_name.loc[("MAE (no format reward)", "OOD Avg.")]
    assert row["differs"]
    assert "OlympiadBench garbled-leading-digit-lost" in row["known"]


def test_an_average_over_a_column_that_is_not_printed_is_refused() -> None:
    printed = tables.paper_numbers("mae_table2")
    with pytest.raises(ValueError, match="no benchmark"):
        tables.recomputed_averages(printed, {"ID Avg.": ["gsm"]})


def test_table_2_of_sage_recomputed_from_table_1_shows_the_swap() -> None:
    layout = standins.layout("sage")
    groups = {name: layout.columns_of(name) for name in ("ID Avg.", "OOD Avg.")}
    table_1 = tables.paper_numbers("sage_table1")
    table_2 = tables.paper_numbers("sage_table2")
    cells = pd.concat([table_1, table_2])
    is_average = cells["benchmark"].isin(["C Avg.", "M Avg.", "O Avg."])
    averages = tables.recomputed_averages(cells[~is_average], groups)
    backbones = 3
    methods = 4
    assert len(averages) == backbones * methods * 2
    wrong = averages[averages["differs"]]
    assert set(wrong["average"]) == {"ID Avg."}
    recomputed = wrong.set_index(["backbone", "method"])["recomputed"]
    mae = (76.2 + 65.3 + 91.7 + 76.2) / 4
    sage = (76.2 + 64.0 + 92.2 + 74.7) / 4
    assert recomputed["Qwen2.5-7B-Instruct", "MAE"] == approx(mae)
    assert recomputed["Qwen2.5-7B-Instruct", "SAGE"] == approx(sage, abs=1e-3)
    base = recomputed["Qwen2.5-3B-Instruct", "Base Model"]
    assert base == approx(68.475), "truncated in print"


@pytest.fixture
def two_seeds() -> pd.DataFrame:
    return records("mae", {"sums": [[1, 0, 1], [0, 0, 1]], "facts": [[1], [1]]})


def test_an_accuracy_matrix_averages_samples_and_sorts(
    two_seeds: pd.DataFrame,
) -> None:
    is_repeated = (
        (two_seeds["seed"] == 0)
        & (two_seeds["item"] == 1)
        & (two_seeds["benchmark"] == "sums")
    )
    second_sample = two_seeds[is_repeated].assign(correct=1)
    both = pd.concat([two_seeds, second_sample])
    shuffled = both.sample(frac=1, random_state=0)
    matrices = tables.accuracy_matrix(shuffled, "mae")
    assert set(matrices) == {"sums", "facts"}
    assert matrices["sums"].to_numpy().tolist() == [[1, 0.5, 1], [0, 0, 1]]


def test_an_accuracy_matrix_refuses_gaps_and_mixtures(
    two_seeds: pd.DataFrame,
) -> None:
    with pytest.raises(ValueError, match="lacks items of 'sums'"):
        tables.accuracy_matrix(two_seeds.drop(index=3), "mae")
    other_run = records("mae", {"sums": [[1, 1]]}, run="other")
    with pytest.raises(ValueError, match="several runs with one seed"):
        tables.accuracy_matrix(pd.concat([two_seeds, other_run]), "mae")
    with pytest.raises(ValueError, match="method must be one of"):
        tables.accuracy_matrix(two_seeds, "sage")


@pytest.fixture
def random_scores() -> pd.DataFrame:
    """One seed of a base and three of a method, on 40 sums and 10 facts."""
    rng = np.random.default_rng(0)
    frames = []
    for method, seeds in (("base", 1), ("mae", 3)):
        sums = rng.integers(0, 2, (seeds, 40))
        facts = rng.integers(0, 2, (seeds, 10))
        answers = {"sums": sums.tolist(), "facts": facts.tolist()}
        frames.append(records(method, answers))
    return pd.concat(frames)


def test_a_cell_is_k_of_n(random_scores: pd.DataFrame) -> None:
    table = tables.accuracy_table(random_scores, GROUPS)
    cells = table[table["kind"] == "cell"]
    assert np.allclose(cells["accuracy"], 100 * cells["k"] / cells["n"])
    assert cells["n"].tolist() == [40, 10, 120, 30]


def test_an_average_is_the_weighted_mean_of_its_cells(
    random_scores: pd.DataFrame,
) -> None:
    table = tables.accuracy_table(random_scores, GROUPS)
    for method, part in table.groupby("method"):
        is_average = part["kind"] == "average"
        average = part.loc[is_average, "accuracy"].item()
        sums, facts = part.loc[~is_average, "accuracy"]
        # Both have fewer than 60 questions: 40 and 10.
        assert average == approx((40 * sums + 10 * facts) / 50), method


def test_one_answer_per_item_has_wilson_s_interval(
    random_scores: pd.DataFrame,
) -> None:
    first = tables.accuracy_table(random_scores, GROUPS).iloc[0]
    low, high = stats.wilson(int(first["k"]), 40)
    assert first["low"] == approx(100 * low)
    assert first["high"] == approx(100 * high)


def test_an_average_over_missing_scores_is_refused(
    random_scores: pd.DataFrame,
) -> None:
    with pytest.raises(ValueError, match="has no scores on"):
        tables.accuracy_table(random_scores, {"Average": ["sums", "stories"]})


@pytest.fixture
def base_and_trained() -> pd.DataFrame:
    facts = [1, 0] * 10
    two_better = [1] * 25 + [0] * 5
    one_better = [1] * 20 + [0] * 10
    base = {"sums": [[0] * 30], "facts": [facts]}
    trained = {"sums": [two_better, two_better, one_better], "facts": [facts] * 3}
    frames = [records("base", base, trained=False), records("mae", trained)]
    return pd.concat(frames)


def test_a_comparison_has_difference_limits_p_and_verdict(
    base_and_trained: pd.DataFrame,
) -> None:
    signs = {"sums": 1, "Average": -1}
    table = tables.compare_rows(base_and_trained, "base", "mae", GROUPS, signs)
    table = table.set_index("benchmark")
    sums = table.loc["sums"]
    assert sums["base"] == approx(0)
    assert sums["method"] == approx(700 / 9)
    assert sums["delta"] == approx(700 / 9)
    facts = table.loc["facts"]
    assert facts[["delta", "low", "high", "p_holm"]].tolist() == [0, 0, 0, 1]
    assert table.loc["Average", "delta"] == approx(700 / 9 * 30 / 50)
    verdicts = {"sums": "as printed", "facts": "", "Average": "against print"}
    assert table["verdict"].to_dict() == verdicts


def test_a_comparison_of_one_trained_seed_has_no_limits(
    base_and_trained: pd.DataFrame,
) -> None:
    first_seed = base_and_trained[base_and_trained["seed"] == 0]
    table = tables.compare_rows(first_seed, "base", "mae", GROUPS, {"sums": 1})
    assert table[["low", "high", "p"]].isna().all(axis=None)
    verdicts = table.set_index("benchmark")["verdict"]
    assert verdicts["sums"] == "one seed"


UNPAIRED = {
    "not scored on the same items": {"sums": [[1, 0, 1]]},
    "differ in benchmarks": {"facts": [[1, 0]]},
}


@pytest.mark.parametrize(("message", "answers"), UNPAIRED.items())
def test_a_comparison_on_other_items_is_refused(message: str, answers: dict) -> None:
    base = records("base", {"sums": [[1, 0]]})
    scores = pd.concat([base, records("mae", answers)])
    with pytest.raises(ValueError, match=message):
        tables.compare_rows(scores, "base", "mae", {"Average": ["sums"]})


def test_percent_has_one_digit_and_limits_where_there_are_any() -> None:
    assert tables.percent(3.14, -0.2, 6.4, signed=True) == "+3.1 [-0.2, +6.4]"
    assert tables.percent(3.14, float("nan"), float("nan"), signed=True) == "+3.1"
    assert tables.percent_ci(565, 1000) == "56.5 [53.4, 59.5]"
    assert tables.percent_ci(0, 0) == "no items"


@pytest.fixture
def small_table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "method": ["a", "b"],
            "value": [1 / 3, 0.0001],
            "n": [10, 12],
            "clear": [True, False],
        }
    )


def test_a_saved_table_reads_back(small_table: pd.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / ".mae_table1.part"  # as in the batch
    tables.save_table(small_table, out, "Caption", "Note")
    back = pd.read_csv(out / "table.csv")
    back = back.astype({"method": small_table["method"].dtype})
    pd.testing.assert_frame_equal(back, small_table, check_exact=True)
    assert "| a " in (out / "table.md").read_text()
    tex = (out / "table.tex").read_text()
    assert r"\toprule" in tex
    assert r"\label{tab:mae_table1}" in tex
    assert r"\caption{Caption}" in tex
    assert "a & 0.333 & 10 & yes" in tex


def test_equal_tables_give_equal_bytes(
    small_table: pd.DataFrame, tmp_path: Path
) -> None:
    contents = []
    for _ in range(2):
        tables.save_table(small_table, tmp_path, "Caption", "Note")
        files = sorted(tmp_path.iterdir())
        contents.append([path.read_bytes() for path in files])
    assert contents[0] == contents[1]


HOSTILE = [
    "=HYPERLINK(1)",
    "<script>x</script>",
    r"\input{/etc/passwd}",
    "a|b\nc",
    "50 % & $x_1$ #{~^}",
    "\x1b[2J\u202e",
]
GAINS = [
    "+1.5 [-0.1, +3.0] (one seed)",
    "-2",
    "+",
    "@SUM(A1)",
    "+cmd|x",
    "[a](javascript:1)",
]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """The folder of a table with text that a format might interpret."""
    frame = pd.DataFrame({"met|hod_": HOSTILE, "delta": GAINS})
    tables.save_table(frame, tmp_path, "50 % of \\x", "see A_1 & <b>")
    return tmp_path


@pytest.mark.parametrize("name", ["table.csv", "table.md", "table.tex"])
def test_no_format_holds_control_characters(hostile: Path, name: str) -> None:
    text = (hostile / name).read_text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "x1b" in text


def test_a_spreadsheet_evaluates_no_cell(hostile: Path) -> None:
    back = pd.read_csv(hostile / "table.csv")
    assert back["met|hod_"][0] == "'=HYPERLINK(1)"
    assert back["delta"].tolist() == [*GAINS[:3], "'@SUM(A1)", "'+cmd|x", GAINS[5]]


def test_markdown_holds_no_html_links_or_columns_of_the_text(hostile: Path) -> None:
    markdown = (hostile / "table.md").read_text()
    assert "<script" not in markdown
    assert "<b>" not in markdown
    assert r"a\|b" in markdown
    assert r"[a\](javascript:1)" in markdown
    lines = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(lines) == len(HOSTILE) + 2


def test_latex_runs_no_command_of_the_text(hostile: Path) -> None:
    tex = (hostile / "table.tex").read_text()
    assert r"\input" not in tex
    assert r"\textbackslash input\{/etc/passwd\}" in tex
    assert r"50 \% \& \$x\_1\$ \#\{\textasciitilde \textasciicircum \}" in tex
    assert r"\caption{50 \% of \textbackslash{}x}" in tex
    assert r"see A\_1 \& <b>" in tex
