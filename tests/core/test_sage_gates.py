"""SAGE's gates and verifier by hand: which tasks are accepted, and what programs earn."""

from types import SimpleNamespace

import pytest
from core.conftest import TESTS, Sums, by_hand, earned, text
from core.scripted_sage import (
    BLOCK,
    CODE,
    CODE_QUESTION,
    PROGRAM,
    SUM,
    play_script,
    script,
)
from pytest import approx

from codesandbox import SandboxError
from coevolve.methods.sage import verifier
from coevolve.methods.sage.method import SAGE
from coevolve.text.parse import tag
from coevolve.types import Turn

JUDGED_9 = 8 / 9  # (9 - 1) / 9, the quality of a scripted question
CODE_TASK = (CODE_QUESTION, "code", TESTS)


class TestMalformedChallenge:
    """A challenge that lacks a question, a kind or a verifier."""

    # What is proposed: its format reward.
    WITHOUT_QUESTION = {
        "2+3": 0,
        "": 0.5,
        "<question>2+3": 0,
        SUM * 2: 0.5,
        "<type>math</type><answer>5</answer>": 2 / 3,
    }
    WITH_QUESTION = {
        "<question>2+3</question>": 1 / 3,
        "<question>2+3</question><type>math</type>": 2 / 3,
        f"{SUM}<answer>5</answer>": 2.5 / 3,
        "<question>2+3</question><type>poem</type><answer>5</answer>": 2 / 3,
        "<question>2+3</question><type>math</type><tests>5</tests>": 2 / 3,
        "<question>2+3</question><type>code</type><answer>5</answer>": 2 / 3,
    }
    ALL = WITHOUT_QUESTION | WITH_QUESTION

    @pytest.mark.parametrize(("challenge", "format"), WITHOUT_QUESTION.items())
    def test_without_a_question_it_has_no_quality(
        self, challenge: str, format: float
    ) -> None:
        outcome = play_script(script(challenge)).outcome
        assert earned(outcome, "challenger") == [approx((0 + format) / 2)]
        assert outcome.facts["parsed"] == 0

    @pytest.mark.parametrize(("challenge", "format"), WITH_QUESTION.items())
    def test_a_question_is_judged_without_difficulty(
        self, challenge: str, format: float
    ) -> None:
        outcome = play_script(script(challenge)).outcome
        assert earned(outcome, "challenger") == [approx((JUDGED_9 + format) / 2)]
        assert outcome.facts["parsed"] == 1

    @pytest.mark.parametrize("challenge", ALL)
    def test_it_stays_out_of_the_dataset(self, challenge: str) -> None:
        outcome = play_script(script(challenge)).outcome
        assert outcome.adds["tasks"] == []
        assert outcome.facts["accepted"] == 0.0
        assert outcome.facts["verifier_valid"] == 0.0
        assert outcome.facts.get("difficulty") is None
        assert outcome.facts.get("kept") is None

    def test_an_unknown_kind_is_neither_recorded_nor_checked(self) -> None:
        challenge = "<question>2+3</question><type>poem</type><answer>5</answer>"
        facts = play_script(script(challenge)).outcome.facts
        assert facts["kind"] is None
        assert facts["checked"] is None

    @pytest.mark.parametrize("challenge", ALL)
    def test_it_is_not_attempted(self, challenge: str) -> None:
        played = play_script(script(challenge))
        for turn in played.turns:
            assert turn.role != "solver" or "2+3" not in text(turn)


QUALITIES = {
    "<score>8</score>": 7 / 9,
    "<score>7</score>": 6 / 9,
    "<score>0.7</score>": 0.7,
    "8": 0.5,
    "": 0.5,
}


