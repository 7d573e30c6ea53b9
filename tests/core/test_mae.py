"""MAE's episodes by hand: Algorithm 1, the rewards of sections 4.1 to 4.3, and the ablations."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from core.conftest import Sums, by_hand, earned, prompts, scripted, text
from pytest import approx

from coevolve.methods.mae.method import MAE
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.text.parse import tag
from coevolve.types import Outcome, Turn

BELOW_HALF = 1309  # Random(1309).random() is 0.4990
ABOVE_HALF = 1779  # Random(1779).random() is 0.5014
QUESTION = "2+3"
PROPOSAL = f"<question>{QUESTION}</question>"
JUDGED_7 = 6 / 9  # (7 - 1) / 9
SOLVE_PROPOSAL = f"solve<question>{QUESTION}</question>"


@dataclass(frozen=True)
class Played:
    """Some scripted episodes of one step."""

    outcomes: list[Outcome]
    turns: list[Turn]
    method: MAE

    @property
    def outcome(self) -> Outcome:
        """The only episode's outcome."""
        (outcome,) = self.outcomes
        return outcome

    @property
    def prompts(self) -> list[str]:
        """The prompts of all turns."""
        return prompts(self.turns)


def script(
    proposal: str = PROPOSAL, quality: str = "<score>9</score>"
) -> Callable[[Turn], str]:
    """Return a script of correct answers, which are judged 7, to a proposal judged `quality`."""

    def reply(turn: Turn) -> str:
        prompt = text(turn)
        if turn.role == "proposer":
            return proposal
        if turn.role == "judge":
            return "<score>7</score>" if "<answer>" in prompt else quality
        answer = Sums().answer(tag(prompt, "question") or "")
        return f"<answer>{answer}</answer>"

    return reply


def play_script(reply: Callable[[Turn], str], count: int = 1, **fields) -> Played:
    """Play `count` episodes of MAE by a script, in a world of sums unless `fields` names one."""
    fields.setdefault("world", Sums())
    method = MAE(**fields)
    outcomes, turns = scripted(method, reply, range(count))
    return Played(outcomes, turns, method)


def judge_prompt(question: str, answer: str) -> str:
    return f"judge<question>{question}</question><answer>{answer}</answer>"


