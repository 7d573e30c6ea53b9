"""The parsers against hand-made cases, the hostile corpus and arbitrary text; the pools that episodes read."""

import math
from random import Random

import pytest
from core.conftest import HOSTILE, PIECES, corpus
from hypothesis import example, given
from hypothesis import strategies as st
from pytest import approx

from coevolve import parse
from coevolve.papers.comas import rewards as comas
from coevolve.papers.conl import reading as conl
from coevolve.papers.format import format_reward
from coevolve.papers.sage import rewards as sage
from coevolve.papers.spice import reading as spice
from coevolve.pools import Pool

READERS = [  # every reader of replies, and the text around what a model may repeat for ever
    (parse.number, "{}"), (parse.score_value, "<score>{}</score>"), (parse.judge_score, "{}"), (parse.boxed, "\\boxed{{{}}}"),
    (parse.boxed, "{}"), (parse.answer_line, "ANSWER: {}"), (parse.answer_line, "{}"), (parse.code_block, "```python\n{}\n```"),
    (parse.code_block, "{}"), (lambda text: parse.tag(text, "question"), "<question>{}</question>"),
    (lambda text: parse.tag(text, "score"), "{}"), (lambda text: format_reward(text, "question"), "<question>{}</question>"),
    (lambda text: sage.format_reward(text, ("question", "type", "answer")), "<type>{}</type>"), (comas.extract_score, "{}"),
    (comas.extract_verdict, "<judgment>{}</judgment>"), (lambda text: conl.critiques(text, 4), "{}"),
    (lambda text: conl.ranking(text, "final_ranking", 4), "<final_ranking>{}</final_ranking>"),
    (lambda text: conl.ranking(text, "final_ranking", 4), "{}"), (spice.read_mcq, "{}"), (spice.read_format, "{}"),
    (lambda text: spice.read_free(text, "Integer"), '{{"question": "{}'), (spice.options, "{}"),
    (lambda text: spice.gives_away(text, text), "{}"),
]  # fmt: skip


