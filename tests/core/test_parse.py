"""The parsers on endless and arbitrary text; the pools that episodes sample from."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
from coevolve.rollout.pools import Pool, View
from coevolve.runs import show
from coevolve.text import parse
from coevolve.text.verify import exact, math, normal, numbers, units
from published import grading
from published.judge import read_verdict


@dataclass(frozen=True)
class Parser:
    """A parser of replies, and the text around the piece that a model may repeat for ever."""

    name: str
    parse: Callable[[str], object]
    around: str = "{}"


def gives_itself_away(text: str) -> bool:
    """Whether a question contains itself as its answer."""
    return spice.gives_away(text, text)


def condensed_to_itself(text: str) -> object:
    """Condense a text to the same text."""
    return condensed(text, text)


read_tag = partial(parse.tag, name="question")
read_score_tag = partial(parse.tag, name="score")
read_integer = partial(spice.read_free, kind="Integer")
read_list = partial(spice.read_free, kind="List")
read_ranking = partial(conl.ranking, name="final_ranking", agents=4)
question_format = partial(format_reward, tag="question")
sage_format = partial(sage.format_reward, tags=("question", "type", "answer"))

PARSERS = [
    Parser("number", parse.number),
    Parser("score", parse.score_value, "<score>{}</score>"),
    Parser("judge_score", parse.judge_score),
    Parser("boxed", parse.boxed),
    Parser("boxed/inside", parse.boxed, "\\boxed{{{}}}"),
    Parser("answer_line", parse.answer_line),
    Parser("answer_line/inside", parse.answer_line, "ANSWER: {}"),
    Parser("code_block", parse.code_block),
    Parser("code_block/inside", parse.code_block, "```python\n{}\n```"),
    Parser("tag", read_score_tag),
    Parser("tag/inside", read_tag, "<question>{}</question>"),
    Parser("format", question_format, "<question>{}</question>"),
    Parser("sage_format", sage_format, "<type>{}</type>"),
    Parser("comas_score", comas.extract_score),
    Parser("comas_verdict", comas.extract_verdict, "<judgment>{}</judgment>"),
    Parser("critiques", partial(conl.critiques, agents=4)),
    Parser("ranking", read_ranking),
    Parser("ranking/inside", read_ranking, "<final_ranking>{}</final_ranking>"),
    Parser("mcq", spice.read_mcq),
    Parser("spice_format", spice.read_format),
    Parser("integer", read_integer, '{{"question": "{}'),
    Parser("list", read_list, '{{"question": {}'),
    Parser("options", spice.options),
    Parser("gives_away", gives_itself_away),
    Parser("judge_verdict", read_verdict),
    Parser("judge_verdict/inside", read_verdict, "<answer>{}</answer>"),
    Parser("math", math.contents),
    Parser("unwrapped", normal.unwrapped),
    Parser("unwrapped/inside", normal.unwrapped, "**{}**"),
    Parser("spelling", exact.spelling),
    Parser("quantity", units.quantity, "5 {}"),
    Parser("stated", units.stated, "She has {}"),
    Parser("rational", numbers.rational),
    Parser("rational/digits", numbers.rational, "1{}"),
    Parser("letter", exact.letter, "A) {}"),
    Parser("program", grading.program),
    Parser("condensed", condensed_to_itself),
    Parser("visible", show.visible),
    Parser("accepted", strategies.ACCEPTED.search),
]
REPEATED_PIECES = [
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
    *PIECES,
    '{"a": ',
    '{"a":{}',
]


def parse_seconds(parser: Parser, piece: str, size: int) -> float:
    """Return the processor seconds that a parser takes for a piece repeated to a size.

    `timeit` pauses the garbage collector, whose time depends on the tests that ran before.
    """
    text = parser.around.format(piece * (size // len(piece)))
    return timeit(lambda: parser.parse(text), timer=process_time, number=1)


def least_parse_seconds(parser: Parser, piece: str, size: int) -> float:
    """Return the shorter of two measurements."""
    return min(parse_seconds(parser, piece, size) for _ in range(2))


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.name)
def test_parsing_takes_time_linear_in_the_length(parser: Parser) -> None:
    """Ten times the text may take thirty times as long; a quadratic parser takes a hundred."""
    slowest_piece = max(
        REPEATED_PIECES, key=lambda piece: parse_seconds(parser, piece, 5_000)
    )
    seconds = least_parse_seconds(parser, slowest_piece, 30_000)
    seconds_for_ten_times = least_parse_seconds(parser, slowest_piece, 300_000)
    assert seconds_for_ten_times < 30 * seconds + 0.5, slowest_piece


class TestAnyText:
    @given(HOSTILE)
    @example("\ud800<score>\udfff</score>")
    @example("\x00<score>1\x00</score>")
    def test_no_text_raises(self, text: str) -> None:
        for parser in PARSERS:
            parser.parse(text)
            parser.parse(parser.around.format(text))

    @pytest.mark.parametrize(
        ("tag", "read"),
        [("question", read_tag), ("score", parse.score_value)],
        ids=["question", "score"],
    )
    @given(text=HOSTILE)
    @example(text="\ud800<score>\udfff</score>")
    @example(text="\x00<score>1\x00</score>")
    def test_a_full_format_reward_is_a_value_that_was_read(
        self, tag: str, read: Callable, text: str
    ) -> None:
        pairs = parse.tag_pairs(text, tag)
        assert pairs is None or len(pairs) == text.count(f"</{tag}>")
        reward = format_reward(text, tag)
        assert reward in (0.0, 0.5, 1.0)
        assert (read(text) is not None) == (reward == 1.0)

    @given(HOSTILE)
    @example("\ud800<score>\udfff</score>")
    @example("\x00<score>1\x00</score>")
    def test_a_judge_s_score_is_missing_where_the_score_is(self, text: str) -> None:
        judge_score = parse.judge_score(text)
        assert (judge_score is None) == (parse.score_value(text) is None)


def test_a_tag_is_literal_text() -> None:
    assert parse.tag_pairs("<a.b>1</a.b><axb>2</axb>", "a.b") == ["1"]


class TestPool:
    PAIR = ("1+1", "2")

    def test_new_items_are_appended_in_order(self) -> None:
        pool = Pool(["b", "a", "b"])
        pool.extend(["c", "a", "c", "d"])
        assert pool.items == ["b", "a", "c", "d"]
        assert len(pool) == 4

    def test_a_reset_forgets_the_items_before(self) -> None:
        pool = Pool(["b", "a"])
        pool.reset(["c", "c", "d"])
        pool.extend(["a", "c"])
        assert pool.items == ["c", "d", "a"]

    def test_a_pool_that_is_not_distinct_keeps_repeats(self) -> None:
        pool = Pool([self.PAIR], distinct=False)
        pool.extend([self.PAIR, ("1+1", "3")])
        assert pool.items == [self.PAIR, self.PAIR, ("1+1", "3")]

    def test_a_view_of_a_distinct_pool_adds_only_new_items(self) -> None:
        view = Pool(["c", "d", "a"]).view()
        for item in ("a", "b", "b"):
            view.add(item)
        assert view.added == ["b"]
        assert len(view) == 4

    def test_a_view_of_another_pool_adds_repeats(self) -> None:
        view = Pool([self.PAIR], distinct=False).view()
        for _ in range(3):
            view.add(self.PAIR)
        assert view.added == [self.PAIR] * 3


def items_seen(view: View) -> set:
    """Return the items that fifty draws find."""
    return {view.sample(Random(seed)) for seed in range(50)}


class TestView:
    def test_a_view_sees_its_own_additions_and_no_other_view_does(self) -> None:
        pool = Pool(["a", "b"])
        view = pool.view()
        other = pool.view()
        view.add("new")
        assert items_seen(view) == {"a", "b", "new"}
        assert items_seen(other) == {"a", "b"}
        assert len(view) == 3
        assert pool.items == ["a", "b"]

    def test_later_changes_of_the_pool_stay_unseen(self) -> None:
        pool = Pool(["a", "b"])
        view = pool.view()
        other = pool.view()
        view.add("new")
        pool.extend([*view.added, "late"])
        pool.reset(["z"])
        assert items_seen(view) == {"a", "b", "new"}
        assert items_seen(other) == {"a", "b"}

    @pytest.fixture
    def view(self) -> View:
        """A view of three items of the pool and one of its own."""
        view = Pool("abc").view()
        view.add("d")
        return view

    def test_every_item_is_drawn_equally_often(self, view: View) -> None:
        rng = Random(0)
        items = [view.sample(rng) for _ in range(4000)]
        for item in "abcd":
            # 1000, give or take 4.4 standard deviations
            assert 880 < items.count(item) < 1120

    def test_equal_randomness_draws_equal_items(self, view: View) -> None:
        rng = Random(0)
        same_rng = Random(0)
        items = [view.sample(rng) for _ in range(20)]
        assert items == [view.sample(same_rng) for _ in range(20)]

    def test_an_empty_pool_gives_none(self) -> None:
        assert Pool().view().sample(Random(0)) is None
