"""The view of who was paid for what: every token is there once, with its segment, reward and advantage."""

import html
import re

import pytest

from coevolve.segments import segment_centred
from coevolve.show_segments import conversation, legend, paid
from coevolve.types import Reply, Sample, Turn

TEXT = "a<b>&é🙂 c"


def sample(role: str = "review", reward: float | None = 0.5) -> Sample:
    ids = tuple(range(len(TEXT) + 1))
    reply = Reply(Turn(role, ()), TEXT, (1,), ids, (0.0,) * len(ids), (*range(1, len(TEXT) + 1), len(TEXT)))
    spans = {"critique": ((0, 3),), "initial_ranking": ((5, 7),)}
    return reply.earns({"critique": reward, "initial_ranking": None}, "g", spans)


def test_every_token_is_shown_once_with_its_segment_reward_and_advantage() -> None:
    shown = paid(sample(), [0.25, 0.25, 0.25, *[None] * 7])
    notes = [html.unescape(title) for title in re.findall(r'title="([^"]*)"', shown.html)]
    assert len(notes) == 10
    assert notes[0] == "token 0: critique, reward +0.5, advantage +0.25"
    assert notes[3] == "token 3: no segment, advantage masked"
    assert notes[5] == "token 5: initial_ranking, reward masked, advantage masked"
    assert html.unescape(re.sub(r"<[^>]*>", "", shown.html)) == TEXT + "▯"
    assert shown.text == "[critique +0.5: a<b]>&[initial_ranking masked: é🙂] c▯"
    spans = re.findall(r"<span[^>]*>", paid(sample()).html)
    assert ["background-color" in span for span in spans] == [True] * 3 + [False] * 7, "paid segments are filled"
    assert ["dotted" in span for span in spans] == [False] * 5 + [True] * 2 + [False] * 3, "masked ones underlined"


def test_a_conversation_has_a_row_per_agent_and_a_column_per_round() -> None:
    samples = [sample(role, reward) for reward in (0.0, 1.0) for role in ("review", "verdict")]
    shown = conversation(samples, segment_centred(samples), "two & two")
    assert shown.html.count("<tr>") == 3 and shown.html.count("<td") == 6 and "two &amp; two" in shown.html
    assert "critique, reward +1, advantage +0.5" in shown.html and "advantage -0.5" in shown.html
    assert shown.text.splitlines()[0] == "two & two"
    assert "agent 1, verdict: reward critique +1, initial_ranking masked" in shown.text
    assert list(legend(samples)) == ["critique", "initial_ranking"]


def test_a_plain_reward_is_one_segment() -> None:
    shown = paid(sample().reply.earns(1.0))
    assert "whole reply, reward +1" in shown.html and shown.text.startswith("[whole reply +1: ")


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="advantages"):
        paid(sample(), [0.0])
    with pytest.raises(ValueError, match="advantages"):
        conversation([sample()], [])
