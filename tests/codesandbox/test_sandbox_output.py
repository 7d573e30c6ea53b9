"""Standard output compared with the expected text, and programs with a byte-order mark."""

import pytest
from data_files import tables
from hypothesis import given
from hypothesis import strategies as st

from codesandbox import run_calls, run_stdio, run_tests, valid_tests
from codesandbox.code import COMPARISONS, _is_equal_output

SQUARE = tables("sandbox")["SQUARE"]
needs_a_sandbox = pytest.mark.usefixtures("landlock")

# Pairs of output and expected text that are equal in each way of comparing.
EQUAL_TEXTS = [
    ("42\n", "42"),
    ("42", "42\n\n\n"),
    ("42\n\n \n", "42"),
    ("\n\n42", "42\n"),
    ("42  \n", "42"),
    ("1 2\t\n3\n", "1 2\n3"),
    ("1\r\n2\r\n", "1\n2\n"),
    ("a\n\nb\n", "a\n\nb"),
    ("", "\n"),
    ("\n\n", ""),
    ("nan", "nan"),
]
# Equal as numbers only.
EQUAL_NUMBERS = [
    ("0.50", "0.5"),
    (".5", "0.5"),
    ("1e3", "1000"),
    ("1E+3", "1000"),
    ("1e0", "1"),
    ("+7", "7"),
    ("-0", "0"),
    ("007", "7"),
    ("1  2", "1 2"),
    ("1.0 2\nx\n3", "1 2.0\nx\n3.00"),
    ("  4\n  5", "4\n5"),
    ("1" + "0" * 400, "1e400"),
]
UNEQUAL = [
    ("0.51", "0.5"),
    ("0.333333", "0.3333333333"),
    ("0.30000000000000004", "0.3"),
    ("50000000000000001", "50000000000000000"),
    ("1" + "0" * 400, "1" + "0" * 399 + "1"),
    ("1e999999999999999999", "1"),
    ("1 2", "1\n2"),
    ("1 2", "1"),
    ("1", "1 1"),
    ("1\n\n2", "1\n2"),
    ("42\n43", "42"),
    ("", "0"),
    ("a 0.50", "a 0.5"),
    ("1,000", "1000"),
    ("0x10", "16"),
    ("1/2", "0.5"),
    ("yes", "Yes"),
    ("nan 1", "nan 1.0"),
    ("sNaN 1", "sNaN 1.0"),
    ("\ud800 1", "\ud800 1.0"),
]


@pytest.mark.parametrize(("output", "expected"), EQUAL_TEXTS)
def test_blank_lines_and_white_space_at_ends_do_not_count(output, expected):
    for compare in COMPARISONS:
        assert _is_equal_output(output, expected, compare)
        assert _is_equal_output(expected, output, compare)


@pytest.mark.parametrize(("output", "expected"), EQUAL_NUMBERS)
def test_numbers_are_compared_by_value_where_asked(output, expected):
    for one, other in ((output, expected), (expected, output)):
        assert _is_equal_output(one, other, "numbers")
        assert not _is_equal_output(one, other, "text")


@pytest.mark.parametrize(("output", "expected"), UNEQUAL)
def test_other_output_is_wrong(output, expected):
    for compare in COMPARISONS:
        assert not _is_equal_output(output, expected, compare)
        assert not _is_equal_output(expected, output, compare)


@given(st.text(), st.text())
def test_what_is_equal_as_text_is_equal_as_numbers(output, expected):
    assert _is_equal_output(output, output, "numbers")
    if _is_equal_output(output, expected, "text"):
        assert _is_equal_output(output, expected, "numbers")


@given(st.decimals(allow_nan=False, allow_infinity=False), st.integers(0, 30))
def test_zeros_behind_a_decimal_point_change_no_number(number, zeros):
    padded = f"{number:f}" + ("" if "." in f"{number:f}" else ".") + "0" * zeros
    assert _is_equal_output(padded, str(number), "numbers")
    assert not _is_equal_output(padded + "1", str(number), "numbers")


def test_an_unknown_comparison_is_the_callers_error():
    with pytest.raises(
        ValueError, match="compare must be numbers or text, got 'float'"
    ):
        run_stdio("print(1)", "", "1", compare="float")


@needs_a_sandbox
@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_script_is_judged_by_the_comparison(compare):
    verdict = run_stdio("print('0.50')", "", "0.5\n\n", compare=compare).verdict
    assert verdict == ("pass" if compare == "numbers" else "wrong")
    assert run_stdio("print('0.51')", "", "0.5", compare=compare).verdict == "wrong"


@needs_a_sandbox
@pytest.mark.parametrize("code", ["", "0", "None", "1", "'no'", "True"])
def test_the_exit_code_counts_unless_any_will_do(code):
    program = f"import sys\nprint(4)\nsys.exit({code})"
    verdict = run_stdio(program, "", "4").verdict
    assert verdict == ("pass" if code in ("", "0", "None") else "error")
    assert run_stdio(program, "", "4", any_exit_code=True).verdict == "pass"
    assert run_stdio(program, "", "5", any_exit_code=True).verdict == "wrong"
    failing = "print(4)\nraise ValueError"
    assert run_stdio(failing, "", "4", any_exit_code=True).verdict == "error"


TUPLES_AS_LISTS = [
    ("(1, 2)", [1, 2], "pass"),
    ("(1, 2)", (1, 2), "pass"),
    ("[1, 2]", (1, 2), "pass"),
    ("(1.0, True)", [1, 1], "pass"),
    ("()", [], "pass"),
    ("(2, 1)", [1, 2], "wrong"),
    ("[(1, 2)]", [[1, 2]], "wrong"),
    ("((1, 2),)", [(1, 2)], "pass"),
    ("{1, 2}", [1, 2], "wrong"),
    ("'t'", ["t"], "wrong"),
    ("['t', [1]]", ["l", [1]], "wrong"),
]


@needs_a_sandbox
@pytest.mark.parametrize(("expression", "expected", "verdict"), TUPLES_AS_LISTS)
def test_a_returned_tuple_counts_as_a_list_where_asked(expression, expected, verdict):
    program = f"def f(): return {expression}"
    options = {"strict": False, "tuple_is_list": True}
    assert run_calls(program, "f", [()], [expected], **options).verdict == verdict


@needs_a_sandbox
def test_a_byte_order_mark_is_no_part_of_a_program():
    assert run_stdio("\ufeffprint(4)", "", "4").verdict == "pass"
    assert run_calls("\ufeff" + SQUARE, "f", [(3,)], [9]).verdict == "pass"
    tests = ("\ufeffassert f(3) == 9", "\ufefffor i in [3]: assert f(i) == 9")
    for text in tests:
        assert run_tests("\ufeff" + SQUARE, text).verdict == "pass"
        assert valid_tests(text)
    assert run_stdio("print(4)\ufeff", "", "4").verdict == "error"
