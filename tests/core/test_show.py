"""Views in notebooks: text from a model is shown and never interpreted."""

import html
import re
from dataclasses import replace

import pytest
from hostile import Page

from coevolve.advantages.inputs import EstimatorInputs
from coevolve.advantages.segments import segment_centred
from coevolve.runs import show
from coevolve.runs.show import Shown
from coevolve.types import Outcome, Reply, Sample, Turn


def ask(content: str, role: str = "solver") -> Turn:
    """Return a turn that asks this."""
    return Turn(role, ({"role": "user", "content": content},))


def echo(text: str, role: str = "solver") -> Reply:
    """Return a reply of one token per character, whose prompt and policy are its text."""
    turn = replace(ask(text, role), policy=text or "shared")
    token_ids = tuple(range(10, 10 + len(text)))
    char_ends = tuple(range(1, len(text) + 1))
    return Reply(turn, text, completion_ids=token_ids, char_ends=char_ends)


class TestElements:
    def test_unprintable_characters_become_visible(self) -> None:
        text = "a\x1b[31m\u202e\u200b\r\n\té 中"
        assert show.visible(text) == "a\\x1b[31m\\u202e\\u200b\\r\n\té 中"

    def test_content_is_escaped(self) -> None:
        bold = show.element("b", "<a href='x'>&\"")
        assert bold == "<b>&lt;a href=&#39;x&#39;&gt;&amp;&#34;</b>"

    def test_elements_nest_and_empty_attributes_are_left_out(self) -> None:
        inner = show.element("b", "<i>")
        outer = show.element("p", inner, "<i>", title='"', style="")
        assert outer == '<p title="&#34;"><b>&lt;i&gt;</b>&lt;i&gt;</p>'


class TestTurns:
    TURNS = [
        replace(ask("grade", "judge"), policy="frozen", max_tokens=32, temperature=0.0),
        echo("b").turn,
    ]

    def test_limits_follow_the_prompt(self) -> None:
        shown = show.turns(self.TURNS)
        assert str(shown).splitlines() == [
            "judge (frozen): grade · temperature 0 · at most 32 tokens",
            "solver (b): b",
        ]

    def test_short_prompts_stay_folded(self) -> None:
        shown = show.turns(self.TURNS)
        assert shown.html.count("<details") == 2
        assert "<details open" not in shown.html

    def test_a_prompt_of_several_lines_is_below_its_speaker(self) -> None:
        shown = show.turns([echo("b\nc").turn, *self.TURNS])
        assert str(shown).startswith("solver (b\nc)\n    b\n    c\njudge")


class TestReplies:
    TURN = ask("7+8")
    FIRST = Reply(TURN, "15", completion_ids=(1, 2))
    CUT_OFF = Reply(TURN, "16", completion_ids=(1,), finished=False)
    # The same text earns nothing: a sample belongs to one reply, not to its text.
    SAME_TEXT = Reply(TURN, "15")

    def test_heads_tell_speaker_text_note_size_and_reward(self) -> None:
        replies = [self.FIRST, self.CUT_OFF, self.SAME_TEXT]
        shown = show.replies(replies, [self.FIRST.earns(1.0)], ["correct", "wrong"])
        heads = [
            "solver 1 of 3: 15 · correct · 2 tokens · reward +1",
            "solver 2 of 3: 16 · wrong · 1 tokens, cut off · earns nothing",
            "solver 3 of 3: 15 · 0 tokens · earns nothing",
        ]
        pattern = r"<summary><code>(.*?)</code></summary>"
        assert re.findall(pattern, shown.html) == heads
        assert shown.text.splitlines() == heads

    def test_without_samples_no_reward_is_shown(self) -> None:
        assert "earns nothing" not in str(show.replies([self.CUT_OFF]))

    def test_a_long_reply_is_shown_with_its_prompt_below(self) -> None:
        shown = show.replies([Reply(self.TURN, "15 " * 40)])
        assert "what it read" in shown.html
        assert str(shown).startswith("solver · 0 tokens\n    15 15")


class TestOutcome:
    @pytest.fixture
    def shown(self) -> Shown:
        facts = {
            "rate": 1 / 3,
            "answers": ["a", None],
            "tokens": 12345.678,
            "scores": (0.51234, 2.0),
            "count": 3,
        }
        sample = echo("yes").earns({"a": None, "b": -0.5}, group_id="q1")
        return show.outcome(Outcome([sample], facts=facts))

    def test_facts_are_sorted_and_rounded_above_the_samples(self, shown) -> None:
        assert str(shown).splitlines() == [
            "answers: a, –",
            "count: 3",
            "rate: 0.333",
            "scores: 0.512, 2",
            "tokens: 12345.7",
            "solver (yes): yes · 3 tokens · reward a masked, b -0.5",
        ]

    def test_facts_are_a_table(self, shown) -> None:
        assert ">rate</td>" in shown.html
        assert ">0.333</code></td>" in shown.html

    def test_an_empty_outcome_has_no_text(self) -> None:
        assert Page(show.outcome(Outcome()).html).text == ""


