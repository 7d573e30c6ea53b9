"""The parsers against the corpus of hostile strings, hand-made cases and arbitrary text."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coevolve import parse
from coevolve.papers.format import format_reward

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "hostile_strings.jsonl").read_text(encoding="utf-8").splitlines()
]
PARSERS = (parse.number, parse.score_value, parse.judge_score, parse.boxed, parse.answer_line)


def entries(*kinds: str) -> list:
    """Corpus entries of these kinds as pytest parameters named by their id."""
    return [pytest.param(entry, id=entry["id"]) for entry in CORPUS if entry["kind"] in kinds]


@pytest.mark.parametrize("entry", entries("mae_format_question", "mae_format_answer", "mae_format_score"))
def test_format_reward_of_the_corpus(entry: dict) -> None:
    name = entry["kind"].removeprefix("mae_format_")
    reward = format_reward(entry["input"], name)
    assert reward == entry["expected"]
    value = parse.score_value(entry["input"]) if name == "score" else parse.tag(entry["input"], name)
    assert (value is not None) == (reward == 1.0)


@pytest.mark.parametrize("entry", entries("sage_norm"))
def test_score_is_readable_exactly_when_the_corpus_says_so(entry: dict) -> None:
    assert (parse.score_value(entry["input"]) is not None) == entry["expected"]["parsed"]
    assert (parse.judge_score(entry["input"]) is not None) == entry["expected"]["parsed"]


@pytest.mark.parametrize("entry", entries("boxed", "answer_line"))
def test_final_answer_of_the_corpus(entry: dict) -> None:
    read = parse.boxed if entry["kind"] == "boxed" else parse.answer_line
    assert read(entry["input"]) == entry["expected"]


def test_corpus_covers_the_kinds_read_here() -> None:
    kinds = {
        "mae_format_question",
        "mae_format_answer",
        "mae_format_score",
        "sage_norm",
        "boxed",
        "answer_line",
    }
    assert kinds <= {entry["kind"] for entry in CORPUS}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("<q>a</q>", ["a"]),
        ("<q> a </q>x<q>b</q>", [" a ", "b"]),
        ("<q></q>", [""]),
        ("<q>a", None),
        ("a</q>", None),
        ("</q>a<q>", None),
        ("<q>a</q></q>", None),
        ("<q><q>a</q>", None),
        ("<q>a<q>b</q></q>", None),
        ("<q>1</q><q>", None),
        ("<Q>a</Q>", []),
        ("<q x='1'>a", []),
        ("<question>a</question>", []),
        ("&lt;q&gt;a&lt;/q&gt;", []),
        ("<q\u200b>a</q\u200b>", []),
        ("<think><q>a</q></think>```<q>b</q>```", ["a", "b"]),
        ("<q><r>a</q></r>", ["<r>a"]),
    ],
)
def test_tag_pairs(text: str, pairs: list[str] | None) -> None:
    assert parse.tag_pairs(text, "q") == pairs


def test_tag_name_is_literal_text() -> None:
    assert parse.tag_pairs("<a.b>1</a.b>", "a.b") == ["1"]
    assert parse.tag_pairs("<axb>1</axb>", "a.b") == []


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("<q> 2 + 2? \n</q>", "2 + 2?"),
        ("<q>a</q><q>a</q>", None),
        ("<q>a</q><q>...</q>", None),
        ("<q> \n\u00a0 </q>", None),
        ("<q>...</q>", None),
        ("<q>…</q>", None),
        ("<q>[Your generated question here]</q>", None),
        ("<q>\n[Write your analysis here]\n</q>", None),
        ("<q>$ANSWER</q>", None),
        ("<q>[1, 2]</q>", "[1, 2]"),
        ("<q>[Yours] or [mine]?</q>", "[Yours] or [mine]?"),
        ("<q>[Your] turn [again]</q>", "[Your] turn [again]"),
        ("<q>Wait ... what?</q>", "Wait ... what?"),
        ("no tag", None),
    ],
)
def test_tag(text: str, content: str | None) -> None:
    assert parse.tag(text, "q") == content


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7.0),
        (" 7\n", 7.0),
        ("0", 0.0),
        ("-3", -3.0),
        ("0.7", 0.7),
        ("10.25", 10.25),
        ("999999.999999", 999999.999999),
        ("1000000", None),
        ("0.1234567", None),
        ("", None),
        ("-", None),
        ("+7", None),
        ("07", None),
        ("7.", None),
        (".7", None),
        ("- 7", None),
        ("--7", None),
        ("1e1", None),
        ("1_0", None),
        ("1,000", None),
        ("0x7", None),
        ("7/10", None),
        ("7 8", None),
        ("NaN", None),
        ("inf", None),
        ("\u0667", None),
        ("\uff17", None),
        ("\u00a07", None),
        ("9" * 5000, None),
    ],
)
def test_number(text: str, value: float | None) -> None:
    assert parse.number(text) == value


@pytest.mark.parametrize(
    ("content", "score"),
    [("1", 0.0), ("10", 1.0), ("7", 6 / 9), ("5.5", 0.5), ("8", 7 / 9), ("2", 1 / 9)],
)
def test_judge_score_in_range(content: str, score: float) -> None:
    assert parse.judge_score(f"<think>so</think>\n<score>{content}</score>") == pytest.approx(score, abs=1e-12)


@pytest.mark.parametrize("content", ["0", "11", "-3", "0.7", "10.1", "999999"])
def test_judge_score_out_of_range_is_neutral(content: str) -> None:
    assert parse.judge_score(f"<score>{content}</score>") == 0.5


@pytest.mark.parametrize(
    "text",
    ["", "7", "<score>X</score>", "<score>7</score><score>7</score>", "<score>X</score><score>7</score>"],
)
def test_judge_score_unreadable(text: str) -> None:
    assert parse.judge_score(text) is None


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{ \frac{1}{2} }", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{[0, 5\}}", r"[0, 5\}"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed{}", None),
        (r"\boxed{...}", None),
        (r"\boxed 42", None),
        (r"boxed{42}", None),
        (r"\boxed{4 OR 5}", None),
        (r"\boxed{1or2}", None),
        (r"\boxed{\text{for all color}}", r"\text{for all color}"),
        (r"\boxed{1, 2}", "1, 2"),
        (r"\boxed{a}}", "a"),
    ],
)
def test_boxed(text: str, content: str | None) -> None:
    assert parse.boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("ANSWER: 1\nmore\n  ANSWER: 2  \nend", "2"),
        ("ANSWER: 1\r\n", "1"),
        ("ANSWER:7", "7"),
        ("the ANSWER: 7", None),
        ("answer: 7", None),
        ("ANSWER:", None),
        ("ANSWER: 3\nANSWER: $ANSWER", None),
        ("ANSWER: 3 or 4", None),
        ("ANSWER: $x^2$", "$x^2$"),
    ],
)
def test_answer_line(text: str, content: str | None) -> None:
    assert parse.answer_line(text) == content


TOKENS = st.sampled_from(
    [
        "<score>",
        "</score>",
        "<question>",
        "</question>",
        "7",
        "-",
        ".",
        " ",
        "\\boxed{",
        "{",
        "}",
        "\\",
        "ANSWER:",
        "\n",
    ]
)


@given(st.one_of(st.text(st.characters()), st.lists(TOKENS).map("".join)))
@example("\ud800<score>\udfff</score>")
@example("\x00<score>1\x00</score>")
def test_no_text_raises(text: str) -> None:
    for read in PARSERS:
        read(text)
    for name in ("question", "score"):
        pairs = parse.tag_pairs(text, name)
        assert pairs is None or len(pairs) == text.count(f"</{name}>")
        assert format_reward(text, name) in (0.0, 0.5, 1.0)
    assert (parse.score_value(text) is not None) == (format_reward(text, "score") == 1.0)
    assert (parse.tag(text, "question") is not None) == (format_reward(text, "question") == 1.0)


@given(st.floats(min_value=-999999, max_value=999999).map(lambda x: round(x, 3)))
def test_number_reads_back_what_it_was_written_from(value: float) -> None:
    assert math.isclose(parse.number(f"{value:.6f}"), value, abs_tol=1e-6)


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "<",
        "<question>",
        "</question>",
        "<question></question>",
        "<score>7</score>",
        "<score>7",
        "9",
        " ",
        "\n",
    ]
    + [
        "\\boxed{",
        "\\boxed{}",
        "{",
        "\\",
        "ANSWER:",
        "ANSWER:\n",
        ".",
        "[Your",
        "[Your ",
        "or ",
        "\u200b",
        "0.",
    ],
)
@pytest.mark.parametrize("wrap", ["{}", "<score>{}</score>", "<question>{}</question>", "\\boxed{{{}}}", "ANSWER: {}"])
def test_long_input_ends(piece: str, wrap: str) -> None:
    text = wrap.format(piece * (200_000 // len(piece)))
    for read in PARSERS:
        read(text)
    for name in ("question", "score"):
        parse.tag(text, name)
        assert format_reward(text, name) in (0.0, 0.5, 1.0)
