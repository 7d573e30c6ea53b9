"""One conversation of CoNL by hand: prompts, scores, rewards, facts, and the spans of segments."""

import pytest
from core.conftest import by_hand, prompts
from core.conl_cases import (
    QUESTION,
    by_role,
    critique_text,
    make_conl,
    outcome_of,
    ranking_text,
    rewards_of,
    solution_block,
)
from pytest import approx

from coevolve.methods.conl.method import CoNL
from coevolve.methods.conl.records import Comparison
from coevolve.methods.conl.rewards import bradley_terry
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Outcome


class TestAWholeConversationByHand:
    """Three agents; the third gives no answer at first, the second keeps its solution."""

    KEPT = ["I keep it", "<revised_solution> </revised_solution>"]
    REVISED = "<revised_solution> ANSWER: 5 </revised_solution>"
    REVIEWS = [
        ranking_text("initial_ranking", "Agent 1 > Agent 2")
        + critique_text(1, "right")
        + critique_text(2, "say 5"),
        ranking_text("initial_ranking", "Agent 0 > Agent 2", "Agent 1 > Agent 0")
        + critique_text(0, "it is 5"),
        ranking_text("initial_ranking", "Agent 0 > Agent 1")
        + critique_text(0, "fine")
        + critique_text(2, "me"),
    ]
    VERDICTS = [
        ranking_text("final_ranking", "Agent 1 > Agent 2"),
        ranking_text("final_ranking", "Agent 0 > Agent 2"),
        ranking_text("final_ranking", "Agent 0 > Agent 1"),
    ]

    @pytest.fixture
    def conl(self) -> CoNL:
        return make_conl(agents=3)

    @pytest.fixture
    def steps(self, conl: CoNL) -> EpisodeStepper:
        return by_hand(conl, key=(7, 2))

    @pytest.fixture(params=KEPT)
    def outcome(self, steps: EpisodeStepper, request: pytest.FixtureRequest) -> Outcome:
        steps.answer(["ANSWER: 6", "ANSWER: 5", "no idea"])
        steps.answer(self.REVIEWS)
        steps.answer([self.REVISED, request.param, f"<think>hm</think>{self.REVISED}"])
        steps.answer(self.VERDICTS)
        return steps.outcome

    @pytest.fixture
    def V_init(self) -> list[float]:
        """The scores of the reviews, in which the second agent votes for itself as well."""
        votes = [
            Comparison(1, 2),
            Comparison(0, 2),
            Comparison(1, 0),
            Comparison(0, 1),
        ]
        return bradley_terry(votes, 3)

    @pytest.fixture
    def V(self) -> list[float]:
        """The final scores."""
        votes = [Comparison(1, 2), Comparison(0, 2), Comparison(0, 1)]
        return bradley_terry(votes, 3)

    def test_every_persona_proposes(self, steps: EpisodeStepper) -> None:
        assert prompts(steps.pending_turns) == [  # line 8
            f"analyst propose{QUESTION}",
            f"creator propose{QUESTION}",
            f"critic propose{QUESTION}",
        ]

    def test_every_persona_reviews_all_solutions(
        self, conl: CoNL, steps: EpisodeStepper
    ) -> None:
        steps.answer(["ANSWER: 6", "ANSWER: 5", "no idea"])
        block = f"{solution_block(6, 5)}\nAgent 2<solution>no idea</solution>"
        expected = [
            f"{persona} review as {i}{QUESTION}{block}"
            for i, persona in enumerate(conl.personas)
        ]
        assert prompts(steps.pending_turns) == expected

    def test_every_persona_revises_with_the_critiques_of_its_solution(
        self, steps: EpisodeStepper
    ) -> None:
        steps.answer(["ANSWER: 6", "ANSWER: 5", "no idea"])
        steps.answer(self.REVIEWS)  # line 9
        assert prompts(steps.pending_turns) == [  # line 10
            f"analyst revise{QUESTION}<solution>ANSWER: 6</solution>"
            "<critique>it is 5</critique>\n<critique>fine</critique>",
            f"creator revise{QUESTION}<solution>ANSWER: 5</solution><critique>right</critique>",
            f"critic revise{QUESTION}<solution>no idea</solution><critique>say 5</critique>",
        ]

    @pytest.mark.parametrize("kept", KEPT)
    def test_an_agent_that_does_not_revise_keeps_its_first_solution(
        self, steps: EpisodeStepper, kept: str
    ) -> None:
        steps.answer(["ANSWER: 6", "ANSWER: 5", "no idea"])
        steps.answer(self.REVIEWS)
        steps.answer([self.REVISED, kept, f"<think>hm</think>{self.REVISED}"])
        first_prompt, *_ = prompts(steps.pending_turns)  # line 11
        assert first_prompt == f"analyst rank as 0{QUESTION}{solution_block(5, 5, 5)}"

    def test_scores_are_those_of_all_votes(
        self, outcome: Outcome, V_init: list[float], V: list[float]
    ) -> None:
        assert outcome.facts["scores_before"] == V_init
        assert outcome.facts["scores_after"] == V

    def test_every_turn_is_trained_on(self, outcome: Outcome) -> None:
        roles = ["proposal", "review", "revision", "verdict"] * 3
        assert [sample.role for sample in outcome.samples] == roles
        assert {sample.group_id for sample in outcome.samples} == {(7, 2, 0)}

    def test_every_segment_earns_its_reward(
        self, outcome: Outcome, V_init: list[float], V: list[float]
    ) -> None:
        assert rewards_of(outcome, "proposal", "initial_solution") == V  # r_sol
        assert rewards_of(outcome, "review", "initial_ranking") == [None] * 3  # Table 1
        # Agent 0 rises, whom the others criticise; the two whom it criticises do not.
        rise = 2 * (V[0] - V_init[0])  # w2 is 2
        assert rise > 0.1
        assert rewards_of(outcome, "review", "critique") == approx([0.0, rise, rise])
        assert rewards_of(outcome, "revision", "revised_solution") == [V[0], None, V[2]]
        # Lone votes agree with themselves.
        assert rewards_of(outcome, "verdict", "final_ranking") == [1.0] * 3

    def test_facts(self, outcome: Outcome, V_init: list[float], V: list[float]) -> None:
        expected = {
            "answers_before": ["6", "5", None],
            "answers_after": ["5", "5", "5"],
            "correct_initial": approx(1 / 3),
            "correct_final": 1.0,
            "wrong_before": 2,
            "fixed": 2,
            "correct_before": 1,
            "harmed": 0,
            "pass_1": 1.0,
            "pass_k": 1.0,
            "rank_rho": None,
            "critiques": approx(4 / 3),
            "votes": 1.0,
            "r_meta": 1.0,
            "decided": 1.0,
            "r_diag": approx(2 / 3 * (V[0] - V_init[0])),
            "r_sol": approx(sum(V) / 3),
        }
        assert outcome.facts == outcome.facts | expected


