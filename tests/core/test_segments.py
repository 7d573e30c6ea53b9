"""Segment credit: no token outside its segment gets the segment's reward.

Whatever the text, and wherever the tokeniser cuts it.
"""

import codecs
from dataclasses import dataclass
from random import Random

import pytest
from pytest import approx

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import gae, owners, segment_centred, token_rewards
from coevolve.methods.conl import parsing
from coevolve.types import Reply, Sample, Turn

CHARACTERS = "ab >/=<0é語🙂\u0301\u200d\n"
MARKS = [
    "<initial_ranking>",
    "</initial_ranking>",
    '<critique target="Agent 0">',
    '<critique target="Agent 2">',
    "</critique>",
    "<think>",
    "Agent 0 > Agent 2\n",
    "é",
    "語語",
    "🙂",
    "🙂🙂",
    "x",
]
PIECE_SIZES = [0, 1, 1, 2, 3, 5, 9, 20]  # in bytes


def char_ends_of(pieces: list[bytes]) -> tuple[int, ...]:
    """Characters complete after each piece, as a policy computes them for byte-level tokens."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    char_ends = []
    complete = 0
    for i, piece in enumerate(pieces):
        is_last = i == len(pieces) - 1
        complete += len(decoder.decode(piece, is_last))
        char_ends.append(complete)
    return tuple(char_ends)


def cut_anywhere(rng: Random, data: bytes) -> list[bytes]:
    """Cut bytes anywhere, across characters and tags; empty pieces are special tokens."""
    pieces = []
    start = 0
    while start < len(data):
        size = rng.choice(PIECE_SIZES)
        pieces.append(data[start : start + size])
        start += size
    end_token = b""
    return [*pieces, end_token]


def reply_of(text: str, pieces: list[bytes]) -> Reply:
    """A reply whose tokens are these pieces."""
    ids = tuple(range(len(pieces)))
    logprobs = (0.0,) * len(ids)
    return Reply(Turn("review", ()), text, (1,), ids, logprobs, char_ends_of(pieces))


def character_tokens(text: str) -> Reply:
    """A reply with a token per character and an end token."""
    pieces = [character.encode() for character in text]
    return reply_of(text, [*pieces, b""])


def careless_review(rng: Random) -> str:
    """A careless model's review: marks in any order, multi-byte characters anywhere."""
    parts = []
    for _ in range(rng.randint(0, 14)):
        choices = MARKS if rng.random() < 0.6 else CHARACTERS
        parts.append(rng.choice(choices))
    if rng.random() < 0.7:  # at least one critique that can be read
        characters = CHARACTERS.replace("<", "")
        content = "".join(rng.choice(characters) for _ in range(rng.randint(1, 9)))
        place = rng.randint(0, len(parts))
        parts.insert(place, f'<critique target="Agent 0">{content}.</critique>')
    return "".join(parts)


def bytes_inside(text: str, spans: tuple[tuple[int, int], ...]) -> bytearray:
    """Mark every byte of the text by 1 where it lies in one of the spans."""
    inside = bytearray(len(text.encode()))
    for start, end in spans:
        first = len(text[:start].encode())
        last = len(text[:end].encode())
        inside[first:last] = b"\1" * (last - first)
    return inside


@dataclass
class Counts:
    """Tokens of the critiques of many replies."""

    rewarded: int = 0
    split: int = 0  # with bytes inside and outside
    left_out: int = 0  # inside, but not rewarded


def check_tokens(sample: Sample, pieces: list[bytes], counts: Counts) -> None:
    """Compare each token's reward with an independent view, byte by byte."""
    text = sample.reply.text
    in_critique = bytes_inside(text, sample.spans["critique"])
    in_ranking = bytes_inside(text, sample.spans["initial_ranking"])
    rewards = token_rewards(sample)
    start = 0
    for piece, owner, reward in zip(pieces, owners(sample), rewards, strict=True):
        end = start + len(piece)
        critique_bytes = sum(in_critique[start:end])
        is_inside = critique_bytes == len(piece) and not any(in_ranking[start:end])
        if reward is not None:
            assert owner == "critique"
            assert reward == 0.7
            assert is_inside
            counts.rewarded += 1
        elif piece and is_inside:
            counts.left_out += 1
        if 0 < critique_bytes < len(piece):
            counts.split += 1
        start = end


def test_no_token_outside_its_segment_is_rewarded_in_8000_generated_replies() -> None:
    rng = Random(0)
    counts = Counts()
    for _ in range(8000):
        text = careless_review(rng)
        pieces = cut_anywhere(rng, text.encode())
        critiques = parsing.critiques(text, 3, 1)
        spans = {
            "critique": tuple(critique.span for critique in critiques),
            "initial_ranking": parsing.span(text, "initial_ranking"),
        }
        rewards = {"initial_ranking": None, "critique": 0.7}
        sample = reply_of(text, pieces).earns(rewards, "g", spans)
        check_tokens(sample, pieces, counts)
    assert counts.rewarded > 20_000, "the check has bite"
    assert counts.split > 2_000, "the check has bite"
    assert counts.left_out < 0.01 * counts.rewarded, "next to none inside is left out"


@dataclass(frozen=True)
class Claim:
    """A reply of one token per character, and whose each token is."""

    text: str
    reward: object
    spans: dict | None
    owners: list
    rewards: list