@pytest.mark.parametrize(("judgement", "quality"), QUALITIES.items())
def test_a_question_from_alpha_up_passes_the_quality_gate(
    judgement: str, quality: float
) -> None:
    outcome = play_script(script(quality=judgement)).outcome
    accepted = quality >= 0.7
    difficulty = 0.0  # all five attempts are correct
    equation_5 = (quality + difficulty + 1) / 3
    equation_6 = (quality + 1) / 2
    reward = equation_5 if accepted else equation_6
    assert earned(outcome, "challenger") == [approx(reward)]
    assert outcome.adds["tasks"] == ([("2+3", "math", "5")] if accepted else [])
    assert outcome.facts["accepted"] == accepted
    assert outcome.facts["kept"] == accepted
    assert outcome.facts["difficulty"] == difficulty


VALID_TESTS = {
    TESTS: True,
    "assert f(3)==9": True,
    "import os\nassert f(3)==9": True,
    "assert f(0)==None": False,
    "f(3)": False,
    "assert True": False,
    "assert f(3)==": False,
    "while True: f(1)": False,
}


@pytest.mark.parametrize(("tests", "valid"), VALID_TESTS.items())
def test_tests_must_run_and_fail_for_an_empty_solution(tests: str, valid: bool) -> None:
    outcome = play_script(script(CODE.replace(TESTS, tests))).outcome
    assert outcome.facts["verifier_valid"] == valid
    assert len(outcome.adds["tasks"]) == valid
    difficulty = 1  # the scripted Solver writes no program
    equation_5 = (JUDGED_9 + difficulty + 1) / 3
    equation_6 = (JUDGED_9 + 1) / 2
    reward = equation_5 if valid else equation_6
    assert earned(outcome, "challenger") == [approx(reward)]