class TestWholeEpisode:
    """One episode, answered by hand in all settings."""

    WAVES = [
        ["<think>a sum</think><question> 2+3 </question>"],
        [
            "<score>8</score>",
            "<answer>5</answer>",
            "<answer>6</answer>",
            "<answer>7</answer>",
            "5",
            "<answer>5</answer><answer>5</answer>",
        ],
        ["<score>10</score>", "<score>1</score>", "<score>X</score>"],
        ["<answer>2</answer>", "<answer>1</answer> or <answer>2</answer>"],
        ["<score>7</score>"],
        ["<think>right</think><score>9</score>", "<score>9</score><score>9</score>"],
    ]
    SETTINGS = [
        ("zero", BELOW_HALF, "0+0"),
        ("zero", ABOVE_HALF, None),
        ("no", BELOW_HALF, None),
        ("no", ABOVE_HALF, None),
        ("half", BELOW_HALF, "1+1"),
        ("half", ABOVE_HALF, None),
        ("with", BELOW_HALF, "1+1"),
        ("with", ABOVE_HALF, "1+1"),
    ]

    @dataclass
    class Case:
        """An episode in one setting, and the prompts of its waves."""

        method: MAE
        reference: str | None
        steps: EpisodeStepper
        waves: list[list[str]]

        @property
        def drawn(self) -> list[str]:
            """The questions drawn on line 16."""
            pattern = re.compile("solve<question>(.*)</question>")
            return [pattern.fullmatch(prompt)[1] for prompt in self.waves[3]]

    @pytest.fixture(params=SETTINGS, ids=str)
    def case(self, request: pytest.FixtureRequest) -> Case:
        setting, seed, reference = request.param
        method = MAE(setting=setting, solves=2, world=Sums())
        steps = by_hand(method, seed=seed)
        waves = []
        for replies in self.WAVES:
            waves.append(prompts(steps.pending_turns))
            steps.answer(replies)
        return self.Case(method, reference, steps, waves)

    def test_the_turns_are_those_of_algorithm_1(self, case: Case) -> None:
        propose = "propose"
        if case.reference is not None:
            propose = f"propose<ref>{case.reference}</ref>"
        first, _ = case.drawn
        assert case.waves == [
            [propose],  # 4-9
            [f"judge{PROPOSAL}", *[SOLVE_PROPOSAL] * 5],  # 10
            [judge_prompt("2+3", answer) for answer in ("5", "6", "7")],  # 11
            [f"solve<question>{question}</question>" for question in case.drawn],  # 17
            [judge_prompt(first, "2")],  # 18-19
            [judge_prompt(first, "2")] * 2,  # 20-21
        ]
        assert case.steps.pending_turns == []

    def test_questions_are_drawn_from_the_pool_and_the_proposal(
        self, case: Case
    ) -> None:
        start = "0+0" if case.method.setting == "zero" else "1+1"
        assert set(case.drawn) <= {QUESTION, start}

    def test_every_role_is_rewarded(self, case: Case) -> None:
        outcome = case.steps.outcome
        quality = (8 - 1) / 9
        # One judgement is unreadable, and two of the five attempts hold no value.
        difficulty = 1 - (1 + 0 + 0 + 0) / 4
        assert earned(outcome) == [
            ("proposer", approx((quality + difficulty + 1) / 3)),
            ("solver", approx((JUDGED_7 + 1) / 2)),
            ("solver", approx((0 + 0.5) / 2)),
            ("judge", 1.0),
            ("judge", 0.5),
        ]

    def test_baselines_are_per_role(self, case: Case) -> None:
        groups = {sample.group_id for sample in case.steps.outcome.samples}
        assert groups == {None}

    def test_the_pools_grow_only_when_the_step_ends(self, case: Case) -> None:
        first, _ = case.drawn
        assert case.steps.outcome.adds == {
            "questions": [QUESTION],
            "pairs": [(first, "2")],
        }
        assert len(case.method.pools["questions"]) == 1
        assert len(case.method.pools["pairs"]) == 0

    def test_the_facts_compare_the_judge_with_the_oracle(self, case: Case) -> None:
        first, _ = case.drawn
        is_correct = float(first == "1+1")
        assert case.steps.outcome.facts == {
            "parsed": 1.0,
            "quality": approx(7 / 9),
            "difficulty": 0.75,
            "valid": 1.0,
            "level": 1,
            "true_difficulty": 0.8,
            "judge_question_correct": 1.0,
            "unreadable": 0.25,
            "accepted": 1.0,
            "kept": 1.0,
            "proposal": QUESTION,
            "reference": case.reference,
            "answered": 0.5,
            "judged": approx(6 / 9),
            "correct": is_correct,
            "judge_answer_correct": is_correct,
        }


