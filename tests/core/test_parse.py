"""The parsers against hand-made cases, the hostile corpus and arbitrary text; the pools that episodes read."""

from random import Random

import pytest
from core.conftest import HOSTILE, PIECES, corpus
from hypothesis import example, given

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
    (lambda text: spice.read_free(text, "Integer"), '{{"question": "{}'),
    (lambda text: spice.read_free(text, "List"), '{{"question": {}'), (spice.options, "{}"),
    (lambda text: spice.gives_away(text, text), "{}"),
]  # fmt: skip


PROGRAM = "def f(x):\n    return x or {}\n"
BLOCK = f"```python\n{PROGRAM}```"
HANDED_IN = [
    (parse.boxed, r"\boxed{x<1 or x \ge 2}", r"x<1 or x \ge 2"),
    (parse.boxed, r"\boxed{x<1 or 3}", None),
    (parse.boxed, f"It is\n{BLOCK}", PROGRAM),
    (parse.boxed, f"\\boxed{{{BLOCK}}}", PROGRAM),
    (parse.boxed, f"{BLOCK}\n\\boxed{{7}}", "7"),
    (parse.boxed, f"{BLOCK}\n{BLOCK}", None),
    (parse.answer_line, f"ANSWER: {BLOCK}\n", PROGRAM),
    (parse.answer_line, f"ANSWER:\n{BLOCK}", PROGRAM),
    (parse.answer_line, f"{BLOCK}\nANSWER: 42", "42"),
    (parse.answer_line, BLOCK, None),
]


@pytest.mark.parametrize(("read", "text", "answer"), HANDED_IN)
def test_programs_and_joined_inequalities_are_answers(read, text: str, answer: str | None) -> None:
    assert read(text) == answer


ENDLESS = ["x", "<", "9", "0.", "<question></question>", "\\boxed{}", "ANSWER:\n", "(A", "(", "A) ", "[", '{"']
ENDLESS += [*PIECES, '{"a": ', '{"a":{}']


@pytest.mark.parametrize("piece", ENDLESS)
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


@pytest.mark.parametrize("entry", corpus("mae_format_question", "mae_format_answer", "mae_format_score"))
def test_format_rewards_of_the_corpus(entry: dict) -> None:
    said, expected, name = entry["input"], entry["expected"], entry["kind"].removeprefix("mae_format_")
    value = parse.score_value(said) if name == "score" else parse.tag(said, name)
    assert format_reward(said, name) == expected and (value is not None) == (expected == 1.0)


PLAIN = (parse.number, parse.judge_score, parse.boxed, parse.answer_line, parse.code_block)
PARSERS = {parser.__name__: parser for parser in PLAIN} | {"comas_verdict": comas.extract_verdict}
PARSERS |= {"tag_pairs": lambda said: parse.tag_pairs(said, "q"), "tag": lambda said: parse.tag(said, "q")}


@pytest.mark.parametrize("entry", corpus(*PARSERS))
def test_every_parser_on_the_corpus(entry: dict) -> None:
    assert PARSERS[entry["kind"]](entry["input"]) == entry["expected"]


def test_a_tag_is_literal_text() -> None:
    assert parse.tag_pairs("<a.b>1</a.b><axb>2</axb>", "a.b") == ["1"]


def test_a_pool_keeps_its_order_and_repeats_only_where_it_may() -> None:
    pool, pair = Pool(["b", "a", "b"]), ("1+1", "2")
    pool.extend(["c", "a", "c", "d"])
    assert pool.items == ["b", "a", "c", "d"] and len(pool) == 4
    pool.reset(["c", "c", "d"])
    pool.extend(["a", "c"])
    repeated = Pool([pair], distinct=False)
    repeated.extend([pair, ("1+1", "3")])
    assert pool.items == ["c", "d", "a"] and repeated.items == [pair, pair, ("1+1", "3")]
    view, other = pool.view(), repeated.view()
    for item in ("a", "b", "b"):
        view.add(item), other.add(pair)
    assert view.added == ["b"] and len(view) == 4 and other.added == [pair] * 3


def test_a_view_sees_the_pool_as_it_stood_and_its_own_additions() -> None:
    def seen() -> tuple[set, set]:
        return tuple({view.sample(Random(seed)) for seed in range(50)} for view in (early, other))

    pool = Pool(["a", "b"])
    early, other = pool.view(), pool.view()
    early.add("mine")
    assert seen() == ({"a", "b", "mine"}, {"a", "b"}) and len(early) == 3 and pool.items == ["a", "b"]
    pool.extend([*early.added, "late"])
    pool.reset(["z"])
    assert seen() == ({"a", "b", "mine"}, {"a", "b"}), "what was committed later stays unseen"


def test_a_view_draws_every_item_equally_often_and_the_same_for_the_same_randomness() -> None:
    view, rng = Pool("abc").view(), Random(0)
    view.add("d")
    drawn = [view.sample(rng) for _ in range(4000)]
    assert all(880 < drawn.count(item) < 1120 for item in "abcd")  # 1000, give or take 4.4 standard deviations
    again = Random(0)
    assert drawn[:20] == [view.sample(again) for _ in range(20)] and Pool().view().sample(rng) is None
