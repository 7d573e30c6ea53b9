"""CoNL's conversations: rewards of segments (Table 1), votes, agents and questions."""

from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any

import pytest
from core.conftest import prompts, text
from core.conl_cases import (
    CORRECT,
    REVISED,
    WRONG,
    by_role,
    critique_text,
    make_conl,
    outcome_of,
    play_conversations,
    prompts_of,
    ranking_text,
    rewards_of,
    turns_of,
)
from pytest import approx

from coevolve.methods.conl.method import FAMILIES, CoNL
from coevolve.methods.conl.records import Comparison
from coevolve.methods.conl.rewards import bradley_terry
from coevolve.training import config
from coevolve.types import Outcome, Turn
from tinyworld import tasks as tiny

CRITIQUES = [  # by author
    critique_text(1, "right"),
    critique_text(0, "it is 5"),
    critique_text(0, "it is 5"),
    critique_text(0, "right"),
]


def agent_0_rises(turn: Turn, agent: int) -> str:
    """Speak in a conversation that ranks agent 0 last, and after its revision first.

    Agents 1, 2 and 3 criticise agent 0, which itself criticises agent 1 and ranks no one.
    """
    if turn.role == "proposal":
        return WRONG if agent == 0 else CORRECT
    if turn.role == "revision":
        return REVISED
    peers = []
    if agent != 0:
        peers = [peer for peer in (1, 2, 3) if peer != agent]
    if turn.role == "verdict":
        votes = [f"Agent 0 > Agent {peer}" for peer in peers]
        return ranking_text("final_ranking", *votes)
    votes = [f"Agent {peer} > Agent 0" for peer in peers]
    return ranking_text("initial_ranking", *votes) + CRITIQUES[agent]


@dataclass(frozen=True)
class Segment:
    """A segment of a role's replies, and the weight of its reward."""

    role: str
    name: str
    weight: str


SEGMENTS = [
    Segment("proposal", "initial_solution", weight="w_solution"),
    Segment("revision", "revised_solution", weight="w_solution"),
    Segment("review", "critique", weight="w_diagnostic"),
    Segment("verdict", "final_ranking", weight="w_consensus"),
]
WEIGHTS = ["w_solution", "w_diagnostic", "w_consensus"]


class TestRewardsOfSegments:
    """The conversation in which agent 0 rises; its critics helped it, and its target fell."""

    @pytest.fixture
    def outcome(self) -> Outcome:
        return outcome_of(agent_0_rises)

    @pytest.fixture
    def gain(self, outcome: Outcome) -> float:
        """How far agent 0 rises."""
        before = outcome.facts["scores_before"]
        after = outcome.facts["scores_after"]
        return after[0] - before[0]

    def test_agent_0_rises_from_below_the_middle_to_above_it(
        self, outcome: Outcome
    ) -> None:
        before = outcome.facts["scores_before"]
        after = outcome.facts["scores_after"]
        assert before[0] < 0.5 < after[0]

    def test_critiques_earn_what_their_target_gains(
        self, outcome: Outcome, gain: float
    ) -> None:
        expected = [0.0, 2 * gain, 2 * gain, 2 * gain]
        assert rewards_of(outcome, "review", "critique") == approx(expected)
        assert outcome.facts["r_diag"] == approx(3 * gain / 4)

    def test_rewards_are_weighted(self, outcome: Outcome, gain: float) -> None:
        weighted = outcome_of(
            agent_0_rises, w_solution=3.0, w_diagnostic=5.0, w_consensus=0.5
        )
        solution_rewards = rewards_of(weighted, "proposal", "initial_solution")
        expected = [3 * score for score in outcome.facts["scores_after"]]
        assert solution_rewards == approx(expected)
        critique_rewards = rewards_of(weighted, "review", "critique")
        assert critique_rewards[1] == approx(5 * gain)
        ranking_rewards = rewards_of(weighted, "verdict", "final_ranking")
        assert ranking_rewards[1:] == [0.5] * 3

    @pytest.mark.parametrize("weight", WEIGHTS)
    def test_a_weight_of_zero_masks_its_segments_alone(
        self, outcome: Outcome, weight: str
    ) -> None:
        masked = outcome_of(agent_0_rises, **{weight: 0.0})
        for segment in SEGMENTS:
            expected = rewards_of(outcome, segment.role, segment.name)
            if segment.weight == weight:
                expected = [None] * 4
            assert rewards_of(masked, segment.role, segment.name) == expected

    @pytest.mark.parametrize("weight", WEIGHTS)
    def test_a_weight_of_zero_changes_no_prompt(self, weight: str) -> None:
        usual = turns_of(agent_0_rises)
        turns = turns_of(agent_0_rises, **{weight: 0.0})
        assert prompts(turns) == prompts(usual)


