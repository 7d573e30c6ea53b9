"""A user's own questions: formats, kinds of answers, what is left out and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_questions import COLOURS, Row, sums, write_jsonl

from published.grading import grade
from published.own import named
from published.own_answers import OwnItem
from published.own_choices import Choices, chosen_letter
from published.own_rows import read_items


def write_json(file: Path, rows: list[Row]) -> None:
    file.write_text(json.dumps(rows, indent=1), encoding="utf-8-sig")


def write_csv(file: Path, rows: list[Row]) -> None:
    pandas.DataFrame(rows).to_csv(file, index=False, encoding="utf-8-sig")


def write_parquet(file: Path, rows: list[Row]) -> None:
    pandas.DataFrame(rows).to_parquet(file)


WRITERS = {
    "jsonl": write_jsonl,
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
}


@pytest.fixture
def items(file: Path) -> Callable[..., list[OwnItem]]:
    """Write rows, besides twenty that are sound, and return the items of the former."""

    def read(*rows: Row) -> list[OwnItem]:
        write_jsonl(file, [*rows, *sums(20)])
        return [item for item in read_items(file) if not item.question.endswith("+5")]

    return read


@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_makes_the_same_world(suffix: str, tmp_path: Path) -> None:
    rows = [{**row, "answer": str(row["answer"])} for row in sums()]
    rows[3] = {"question": "Capital, of\nFrance?", "answer": "Paris"}
    reference = tmp_path / "own.JSONL"
    write_jsonl(reference, rows)
    file = tmp_path / f"own.{suffix}"
    WRITERS[suffix](file, [*rows, {"question": "Who?", "answer": None}])
    world = named(f"file:{file}")
    expected = named(f"file:{reference}")
    assert world.items("test", 100) == expected.items("test", 100)
    assert world.seed_rows() == expected.seed_rows()
    assert len(world.seed_rows()) > 10


ANSWERS: dict[str, tuple[Row, object, str]] = {
    "a whole number": ({"answer": 12}, "12", "math"),
    "a float of pandas": ({"answer": 12.0}, "12", "math"),
    "a decimal": ({"answer": "1,250.5"}, "1,250.5", "math"),
    "LaTeX": ({"answer": r"\frac{1}{2}"}, r"\frac{1}{2}", "math"),
    "a solution of GSM8K": ({"answer": "So it is.\n#### 1,250"}, "1250", "math"),
    "a solution of MATH": ({"answer": r"So $\boxed{x^2}$."}, "x^2", "math"),
    "a name": ({"answer": "Paris"}, "Paris", "exact"),
    "a date": ({"answer": "2024-05-01"}, "2024-05-01", "exact"),
    "a list": ({"answer": ["Ann", "Anna"]}, ("Ann", "Anna"), "exact"),
    "aliases": ({"answer": "6", "aliases": ["six"]}, ("6", "six"), "exact"),
    "one alias": ({"answer": "6", "aliases": "six"}, ("6", "six"), "exact"),
    "aliases as text": ({"answer": "6", "aliases": "['six']"}, ("6", "six"), "exact"),
    "a truth value": ({"answer": True}, ("true", "yes"), "exact"),
    "stated: float": ({"answer": 3.5, "kind": "float"}, "3.5", "float"),
    "stated: exact": ({"answer": 12, "kind": "Exact"}, "12", "exact"),
    "stated: math": ({"answer": "x+1", "kind": "math"}, "x+1", "math"),
    "stated: choice": ({"answer": "b", "kind": "choice"}, "B", "choice"),
    "a letter": ({"answer": "c", "choices": COLOURS}, "C", "choice"),
    "a text": ({"answer": "Blue", "choices": COLOURS}, "C", "choice"),
    "options as text": ({"answer": "blue", "choices": str(COLOURS)}, "C", "choice"),
    "labelled options": (
        {"answer": "y", "choices": {"x": "red", "y": "blue"}},
        "B",
        "choice",
    ),
    "options of ARC": (
        {"answer": "2", "choices": {"text": ["red", "blue"], "label": ["1", "2"]}},
        "B",
        "choice",
    ),
    "options that are numbers": ({"answer": 4, "choices": [3, 4.0]}, "B", "choice"),
}


@pytest.mark.parametrize(("row", "gold", "scorer"), ANSWERS.values(), ids=ANSWERS)
def test_the_gold_and_the_kind_of_an_answer(
    row: Row, gold: object, scorer: str, items: Callable[..., list[OwnItem]]
) -> None:
    (item,) = items({"question": "q", **row})
    assert (item.gold, item.scorer) == (gold, scorer)
    assert grade(item, item.answer).correct is True
    assert grade(item, "no such thing").correct is False


class TestProgramsAsAnswers:
    """The kind `tests`, whose answer is a program."""

    ROWS = (
        {"tests": ["assert double(2) == 4", "assert double(0) == 0"]},
        {"kind": "tests", "answer": "assert double(2) == 4"},
        {"kind": "tests", "answer": "['assert double(2) == 4']"},
    )

    @pytest.mark.parametrize("row", ROWS)
    def test_programs_are_run_with_the_tests(
        self, row: Row, items: Callable[..., list[OwnItem]]
    ) -> None:
        (item,) = items({"question": "Write double.", **row})
        assert grade(item, "def double(n):\n    return 2 * n").correct is True
        assert grade(item, "def double(n):\n    return n").correct is False


LEFT_OUT: dict[str, tuple[Row, str]] = {
    "null question": ({"question": None, "answer": 1}, "question is missing (row 1)"),
    "no question": ({"answer": 1}, "question is missing (row 1)"),
    "number as question": (
        {"question": 7, "answer": 1},
        "question is not text (row 1: 7)",
    ),
    "null answer": ({"question": "q", "answer": None}, "answer is missing (row 1)"),
    "NaN": ({"question": "q", "answer": float("nan")}, "answer is missing (row 1)"),
    "blank answer": ({"question": "q", "answer": " "}, "answer is missing (row 1)"),
    "empty box": (
        {"question": "q", "answer": r"\frac{", "kind": "math"},
        r"the verifier of kind math cannot read answer (row 1: '\\frac{')",
    ),
    "words as float": (
        {"question": "q", "answer": "many", "kind": "float"},
        "the verifier of kind float cannot read answer (row 1: 'many')",
    ),
    "object as answer": (
        {"question": "q", "answer": {"a": 1}, "kind": "math"},
        "answer of kind math is no text or number (row 1: {'a': 1})",
    ),
    "no Python": (
        {"question": "q", "answer": "assert (", "kind": "tests"},
        "answer is not Python (row 1: ",
    ),
    "no option": (
        {"question": "q", "answer": "pink", "choices": COLOURS},
        "answer names none of the options (row 1: 'pink')",
    ),
    "no letter": (
        {"question": "q", "answer": "pink", "kind": "choice"},
        "answer of kind choice is no letter (row 1: 'pink')",
    ),
    "two options alike": (
        {"question": "q", "answer": "A", "choices": ["red", "blue", "Red"]},
        "the correct option is there twice (row 1: red)",
    ),
    "text of two options": (
        {"question": "q", "answer": "red", "choices": ["red", "blue", "Red"]},
        "answer is the text of two options (row 1: 'red')",
    ),
    "letter of one, text of another": (
        {"question": "q", "answer": "A", "choices": ["B", "A"]},
        "answer is the letter of one option and the text of another (row 1: 'A')",
    ),
    "options in one text": (
        {"question": "q", "answer": "A", "choices": "red|blue"},
        "choices is no list of options (row 1: 'red|blue')",
    ),
    "an option is null": (
        {"question": "q", "answer": "A", "choices": ["red", None]},
        "an option of choices is missing (row 1)",
    ),
}


@pytest.mark.parametrize(("row", "reason"), LEFT_OUT.values(), ids=LEFT_OUT)
def test_a_row_that_is_left_out_is_counted_with_its_reason(
    row: Row,
    reason: str,
    items: Callable[..., list[OwnItem]],
    file: Path,
    capsys: pytest.CaptureFixture,
) -> None:
    assert items(row) == []
    (line,) = capsys.readouterr().err.splitlines()
    beginning = f"own.jsonl: 20 of 21 rows of {file}; 1 left out: {reason}"
    assert line.startswith(beginning)
    assert "; kinds: 20 math; splits: " in line


REFUSED: dict[str, tuple[list[Row], str]] = {
    "an unknown kind": (
        [{"question": "q", "answer": 1, "kind": "maths"}],
        r"own\.jsonl row 1: kind must be one of math, exact, choice, float, tests, "
        r"got 'maths'; did you mean 'math'\?$",
    ),
    "an unknown split": (
        [{"question": "q", "answer": 1, "split": "dev"}],
        r"own\.jsonl row 1: split must be one of train, validation, test, got 'dev'$",
    ),
    "aliases of another kind": (
        [{"question": "q", "answer": 1, "kind": "math", "aliases": ["one"]}],
        "row 1: aliases are for kind exact, and the kind is math$",
    ),
    "choices of another kind": (
        [{"question": "q", "answer": "A", "kind": "math", "choices": COLOURS}],
        "row 1: kind must be choice or absent beside choices, got 'math'$",
    ),
    "no column answer": (
        [{"question": "q", "reply": 1}],
        "must have the columns question and answer, .* it has question, reply$",
    ),
    "too much is lost": (
        [{"question": "q", "answer": 1}, {"question": "p", "answer": None}],
        r"1 of 2 rows .*answer is missing \(row 3\); at most 1 row in 10",
    ),
}


@pytest.mark.parametrize(("rows", "message"), REFUSED.values(), ids=REFUSED)
def test_a_file_that_cannot_be_meant_is_refused(
    rows: list[Row], message: str, file: Path
) -> None:
    write_jsonl(file, rows)
    with pytest.raises(ValueError, match=message) as error:
        read_items(file)
    assert "\n" not in str(error.value)


BROKEN = {
    "no object": ("own.jsonl", "7\n", "row 1 must be an object with question"),
    "no JSON": ("own.jsonl", "\n{'a': 1}\n", "row 2 is not JSON"),
    "no array": ("own.json", '{"question": "q"}', "a .json file must hold one array"),
    "open quote": ("own.csv", 'question,answer\n"q,1\n', "row 2 is not CSV"),
    "semicolons": ("own.csv", "question;answer\nq;1\n", "it has question;answer$"),
    "no rows": ("own.jsonl", "\ufeff \n\n", "there is no row in "),
    "no parquet": ("own.parquet", "PAR", "cannot be read: "),
}


@pytest.mark.parametrize(("name", "text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_of_another_form_is_named(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_items(tmp_path / name)
    assert name in str(error.value)


def test_a_cell_too_many_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "own.csv"
    lines = [f"{n}+5,{n + 5}" for n in range(20)]
    file.write_text("\n".join(["question,answer", *lines, "Who, then?,7"]))
    assert len(read_items(file)) == 20
    assert "there are more cells than columns" in capsys.readouterr().err


class TestNumbersForLetters:
    """Whether answers count options from 0 or from 1, which the whole column decides."""

    def rows(self, *answers: object) -> list[Row]:
        rows = []
        for number, answer in enumerate(answers):
            question = f"question {number}"
            row = {"question": question, "choices": COLOURS, "answer": answer}
            rows.append(row)
        return rows

    @pytest.mark.parametrize(
        ("answers", "letters"),
        [
            ((0, 3, 1), "ADB"),
            ((1, 4, 2), "ADB"),
            (("1", "4.0", 2.0), "ADB"),
            ((0.0, 3.0, "C"), "ADC"),
            ((4, "a", "grey"), "DAD"),
        ],
    )
    def test_one_row_that_tells_decides_for_all(
        self, answers: tuple, letters: str, file: Path
    ) -> None:
        write_jsonl(file, self.rows(*answers))
        assert "".join(item.gold for item in read_items(file)) == letters

    @pytest.mark.parametrize(
        ("answers", "message"),
        [
            ((1, 2, 3), r"is a number \(row 1\), and no row says whether .*; write"),
            ((0, 4), "0 in row 1, and in row 3 it is the number of options"),
            ((0, 7), "row 3: answer is 7, and the 4 options are numbered from 0 to 3"),
        ],
    )
    def test_other_columns_are_refused(
        self, answers: tuple, message: str, file: Path
    ) -> None:
        write_jsonl(file, self.rows(*answers))
        with pytest.raises(ValueError, match=message):
            read_items(file)

    def test_texts_and_numbers_are_not_mixed(self, file: Path) -> None:
        rows = self.rows(0, 5)
        rows[1]["choices"] = [5, 6, 7]
        write_jsonl(file, rows)
        with pytest.raises(ValueError, match="option's text in row 3 and a number in"):
            read_items(file)


@given(st.permutations(["red", "green", "blue", "grey"]), st.integers(0, 3))
def test_text_and_letter_name_the_same_option(options: list[str], place: int) -> None:
    choices = Choices.read(options)
    letter = "ABCD"[place]
    assert chosen_letter(options[place].upper(), choices, 0) == letter
    assert chosen_letter(letter.lower(), choices, 0) == letter
    assert chosen_letter(place, choices, 0) == letter
    assert chosen_letter(float(place + 1), choices, 1) == letter


class TestRepeatedRows:
    """Questions and ids that are in a file twice."""

    def test_the_first_counts_and_the_others_are_counted(
        self, file: Path, capsys: pytest.CaptureFixture
    ) -> None:
        again = [{"question": " 0+5 ", "answer": 5}] * 20
        write_jsonl(file, sums(20) + again)
        assert len(read_items(file)) == 20
        assert "20 left out: question is there before" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("row", "reason"),
        [
            (
                {"question": "0+5", "answer": 6},
                "question is there before, with another answer",
            ),
            ({"question": "q", "answer": 6, "id": "7"}, "id is there before"),
        ],
    )
    def test_contradictions_are_counted(
        self, row: Row, reason: str, file: Path, capsys: pytest.CaptureFixture
    ) -> None:
        rows = sums(20)
        rows[5]["id"] = 7.0
        write_jsonl(file, [*rows, row])
        assert len(read_items(file)) == 20
        assert f"1 left out: {reason} (row 41" in capsys.readouterr().err
