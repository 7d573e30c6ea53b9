"""The parsers against hand-made cases, the hostile corpus and arbitrary text; the pools that episodes read."""

from collections.abc import Callable
from random import Random
from time import process_time
from timeit import timeit

import pytest
from core.conftest import HOSTILE, PIECES
from hypothesis import example, given

from coevolve.evaluation import strategies
from coevolve.methods.comas import rewards as comas
from coevolve.methods.conl import parsing as conl
from coevolve.methods.conl.memory import condensed
from coevolve.methods.format_reward import format_reward
from coevolve.methods.sage import rewards as sage
from coevolve.methods.spice import parsing as spice
from coevolve.rollout.pools import Pool
from coevolve.runs import show
from coevolve.text import parse
from coevolve.text.verify import exact, math
from published import grading
from published.judge import read_verdict

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
    (lambda text: spice.gives_away(text, text), "{}"), (read_verdict, "{}"), (read_verdict, "<answer>{}</answer>"),
    (math.contents, "{}"), (exact.rational, "{}"), (exact.rational, "1{}"), (exact.letter, "A) {}"), (grading.program, "{}"),
    (lambda text: condensed(text, text), "{}"), (show.visible, "{}"), (strategies.ACCEPTED.search, "{}"),
]  # fmt: skip


ENDLESS = [
    "x",
    "<",
    "9",
    "0.",
    "<question></question>",
    "\\boxed{}",
    "ANSWER:\n",
    "(A",
    "(",
    "A) ",
    "[",
    '{"',
]
ENDLESS += [*PIECES, '{"a": ', '{"a":{}']


def seconds(read: Callable[[str], object], text: str) -> float:
    """Processor time of one reading. The collector looks through more the more tests have run: timeit lets it rest."""
    return timeit(lambda: read(text), timer=process_time, number=1)


@pytest.mark.parametrize(("read", "around"), READERS, ids=range(len(READERS)))
def test_time_grows_as_the_text_does(read: Callable, around: str) -> None:
    """Of the repeated pieces the slowest counts. Ten times the text may take thirty times as long, and half a second."""

    def text(piece: str, size: int) -> str:
        return around.format(piece * (size // len(piece)))

    slowest = max(ENDLESS, key=lambda piece: seconds(read, text(piece, 50_000)))
    one, ten = (
        min(seconds(read, text(slowest, size)) for _ in range(2))
        for size in (200_000, 2_000_000)
    )
    assert ten < 30 * one + 0.5, slowest  # a square would take a hundred times as long


@given(HOSTILE)
@example("\ud800<score>\udfff</score>")
@example("\x00<score>1\x00</score>")
def test_no_text_raises_and_a_full_format_reward_is_a_value_that_was_read(
    text: str,
) -> None:
    for read, around in READERS:
        read(text), read(around.format(text))
    for name, read in (
        ("question", lambda said: parse.tag(said, "question")),
        ("score", parse.score_value),
    ):
        pairs = parse.tag_pairs(text, name)
        assert pairs is None or len(pairs) == text.count(f"</{name}>")
        assert format_reward(text, name) in (0.0, 0.5, 1.0)
        assert (read(text) is not None) == (format_reward(text, name) == 1.0)
    assert (parse.judge_score(text) is None) == (parse.score_value(text) is None)


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
    assert pool.items == ["c", "d", "a"] and repeated.items == [
        pair,
        pair,
        ("1+1", "3"),
    ]
    view, other = pool.view(), repeated.view()
    for item in ("a", "b", "b"):
        view.add(item), other.add(pair)
    assert view.added == ["b"] and len(view) == 4 and other.added == [pair] * 3


def test_a_view_sees_the_pool_as_it_stood_and_its_own_additions() -> None:
    def seen() -> tuple[set, set]:
        return tuple(
            {view.sample(Random(seed)) for seed in range(50)} for view in (early, other)
        )

    pool = Pool(["a", "b"])
    early, other = pool.view(), pool.view()
    early.add("mine")
    assert (
        seen() == ({"a", "b", "mine"}, {"a", "b"})
        and len(early) == 3
        and pool.items == ["a", "b"]
    )
    pool.extend([*early.added, "late"])
    pool.reset(["z"])
    assert seen() == ({"a", "b", "mine"}, {"a", "b"}), (
        "what was committed later stays unseen"
    )


def test_a_view_draws_every_item_equally_often_and_the_same_for_the_same_randomness() -> (
    None
):
    view, rng = Pool("abc").view(), Random(0)
    view.add("d")
    drawn = [view.sample(rng) for _ in range(4000)]
    assert all(
        880 < drawn.count(item) < 1120 for item in "abcd"
    )  # 1000, give or take 4.4 standard deviations
    again = Random(0)
    assert (
        drawn[:20] == [view.sample(again) for _ in range(20)]
        and Pool().view().sample(rng) is None
    )