class TestPrograms:
    """Programs are verified by their tests, in the sandbox."""

    PASS_RATES = {
        "<answer>x*3</answer>": 1.0,
        "<answer>x+6</answer>": 0.5,  # f(3) = 9
        "<answer>9</answer>": 0.5,
        "<answer>1/0</answer>": 0.0,
        "none": 0.0,
    }

    def test_a_program_earns_its_pass_rate(self) -> None:
        steps = by_hand(
            SAGE(world=Sums(tasks=(CODE_TASK,)), solves=2),
            [CODE],
            ["<score>10</score>", *self.PASS_RATES],
            ["<plan>fit</plan>"] * 2,
            ["<score>10</score>"] * 2,
            ["<answer>x + x + x</answer>", "<answer>9</answer>"],
        )
        outcome = steps.outcome
        mean_pass_rate = sum(self.PASS_RATES.values()) / 5
        assert outcome.facts["difficulty"] == approx(1 - mean_pass_rate)
        rewards = [1.0, 0.2 + 0.6 * 0.5 + 0.2]
        assert earned(outcome, "solver") == approx(rewards)

    def test_without_a_sandbox_the_world_reads_the_programs(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("COEVOLVE_SANDBOX", "refuse")
        monkeypatch.setattr(verifier, "SOUND", set())
        monkeypatch.setattr(verifier, "PASS_RATES", {})
        world = Sums(tasks=(CODE_TASK,))
        with pytest.raises(SandboxError):
            verifier.can_judge(world, "code", TESTS)
        world.has_interpreter = True
        for reply, rate in self.PASS_RATES.items():
            answer = tag(reply, "answer") or reply
            assert verifier.pass_rate(world, CODE_QUESTION, answer, TESTS) == rate
        assert verifier.can_judge(world, "code", TESTS)
        assert not verifier.can_judge(world, "code", "assert h(1) > 2")
        assert not verifier.can_judge(world, "code", "")

    def test_what_could_not_be_scored_is_masked_and_run_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        programs = []

        def run_tests(program: str, tests: str) -> SimpleNamespace:
            programs.append(program)
            return SimpleNamespace(correct=None, passed=0, total=2)

        monkeypatch.setattr("codesandbox.run_tests", run_tests)
        new_tests = f"{TESTS}\nassert f(5)==15"  # so that no result is remembered
        usual_reply = script(CODE.replace(TESTS, new_tests))

        def reply(turn: Turn) -> str:
            if turn.role == "solver":
                return "<answer>x*3</answer>"
            return usual_reply(turn)

        world = Sums(tasks=((CODE_QUESTION, "code", new_tests),))
        outcome = play_script(reply, world=world).outcome
        speakers = [role for role, _ in earned(outcome)]
        assert speakers == ["challenger", "planner", "critic", "critic"], "no solver"
        assert outcome.facts["unscored"] == 1.0
        assert outcome.facts["verified"] is None
        assert outcome.facts["difficulty"] is None
        without_difficulty = (JUDGED_9 + 1) / 2
        assert earned(outcome, "challenger") == [approx(without_difficulty)]
        assert len(programs) == 6, "an uncertain result is not remembered"


class TestFullPrompts:
    """With full prompts, a program may stand in a block instead of answer tags."""

    PLAN_WAVES = (["<plan>1. multiply</plan>"], ["<score>10</score>"], [BLOCK])
    OTHER_BLOCK = "```\n42\n```"
    ANSWERS = {
        "So\n<answer> 42 </answer>": "42",
        f"{OTHER_BLOCK}\nso <answer>42</answer>": "42",
        OTHER_BLOCK: None,
        "42": None,
        BLOCK: PROGRAM,
    }

    def test_a_block_is_the_form_of_a_program(self) -> None:
        world = Sums(tasks=(("Write f.", "code", TESTS),))
        steps = by_hand(
            SAGE(world=world, prompt="full"),
            [CODE],
            ["<score>2</score>", *[BLOCK] * 5],
            *self.PLAN_WAVES,
        )
        assert steps.outcome.facts["difficulty"] == 0.0
        assert earned(steps.outcome, "solver") == [approx(1.0)]

    def test_a_block_is_not_the_form_of_a_number(self) -> None:
        method = SAGE(world=Sums(), prompt="full")
        steps = by_hand(method, ["none"], *self.PLAN_WAVES)
        assert earned(steps.outcome, "solver") == [approx(0.2)]

    @pytest.mark.parametrize(("reply", "answer"), ANSWERS.items())
    def test_answers_are_read_from_tags_first(
        self, reply: str, answer: str | None
    ) -> None:
        method = SAGE(world=Sums(), prompt="full")
        assert method.read_answer(reply) == answer


class TestDifferencesFromThePrint:
    """Choices that differ from the printed paper, and the settings that restore it."""

    worst_question = staticmethod(
        script(SUM.replace("2+3", "what"), quality="<score>1</score>")
    )

    def test_the_worst_grade_has_quality_0(self) -> None:
        outcome = play_script(self.worst_question).outcome
        assert outcome.adds["tasks"] == []
        assert earned(outcome, "challenger") == [approx((0 + 1) / 2)]

    def test_as_printed_equation_2_accepts_the_worst_question(self) -> None:
        outcome = play_script(self.worst_question, literal_norm=True).outcome
        assert outcome.adds["tasks"] == [("what", "math", "5")]
        quality = difficulty = 1  # every attempt fails
        assert earned(outcome, "challenger") == [approx((quality + difficulty + 1) / 3)]

    def test_without_verifier_check_useless_tests_are_accepted(self) -> None:
        useless_tests = "<tests>assert f(0)==None</tests>"
        challenge = f"<question>2+3</question><type>code</type>{useless_tests}"
        outcome = play_script(script(challenge), verifier_check=False).outcome
        assert earned(outcome, "challenger") == [approx((JUDGED_9 + 1 + 1) / 3)]
        assert len(outcome.adds["tasks"]) == 1

    def test_silence_earns_half_the_format_reward(self) -> None:
        outcome = play_script(lambda turn: "").outcome
        assert earned(outcome) == [
            ("challenger", 0.25),
            ("planner", 0.25),
            ("solver", 0.1),
        ]
        assert outcome.facts["empty"] == 1

    def test_silence_can_earn_nothing_like_noise(self) -> None:
        silent = play_script(lambda turn: "", empty_format=0.0).outcome
        noisy = play_script(lambda turn: "hm").outcome
        nothing = [("challenger", 0), ("planner", 0), ("solver", 0)]
        assert earned(silent) == nothing
        assert earned(noisy) == nothing