class TestMalformedProposal:
    """A proposal without exactly one filled pair of question tags."""

    FORMAT_REWARDS = {
        "2+3": 0,
        "": 0,
        "<question>2+3": 0,
        "<question> </question>": 0,
        PROPOSAL * 2: 0.5,
    }

    @pytest.mark.parametrize(("proposal", "format"), FORMAT_REWARDS.items())
    def test_it_is_not_assessed_and_earns_its_format_reward_only(
        self, proposal: str, format: float
    ) -> None:
        played = play_script(script(proposal), setting="no", quality_filter=False)
        judge = judge_prompt("1+1", "2")
        assert played.prompts == [
            "propose",
            "solve<question>1+1</question>",
            judge,
            judge,
        ]
        assert earned(played.outcome, "proposer") == [approx(format / 3)]

    @pytest.mark.parametrize("proposal", FORMAT_REWARDS)
    def test_it_stays_out_of_the_pool_and_never_comes_to_the_filter(
        self, proposal: str
    ) -> None:
        played = play_script(script(proposal), setting="no", quality_filter=False)
        assert played.outcome.adds["questions"] == []
        facts = played.outcome.facts
        assert facts["parsed"] == 0.0
        assert facts["accepted"] == 0.0
        assert facts["kept"] is None

    @pytest.mark.parametrize("proposal", FORMAT_REWARDS)
    def test_the_official_variant_pays_for_the_last_of_several(
        self, proposal: str
    ) -> None:
        played = play_script(script(proposal), setting="no", variant="official")
        total = 8 / 9 + 1 - JUDGED_7 + 1 if proposal == PROPOSAL * 2 else 0
        assert earned(played.outcome, "proposer") == [approx(total / 3)]


class TestQualityFilter:
    """The Judge's score of a question decides what enters the pool."""

    QUALITIES = {
        "<score>8</score>": 7 / 9,
        "<score>7</score>": 6 / 9,
        "<score>11</score>": 0.5,
        "8": 0.5,
        "": 0.5,
    }

    @pytest.mark.parametrize(("judgement", "quality"), QUALITIES.items())
    def test_a_question_from_the_threshold_up_enters_the_pool(
        self, judgement: str, quality: float
    ) -> None:
        accepted = quality >= 0.7
        difficulty = 1 - JUDGED_7  # all five attempts are judged 7
        played = play_script(script(quality=judgement), setting="no")
        reward = (quality + difficulty + 1) / 3
        assert earned(played.outcome, "proposer") == [approx(reward)]
        assert played.outcome.adds["questions"] == ([QUESTION] if accepted else [])
        assert played.outcome.facts["accepted"] == accepted

    @pytest.mark.parametrize(("judgement", "quality"), QUALITIES.items())
    def test_the_threshold_is_a_setting(self, judgement: str, quality: float) -> None:
        played = play_script(script(quality=judgement), setting="no", threshold=0.6)
        accepted = quality >= 0.6
        assert played.outcome.adds["questions"] == ([QUESTION] if accepted else [])

    def test_a_question_at_the_threshold_enters_the_pool(self) -> None:
        reply = script(quality="<score>7</score>")
        played = play_script(reply, setting="no", threshold=JUDGED_7)
        assert played.outcome.adds["questions"] == [QUESTION]

    @pytest.mark.parametrize("quality_filter", [True, False])
    def test_without_it_the_solver_is_trained_on_what_it_keeps_out(
        self, quality_filter: bool
    ) -> None:
        bad_question = script(quality="<score>2</score>")
        played = play_script(bad_question, 30, solves=2, quality_filter=quality_filter)
        solver_turns = []
        for outcome in played.outcomes:
            for sample in outcome.samples:
                if sample.role == "solver":
                    solver_turns.append(sample.reply.turn)
        is_trained_on = SOLVE_PROPOSAL in prompts(solver_turns)
        assert is_trained_on != quality_filter


