"""SAGE against the paper, by hand: Algorithm 1, equations 1 to 13, the gates, and what every switch changes."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from core.conftest import TESTS, Sums, by_hand, earned, prompts, scripted, text
from pytest import approx

from coevolve.methods.sage.method import SAGE
from coevolve.text.parse import tag
from coevolve.types import Outcome, Turn

SUM = "<question>2+3</question><type>math</type><answer>5</answer>"
F = "f(1)=3 f(2)=6 f="
CODE = f"<question>{F}</question><type>code</type><tests>{TESTS}</tests>"
BLOCK = "Three times.\n```python\ndef f(x):\n    return 3 * x\n```"


def saying(challenge=SUM, quality="<score>9</score>", plan="<plan>add</plan>", judged="<score>8</score>") -> Callable:
    """Right answers to sums, the rest as told."""

    def say(turn: Turn) -> str:
        critic = judged if "<plan>" in text(turn) else quality
        answer = Sums().answer(tag(text(turn), "question") or "")
        solved = "none" if answer in (None, "x*3") else f"<answer>{answer}</answer>"
        return {"challenger": challenge, "planner": plan, "critic": critic, "solver": solved}[turn.role]

    return say


def run(say: Callable[[Turn], str], count: int = 1, **fields) -> tuple[list[Outcome], list[Turn], SAGE]:
    sage = SAGE(**{"world": Sums(), **fields})
    return *scripted(sage, say, range(count)), sage


def one(say: Callable[[Turn], str], **fields) -> Outcome:
    return run(say, **fields)[0][0]


def test_a_whole_episode_by_hand() -> None:
    steps = by_hand(SAGE(solves=2, world=Sums()))
    assert prompts(steps.pending_turns) == ["challenge<ref>1+1</ref><type>math</type><answer>2</answer>"]  # 4-5
    steps.answer([f"<think>a sum</think>{SUM}"])
    assert prompts(steps.pending_turns) == ["judge<question>2+3</question>"] + ["solve<question>2+3</question>"] * 5  # 6-7
    steps.answer(["<score>8</score>", "<answer>5</answer>", "<answer> 5 </answer>", "<answer>6</answer>", "5", ""])
    a, b = asked = [tag(prompt, "question") for prompt in prompts(steps.pending_turns)]  # 15
    assert set(asked) <= {"1+1", "2+3"} and prompts(steps.pending_turns) == [f"plan<question>{q}</question>" for q in asked]
    steps.answer(["<plan>add</plan>", "<plan>guess</plan>"])
    planned = [f"<question>{a}</question><plan>add</plan>", f"<question>{b}</question><plan>guess</plan>"]
    assert prompts(steps.pending_turns) == [f"judge{each}" for each in planned]  # 16
    steps.answer(["<score>9</score>", "<score>3</score><score>3</score>"])
    assert prompts(steps.pending_turns) == [f"solve{each}" for each in planned]  # 17-18
    steps.answer([f"<answer>{Sums().answer(a)}</answer>", "<answer>77</answer>"])
    # quality 7/9, difficulty 1 - 2/5, format 1; the second plan's score is unreadable: 0.5, which passes beta
    assert earned(steps.outcome) == [
        ("challenger", approx((7 / 9 + 3 / 5 + 1) / 3)),
        ("planner", approx((8 / 9 + 1) / 2)), ("planner", approx((0.5 + 1) / 2)),
        ("solver", approx(0.2 * 8 / 9 + 0.6 + 0.2)), ("solver", approx(0.2 * 0.5 + 0.2)),
        ("critic", 1.0), ("critic", 1.0), ("critic", 0.5),
    ]  # fmt: skip
    assert {sample.group_id for sample in steps.outcome.samples} == {None}, "equation 1: a baseline per role"
    assert steps.outcome.adds == {"tasks": [("2+3", "math", "5")]}
    assert steps.outcome.facts == {
        "accepted": 1.0, "kept": 1.0, "checked": 1.0, "proposal": "2+3", "reference": "1+1",
        "parsed": 1.0, "verifier_valid": 1.0, "quality": approx(7 / 9), "difficulty": approx(3 / 5), "kind": "math",
        "true_difficulty": approx(3 / 5), "valid": 1.0, "level": 1, "critic_question_right": 1.0, "gold_right": 1.0,
        "plan_quality": approx((8 / 9 + 0.5) / 2), "plan_right": 0.5, "plan_used": 1.0, "critic_plan_right": 1.0,
        "answered": 1.0, "verified": 0.5, "right": 0.5, "unscored": 0.0, "verifier_right": 1.0,
        "empty": approx(1 / 13), "unreadable": approx(1 / 3),
    }  # fmt: skip


MALFORMED = {  # what is proposed: its format reward, and whether the question is judged at all
    "2+3": (0, False), "": (0.5, False), "<question>2+3": (0, False), SUM * 2: (0.5, False),
    "<type>math</type><answer>5</answer>": (2 / 3, False), "<question>2+3</question>": (1 / 3, True),
    "<question>2+3</question><type>math</type>": (2 / 3, True), f"{SUM}<answer>5</answer>": (2.5 / 3, True),
    "<question>2+3</question><type>poem</type><answer>5</answer>": (2 / 3, True),
    "<question>2+3</question><type>math</type><tests>5</tests>": (2 / 3, True),
    "<question>2+3</question><type>code</type><answer>5</answer>": (2 / 3, True),
}  # fmt: skip


@pytest.mark.parametrize(("challenge", "paid"), MALFORMED.items())
def test_a_malformed_challenge_is_paid_without_difficulty_and_stays_out(challenge: str, paid: tuple) -> None:
    (outcome,), asked, _ = run(saying(challenge))
    form, judged = paid
    assert earned(outcome, "challenger") == [approx(((8 / 9 if judged else 0) + form) / 2)]
    assert outcome.adds["tasks"] == [] and outcome.facts["accepted"] == outcome.facts["verifier_valid"] == 0.0
    assert outcome.facts["parsed"] == judged and outcome.facts.get("difficulty") is outcome.facts.get("kept") is None
    assert not [turn for turn in asked if turn.role == "solver" and "2+3" in text(turn)], "nothing to measure"


QUALITIES = {"<score>8</score>": 7 / 9, "<score>7</score>": 6 / 9, "<score>0.7</score>": 0.7, "8": 0.5, "": 0.5}


@pytest.mark.parametrize(("judgement", "quality"), QUALITIES.items())
def test_quality_gate(judgement: str, quality: float) -> None:
    outcome = one(saying(quality=judgement))
    accepted = quality >= 0.7  # all five attempts are right: no difficulty
    assert earned(outcome, "challenger") == [approx((quality + 0 + 1) / 3 if accepted else (quality + 1) / 2)]
    assert outcome.adds["tasks"] == ([("2+3", "math", "5")] if accepted else [])
    assert (outcome.facts["accepted"], outcome.facts["kept"], outcome.facts["difficulty"]) == (accepted, accepted, 0.0)


VALID = {
    TESTS: True, "assert f(3)==9": True, "import os\nassert f(3)==9": True, "assert f(0)==None": False, "f(3)": False,
    "assert True": False, "assert f(3)==": False, "while True: f(1)": False,
}  # fmt: skip


@pytest.mark.parametrize(("tests", "valid"), VALID.items())
def test_tests_must_run_and_fail_for_an_empty_solution(tests: str, valid: bool) -> None:
    outcome = one(saying(CODE.replace(TESTS, tests)))
    assert outcome.facts["verifier_valid"] == valid == len(outcome.adds["tasks"]), "line 9"
    # the scripted solver writes no program: a difficulty of 1
    assert earned(outcome, "challenger") == [approx((8 / 9 + 1 + 1) / 3 if valid else (8 / 9 + 1) / 2)]


def test_programs_are_verified_in_the_sandbox_and_paid_the_share_of_tests_passed() -> None:
    tries = ["<answer>x*3</answer>", "<answer>x+6</answer>", "<answer>9</answer>", "<answer>1/0</answer>", "none"]
    waves = ["<plan>fit</plan>"] * 2, ["<score>10</score>"] * 2, ["<answer>x + x + x</answer>", "<answer>9</answer>"]
    sage = SAGE(world=Sums(tasks=((F, "code", TESTS),)), solves=2)
    outcome = by_hand(sage, [CODE], ["<score>10</score>", *tries], *waves).outcome
    # x*3 passes both; x+6 and 9 pass one of two (f(3) = 9); the last two pass none
    assert outcome.facts["difficulty"] == approx(1 - (1 + 0.5 + 0.5 + 0 + 0) / 5)
    assert earned(outcome, "solver") == approx([1.0, 0.2 + 0.6 * 0.5 + 0.2])


def test_with_full_prompts_a_program_is_read_from_its_block() -> None:
    sage = SAGE(world=Sums(tasks=(("Write f.", "code", TESTS),)), prompt="full")
    plan = ["<plan>1. multiply</plan>"], ["<score>10</score>"], [BLOCK]
    outcome = by_hand(sage, [CODE], ["<score>2</score>"] + [BLOCK] * 5, *plan).outcome
    assert outcome.facts["difficulty"] == 0.0 and earned(outcome, "solver") == [approx(1.0)], "a block is its format"
    outcome = by_hand(SAGE(world=Sums(), prompt="full"), ["none"], *plan).outcome
    assert earned(outcome, "solver") == [approx(0.2)], "and of nothing else: a sum needs <answer>"
    block = "```\n42\n```"
    read = {"So\n<answer> 42 </answer>": "42", f"{block}\nso <answer>42</answer>": "42", block: None, "42": None}
    assert {said: sage.read_answer(said) for said in read} == read
    assert sage.read_answer(BLOCK) == "def f(x):\n    return 3 * x\n"


PLAN_SCORES = {"1": 0.0, "3": 2 / 9, "4": 3 / 9, "0.3": 0.3, "0.29": 0.29, "10": 1.0, "bad": 0.5}


@pytest.mark.parametrize(("score", "s_p"), PLAN_SCORES.items())
def test_plan_gate(score: str, s_p: float) -> None:
    (outcome,), asked, _ = run(saying("none", judged=f"<score>{score}</score>"))
    passes = s_p >= 0.3
    assert text(asked[-1]) == "solve<question>1+1</question>" + ("<plan>add</plan>" if passes else "")
    assert earned(outcome, "planner", "solver") == [approx((s_p + 1) / 2), approx((0.2 * s_p if passes else 0) + 0.8)]
    assert outcome.facts["plan_used"] == passes


@pytest.mark.parametrize(("plan", "form"), {"add": 0, "": 0.5, "<plan></plan>": 0, "<plan>1</plan>" * 2: 0.5}.items())
def test_a_plan_that_does_not_parse_is_not_judged_and_not_used(plan: str, form: float) -> None:
    (outcome,), asked, _ = run(saying("none", plan=plan))
    assert [turn.role for turn in asked] == ["challenger", "planner", "solver"]
    assert text(asked[-1]) == "solve<question>1+1</question>" and outcome.facts["unreadable"] is None
    assert earned(outcome)[1:] == [("planner", approx(form / 2)), ("solver", approx(0.6 + 0.2))]


def test_without_planning_there_is_no_plan_and_the_solver_is_paid_in_halves() -> None:
    (outcome,), asked, _ = run(saying(), planning=False, solves=2)
    assert [turn.role for turn in asked] == ["challenger", "critic"] + ["solver"] * 7
    assert not any("<plan>" in prompt for prompt in prompts(asked)) and not earned(outcome, "planner")
    assert (earned(outcome, "solver"), earned(outcome, "critic")) == ([1.0, 1.0], [1.0])
    assert outcome.facts["plan_used"] is None and outcome.facts["plan_quality"] is None
    wrong = one(lambda turn: "<answer>0</answer>" if turn.role == "solver" else SUM, planning=False)
    assert earned(wrong, "solver") == [0.5]


def test_choices_that_differ_from_the_print_and_the_switches_that_restore_it() -> None:
    worst = saying(SUM.replace("2+3", "what"), quality="<score>1</score>")
    ours, printed = one(worst), one(worst, literal_norm=True)
    assert ours.adds["tasks"] == [] and earned(ours, "challenger") == [approx((0 + 1) / 2)]
    assert printed.adds["tasks"] == [("what", "math", "5")], "as printed, equation 2 lets the worst question in"
    assert earned(printed, "challenger") == [approx((1 + 1 + 1) / 3)], "quality 1, and nobody can solve it"
    broken = saying("<question>2+3</question><type>code</type><tests>assert f(0)==None</tests>")
    free = one(broken, verifier_check=False)
    assert earned(free, "challenger") == [approx((8 / 9 + 1 + 1) / 3)] and len(free.adds["tasks"]) == 1
    silent = one(lambda turn: "")
    assert earned(silent) == [("challenger", 0.25), ("planner", 0.25), ("solver", 0.1)] and silent.facts["empty"] == 1
    nothing = [("challenger", 0), ("planner", 0), ("solver", 0)]
    assert earned(one(lambda turn: "", empty_format=0.0)) == earned(one(lambda turn: "hm")) == nothing


def test_what_the_verifier_could_not_score_is_masked_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    unscored = SimpleNamespace(correct=None, passed=0, total=2)
    monkeypatch.setattr("codesandbox.run_tests", lambda program, tests: calls.append(program) or unscored)
    more = f"{TESTS}\nassert f(5)==15"  # which no other test has verified
    say = saying(CODE.replace(TESTS, more))
    world = Sums(tasks=((F, "code", more),))
    outcome = one(lambda turn: "<answer>x*3</answer>" if turn.role == "solver" else say(turn), world=world)
    assert [role for role, _ in earned(outcome)] == ["challenger", "planner", "critic", "critic"], "no solver sample"
    assert (outcome.facts["unscored"], outcome.facts["verified"], outcome.facts["difficulty"]) == (1.0, None, None)
    assert earned(outcome, "challenger") == [approx((8 / 9 + 1) / 2)], "difficulty unknown is not difficulty 0 or 1"
    assert len(calls) == 6, "an outcome that is in doubt is not remembered"


def test_only_what_algorithm_1_trains_earns_and_at_which_temperature() -> None:
    outcomes, asked, _ = run(saying(), 4, solves=3)
    spoken = ["challenger", "critic"] + ["solver"] * 5 + ["planner"] * 3 + ["critic"] * 3 + ["solver"] * 3
    for i, outcome in enumerate(outcomes):
        mine = [turn for turn in asked if turn.key[0] == i]
        assert [turn.role for turn in mine] == spoken
        trained = [sample.reply.turn for sample in outcome.samples]
        assert trained == [mine[0], *mine[7:10], *mine[13:], mine[1], *mine[10:13]], "no attempts"
        assert all(turn.temperature == (0.1 if turn.role == "critic" else None) for turn in mine)
    assert {turn.temperature for turn in run(saying(), critic_temperature=None)[1]} == {None}


@pytest.mark.parametrize("variant", ["compact", "full"])
def test_no_verifier_reaches_planner_solver_or_critic(variant: str) -> None:
    world = Sums(tasks=tuple((f"{n}+1", "math", f"GOLD{n}") for n in range(5)))
    sage, seen = SAGE(world=world, prompt=variant, solves=2), []
    said = saying("<question>{0}+{0}</question><type>math</type><answer>GOLD9</answer>")
    for _ in range(3):
        outcomes, asked = scripted(sage, lambda turn: said(turn).replace("{0}", str(turn.key[0])), range(8))
        sage.pools["tasks"].extend(task for outcome in outcomes for task in outcome.adds["tasks"])
        seen += asked
    assert len(sage.pools["tasks"]) == 5 + 8 and {turn.role for turn in seen} == {*sage.train}
    for turn in seen:
        assert text(turn).count("GOLD") == (turn.role == "challenger"), "equation 3 shows the reference's alone"


def test_the_dataset_is_read_as_of_the_start_of_the_step_and_holds_nothing_held_out() -> None:
    def say(turn: Turn) -> str:
        return SUM.replace("2+3", f"{turn.key[0]}+0") if turn.role == "challenger" else saying()(turn)

    outcomes, _, sage = run(say, 9, solves=6)
    for i, outcome in enumerate(outcomes):
        drawn = {tag(text(s.reply.turn), "question") for s in outcome.samples if s.role == "planner"}
        assert drawn <= {"1+1", f"{i}+0"} and outcome.adds["tasks"] == [(f"{i}+0", "math", "5")]
        assert outcome.facts["reference"] == "1+1"
    assert sage.pools["tasks"].items == [("1+1", "math", "2")], "nothing is committed before the step ends"
    outcomes, asked, _ = run(saying(), 12, world=Sums(held=("2+3",)), solves=2)
    assert not any(outcome.adds["tasks"] for outcome in outcomes) and all(o.facts["accepted"] for o in outcomes)
    assert prompts(asked).count("solve<question>2+3</question>") == 12 * 5, "attempts only"


def test_what_the_oracle_says_about_the_dataset() -> None:
    tasks = (("1+1", "math", "2"), ("9+1", "math", "11"), ("what", "math", "5"), (F, "code", TESTS))
    assert SAGE(world=Sums(tasks=tasks)).measure() == {
        "pool_ill_formed": 0.25, "pool_level_3": approx(1 / 3), "pool_unsound": approx(1 / 3),
    }  # fmt: skip