class TestUnreadableReplies:
    """Unreadable replies score nothing and earn nothing, beside the initial solution."""

    @pytest.fixture
    def outcome(self) -> Outcome:
        return outcome_of(by_role({}, otherwise=""))

    def test_all_agents_are_scored_alike(self, outcome: Outcome) -> None:
        assert outcome.facts["scores_after"] == [0.5] * 4

    def test_segments_that_are_missing_are_masked(self, outcome: Outcome) -> None:
        for sample in outcome.samples:
            for name, reward in sample.reward.items():
                if name != "initial_solution":
                    assert reward is None
                    assert sample.spans[name] == ()

    def test_a_ranking_without_a_readable_vote_earns_zero(self) -> None:
        verdict = "<final_ranking>none</final_ranking>"
        outcome = outcome_of(by_role({"verdict": verdict}, otherwise=""))
        assert rewards_of(outcome, "verdict", "final_ranking") == [0.0] * 4


def rank_two_peers(turn: Turn, agent: int) -> str:
    """Rank the first two other agents, with an unreadable line below."""
    tag_names = {"review": "initial_ranking", "verdict": "final_ranking"}
    if turn.role not in tag_names:
        return f"ANSWER: {agent}"
    peers = [peer for peer in range(4) if peer != agent]
    vote = f"Agent {peers[0]} > Agent {peers[1]}"
    return ranking_text(tag_names[turn.role], vote, "rubbish")


class TestBlindRanking:
    """Table 3, without blind ranking: agents read the rankings before their own."""

    def test_blind_agents_read_no_rankings(self) -> None:
        for prompt in prompts(turns_of(rank_two_peers)):
            assert "_ranking>" not in prompt

    @pytest.mark.parametrize(
        ("role", "opening"),
        [("review", "<initial_ranking>"), ("verdict", "<final_ranking>")],
    )
    def test_other_agents_read_the_rankings_before_theirs(
        self, role: str, opening: str
    ) -> None:
        turns = turns_of(rank_two_peers, blind=False)
        counts = [prompt.count(opening) for prompt in prompts_of(turns, role)]
        assert counts == [0, 1, 2, 3]

    def test_only_readable_votes_are_shown(self) -> None:
        turns = turns_of(rank_two_peers, blind=False)
        third_review = prompts_of(turns, "review")[2]
        of_agent_0 = ranking_text("initial_ranking", "Agent 1 > Agent 2")
        of_agent_1 = ranking_text("initial_ranking", "Agent 0 > Agent 2")
        assert third_review.endswith(f"Agent 0{of_agent_0}\nAgent 1{of_agent_1}")

    def test_each_turn_is_played_once_and_trained_on(self) -> None:
        (outcome,), turns = play_conversations(rank_two_peers, blind=False)
        assert len(turns) == 16
        assert len(outcome.samples) == 16


@pytest.mark.parametrize("agents", [2, 3, 5, 8, 9])
class TestNumberOfAgents:
    """All agents vote agent 0 above agent 1."""

    VERDICT = ranking_text("final_ranking", "Agent 0 > Agent 1")
    REPLY_TO = staticmethod(by_role({"verdict": VERDICT}, otherwise=CORRECT))

    def test_every_agent_speaks_in_four_rounds(self, agents: int) -> None:
        turns = turns_of(self.REPLY_TO, agents=agents, leave_one_out=True)
        assert len(turns) == 4 * agents

    def test_personas_repeat_after_eight(self, agents: int) -> None:
        turns = turns_of(self.REPLY_TO, agents=agents, leave_one_out=True)
        personas = [prompt.split(" ")[0] for prompt in prompts(turns)[:agents]]
        assert personas[0] == "analyst"
        assert len(set(personas)) == min(agents, 8)

    @pytest.mark.parametrize("own_votes", [True, False])
    def test_without_own_votes_those_on_oneself_count_only_between_two(
        self, own_votes: bool, agents: int
    ) -> None:
        outcome = outcome_of(
            self.REPLY_TO, agents=agents, own_votes=own_votes, w_consensus=0.0
        )
        voters = agents if own_votes or agents == 2 else agents - 2
        expected = bradley_terry([Comparison(0, 1)] * voters, agents)
        assert outcome.facts["scores_after"] == approx(expected)


def consensus_rewards_by_coin(**fields: Any) -> set[float | None]:
    """The rewards of 50 conversations' final rankings in which coins decide every comparison."""
    coin = Random(0)
    agents = fields["agents"]

    def rank_by_coin(turn: Turn, agent: int) -> str:
        if turn.role != "verdict":
            return WRONG
        votes = []
        for first, second in combinations(range(agents), 2):
            relation = coin.choice("<>")
            votes.append(f"Agent {first} {relation} Agent {second}")
        return ranking_text("final_ranking", *votes)

    outcomes, _ = play_conversations(rank_by_coin, 50, **fields)
    rewards: set[float | None] = set()
    for outcome in outcomes:
        rewards.update(rewards_of(outcome, "verdict", "final_ranking"))
    return rewards