class TestUnreadableReplies:
    """Unreadable judgements are neutral; attempts that do not parse count as unsolved."""

    @pytest.fixture
    def method(self) -> MAE:
        return MAE(setting="no", world=Sums(), attempts=3)

    def test_unreadable_judgements_count_as_one_half(self, method: MAE) -> None:
        steps = by_hand(
            method,
            [PROPOSAL],
            ["hm", *["<answer>5</answer>"] * 3],
            ["<score>high</score>"] * 3,
            ["<answer>2</answer>"],
            [""],
            ["six"],
        )
        assert earned(steps.outcome) == [
            ("proposer", approx((0.5 + 0.5 + 1) / 3)),
            ("solver", 0.75),
            ("judge", 0.0),
        ]
        assert steps.outcome.facts["unreadable"] == 1.0
        assert steps.outcome.facts["judged"] is None

    def test_replies_without_an_answer_are_not_judged(self, method: MAE) -> None:
        attempts = ["5", "", "<answer></answer>"]
        steps = by_hand(method, [PROPOSAL], ["<score>10</score>", *attempts])
        assert [turn.role for turn in steps.pending_turns] == ["solver"]
        steps.answer(["no tags"])
        assert earned(steps.outcome) == [("proposer", approx(1.0)), ("solver", 0.0)]
        assert not steps.outcome.adds["pairs"]

    def test_attempts_without_an_answer_are_unsolved(self, method: MAE) -> None:
        steps = by_hand(
            method,
            [PROPOSAL],
            ["<score>10</score>", "<answer>5</answer>", "5", "5"],
            ["<score>10</score>"],
            ["5"],
        )
        reward = (1 + 2 / 3 + 1) / 3
        assert earned(steps.outcome, "proposer") == [approx(reward)]


class TestWithoutFormatReward:
    """The ablation of Table 2: the weight of the format reward goes to the other terms."""

    best_question = staticmethod(script(quality="<score>10</score>"))

    def test_the_other_terms_share_its_weight_and_the_judge_earns_nothing(self) -> None:
        played = play_script(self.best_question, setting="no", format_reward=False)
        assert earned(played.outcome) == [
            ("proposer", approx((1 + 1 - JUDGED_7) / 2)),
            ("solver", approx(JUDGED_7)),
        ]

    def test_the_turns_are_the_same(self) -> None:
        ablated = play_script(self.best_question, setting="no", format_reward=False)
        whole = play_script(self.best_question, setting="no")
        assert ablated.turns == whole.turns

    def test_a_malformed_proposal_earns_nothing(self) -> None:
        played = play_script(script("2+3"), setting="no", format_reward=False)
        assert earned(played.outcome, "proposer") == [0.0]


def test_a_frozen_judge_speaks_with_its_own_policy_and_earns_nothing() -> None:
    played = play_script(script(), judge_model="tiny-small")
    assert played.method.policies == ("shared", "judge")
    assert played.method.frozen == ("judge",)
    assert played.method.scored == ("shared",)
    assert played.method.models == {"judge": "tiny-small"}
    for turn in played.turns:
        assert turn.policy == ("judge" if turn.role == "judge" else "shared")
    assert "judge" in {turn.role for turn in played.turns}
    assert not earned(played.outcome, "judge")


