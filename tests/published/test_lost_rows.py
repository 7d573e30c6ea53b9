"""Rows of benchmarks in odd forms: read as meant, or counted in one line, or refused in one."""

import json
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from published import data, row_counts
from published.rows import boxed_gold
from published.values import parsed, plain_text

COLOURS = ["red", "green", "blue", "grey"]
NAN = float("nan")
Row = dict[str, Any]


def mmlu(answer: object, **more: object) -> Row:
    """Return a row of MMLU."""
    row = {"question": "Which?", "choices": COLOURS, "answer": answer, "subject": "s"}
    return {**row, **more}


def arc(key: object, choices: object) -> Row:
    """Return a row of ARC."""
    return {"id": "x", "question": "Which?", "choices": choices, "answerKey": key}


def labelled(labels: str) -> dict[str, list[str]]:
    """Return ARC's options with these labels."""
    return {"text": COLOURS, "label": list(labels)}


class Mirror:
    """A mirror that a test fills."""

    def __init__(self, root: Path):
        self.root = root

    def write(self, key: str, name: str, rows: list[Row]) -> Path:
        """Write rows as lines of JSON, or as parquet through pandas."""
        file = self.root / key / name
        file.parent.mkdir(exist_ok=True)
        if file.suffix == ".parquet":
            pandas.DataFrame(rows).to_parquet(file)
        else:
            lines = [json.dumps(row) + "\n" for row in rows]
            file.write_text("".join(lines), encoding="utf-8")
        return file

    def golds(self, key: str, rows: list[Row]) -> list[str]:
        """Write the evaluated split and return its golds."""
        self.write(key, f"{data.BENCHMARKS[key].split}.jsonl", rows)
        return [item.gold for item in data.items(key)]


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("COEVOLVE_DATA", str(tmp_path))
    row_counts.say.cache_clear()
    return Mirror(tmp_path)


LABELS: dict[str, tuple[str, Row, str]] = {
    "a float": ("mmlu", mmlu(2.0), "C"),
    "a float as text": ("mmlu", mmlu("2.0"), "C"),
    "a digit as text": ("mmlu", mmlu(" 2 "), "C"),
    "a lower-case letter": ("mmlu", mmlu("c"), "C"),
    "a letter in brackets": ("mmlu", mmlu("(c)"), "C"),
    "a letter with a period": ("mmlu", mmlu("C."), "C"),
    "options as Python text": ("mmlu", mmlu(2, choices=str(COLOURS)), "C"),
    "options as JSON text": ("mmlu", mmlu(2, choices=json.dumps(COLOURS)), "C"),
    "label and text in turn": (
        "arc_c",
        arc("C", [{"label": k, "text": k * 2} for k in "ABCD"]),
        "C",
    ),
    "a mapping as text": ("arc_c", arc("C", str(labelled("ABCD"))), "C"),
    "labels that are numbers": ("arc_c", arc(3.0, labelled("1234")), "C"),
    "labels in lower case": ("arc_c", arc("B", labelled("abcd")), "B"),
    "a key in lower case": ("arc_c", arc("b", labelled("ABCD")), "B"),
    "a letter for numbers": ("arc_c", arc("B", labelled("1234")), "B"),
    "counted from one": (
        "winogrande",
        {"sentence": "A _.", "option1": "x", "option2": "y", "answer": 2.0},
        "B",
    ),
}


@pytest.mark.parametrize(("key", "row", "gold"), LABELS.values(), ids=LABELS)
def test_labels_and_options_are_read_in_every_form(
    key: str, row: Row, gold: str, mirror: Mirror
) -> None:
    assert mirror.golds(key, [row]) == [gold]
    assert "(B) " in data.items(key)[0].question


@pytest.mark.parametrize("written", [True, "True", "true", "yes", 1, 1.0, "1"])
def test_truth_values_are_read_in_every_form(written: object, mirror: Mirror) -> None:
    row = {"question": "is it", "passage": "P", "answer": written}
    assert mirror.golds("boolq", [row]) == ["yes"]


def test_lists_as_text_are_lists_where_the_column_holds_one(mirror: Mirror) -> None:
    row = {"question": "who", "answer": "['Ann', 'Anna']"}
    assert mirror.golds("nq", [row]) == [("Ann", "Anna")]