@pytest.mark.parametrize("preset", ["none", "smoke", "standard", "gpu"])
def test_rankings_move_the_consensus_reward_of_every_preset(preset: str) -> None:
    method = config.build("conl", preset, out=".").method
    names = ("agents", "own_votes", "leave_one_out", "w_consensus")
    fields = {name: getattr(method, name) for name in names}
    rewards = consensus_rewards_by_coin(**fields)
    assert len(rewards - {None}) > 1


@pytest.mark.parametrize("agents", [2, 3, 4, 5])
@pytest.mark.parametrize("own_votes", [False, True])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_consensus_that_no_vote_moves_is_refused(
    agents: int, own_votes: bool, leave_one_out: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {
        "agents": agents,
        "own_votes": own_votes,
        "leave_one_out": leave_one_out,
    }
    with monkeypatch.context() as patch:
        patch.setattr(
            "coevolve.methods.conl.rewards.consensus_can_vary", lambda *_: True
        )
        rewards = consensus_rewards_by_coin(**fields)
    if len(rewards - {None}) > 1:
        make_conl(**fields)
        return
    with pytest.raises(ValueError, match="pays no vote more than another") as error:
        make_conl(**fields)
    assert "\n" not in str(error.value)
    assert "w_consensus=0" in str(error.value)
    make_conl(**fields, w_consensus=0.0)


@pytest.mark.parametrize(
    ("fields", "allowed"),
    [
        ({"agents": 2}, "leave_one_out=true, w_consensus=0"),
        ({"agents": 3, "own_votes": False}, "own_votes=true, w_consensus=0"),
        ({"own_votes": False}, "own_votes=true, leave_one_out=true, w_consensus=0"),
    ],
)
def test_the_refusal_names_what_is_allowed(fields: dict, allowed: str) -> None:
    with pytest.raises(ValueError, match=f"allowed are {allowed}$"):
        make_conl(**fields)


class TestVotesOnOneself:
    """Each of three agents prefers itself to the next one, and no one else votes on that pair."""

    @staticmethod
    def prefer_oneself(turn: Turn, agent: int) -> str:
        if turn.role != "verdict":
            return ""
        next_agent = (agent + 1) % 3
        return ranking_text("final_ranking", f"Agent {agent} > Agent {next_agent}")

    def test_without_own_votes_they_do_not_count(self) -> None:
        outcome = outcome_of(
            self.prefer_oneself, agents=3, own_votes=False, w_consensus=0.0
        )
        assert outcome.facts["scores_after"] == [0.5] * 3
        assert outcome.facts["votes"] == 0.0
        assert outcome.facts["decided"] == 0.0

    def test_by_default_they_agree_with_themselves(self) -> None:
        outcome = outcome_of(self.prefer_oneself, agents=3)
        assert outcome.facts["votes"] == 1.0
        assert outcome.facts["decided"] == 1.0
        assert rewards_of(outcome, "verdict", "final_ranking") == [1.0] * 3

    def test_leave_one_out_leaves_no_majority_to_agree_with(self) -> None:
        outcome = outcome_of(
            self.prefer_oneself, agents=3, own_votes=True, leave_one_out=True
        )
        assert rewards_of(outcome, "verdict", "final_ranking") == [None] * 3
        assert outcome.facts["decided"] == 0.0
        assert outcome.facts["r_meta"] is None


def test_the_null_level_is_the_reward_of_swapped_rankings() -> None:
    conl = make_conl()
    outcome = outcome_of(agent_0_rises)
    levels = []
    for number in range(30):  # the question seeds the swaps
        conversation = replace(outcome.trace, question=f"{number}+1")
        facts = conl.observe(Outcome(trace=conversation), conl.world)
        levels.append(facts["r_diag_null"])
    mean_level = sum(levels) / len(levels)
    assert len(set(levels)) > 1
    assert mean_level < 0.7 * outcome.facts["r_diag"]


class TestQuestions:
    """Questions to train on, and the prompt of an agent that solves alone."""

    def test_training_questions_are_those_of_the_training_split(self) -> None:
        assert make_conl().questions == ["train: 2+3"]

    def test_at_test_time_they_are_the_test_questions(self) -> None:
        assert make_conl(test_time=True).questions == ["test: 2+3"]

    def test_the_tiny_world_has_over_a_thousand_of_all_families(self) -> None:
        questions = CoNL().questions
        assert len(set(questions)) == len(questions)
        assert len(questions) > 1000
        assert {tiny.split(question) for question in questions} == {"train"}
        families = {tiny.read(question).family for question in questions}
        assert families == set(FAMILIES)

    def test_an_answer_is_read_from_its_line(self) -> None:
        conl = make_conl()
        assert conl.read_answer("so\nANSWER: 5") == "5"
        assert conl.read_answer("5") is None

    def test_the_solver_proposes_as_the_first_persona(self) -> None:
        turn = make_conl().solver(query="2+3")
        assert text(turn) == "analyst propose<question>2+3</question>"

    def test_the_solver_has_no_persona_in_full_prompts(self) -> None:
        solver = make_conl(prompt="full").solver  # Appendix E
        assert solver.name == "proposal"
        assert solver.fields == {"query"}
        assert "You " not in solver.prompt
