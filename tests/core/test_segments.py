"""Segment credit: no token outside its segment gets the segment's reward, whatever the text and the tokenisation."""

import codecs
from itertools import accumulate
from random import Random

import pytest

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import gae, owners, segment_centred, token_rewards
from coevolve.methods.conl import parsing as rankings
from coevolve.types import Reply, Sample, Turn

CHARACTERS = "ab >/=<0é語🙂\u0301\u200d\n"
TAGS = '<initial_ranking>|</initial_ranking>|<critique target="Agent 0">|<critique target="Agent 2">|</critique>'
MARKS = [*TAGS.split("|"), "<think>", "Agent 0 > Agent 2\n", *"é 語語 🙂 🙂🙂 x".split()]


def ends_of(pieces: list[bytes]) -> tuple[int, ...]:
    """Characters complete after each piece, as a policy computes them for byte-level tokens."""
    stream = codecs.getincrementaldecoder("utf-8")("replace")
    parts = [stream.decode(piece, i == len(pieces) - 1) for i, piece in enumerate(pieces)]
    return tuple(accumulate(map(len, parts)))


def cut(rng: Random, data: bytes) -> list[bytes]:
    """Cut bytes anywhere: single bytes, pieces across characters and tags, and empty pieces (special tokens)."""
    pieces, at = [], 0
    while at < len(data):
        size = rng.choice([0, 1, 1, 2, 3, 5, 9, 20])
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, b""]  # the end token


def reply(text: str, pieces: list[bytes]) -> Reply:
    ids = tuple(range(len(pieces)))
    return Reply(Turn("review", ()), text, (1,), ids, (0.0,) * len(ids), ends_of(pieces))


def words(text: str) -> Reply:
    """A reply with a token per character and an end token."""
    return reply(text, [*(c.encode() for c in text), b""])


def generated(rng: Random) -> str:
    """A review as a careless model writes it: marks in any order, multi-byte characters everywhere."""
    parts = [rng.choice(MARKS) if rng.random() < 0.6 else rng.choice(CHARACTERS) for _ in range(rng.randint(0, 14))]
    if rng.random() < 0.7:  # at least one critique that can be read
        said = "".join(rng.choice(CHARACTERS.replace("<", "")) for _ in range(rng.randint(1, 9)))
        parts.insert(rng.randint(0, len(parts)), f'<critique target="Agent 0">{said}.</critique>')
    return "".join(parts)


def test_no_token_outside_its_segment_is_paid_in_8000_generated_replies() -> None:
    rng, paid, kept, split = Random(0), 0, 0, 0
    for _ in range(8000):
        text = generated(rng)
        pieces = cut(rng, text.encode())
        criticised = tuple(critique.span for critique in rankings.critiques(text, 3, 1))
        spans = {"critique": criticised, "initial_ranking": rankings.span(text, "initial_ranking")}
        sample = reply(text, pieces).earns({"initial_ranking": None, "critique": 0.7}, "g", spans)
        # An independent view: which segments does each single byte of the text lie in?
        inside = {name: bytearray(len(text.encode())) for name in spans}
        for name, ranges in spans.items():
            for start, end in ranges:
                first, last = len(text[:start].encode()), len(text[:end].encode())
                inside[name][first:last] = b"\1" * (last - first)
        at = 0
        for piece, owner, reward in zip(pieces, owners(sample), token_rewards(sample), strict=True):
            mine = range(at, at + len(piece))
            at += len(piece)
            fully = all(inside["critique"][byte] and not inside["initial_ranking"][byte] for byte in mine)
            if reward is not None:
                assert owner == "critique" and reward == 0.7 and fully
                paid += 1
            split += 0 < sum(inside["critique"][byte] for byte in mine) < len(mine)
            kept += len(mine) > 0 and fully and reward is None
    assert paid > 20_000 and split > 2_000, "the check has bite"
    assert kept < 0.01 * paid, "next to nothing that lies inside is left out"