def test_tests_as_text_are_run_and_not_taken_for_a_value(mirror: Mirror) -> None:
    row = {
        "task_id": 1,
        "text": "Double!",
        "code": "",
        "test_setup_code": None,
        "test_list": "['assert double(2) == 4']",
    }
    mirror.write("mbpp", "test.jsonl", [row])
    (item,) = data.items("mbpp")
    assert item.gold["tests"] == "assert double(2) == 4"
    assert item.question.endswith("pass this test:\nassert double(2) == 4")


BOXES = {
    r"so $\boxed{\frac{1}{2}}$.": r"\frac{1}{2}",
    r"so $\fbox{7}$.": "7",
    r"so $\boxed {7}$": "7",
    r"so $\boxed 7$.": "7",
    r"so $\boxed 72$ clips": "72",
    r"so $\boxed\frac{3}{4}$": r"\frac{3}{4}",
    r"so \boxed 7.": "7",
    r"first $\boxed{1}$, then $\fbox{2}$": "2",
    "no box, but 7": "",
    r"an open $\boxed{7": "",
    "```python\nprint(7)\n```": "",
    r"$\boxedx 7$": "",
}


@pytest.mark.parametrize("solution", BOXES)
def test_the_gold_of_math_is_in_the_last_box_of_any_kind(solution: str) -> None:
    assert boxed_gold(solution) == BOXES[solution]


# A row that cannot be used among ten that can, and the reason that the line gives.
GOOD_MATH = {"problem": "p", "level": "1", "type": "t", "solution": r"$\boxed{7}$"}
GOOD_GSM8K = {"question": "How many?", "answer": "2.\n#### 2"}
LOST: dict[str, tuple[str, Row, Row, str]] = {
    "null label": ("mmlu", mmlu(1), mmlu(None), "answer is missing (row 11)"),
    "NaN label": ("mmlu", mmlu(1), mmlu(NAN), "answer is missing (row 11)"),
    "hidden label": ("mmlu", mmlu(1), mmlu(-1), "answer is missing (row 11)"),
    "letter of no option": (
        "mmlu",
        mmlu(1),
        mmlu("E"),
        "answer names none of the options (row 11: 'E')",
    ),
    "words": (
        "mmlu",
        mmlu(1),
        mmlu("red"),
        "answer names none of the options (row 11: 'red')",
    ),
    "options in one sentence": (
        "mmlu",
        mmlu(1),
        mmlu(1, choices="red or green"),
        "choices is no list of options (row 11: 'red or green')",
    ),
    "no options": ("mmlu", mmlu(1), mmlu(1, choices=None), "choices is missing"),
    "an option is null": (
        "mmlu",
        mmlu(1),
        mmlu(1, choices=["red", None, "blue", "grey"]),
        "an option of choices is missing (row 11)",
    ),
    "too many options": (
        "mmlu",
        mmlu(1),
        mmlu(1, choices=list("abcdefghijklmnopqrstuvwxyzäöü")),
        "choices has more than 26 options, which have no letters (row 11: 29)",
    ),
    "null question": (
        "gsm8k",
        GOOD_GSM8K,
        GOOD_GSM8K | {"question": None},
        "question is missing (row 11)",
    ),
    "blank question": (
        "gsm8k",
        GOOD_GSM8K,
        GOOD_GSM8K | {"question": " \n"},
        "question is missing (row 11)",
    ),
    "question that is a list": (
        "gsm8k",
        GOOD_GSM8K,
        GOOD_GSM8K | {"question": ["a"]},
        "question is not text (row 11: ['a'])",
    ),
    "null answer": (
        "gsm8k",
        GOOD_GSM8K,
        GOOD_GSM8K | {"answer": None},
        "answer is missing (row 11)",
    ),
    "no mark": (
        "gsm8k",
        GOOD_GSM8K,
        GOOD_GSM8K | {"answer": "The answer is 4"},
        "answer has no #### (row 11)",
    ),
    "nothing after the mark": (
        "gsm8k",
        GOOD_GSM8K,
        GOOD_GSM8K | {"answer": "#### "},
        "answer is missing (row 11)",
    ),
    "no box": (
        "math",
        GOOD_MATH,
        GOOD_MATH | {"solution": "It is 7."},
        r"solution has no single answer in a \boxed{...} (row 11)",
    ),
}


