"""SAGE's episodes by hand: Algorithm 1, plans, what is trained, and the dataset."""

from dataclasses import dataclass

import pytest
from core.conftest import TESTS, Sums, by_hand, earned, prompts, scripted, text
from core.scripted_sage import CODE_QUESTION, SUM, Played, play_script, script
from pytest import approx

from coevolve.methods.sage.method import SAGE
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.text.parse import tag
from coevolve.types import Outcome, Turn

SOLVE_PROPOSAL = "solve<question>2+3</question>"


class TestWholeEpisode:
    """One episode, answered by hand."""

    ATTEMPTS = [
        "<answer>5</answer>",
        "<answer> 5 </answer>",
        "<answer>6</answer>",
        "5",
        "",
    ]

    @dataclass
    class Case:
        """An episode and the prompts of its waves."""

        steps: EpisodeStepper
        waves: list[list[str]]

        @property
        def drawn(self) -> list[str]:
            """The questions drawn on line 15."""
            return [tag(prompt, "question") for prompt in self.waves[2]]

    @pytest.fixture
    def case(self) -> Case:
        steps = by_hand(SAGE(solves=2, world=Sums()))
        case = self.Case(steps, [])

        def answer(replies: list[str]) -> None:
            case.waves.append(prompts(steps.pending_turns))
            steps.answer(replies)

        answer([f"<think>a sum</think>{SUM}"])
        answer(["<score>8</score>", *self.ATTEMPTS])
        answer(["<plan>add</plan>", "<plan>guess</plan>"])
        answer(["<score>9</score>", "<score>3</score><score>3</score>"])
        first, _ = case.drawn
        answer([f"<answer>{Sums().answer(first)}</answer>", "<answer>77</answer>"])
        return case

    def test_the_turns_are_those_of_algorithm_1(self, case: Case) -> None:
        first, second = case.drawn
        planned = [
            f"<question>{first}</question><plan>add</plan>",
            f"<question>{second}</question><plan>guess</plan>",
        ]
        assert case.waves == [
            ["challenge<ref>1+1</ref><type>math</type><answer>2</answer>"],  # 4-5
            ["judge<question>2+3</question>", *[SOLVE_PROPOSAL] * 5],  # 6-7
            [f"plan<question>{question}</question>" for question in case.drawn],  # 15
            [f"judge{question_and_plan}" for question_and_plan in planned],  # 16
            [f"solve{question_and_plan}" for question_and_plan in planned],  # 17-18
        ]
        assert set(case.drawn) <= {"1+1", "2+3"}

    def test_every_role_is_rewarded(self, case: Case) -> None:
        quality = 7 / 9
        difficulty = 1 - 2 / 5
        unreadable_score = 0.5  # of the second plan; it passes beta
        assert earned(case.steps.outcome) == [
            ("challenger", approx((quality + difficulty + 1) / 3)),
            ("planner", approx((8 / 9 + 1) / 2)),
            ("planner", approx((unreadable_score + 1) / 2)),
            ("solver", approx(0.2 * 8 / 9 + 0.6 + 0.2)),
            ("solver", approx(0.2 * unreadable_score + 0.2)),
            ("critic", 1.0),
            ("critic", 1.0),
            ("critic", 0.5),
        ]

    def test_baselines_are_per_role_as_in_equation_1(self, case: Case) -> None:
        groups = {sample.group_id for sample in case.steps.outcome.samples}
        assert groups == {None}

    def test_the_task_is_added_to_the_dataset(self, case: Case) -> None:
        assert case.steps.outcome.adds == {"tasks": [("2+3", "math", "5")]}

    def test_the_facts_compare_verifier_and_critic_with_the_oracle(
        self, case: Case
    ) -> None:
        assert case.steps.outcome.facts == {
            "accepted": 1.0,
            "kept": 1.0,
            "checked": 1.0,
            "proposal": "2+3",
            "reference": "1+1",
            "parsed": 1.0,
            "verifier_valid": 1.0,
            "quality": approx(7 / 9),
            "difficulty": approx(3 / 5),
            "kind": "math",
            "true_difficulty": approx(3 / 5),
            "valid": 1.0,
            "level": 1,
            "critic_question_correct": 1.0,
            "gold_correct": 1.0,
            "plan_quality": approx((8 / 9 + 0.5) / 2),
            "plan_correct": 0.5,
            "plan_used": 1.0,
            "critic_plan_correct": 1.0,
            "answered": 1.0,
            "verified": 0.5,
            "correct": 0.5,
            "unscored": 0.0,
            "verifier_correct": 1.0,
            "empty": approx(1 / 13),
            "unreadable": approx(1 / 3),
        }