CLAIMED = [
    ("a<s>", {"s": 1.0}, {"s": ((1, 4),)}, [None, "s", "s", "s", None], [None, 1, 1, 1, None]),  # no end token
    ("ab", {"s": 1.0}, None, ["s"] * 3, [1] * 3),  # without spans the whole reply, the end token included
    ("ab", {"s": 1.0}, {"s": ()}, [None] * 3, [None] * 3),
    ("ab", 2.0, None, [""] * 3, [2.0] * 3),
    # What two segments claim belongs to none.
    ("abc", {"s": 1, "t": None}, {"s": ((0, 2),), "t": ((1, 3),)}, ["s", None, "t", None], [1, None, None, None]),
]


@pytest.mark.parametrize(("text", "reward", "spans", "expected", "paid"), CLAIMED)
def test_whose_a_token_is(text, reward, spans, expected, paid) -> None:
    sample = words(text).earns(reward, None, spans)
    assert owners(sample) == expected and token_rewards(sample) == paid


PIECES = [
    ([b"a", b"\xf0\x9f", b"\x99", b"\x82", b"b", b""], (1, 2), [None, "s", "s", "s", None, None]),
    ([b"a\xf0", b"\x9f\x99\x82b", b""], (1, 2), [None] * 3),  # straddling
    ([b"a\xf0", b"\x9f\x99\x82", b"b", b""], (0, 1), [None] * 4),  # with a byte of the next character
]


@pytest.mark.parametrize(("pieces", "span", "expected"), PIECES)
def test_bytes_of_one_character_go_together(pieces, span, expected) -> None:
    assert owners(reply("a🙂b", pieces).earns({"s": 1.0}, None, {"s": (span,)})) == expected


def earned(rewards: list, group: object = "talk", role: str = "review") -> list[Sample]:
    """Four-letter replies: segment s covers `ab`, segment t covers `cd`."""
    said = Reply(Turn(role, ()), "ab cd", (1,), (0,) * 6, (0.0,) * 6, (1, 2, 3, 4, 5, 5))
    spans = {"s": ((0, 2),), "t": ((3, 5),)}
    return [said.earns({"s": s, "t": t}, group, spans) for s, t in rewards]


def test_segment_centred_by_hand() -> None:
    rows = segment_centred(EstimatorInputs(earned([(1.0, 0.2), (0.0, None), (0.5, 0.6)])))
    # s: mean 0.5 over three agents; t: mean 0.4 over the two that are paid
    assert rows[0] == [0.5, 0.5, None, pytest.approx(-0.2), pytest.approx(-0.2), None]
    assert rows[1] == [-0.5, -0.5, None, None, None, None]
    assert rows[2] == [0.0, 0.0, None, pytest.approx(0.2), pytest.approx(0.2), None]


def test_each_conversation_and_each_role_has_its_own_mean() -> None:
    apart = earned([(1.0, None), (0.0, None)], "one") + earned([(9.0, None), (5.0, None)], "two")
    rows = segment_centred(EstimatorInputs([*apart, *earned([(4.0, None)], "two", role="verdict")]))
    assert [row[0] for row in rows] == [0.5, -0.5, 2.0, -2.0, 0.0]
    third = segment_centred(EstimatorInputs(earned([(0.1, None)] * 3)))
    assert [row[0] for row in third] == [0.0] * 3, "equal rewards have no advantage, not a rounding error"
    plain = segment_centred(EstimatorInputs([words("ab").earns(1.0, "g"), words("abc").earns(0.0, "g")]))
    assert plain == [[0.5] * 3, [-0.5] * 4]


def test_gae_by_hand_where_nothing_leaks_from_one_segment_into_another() -> None:
    values = [[0.2, 0.6, 9.0, 0.1, 0.3, 9.0]]
    (both,), (one,) = (gae(EstimatorInputs(earned([(1.0, other)]), values=values)) for other in (5.0, None))
    # the reward is on the segment's last token, and the value after it is 0
    assert one == [pytest.approx((0.6 - 0.2) + 0.95 * (1 - 0.6)), pytest.approx(1 - 0.6), None, None, None, None]
    assert both[:2] == one[:2]
    assert both[3:5] == [pytest.approx((0.3 - 0.1) + 0.95 * (5 - 0.3)), pytest.approx(5 - 0.3)]