@pytest.mark.parametrize(("key", "good", "bad", "reason"), LOST.values(), ids=LOST)
def test_a_row_that_is_left_out_is_counted_with_its_reason(
    key: str,
    good: Row,
    bad: Row,
    reason: str,
    mirror: Mirror,
    capsys: pytest.CaptureFixture,
) -> None:
    assert len(mirror.golds(key, [good] * 10 + [bad])) == 10
    (line,) = capsys.readouterr().err.splitlines()
    file = mirror.root / key / "test.jsonl"
    assert line.startswith(f"{key}: 10 of 11 rows of {file}; 1 left out: {reason}")
    data.items(key)
    assert not capsys.readouterr().err, "once in a process"


@pytest.mark.parametrize(("key", "good", "bad", "reason"), LOST.values(), ids=LOST)
def test_a_data_set_that_loses_all_rows_is_refused(
    key: str, good: Row, bad: Row, reason: str, mirror: Mirror
) -> None:
    with pytest.raises(ValueError) as error:
        mirror.golds(key, [bad] * 5)
    message = str(error.value)
    assert "\n" not in message
    assert "0 of 5 rows" in message
    assert reason.partition(" (")[0] in message
    assert "(row 1" in message
    assert ", ...)" in message


class TestHowMuchMayBeLost:
    """One unreadable row in ten, one unlabelled row in two, any row that is not wanted."""

    def test_two_unreadable_rows_in_ten_are_too_many(self, mirror: Mirror) -> None:
        bad = GOOD_GSM8K | {"answer": None}
        with pytest.raises(ValueError, match="at most 1 row in 10 may be unreadable$"):
            mirror.golds("gsm8k", [GOOD_GSM8K] * 8 + [bad] * 2)

    def test_half_of_the_labels_may_be_hidden(self, mirror: Mirror) -> None:
        assert mirror.golds("mmlu", [mmlu(1.0), mmlu(None)]) == ["B"]
        data._load_split.cache_clear()
        with pytest.raises(ValueError, match="1 row in 2 may be without a label$"):
            mirror.golds("mmlu", [mmlu(1.0), mmlu(None), mmlu(NAN)])

    def test_questions_without_an_answer_are_counted_but_not_limited(
        self, mirror: Mirror, capsys: pytest.CaptureFixture
    ) -> None:
        row = {"id": "1", "context": "C", "question": "q", "answers": {"text": ["a"]}}
        empty = row | {"answers": {"text": []}}
        assert mirror.golds("squad", [row] + [empty] * 3) == ["a"]
        line = capsys.readouterr().err
        assert "3 left out: answers.text is empty (row 2, row 3, row 4)" in line

    def test_several_reasons_have_their_numbers(
        self, mirror: Mirror, capsys: pytest.CaptureFixture
    ) -> None:
        rows = [mmlu(1)] * 38 + [mmlu(None), mmlu("E"), mmlu(None)]
        mirror.golds("mmlu", rows)
        assert capsys.readouterr().err.endswith(
            "3 left out: 2 because answer is missing (row 39, row 41), "
            "1 because answer names none of the options (row 40: 'E')\n"
        )

    def test_a_file_without_rows_is_refused(self, mirror: Mirror) -> None:
        (mirror.root / "gsm8k").mkdir()
        (mirror.root / "gsm8k/test.jsonl").write_text("\ufeff\n \n\t\r\n")
        with pytest.raises(ValueError, match=r"^gsm8k: there is no row in .*jsonl$"):
            data.items("gsm8k")


def test_other_forms_are_counted(mirror: Mirror, capsys: pytest.CaptureFixture) -> None:
    assert mirror.golds("mmlu", [mmlu("c"), mmlu(2.0), mmlu("C")]) == ["C"] * 3
    assert capsys.readouterr().err.endswith(
        "2 read although 1 because answer is in lower case (row 1), "
        "1 because answer is a whole number written as a float (row 2)\n"
    )


NUMBERINGS: dict[str, tuple[str, list[Row], str]] = {
    "from 1 where 0 is expected": (
        "mmlu",
        [mmlu(1), mmlu(4)],
        "row 2 .*answer is 4, and the 4 options are numbered from 0 to 3; if the column "
        "counts from 1, write letters",
    ),
    "floats from 1": ("mmlu", [mmlu(4.0)], "row 1 .*answer is 4"),
    "texts from 1": ("mmlu", [mmlu("4")], "row 1 .*answer is 4"),
    "from 0 where 1 is expected": (
        "winogrande",
        [{"sentence": "A _.", "option1": "x", "option2": "y", "answer": "0"}],
        "row 1 .*answer is 0, and the 2 options are numbered from 1 to 2",
    ),
    "a number where labels are letters": (
        "arc_c",
        [arc(3, labelled("ABCD"))],
        "row 1 .*answerKey is 3, and the labels are A, B, C, D",
    ),
}