@pytest.mark.parametrize(
    "piece", [*PIECES, "x", "<", "9", "0.", "<question></question>", "\\boxed{}", "ANSWER:\n", "(A", '{"']
)
def test_endless_repetition_ends(piece: str) -> None:
    """A reader of quadratic time would need hours."""
    for read, around in READERS:
        read(around.format(piece * (200_000 // len(piece))))


@given(HOSTILE)
@example("\ud800<score>\udfff</score>")
@example("\x00<score>1\x00</score>")
def test_no_text_raises_and_a_full_format_reward_is_a_value_that_was_read(text: str) -> None:
    for read, around in READERS:
        read(text), read(around.format(text))
    for name, read in (("question", lambda said: parse.tag(said, "question")), ("score", parse.score_value)):
        pairs = parse.tag_pairs(text, name)
        assert pairs is None or len(pairs) == text.count(f"</{name}>")
        assert format_reward(text, name) in (0.0, 0.5, 1.0)
        assert (read(text) is not None) == (format_reward(text, name) == 1.0)


@pytest.mark.parametrize(
    "entry", corpus("mae_format_question", "mae_format_answer", "mae_format_score", "boxed", "answer_line")
)
def test_the_corpus(entry: dict) -> None:
    said, expected, kind = entry["input"], entry["expected"], entry["kind"].removeprefix("mae_format_")
    if kind in ("boxed", "answer_line"):
        assert {"boxed": parse.boxed, "answer_line": parse.answer_line}[kind](said) == expected
        return
    value = parse.score_value(said) if kind == "score" else parse.tag(said, kind)
    assert format_reward(said, kind) == expected and (value is not None) == (expected == 1.0)


PAIRS = {
    "": [], "<q>a</q>": ["a"], "<q> a </q>x<q>b</q>": [" a ", "b"], "<q></q>": [""], "<q>a": None, "a</q>": None,
    "</q>a<q>": None, "<q>a</q></q>": None, "<q><q>a</q>": None, "<q>a<q>b</q></q>": None, "<q>1</q><q>": None,
    "<Q>a</Q>": [], "<q x='1'>a": [], "<question>a</question>": [], "&lt;q&gt;a&lt;/q&gt;": [], "<q\u200b>a</q\u200b>": [],
    "<think><q>a</q></think>```<q>b</q>```": ["a", "b"], "<q><r>a</q></r>": ["<r>a"],
}  # fmt: skip
TAGS = {
    "<q> 2 + 2? \n</q>": "2 + 2?", "<q>a</q><q>a</q>": None, "<q>a</q><q>...</q>": None, "<q> \n\u00a0 </q>": None,
    "<q>...</q>": None, "<q>…</q>": None, "<q>[Your generated question here]</q>": None, "<q>$ANSWER</q>": None,
    "<q>\n[Write your analysis here]\n</q>": None, "<q>[1, 2]</q>": "[1, 2]", "no tag": None,
    "<q>[Yours] or [mine]?</q>": "[Yours] or [mine]?", "<q>[Your] turn [again]</q>": "[Your] turn [again]",
    "<q>Wait ... what?</q>": "Wait ... what?",
}  # fmt: skip
NUMBERS = {
    "7": 7.0, " 7\n": 7.0, "0": 0.0, "-3": -3.0, "0.7": 0.7, "10.25": 10.25, "999999.999999": 999999.999999,
    "1000000": None, "0.1234567": None, "": None, "-": None, "+7": None, "07": None, "7.": None, ".7": None, "- 7": None,
    "--7": None, "1e1": None, "1_0": None, "1,000": None, "0x7": None, "7/10": None, "7 8": None, "NaN": None, "inf": None,
    "\u0667": None, "\uff17": None, "\u00a07": None, "9" * 5000: None,
}  # fmt: skip
SCORES = {
    "1": 0.0,
    "10": 1.0,
    "7": 6 / 9,
    "5.5": 0.5,
    "8": 7 / 9,
    "0": 0.5,
    "11": 0.5,
    "-3": 0.5,
    "0.7": 0.5,
    "10.1": 0.5,
}
UNSCORED = ["", "7", "<score>X</score>", "<score>7</score><score>7</score>", "<score>X</score><score>7</score>"]
BOXED = {
    r"\boxed{ \frac{1}{2} }": r"\frac{1}{2}", r"\boxed{\{1, 2\}}": r"\{1, 2\}", r"\boxed{[0, 5\}}": r"[0, 5\}",
    r"\boxed{1} and \boxed{2": None, r"\boxed{}": None, r"\boxed{...}": None, r"\boxed 42": None, r"boxed{42}": None,
    r"\boxed{4 OR 5}": None, r"\boxed{1or2}": None, r"\boxed{\text{for all color}}": r"\text{for all color}",
    r"\boxed{1, 2}": "1, 2", r"\boxed{a}}": "a",
}  # fmt: skip
ANSWERS = {
    "ANSWER: 1\nmore\n  ANSWER: 2  \nend": "2", "ANSWER: 1\r\n": "1", "ANSWER:7": "7", "the ANSWER: 7": None,
    "answer: 7": None, "ANSWER:": None, "ANSWER: 3\nANSWER: $ANSWER": None, "ANSWER: 3 or 4": None,
    "ANSWER: $x^2$": "$x^2$",
}  # fmt: skip
BLOCKS = {
    "So:\n```python\ndef f(x):\n    return x\n```\nthat": "def f(x):\n    return x\n", "```py\nx\n```": "x\n", "": None,
    "```python  \nx\n```  ": "x\n", "```python\n```": None, "```python\n\n```": None, "```\nx\n```": None,
    "```python\nx\n```\n```python\ny\n```": None, "```python\nx": None, "```python\nx```": None, "```Python\nx\n```": None,
    "```python\nx\n```\n```python\n": None, "x ```python\nx\n```": None, "```bash\nls\n```\n```python\nx\n```": "x\n",
    "```python\n```python\nx\n```": "```python\nx\n",
}  # fmt: skip


def test_every_parser_by_hand() -> None:
    assert {said: parse.tag_pairs(said, "q") for said in PAIRS} == PAIRS
    assert parse.tag_pairs("<a.b>1</a.b><axb>2</axb>", "a.b") == ["1"], "a tag is literal text"
    assert {said: parse.tag(said, "q") for said in TAGS} == TAGS
    assert {said: parse.number(said) for said in NUMBERS} == NUMBERS
    assert {said: parse.judge_score(f"<think>so</think>\n<score>{said}</score>") for said in SCORES} == approx(SCORES)
    assert {parse.judge_score(said) for said in UNSCORED} == {None}
    assert {said: parse.boxed(said) for said in BOXED} == BOXED
    assert {said: parse.answer_line(said) for said in ANSWERS} == ANSWERS
    assert {said: parse.code_block(said) for said in BLOCKS} == BLOCKS


@given(st.floats(min_value=-999999, max_value=999999).map(lambda x: round(x, 3)))
def test_a_number_reads_back_what_it_was_written_from(value: float) -> None:
    assert math.isclose(parse.number(f"{value:.6f}"), value, abs_tol=1e-6)


def test_a_pool_keeps_its_order_and_repeats_only_where_it_may() -> None:
    pool, pair = Pool(["b", "a", "b"]), ("1+1", "2")
    assert pool.extend(["c", "a", "c", "d"]) == 2 and pool.items == ["b", "a", "c", "d"] and len(pool) == 4
    pool.reset(["c", "c", "d"])
    assert pool.extend(["a", "c"]) == 1 and pool.items == ["c", "d", "a"]
    repeated = Pool([pair], distinct=False)
    assert repeated.extend([pair, ("1+1", "3")]) == 2 and repeated.items == [pair, pair, ("1+1", "3")]
    view, other = pool.view(), repeated.view()
    for item in ("a", "b", "b"):
        view.add(item), other.add(pair)
    assert view.added == ["b"] and list(view) == ["c", "d", "a", "b"] and other.added == [pair] * 3


def test_a_view_sees_the_pool_as_it_stood_and_its_own_additions() -> None:
    pool = Pool(["a", "b"])
    early, other = pool.view(), pool.view()
    early.add("mine")
    assert list(early) == ["a", "b", "mine"] and len(early) == 3 and list(other) == pool.items == ["a", "b"]
    pool.extend([*early.added, "late"])
    assert list(early) == ["a", "b", "mine"] and list(other) == ["a", "b"], "what was committed later stays unseen"
    pool.reset(["z"])
    assert list(other) == ["a", "b"]


def test_a_view_draws_every_item_equally_often_and_the_same_for_the_same_randomness() -> None:
    view, rng = Pool("abc").view(), Random(0)
    view.add("d")
    drawn = [view.sample(rng) for _ in range(4000)]
    assert all(880 < drawn.count(item) < 1120 for item in "abcd")  # 1000, give or take 4.4 standard deviations
    again = Random(0)
    assert drawn[:20] == [view.sample(again) for _ in range(20)] and Pool().view().sample(rng) is None