CLAIMS = {
    "no end token": Claim(
        text="a<s>",
        reward={"s": 1.0},
        spans={"s": ((1, 4),)},
        owners=[None, "s", "s", "s", None],
        rewards=[None, 1, 1, 1, None],
    ),
    "without spans the whole reply, the end token included": Claim(
        text="ab",
        reward={"s": 1.0},
        spans=None,
        owners=["s", "s", "s"],
        rewards=[1, 1, 1],
    ),
    "an empty list of spans": Claim(
        text="ab",
        reward={"s": 1.0},
        spans={"s": ()},
        owners=[None, None, None],
        rewards=[None, None, None],
    ),
    "a plain number": Claim(
        text="ab",
        reward=2.0,
        spans=None,
        owners=["", "", ""],
        rewards=[2.0, 2.0, 2.0],
    ),
    "a token that two segments claim belongs to neither": Claim(
        text="abc",
        reward={"s": 1, "t": None},
        spans={"s": ((0, 2),), "t": ((1, 3),)},
        owners=["s", None, "t", None],
        rewards=[1, None, None, None],
    ),
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_every_token_has_at_most_one_owner(claim: Claim) -> None:
    sample = character_tokens(claim.text).earns(claim.reward, None, claim.spans)
    assert owners(sample) == claim.owners
    assert token_rewards(sample) == claim.rewards


SMILE_ALONE = [b"a", b"\xf0\x9f", b"\x99", b"\x82", b"b", b""]
SMILE_ACROSS_TOKENS = [b"a\xf0", b"\x9f\x99\x82b", b""]
SMILE_BEGINS_WITH_A = [b"a\xf0", b"\x9f\x99\x82", b"b", b""]


@pytest.mark.parametrize(
    ("pieces", "span", "expected"),
    [
        (SMILE_ALONE, (1, 2), [None, "s", "s", "s", None, None]),
        (SMILE_ACROSS_TOKENS, (1, 2), [None] * 3),
        # The first token holds a byte of the next character.
        (SMILE_BEGINS_WITH_A, (0, 1), [None] * 4),
    ],
)
def test_bytes_of_one_character_go_together(pieces, span, expected) -> None:
    sample = reply_of("a🙂b", pieces).earns({"s": 1.0}, None, {"s": (span,)})
    assert owners(sample) == expected


def two_segments(
    s: float | None, t: float | None, group: str = "talk", role: str = "review"
) -> Sample:
    """A reply `ab cd`: segment s covers `ab`, segment t covers `cd`."""
    ids = (0,) * 6
    char_ends = (1, 2, 3, 4, 5, 5)
    reply = Reply(Turn(role, ()), "ab cd", (1,), ids, (0.0,) * 6, char_ends)
    spans = {"s": ((0, 2),), "t": ((3, 5),)}
    return reply.earns({"s": s, "t": t}, group, spans)


def centred(*samples: Sample) -> list[list[float | None]]:
    """The advantages of `segment_centred`."""
    return segment_centred(EstimatorInputs(list(samples)))


def test_segment_centred_by_hand() -> None:
    rows = centred(
        two_segments(1.0, 0.2),
        two_segments(0.0, None),
        two_segments(0.5, 0.6),
    )
    # s: mean 0.5 over three agents; t: mean 0.4 over the two that are not masked
    assert rows[0] == [0.5, 0.5, None, approx(-0.2), approx(-0.2), None]
    assert rows[1] == [-0.5, -0.5, None, None, None, None]
    assert rows[2] == [0.0, 0.0, None, approx(0.2), approx(0.2), None]


def test_each_conversation_and_each_role_has_its_own_mean() -> None:
    rows = centred(
        two_segments(1.0, None, "one"),
        two_segments(0.0, None, "one"),
        two_segments(9.0, None, "two"),
        two_segments(5.0, None, "two"),
        two_segments(4.0, None, "two", role="verdict"),
    )
    assert [row[0] for row in rows] == [0.5, -0.5, 2.0, -2.0, 0.0]


def test_equal_rewards_have_no_advantage_not_a_rounding_error() -> None:
    rows = centred(*[two_segments(0.1, None)] * 3)
    assert [row[0] for row in rows] == [0.0] * 3


def test_a_plain_number_is_centred_over_its_group() -> None:
    high = character_tokens("ab").earns(1.0, "g")
    low = character_tokens("abc").earns(0.0, "g")
    assert centred(high, low) == [[0.5] * 3, [-0.5] * 4]


def test_gae_by_hand() -> None:
    values = [[0.2, 0.6, 9.0, 0.1, 0.3, 9.0]]
    inputs = EstimatorInputs([two_segments(1.0, 5.0)], values=values)
    (row,) = gae(inputs)
    # The reward is on the segment's last token, and the value after it is 0.
    assert row[0] == approx((0.6 - 0.2) + 0.95 * (1 - 0.6))
    assert row[1] == approx(1 - 0.6)
    assert row[3] == approx((0.3 - 0.1) + 0.95 * (5 - 0.3))
    assert row[4] == approx(5 - 0.3)


def test_gae_leaks_nothing_from_one_segment_into_another() -> None:
    values = [[0.2, 0.6, 9.0, 0.1, 0.3, 9.0]]
    (both,) = gae(EstimatorInputs([two_segments(1.0, 5.0)], values=values))
    (first,) = gae(EstimatorInputs([two_segments(1.0, None)], values=values))
    assert first == [*both[:2], None, None, None, None]