class TestTrainedReplies:
    """Only solutions of drawn questions and judgements of drawn pairs earn, and the proposal."""

    PROPOSAL = slice(0, 1)
    RATING = slice(1, 2)
    ATTEMPTS = slice(2, 7)
    SCORES_OF_ATTEMPTS = slice(7, 12)
    SOLUTIONS = slice(12, 15)
    SCORES_OF_SOLUTIONS = slice(15, 18)
    JUDGEMENTS = slice(18, 21)

    @pytest.fixture(params=range(6))
    def episode(self, request: pytest.FixtureRequest) -> tuple[Outcome, list[Turn]]:
        index = request.param
        played = play_script(script(), 6, solves=3, judge_temperature=0.25)
        turns = [turn for turn in played.turns if turn.key[0] == index]
        assert len(turns) == 21
        return played.outcomes[index], turns

    def test_neither_attempts_nor_scores_earn(
        self, episode: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, turns = episode
        trained = [sample.reply.turn for sample in outcome.samples]
        assert trained == [
            *turns[self.PROPOSAL],
            *turns[self.SOLUTIONS],
            *turns[self.JUDGEMENTS],
        ]

    def test_only_scores_have_the_judges_temperature(
        self, episode: tuple[Outcome, list[Turn]]
    ) -> None:
        outcome, turns = episode
        for sample in outcome.samples:
            assert sample.reply.turn.temperature is None
        scores = [
            *turns[self.RATING],
            *turns[self.SCORES_OF_ATTEMPTS],
            *turns[self.SCORES_OF_SOLUTIONS],
        ]
        for turn in scores:
            assert turn.temperature == 0.25


@pytest.mark.parametrize("variant", ["compact", "full"])
def test_a_proposer_sees_questions_and_never_an_answer(variant: str) -> None:
    method = MAE(setting="with", solves=2, prompt=variant, world=Sums())

    def reply(turn: Turn) -> str:
        episode = turn.key[0]
        question = f"<question>{episode}+{episode}</question>"
        return f"{question}<answer>GOLD</answer><score>9</score>"

    proposer_prompts = []
    for _ in range(4):
        outcomes, turns = scripted(method, reply, range(9))
        proposer_turns = [turn for turn in turns if turn.role == "proposer"]
        proposer_prompts += prompts(proposer_turns)
        extend_pools(method, outcomes)
    assert len(method.pools["questions"]) == 9
    assert len(method.pools["pairs"]) == 72
    before, after = method.proposer_reference.prompt.split("{reference}")
    questions = method.pools["questions"].items
    allowed = {f"{before}{question}{after}" for question in questions}
    assert set(proposer_prompts) <= allowed
    assert not any("GOLD" in prompt for prompt in proposer_prompts)


def extend_pools(method: MAE, outcomes: list[Outcome]) -> None:
    """End a step: add to the pools what its episodes added."""
    for outcome in outcomes:
        for name, items in outcome.adds.items():
            method.pools[name].extend(items)


def test_a_held_out_question_is_assessed_but_never_enters_the_pool() -> None:
    world = Sums(held=(QUESTION,))
    played = play_script(script(), 20, world=world, solves=2, quality_filter=False)
    assert played.prompts.count(SOLVE_PROPOSAL) == 20 * 5, "attempts only"
    for outcome in played.outcomes:
        assert not outcome.adds["questions"]
        assert QUESTION not in {question for question, _ in outcome.adds["pairs"]}


class TestPools:
    """D and P are read as they stood when the step began."""

    def test_an_episode_sees_its_own_additions_only(self) -> None:
        solve_and_judge = script()

        def reply(turn: Turn) -> str:
            if turn.role == "proposer":
                return f"<question>{turn.key[0]}+0</question>"
            return solve_and_judge(turn)

        played = play_script(reply, 9, setting="no", solves=8)
        for index, outcome in enumerate(played.outcomes):
            drawn = set()
            for sample in outcome.samples:
                if sample.role != "proposer":
                    drawn.add(tag(text(sample.reply.turn), "question"))
            assert drawn <= {"1+1", f"{index}+0"}
            assert outcome.adds["questions"] == [f"{index}+0"]
            assert len(outcome.adds["pairs"]) == 8
        assert played.method.pools["questions"].items == ["1+1"]
        assert played.method.pools["pairs"].items == []

    def test_the_judge_draws_pairs_of_earlier_steps(self) -> None:
        method = MAE(setting="no", solves=8, world=Sums())
        method.pools["pairs"].extend([("8+8", "16")])
        _, turns = scripted(method, lambda turn: "none")  # no reply holds an answer
        assert text(turns[-1]) == judge_prompt("8+8", "16")

    def test_the_question_pool_starts_from_the_setting(self) -> None:
        method = MAE(world=Sums("1+1", "9+1", "what", "1+1"))
        assert method.pools["questions"].items == ["1+1", "9+1", "what"]
        assert len(MAE(setting="zero").pools["questions"]) == 16

    def test_the_oracle_measures_the_question_pool(self) -> None:
        method = MAE(world=Sums("1+1", "9+1", "what", "1+1"))
        assert method.measure() == {
            "pool_ill_formed": approx(1 / 3),
            "pool_level_3": 0.5,
        }
        assert MAE(world=Sums("what")).measure() == {
            "pool_ill_formed": None,
            "pool_level_3": None,
        }