class TestCredit:
    """Five tokens, of which the third and the last complete no character."""

    SAMPLE = Reply(
        Turn("solver", ()),
        "ab<c",
        completion_ids=(1, 2, 3, 4, 5),
        char_ends=(1, 2, 2, 4, 4),
    ).earns(1.0)

    @pytest.fixture
    def shown(self) -> Shown:
        return show.credit(self.SAMPLE, [1.0, 0.5, -2.0, 0.0, 0.0])

    def test_a_run_of_tokens_starts_with_its_sign(self, shown) -> None:
        assert re.findall(r"<sup>(.)</sup>", shown.html) == ["+", "-", "0"]
        assert str(shown).endswith("[+]ab[-]▯[0]<c▯")

    def test_colours_tell_the_sign_and_scale_with_the_largest(self, shown) -> None:
        assert "rgba(0,114,178,0.30)" in shown.html
        assert "rgba(213,94,0,0.60)" in shown.html

    def test_a_tooltip_tells_the_value(self, shown) -> None:
        assert 'title="token 1, id 2, credit +0.5"' in shown.html

    @pytest.mark.parametrize("count", [1, 6])
    def test_another_number_of_advantages_is_refused(self, count: int) -> None:
        with pytest.raises(ValueError, match=f"5 tokens, {count} values"):
            show.credit(self.SAMPLE, [1.0] * count)

    def test_a_reply_whose_tokens_have_no_ends_is_refused_by_that_name(self) -> None:
        reply = replace(self.SAMPLE.reply, char_ends=())
        with pytest.raises(ValueError, match="^char_ends .*5 tokens, 0 values$"):
            show.credit(reply.earns(1.0), [1.0] * 5)


TEXT = "a<b>&é🙂 c"


def segmented_sample(role: str = "review", reward: float = 0.5) -> Sample:
    """Return a sample of TEXT and an EOS token, with a rewarded and a masked segment."""
    reply = echo(TEXT, role)
    reply = replace(
        reply,
        completion_ids=tuple(range(len(TEXT) + 1)),
        char_ends=(*reply.char_ends, len(TEXT)),
    )
    rewards = {"critique": reward, "initial_ranking": None}
    spans = {"critique": ((0, 3),), "initial_ranking": ((5, 7),)}
    return reply.earns(rewards, "g", spans)


class TestSegmentCredit:
    """Three rewarded tokens and seven that are masked or in no segment."""

    LABELLED_TEXT = (
        "[critique +]a<[critique -]b[no segment]>&"
        "[initial_ranking masked]é🙂[no segment] c▯"
    )

    @pytest.fixture
    def shown(self) -> Shown:
        return show.credit(segmented_sample(), [0.25, 0.25, -0.5, *[None] * 7])

    def test_the_page_has_the_text_and_a_mark_for_the_end_token(self, shown) -> None:
        pieces = re.findall(r"<span[^>]*>(.*?)</span>", shown.html, re.DOTALL)
        assert html.unescape("".join(pieces)) == TEXT + "▯"

    def test_tooltips_tell_credit_and_mask(self, shown) -> None:
        assert '"token 0, id 0, credit +0.25"' in shown.html
        assert '"token 3, id 3, credit masked"' in shown.html

    def test_a_run_of_tokens_starts_with_its_segment(self, shown) -> None:
        head, _, text = shown.text.partition("\n    ")
        rewards = "reward critique +0.5, initial_ranking masked · full colour is 0.5"
        assert rewards in head
        assert text == self.LABELLED_TEXT
        labels = re.findall(r"\[(.*?)\]", text)
        assert re.findall(r"<sup>(.*?)</sup>", shown.html) == labels

    def test_rewarded_tokens_are_filled_and_others_underlined(self, shown) -> None:
        spans = re.findall(r"<span[^>]*>", shown.html)
        assert len(spans) == 10
        for span in spans[:3]:
            assert "background-color" in span
            assert "dotted" not in span
        for span in spans[3:]:
            assert "background-color" not in span
            assert "dotted" in span


class TestConversation:
    """Two agents, two rounds; the second agent earns more."""

    SAMPLES = [
        segmented_sample("review", 0.0),
        segmented_sample("verdict", 0.0),
        segmented_sample("review", 1.0),
        segmented_sample("verdict", 1.0),
    ]

    @pytest.fixture
    def shown(self) -> Shown:
        advantages = segment_centred(EstimatorInputs(self.SAMPLES))
        return show.conversation(self.SAMPLES, advantages, "two & two")

    def test_agents_are_rows_and_rounds_are_columns(self, shown) -> None:
        assert shown.html.count("<tr>") == 3
        assert shown.html.count("<td") == 9

    def test_the_title_is_escaped_in_html_and_plain_in_text(self, shown) -> None:
        assert "two &amp; two" in shown.html
        assert shown.text.splitlines()[0] == "two & two"

    def test_cells_show_credit(self, shown) -> None:
        assert "id 0, credit +0.5" in shown.html
        assert "id 0, credit -0.5" in shown.html
        assert "agent 1, verdict" in shown.text
        reward = "10 tokens · reward critique +1, initial_ranking masked"
        assert reward in shown.text

    def test_advantages_for_every_sample_are_required(self) -> None:
        with pytest.raises(ValueError, match="4 samples, 0 lists"):
            show.conversation(self.SAMPLES, [])