class TestSpans:
    """Where the segments of a reply are, with and without a reward for its thought."""

    THOUGHT = "<think>Agent 2 is right</think>"
    VOTES = ranking_text("initial_ranking", "Agent 2 > Agent 3")
    CRITIQUES = [critique_text(2, "é🙂"), critique_text(3, "x")]
    REVIEW = THOUGHT + VOTES + "!".join(CRITIQUES)
    VERDICT = THOUGHT + ranking_text("final_ranking", "Agent 2 > Agent 3")

    def play(self, pay_thought: bool, verdict: str) -> Outcome:
        replies = {"review": self.REVIEW, "verdict": verdict}
        reply_to = by_role(replies, otherwise="ANSWER: 5")
        return outcome_of(reply_to, pay_thought=pay_thought)

    @pytest.mark.parametrize("pay_thought", [False, True])
    def test_a_review_s_spans_hold_what_they_are_named_for(
        self, pay_thought: bool
    ) -> None:
        outcome = self.play(pay_thought, f"{self.VERDICT} done")
        review = outcome.samples[1]
        segments: dict[str, list[str]] = {}
        for name, spans in review.spans.items():
            segments[name] = [review.reply.text[start:end] for start, end in spans]
        assert segments == {
            "initial_ranking": [self.VOTES],
            "critique": self.CRITIQUES,
        }

    @pytest.mark.parametrize(
        ("pay_thought", "start"), [(False, len(THOUGHT)), (True, 0)]
    )
    def test_a_verdict_s_span_has_the_thought_only_where_it_is_rewarded(
        self, pay_thought: bool, start: int
    ) -> None:
        outcome = self.play(pay_thought, f"{self.VERDICT} done")
        verdict = outcome.samples[3]
        assert verdict.spans == {"final_ranking": ((start, len(self.VERDICT)),)}

    @pytest.mark.parametrize("pay_thought", [False, True])
    def test_without_a_ranking_a_verdict_is_masked(self, pay_thought: bool) -> None:
        outcome = self.play(pay_thought, "no ranking")
        assert rewards_of(outcome, "verdict", "final_ranking") == [None] * 4
