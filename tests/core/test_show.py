"""Notebook HTML: text from a model is shown and never interpreted; only tags an untrusted notebook keeps."""

import html
import re
from dataclasses import replace

import pytest
from hostile import Page

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import segment_centred
from coevolve.runs import show
from coevolve.types import Outcome, Reply, Sample, Turn


def spoken(text: str, role: str = "solver", **extra: object) -> Reply:
    ids = tuple(range(10, 10 + len(text)))
    turn = Turn(role, ({"role": "user", "content": text},), policy=text or "shared")
    return Reply(
        turn,
        text,
        completion_ids=ids,
        char_ends=tuple(range(1, len(text) + 1)),
        **extra,
    )


def test_what_is_visible_and_escaped_by_hand() -> None:
    assert (
        show.visible("a\x1b[31m\u202e\u200b\r\n\té 中")
        == "a\\x1b[31m\\u202e\\u200b\\r\n\té 中"
    )
    assert (
        show.element("b", "<a href='x'>&\"")
        == "<b>&lt;a href=&#39;x&#39;&gt;&amp;&#34;</b>"
    )
    inner = show.element("b", "<i>")
    assert (
        show.element("p", inner, "<i>", title='"', style="")
        == '<p title="&#34;"><b>&lt;i&gt;</b>&lt;i&gt;</p>'
    )


def test_turns_tell_limits_and_open_the_first_if_it_is_long() -> None:
    turns = [
        Turn("judge", ({"role": "user", "content": "grade"},), "frozen", 32, 0.0),
        spoken("b").turn,
    ]
    shown = show.turns(turns)
    assert shown.html.count("<details") == 2 and "<details open" not in shown.html
    assert (
        str(shown)
        == "judge (frozen): grade · temperature 0 · at most 32 tokens\nsolver (b): b"
    )
    assert str(show.turns([spoken("b\nc").turn, *turns])).startswith(
        "solver (b\nc)\n    b\n    c\njudge"
    )


def test_replies_tell_who_what_and_how_much() -> None:
    turn = Turn("solver", ({"role": "user", "content": "7+8"},))
    first, second, same = (
        Reply(turn, "15", completion_ids=(1, 2)),
        Reply(turn, "16", completion_ids=(1,), finished=False),
        Reply(turn, "15"),
    )
    shown = show.replies([first, second, same], [first.earns(1.0)], ["right", "wrong"])
    heads = re.findall(r"<summary><code>(.*?)</code></summary>", shown.html)
    assert (
        heads
        == [
            "solver 1 of 3: 15 · right · 2 tokens · reward +1",
            "solver 2 of 3: 16 · wrong · 1 tokens, cut off · earns nothing",
            "solver 3 of 3: 15 · 0 tokens · earns nothing",  # an equal reply is not the same reply
        ]
    )
    assert shown.text.splitlines() == heads and "earns nothing" not in str(
        show.replies([second])
    )
    long = show.replies([Reply(turn, "15 " * 40)])
    assert "what it read" in long.html and str(long).startswith(
        "solver · 0 tokens\n    15 15"
    )


def test_outcome_sorts_and_rounds_facts_and_lists_samples() -> None:
    facts = {
        "rate": 1 / 3,
        "answers": ["a", None],
        "tokens": 12345.678,
        "scores": (0.51234, 2.0),
        "count": 3,
    }
    shown = show.outcome(
        Outcome(
            [spoken("yes").earns({"a": None, "b": -0.5}, group_id="q1")], facts=facts
        )
    )
    assert ">rate</td>" in shown.html and ">0.333</code></td>" in shown.html
    told = [
        "answers: a, –",
        "count: 3",
        "rate: 0.333",
        "scores: 0.512, 2",
        "tokens: 12345.7",
    ]
    assert str(shown).splitlines() == [
        *told,
        "solver (yes): yes · 3 tokens · reward a masked, b -0.5",
    ]
    assert Page(show.outcome(Outcome()).html).text == ""


def test_credit_marks_signs_and_scales_colours() -> None:
    reply = Reply(
        Turn("solver", ()),
        "ab<c",
        completion_ids=(1, 2, 3, 4, 5),
        char_ends=(1, 2, 2, 4, 4),
    )
    shown = show.credit(reply.earns(1.0), [1.0, 0.5, -2.0, 0.0, 0.0])
    assert re.findall(r"<sup>(.)</sup>", shown.html) == ["+", "-", "0"]
    assert "rgba(0,114,178,0.30)" in shown.html and "rgba(213,94,0,0.60)" in shown.html
    assert 'title="token 1, id 2, credit +0.5"' in shown.html
    assert str(shown).endswith("[+]ab[-]▯[0]<c▯")
    for wrong in (1, 6):
        with pytest.raises(ValueError, match=f"5 tokens, {wrong} values"):
            show.credit(reply.earns(1.0), [1.0] * wrong)


TEXT = "a<b>&é🙂 c"


def sample(role: str = "review", reward: float | None = 0.5) -> Sample:
    said = spoken(TEXT, role)
    reply = replace(
        said,
        completion_ids=tuple(range(len(TEXT) + 1)),
        char_ends=(*said.char_ends, len(TEXT)),
    )
    spans = {"critique": ((0, 3),), "initial_ranking": ((5, 7),)}
    return reply.earns({"critique": reward, "initial_ranking": None}, "g", spans)


def test_every_token_is_shown_once_with_its_segment_reward_and_advantage() -> None:
    shown = show.credit(sample(), [0.25, 0.25, -0.5, *[None] * 7])
    assert (
        '"token 0, id 0, credit +0.25"' in shown.html
        and '"token 3, id 3, credit masked"' in shown.html
    )
    assert (
        html.unescape(
            "".join(re.findall(r"<span[^>]*>(.*?)</span>", shown.html, re.DOTALL))
        )
        == TEXT + "▯"
    )
    head, _, text = shown.text.partition("\n    ")
    assert "reward critique +0.5, initial_ranking masked · full colour is 0.5" in head
    assert (
        text
        == "[critique +]a<[critique -]b[no segment]>&[initial_ranking masked]é🙂[no segment] c▯"
    )
    assert re.findall(r"<sup>(.*?)</sup>", shown.html) == re.findall(r"\[(.*?)\]", text)
    spans = re.findall(r"<span[^>]*>", shown.html)
    assert ["background-color" in span for span in spans] == [True] * 3 + [False] * 7, (
        "paid tokens are filled"
    )
    assert ["dotted" in span for span in spans] == [False] * 3 + [True] * 7, (
        "masked ones underlined"
    )


def test_a_conversation_has_a_row_per_agent_and_a_column_per_round() -> None:
    samples = [
        sample(role, reward) for reward in (0.0, 1.0) for role in ("review", "verdict")
    ]
    shown = show.conversation(
        samples, segment_centred(EstimatorInputs(samples)), "two & two"
    )
    assert (
        shown.html.count("<tr>") == 3
        and shown.html.count("<td") == 9
        and "two &amp; two" in shown.html
    )
    assert "id 0, credit +0.5" in shown.html and "id 0, credit -0.5" in shown.html
    assert shown.text.splitlines()[0] == "two & two"
    assert (
        "agent 1, verdict" in shown.text
        and "10 tokens · reward critique +1, initial_ranking masked" in shown.text
    )
    with pytest.raises(ValueError, match="4 samples, 0 lists"):
        show.conversation(samples, [])