class TestPlanGate:
    """The Solver reads a plan whose score reaches beta (equation 10)."""

    SCORES = {
        "1": 0.0,
        "3": 2 / 9,
        "4": 3 / 9,
        "0.3": 0.3,
        "0.29": 0.29,
        "10": 1.0,
        "bad": 0.5,
    }

    @pytest.mark.parametrize(("score", "s_p"), SCORES.items())
    def test_a_plan_from_beta_up_is_used_and_earns_for_the_solver(
        self, score: str, s_p: float
    ) -> None:
        judgement = f"<score>{score}</score>"
        played = play_script(script("none", plan_judgement=judgement))
        passes = s_p >= 0.3
        shown_plan = "<plan>add</plan>" if passes else ""
        plan_term = 0.2 * s_p if passes else 0
        assert played.prompts[-1] == f"solve<question>1+1</question>{shown_plan}"
        assert earned(played.outcome, "planner") == [approx((s_p + 1) / 2)]
        assert earned(played.outcome, "solver") == [approx(plan_term + 0.8)]
        assert played.outcome.facts["plan_used"] == passes

    UNREADABLE_PLANS = {
        "add": 0,
        "": 0.5,
        "<plan></plan>": 0,
        "<plan>1</plan><plan>1</plan>": 0.5,
    }

    @pytest.mark.parametrize(("plan", "format"), UNREADABLE_PLANS.items())
    def test_a_plan_that_does_not_parse_is_not_judged_and_not_used(
        self, plan: str, format: float
    ) -> None:
        played = play_script(script("none", plan=plan))
        assert played.speakers == ["challenger", "planner", "solver"]
        assert played.prompts[-1] == "solve<question>1+1</question>"
        assert played.outcome.facts["unreadable"] is None
        assert earned(played.outcome)[1:] == [
            ("planner", approx(format / 2)),
            ("solver", approx(0.6 + 0.2)),
        ]


class TestWithoutPlanning:
    """The fall-back of section 4.4."""

    @pytest.fixture
    def played(self) -> Played:
        return play_script(script(), planning=False, solves=2)

    def test_there_is_no_plan(self, played: Played) -> None:
        assert played.speakers == ["challenger", "critic", *["solver"] * 7]
        assert not any("<plan>" in prompt for prompt in played.prompts)
        assert not earned(played.outcome, "planner")
        assert played.outcome.facts["plan_used"] is None
        assert played.outcome.facts["plan_quality"] is None

    def test_the_solver_earns_halves(self, played: Played) -> None:
        assert earned(played.outcome, "solver") == [1.0, 1.0]
        assert earned(played.outcome, "critic") == [1.0]

        def reply(turn: Turn) -> str:
            return "<answer>0</answer>" if turn.role == "solver" else SUM

        wrong = play_script(reply, planning=False)
        assert earned(wrong.outcome, "solver") == [0.5]