@pytest.mark.parametrize(
    ("key", "rows", "message"), NUMBERINGS.values(), ids=NUMBERINGS
)
def test_another_numbering_is_refused(
    key: str, rows: list[Row], message: str, mirror: Mirror
) -> None:
    with pytest.raises(ValueError, match=message):
        mirror.golds(key, rows)


def test_a_null_in_parquet_makes_floats_that_are_read(
    mirror: Mirror, capsys: pytest.CaptureFixture
) -> None:
    mirror.write("mmlu", "test.parquet", [mmlu(2), mmlu(None), mmlu(0)])
    assert [item.gold for item in data.items("mmlu")] == ["C", "A"]
    assert "2 of 3 rows" in capsys.readouterr().err


class TestFiles:
    """Marks, blank lines, parts and formats of a mirror's files."""

    @pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n", " \n\t\n", "\n\ufeff\n"])
    def test_marks_blank_lines_and_line_ends_are_no_rows(
        self, end: str, mirror: Mirror
    ) -> None:
        (mirror.root / "gsm8k").mkdir()
        lines = ["\ufeff" + json.dumps(GOOD_GSM8K), "\ufeff" + json.dumps(GOOD_GSM8K)]
        text = end.join(lines) + end
        (mirror.root / "gsm8k/test.jsonl").write_bytes(text.encode())
        assert [item.gold for item in data.items("gsm8k")] == ["2", "2"]

    def test_the_number_of_a_row_is_its_line(self, mirror: Mirror) -> None:
        (mirror.root / "gsm8k").mkdir()
        (mirror.root / "gsm8k/test.jsonl").write_text("\n\n{}\n")
        with pytest.raises(ValueError, match="row 3 has no column 'question'"):
            data.items("gsm8k")

    @pytest.mark.parametrize("missing", [0, 1, 2])
    def test_a_missing_part_is_named(self, missing: int, mirror: Mirror) -> None:
        for part in {0, 1, 2} - {missing}:
            mirror.write("gsm8k", f"test-0000{part}-of-00003.jsonl", [GOOD_GSM8K])
        name = f"test-0000{missing}-of-00003.jsonl"
        message = f"^gsm8k: {name} is missing in .*; all 3 parts"
        with pytest.raises(ValueError, match=message):
            data.items("gsm8k")

    def test_a_part_that_is_there_twice_is_refused(self, mirror: Mirror) -> None:
        for suffix in ("jsonl", "parquet"):
            mirror.write("gsm8k", f"test-00000-of-00001.{suffix}", [GOOD_GSM8K])
        with pytest.raises(ValueError, match="are not parts of one split"):
            data.items("gsm8k")

    def test_parts_of_two_numberings_are_refused(self, mirror: Mirror) -> None:
        for total in (1, 2):
            mirror.write("gsm8k", f"test-00000-of-0000{total}.jsonl", [GOOD_GSM8K])
        with pytest.raises(ValueError, match="are not parts of one split"):
            data.items("gsm8k")

    @pytest.mark.parametrize("other", ["test.parquet", "test-00000-of-00002.jsonl"])
    def test_of_two_forms_one_is_read_and_the_other_named(
        self, other: str, mirror: Mirror, capsys: pytest.CaptureFixture
    ) -> None:
        mirror.write("gsm8k", other, [GOOD_GSM8K] * 3)
        assert mirror.golds("gsm8k", [GOOD_GSM8K]) == ["2"]
        assert f"test.jsonl is read, and not {other}" in capsys.readouterr().err


@given(st.one_of(st.integers(-99, 99), st.floats(), st.none(), st.text(max_size=5)))
def test_no_cell_makes_a_number_of_another(cell: object) -> None:
    text = plain_text(cell)
    assert text not in ("None", "nan")
    if isinstance(cell, int | float) and text:
        assert float(text) == cell


@given(st.lists(st.text(), min_size=2, max_size=5))
def test_lists_written_as_text_are_read_back(options: list[str]) -> None:
    assert parsed(repr(options)) == options
    assert parsed(json.dumps(options)) == options


@given(st.text(alphabet="[](){}'\", abc1", max_size=20))
def test_no_text_makes_the_reader_of_lists_fail(text: str) -> None:
    assert parsed(text) is None or isinstance(parsed(text), list | tuple | dict)