class TestTrainedReplies:
    """All replies that Algorithm 1 trains earn; attempts do not."""

    SPEAKERS = [
        "challenger",
        "critic",
        *["solver"] * 5,
        *["planner"] * 3,
        *["critic"] * 3,
        *["solver"] * 3,
    ]
    CHALLENGE = slice(0, 1)
    QUESTION_JUDGEMENT = slice(1, 2)
    PLANS = slice(7, 10)
    PLAN_JUDGEMENTS = slice(10, 13)
    SOLUTIONS = slice(13, None)

    @pytest.fixture(params=range(4))
    def episode(self, request: pytest.FixtureRequest) -> tuple[Outcome, list[Turn]]:
        index = request.param
        played = play_script(script(), 4, solves=3)
        turns = [turn for turn in played.turns if turn.key[0] == index]
        return played.outcomes[index], turns

    def test_attempts_earn_nothing(self, episode: tuple[Outcome, list[Turn]]) -> None:
        outcome, turns = episode
        assert [turn.role for turn in turns] == self.SPEAKERS
        trained = [sample.reply.turn for sample in outcome.samples]
        assert trained == [
            *turns[self.CHALLENGE],
            *turns[self.PLANS],
            *turns[self.SOLUTIONS],
            *turns[self.QUESTION_JUDGEMENT],
            *turns[self.PLAN_JUDGEMENTS],
        ]

    def test_only_the_critic_has_its_own_temperature(
        self, episode: tuple[Outcome, list[Turn]]
    ) -> None:
        _, turns = episode
        for turn in turns:
            assert turn.temperature == (0.1 if turn.role == "critic" else None)

    def test_the_critics_temperature_can_be_the_runs(self) -> None:
        played = play_script(script(), critic_temperature=None)
        assert {turn.temperature for turn in played.turns} == {None}


@pytest.mark.parametrize("variant", ["compact", "full"])
def test_no_verifier_reaches_planner_solver_or_critic(variant: str) -> None:
    references = tuple((f"{n}+1", "math", f"GOLD{n}") for n in range(5))
    method = SAGE(world=Sums(tasks=references), prompt=variant, solves=2)

    def reply(turn: Turn) -> str:
        episode = turn.key[0]
        question = f"<question>{episode}+{episode}</question>"
        challenge = f"{question}<type>math</type><answer>GOLD9</answer>"
        return script(challenge)(turn)

    all_turns = []
    for _ in range(3):
        outcomes, turns = scripted(method, reply, range(8))
        for outcome in outcomes:
            method.pools["tasks"].extend(outcome.adds["tasks"])
        all_turns += turns
    assert len(method.pools["tasks"]) == 5 + 8
    assert {turn.role for turn in all_turns} == set(method.train)
    for turn in all_turns:
        # Equation 3 shows the Challenger the verifier of the reference, and no other.
        golds_shown = 1 if turn.role == "challenger" else 0
        assert text(turn).count("GOLD") == golds_shown


class TestDataset:
    """D is read as it stood when the step began, and holds no question that is held out."""

    def test_an_episode_sees_its_own_addition_only(self) -> None:
        usual_reply = script()

        def reply(turn: Turn) -> str:
            if turn.role == "challenger":
                return SUM.replace("2+3", f"{turn.key[0]}+0")
            return usual_reply(turn)

        played = play_script(reply, 9, solves=6)
        for index, outcome in enumerate(played.outcomes):
            assert planned_questions(outcome) <= {"1+1", f"{index}+0"}
            assert outcome.adds["tasks"] == [(f"{index}+0", "math", "5")]
            assert outcome.facts["reference"] == "1+1"
        assert played.method.pools["tasks"].items == [("1+1", "math", "2")]

    def test_a_held_out_question_is_attempted_but_not_added(self) -> None:
        world = Sums(held=("2+3",))
        played = play_script(script(), 12, world=world, solves=2)
        for outcome in played.outcomes:
            assert not outcome.adds["tasks"]
            assert outcome.facts["accepted"]
        assert played.prompts.count(SOLVE_PROPOSAL) == 12 * 5, "attempts only"

    def test_the_oracle_measures_it(self) -> None:
        tasks = (
            ("1+1", "math", "2"),
            ("9+1", "math", "11"),
            ("what", "math", "5"),
            (CODE_QUESTION, "code", TESTS),
        )
        assert SAGE(world=Sums(tasks=tasks)).measure() == {
            "pool_ill_formed": 0.25,
            "pool_level_3": approx(1 / 3),
            "pool_unsound": approx(1 / 3),
        }


def planned_questions(outcome: Outcome) -> set[str | None]:
    """Return the questions that the Planner read."""
    plans = [sample for sample in outcome.samples if sample.role == "planner"]
    return {tag(text(plan.reply.turn), "question") for plan in plans}
