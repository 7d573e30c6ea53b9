"""SAGE against the paper, by hand: Algorithm 1, its gates and rewards, and what every switch changes."""

import re
from collections.abc import Callable
from itertools import cycle
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codesandbox.code import CodeResult
from coevolve.baselines.base import Base
from coevolve.driver import Batched, Steps, play
from coevolve.papers.sage import method as sage
from coevolve.papers.sage.method import SAGE
from coevolve.parse import tag
from coevolve.types import Outcome, Reply, Turn
from tinyworld import programs
from tinyworld.oracle import TinyWorld

SUM = "<question>2+3</question><type>math</type><answer>5</answer>"
TESTS = "assert f(3)==9\nassert f(4)==12"
CODE = f"<question>f(1)=3 f(2)=6 f=</question><type>code</type><tests>{TESTS}</tests>"
SEED = ("1+1", "math", "2")


class Toy:
    """A world of sums and of one program, whose oracle is this test."""

    grading = "exact"

    def __init__(self, tasks: tuple = (SEED,), held: tuple[str, ...] = ()):
        self.starts, self.held = tasks, held

    def tasks(self) -> list[tuple[str, str, str]]:
        return list(self.starts)

    def program(self, question: str, answer: str) -> str:
        return programs.program(question, answer)

    def held_out(self, question: str) -> bool:
        return question in self.held

    def valid(self, question: str) -> bool:
        return re.fullmatch(r"\d\+\d", question) is not None or question.startswith("f(")

    def right(self, question: str, answer: str | None) -> bool | None:
        if not self.valid(question):
            return None
        return answer == ("x*3" if question.startswith("f(") else str(int(question[0]) + int(question[2])))

    def level(self, question: str) -> int | None:
        return (3 if question[0] == "9" else 1) if self.valid(question) else None

    def sound(self, question: str, kind: str, verifier: str) -> bool | None:
        if not self.valid(question):
            return None
        return verifier == TESTS if kind == "code" else self.right(question, verifier)

    def fits(self, question: str, plan: str) -> bool | None:
        return plan == "add" if self.valid(question) else None


def prompts(turns: list[Turn]) -> list[str]:
    return [turn.messages[0]["content"] for turn in turns]


def earned(outcome: Outcome) -> list[tuple[str, float]]:
    return [(sample.role, sample.reward) for sample in outcome.samples]


def by_hand(*waves: list[str], **fields) -> Steps:
    """Answer an episode by hand, wave after wave; the first reply is the challenge."""
    fields.setdefault("world", Toy())
    steps = Steps(SAGE(**fields).episode(Random(0)), Batched(lambda turns: []))
    for wave in waves:
        steps.answer(wave)
    return steps


def scripted(
    challenge: str = SUM,
    quality: str = "<score>9</score>",
    plan: str = "<plan>add</plan>",
    plan_score: str = "<score>8</score>",
) -> Callable[[Turn], str]:
    """Right answers to sums, the rest as told."""

    def say(turn: Turn) -> str:
        prompt = turn.messages[0]["content"]
        question = tag(prompt, "question")
        match turn.role:
            case "challenger":
                return challenge
            case "planner":
                return plan
            case "critic":
                return plan_score if "<plan>" in prompt else quality
        return f"<answer>{int(question[0]) + int(question[2])}</answer>" if question[1:2] == "+" else "none"

    return say


def run(say: Callable[[Turn], str], count: int = 1, **fields) -> tuple[list[Outcome], list[Turn], SAGE]:
    """Play `count` episodes of one step; return the outcomes, every turn asked, and the protocol."""
    fields.setdefault("world", Toy())
    protocol, asked = SAGE(**fields), []

    def generate(turns: list[Turn]) -> list[Reply]:
        asked.extend(turns)
        return [Reply(turn, say(turn)) for turn in turns]

    return play([protocol.episode(Random(i)) for i in range(count)], Batched(generate)), asked, protocol


def test_a_whole_episode_by_hand() -> None:
    steps = by_hand(solves=2)
    assert prompts(steps.asked) == ["challenge<ref>1+1</ref><type>math</type><answer>2</answer>"]  # 4-5
    steps.answer([f"<think>a sum</think>{SUM}"])
    assert prompts(steps.asked) == ["judge<question>2+3</question>"] + ["solve<question>2+3</question>"] * 5  # 6-7
    steps.answer(["<score>8</score>", "<answer>5</answer>", "<answer> 5 </answer>", "<answer>6</answer>", "5", ""])
    asked = [tag(prompt, "question") for prompt in prompts(steps.asked)]  # 15
    assert len(asked) == 2 and set(asked) <= {"1+1", "2+3"}
    assert prompts(steps.asked) == [f"plan<question>{q}</question>" for q in asked]
    steps.answer(["<plan>add</plan>", "<plan>guess</plan>"])
    assert prompts(steps.asked) == [
        f"judge<question>{q}</question><plan>{p}</plan>" for q, p in zip(asked, ("add", "guess"), strict=True)
    ]  # 16, fmt: skip
    steps.answer(["<score>9</score>", "<score>3</score><score>3</score>"])
    assert prompts(steps.asked) == [
        f"solve<question>{asked[0]}</question><plan>add</plan>",
        f"solve<question>{asked[1]}</question><plan>guess</plan>",
    ]  # 17-18, fmt: skip
    gold = {"1+1": "2", "2+3": "5"}
    steps.answer([f"<answer>{gold[asked[0]]}</answer>", "<answer>77</answer>"])
    # quality 7/9, difficulty 1 - 2/5, format 1; the second plan's score is unreadable: 0.5, which passes beta
    outcome = steps.outcome
    assert earned(outcome) == [
        ("challenger", pytest.approx((7 / 9 + 3 / 5 + 1) / 3)),
        ("planner", pytest.approx((8 / 9 + 1) / 2)),
        ("planner", pytest.approx((0.5 + 1) / 2)),
        ("solver", pytest.approx(0.2 * 8 / 9 + 0.6 + 0.2)),
        ("solver", pytest.approx(0.2 * 0.5 + 0.2)),
        ("critic", 1.0),
        ("critic", 1.0),
        ("critic", 0.5),
    ]
    assert outcome.adds == {"tasks": [("2+3", "math", "5")]}
    facts = outcome.facts
    assert (facts["accepted"], facts["parsed"], facts["verifier_valid"], facts["gold_right"]) == (1.0, 1.0, 1.0, 1.0)
    assert (facts["quality"], facts["difficulty"]) == (pytest.approx(7 / 9), pytest.approx(3 / 5))
    assert facts["true_difficulty"] == pytest.approx(3 / 5) and facts["level"] == 1 and facts["valid"] == 1.0
    assert (facts["plan_used"], facts["plan_right"], facts["critic_plan_right"]) == (1.0, 0.5, 1.0)
    assert facts["plan_quality"] == pytest.approx((8 / 9 + 0.5) / 2)
    assert (facts["answered"], facts["verified"], facts["right"], facts["verifier_right"]) == (1.0, 0.5, 0.5, 1.0)
    assert facts["empty"] == pytest.approx(1 / 13) and facts["unreadable"] == pytest.approx(1 / 3)
    assert (facts["proposal"], facts["reference"], facts["kind"]) == ("2+3", "1+1", "math")
    assert facts["critic_question_right"] == 1.0 and facts["unscored"] == 0.0


@pytest.mark.parametrize(
    ("text", "format", "judged"),
    [
        ("2+3", 0.0, False),
        ("", 0.5, False),
        ("  \n", 0.5, False),
        ("<question>2+3", 0.0, False),
        ("<question>2+3</question>", 1 / 3, True),
        ("<question>2+3</question><type>math</type>", 2 / 3, True),
        ("<question>2+3</question><type>poem</type><answer>5</answer>", 2 / 3, True),
        ("<question>2+3</question><type>math</type><tests>5</tests>", 2 / 3, True),
        ("<question>2+3</question><type>code</type><answer>5</answer>", 2 / 3, True),
        ("<question>2+3</question><type>math</type><answer>5</answer><answer>5</answer>", 2.5 / 3, True),
        (SUM * 2, 0.5, False),
        ("<type>math</type><answer>5</answer>", 2 / 3, False),
    ],
)
def test_a_malformed_challenge_is_paid_without_difficulty_and_stays_out(text: str, format: float, judged: bool) -> None:
    (outcome,), asked, _ = run(scripted(text))
    assert earned(outcome)[0] == ("challenger", pytest.approx(((8 / 9 if judged else 0) + format) / 2))
    assert outcome.adds["tasks"] == [] and outcome.facts["accepted"] == outcome.facts["verifier_valid"] == 0.0
    attempts = [turn for turn in asked if turn.role == "solver" and "2+3" in turn.messages[0]["content"]]
    assert attempts == [], "without a verifier there is nothing to measure"
    assert outcome.facts["parsed"] == float(judged) and "difficulty" not in {k for k, v in outcome.facts.items() if v}


@pytest.mark.parametrize(
    ("judgement", "quality"),
    [
        ("<score>10</score>", 1.0),
        ("<score>8</score>", 7 / 9),
        ("<score>7</score>", 6 / 9),
        ("<score>0.7</score>", 0.7),
        ("<score>1</score>", 0.0),
        ("<score>11</score>", 0.5),
        ("8", 0.5),
        ("", 0.5),
        ("<score>9</score>" * 2, 0.5),
    ],
)
def test_quality_gate(judgement: str, quality: float) -> None:
    (outcome,), _, _ = run(scripted(quality=judgement))
    accepted = quality >= 0.7  # all five attempts are right: no difficulty
    assert earned(outcome)[0][1] == pytest.approx((quality + 0 + 1) / 3 if accepted else (quality + 1) / 2)
    assert outcome.adds["tasks"] == ([("2+3", "math", "5")] if accepted else [])
    assert outcome.facts["accepted"] == accepted and outcome.facts["difficulty"] == 0.0


@pytest.mark.parametrize(
    ("tests", "valid"),
    [
        (TESTS, True),
        ("assert f(3)==9", True),
        ("assert f(0)==None", False),
        ("assert True", False),
        ("f(3)", False),
        ("assert f(3)==", False),
        ("while True: f(1)", False),
        ("import os\nassert f(3)==9", True),
    ],
)
def test_tests_must_run_and_fail_for_an_empty_solution(tests: str, valid: bool) -> None:
    challenge = f"<question>f(1)=3 f(2)=6 f=</question><type>code</type><tests>{tests}</tests>"
    (outcome,), _, _ = run(scripted(challenge))
    assert outcome.facts["verifier_valid"] == float(valid)
    assert len(outcome.adds["tasks"]) == valid, "line 9 asks for both quality and a valid verifier"
    difficulty = 1.0  # the scripted solver writes no program
    assert earned(outcome)[0][1] == pytest.approx((8 / 9 + difficulty + 1) / 3 if valid else (8 / 9 + 1) / 2)


def test_programs_are_verified_in_the_sandbox_and_paid_the_share_of_tests_passed() -> None:
    world = Toy((("f(1)=3 f(2)=6 f=", "code", TESTS),))
    tries = ["<answer>x*3</answer>", "<answer>x+6</answer>", "<answer>9</answer>", "<answer>1/0</answer>", "none"]
    steps = by_hand(
        [CODE],
        ["<score>10</score>", *tries],
        ["<plan>fit</plan>"] * 2,
        ["<score>10</score>"] * 2,
        ["<answer>x + x + x</answer>", "<answer>9</answer>"],
        world=world,
        solves=2,
    )
    # x*3 passes both; x+6 and 9 pass one of two (f(3) = 9); the last two pass none
    assert steps.outcome.facts["difficulty"] == pytest.approx(1 - (1 + 0.5 + 0.5 + 0 + 0) / 5)
    rewards = dict(zip(("all", "half"), [r for role, r in earned(steps.outcome) if role == "solver"], strict=True))
    assert rewards == {"all": pytest.approx(1.0), "half": pytest.approx(0.2 + 0.6 * 0.5 + 0.2)}


def test_with_full_prompts_a_program_is_read_from_its_block() -> None:
    world = Toy((("Write f.", "code", TESTS),))
    block = "Three times.\n```python\ndef f(x):\n    return 3 * x\n```"
    steps = by_hand(
        [CODE],
        ["<score>2</score>"] + [block] * 5,
        ["<plan>1. multiply</plan>"],
        ["<score>10</score>"],
        [block],
        world=world,
        prompt="full",
    )
    assert steps.outcome.facts["difficulty"] == 0.0
    assert ("solver", pytest.approx(1.0)) in earned(steps.outcome), "a block is the format of a program"
    steps = by_hand(["none"], ["<plan>1. add</plan>"], ["<score>10</score>"], [block], prompt="full")
    assert ("solver", pytest.approx(0.2)) in earned(steps.outcome), "and of nothing else: a sum needs <answer>"


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("Sum.\n<answer> 42 </answer>", "42"),
        ("Sum.\n```python\ndef f(x):\n    return x\n```", "def f(x):\n    return x\n"),
        ("```python\nprint(42)\n```\nso <answer>42</answer>", "42"),
        ("```\n42\n```", None),
        ("42", None),
    ],
)
def test_what_is_evaluated_is_read_as_in_training(reply: str, answer: str | None) -> None:
    assert SAGE.read(reply) == answer == Base(paper="sage").read(reply)


@pytest.mark.parametrize(
    ("score", "s_p"),
    [
        ("<score>1</score>", 0.0),
        ("<score>3</score>", 2 / 9),
        ("<score>4</score>", 3 / 9),
        ("<score>0.3</score>", 0.3),
        ("<score>0.29</score>", 0.29),
        ("<score>10</score>", 1.0),
        ("bad", 0.5),
    ],
)
def test_plan_gate(score: str, s_p: float) -> None:
    (outcome,), asked, _ = run(scripted("none", plan_score=score))
    passes = s_p >= 0.3
    assert prompts(asked)[-1] == "solve<question>1+1</question>" + ("<plan>add</plan>" if passes else "")
    assert earned(outcome)[1:3] == [
        ("planner", pytest.approx((s_p + 1) / 2)),
        ("solver", pytest.approx((0.2 * s_p if passes else 0) + 0.8)),
    ]
    assert outcome.facts["plan_used"] == float(passes)


@pytest.mark.parametrize(
    ("plan", "format"),
    [
        ("add", 0.0),
        ("", 0.5),
        ("<plan></plan>", 0.0),
        ("<plan>1</plan>" * 2, 0.5),
    ],
)
def test_a_plan_that_does_not_parse_is_not_judged_and_not_used(plan: str, format: float) -> None:
    (outcome,), asked, _ = run(scripted("none", plan=plan))
    assert [turn.role for turn in asked] == ["challenger", "planner", "solver"]
    assert prompts(asked)[-1] == "solve<question>1+1</question>"
    assert earned(outcome)[1:] == [("planner", pytest.approx(format / 2)), ("solver", pytest.approx(0.6 + 0.2))]
    assert outcome.facts["unreadable"] is None


def test_without_planning_there_is_no_plan_and_the_solver_is_paid_in_halves() -> None:
    (outcome,), asked, _ = run(scripted(), planning=False, solves=2)
    assert [turn.role for turn in asked] == ["challenger", "critic"] + ["solver"] * 7
    assert not any("<plan>" in prompt for prompt in prompts(asked))
    assert [pair for pair in earned(outcome) if pair[0] != "challenger"] == [("solver", 1.0)] * 2 + [("critic", 1.0)]
    wrong, _, _ = run(lambda turn: "<answer>0</answer>" if turn.role == "solver" else SUM, planning=False)
    assert ("solver", 0.5) in earned(wrong[0])
    assert outcome.facts["plan_used"] is None and outcome.facts["plan_quality"] is None


@pytest.mark.parametrize("role", sage.ROLES)
def test_without_training_a_role_its_samples_are_gone_and_the_others_untouched(role: str) -> None:
    others = tuple(name for name in sage.ROLES if name != role)
    full, asked, _ = run(scripted(), 6, solves=2)
    less, same, _ = run(scripted(), 6, solves=2, train=others)
    for whole, part in zip(full, less, strict=True):
        assert part.samples == [sample for sample in whole.samples if sample.role != role] != whole.samples
        assert (part.facts, part.adds) == (whole.facts, whole.adds)
    assert asked == same, "the role still speaks"


def messy(turn: Turn) -> str:
    """What a model in all its moods might say, the same for the same turn."""
    rng = Random(f"{turn.messages[0]['content']} {turn.key}")
    match turn.role:
        case "challenger":
            a, b = rng.randint(0, 9), rng.randint(0, 9)
            kind, verifier = rng.choice(
                [("math", f"<answer>{a + b}</answer>"), ("math", ""), ("code", "<tests>assert True</tests>")]
            )
            return rng.choice(["", f"<question>{a}+{b}</question><type>{kind}</type>{verifier}"])
        case "planner":
            return rng.choice(["<plan>add</plan>", "<plan>guess</plan>", "add", ""])
        case "critic":
            return rng.choice([f"<score>{n}</score>" for n in (1, 2, 3, 7, 8, 10)] + ["fine", ""])
    return rng.choice(["<answer>2</answer>", "<answer>5</answer>", "5", "", f"<answer>{rng.randint(0, 18)}</answer>"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attempts", 2),
        ("solves", 3),
        ("quality_threshold", 0.0),
        ("plan_threshold", 0.0),
        ("verifier_check", False),
        ("planning", False),
        ("plan_weights", (0.2, 0.8)),
        ("solver_weights", (0.1, 0.8, 0.1)),
        ("literal_norm", True),
        ("empty_format", 0.0),
        ("critic_temperature", 0.5),
        ("prompt", "full"),
        *[("train", tuple(name for name in sage.ROLES if name != role)) for role in sage.ROLES],
    ],
)
def test_every_switch_changes_the_samples_that_are_trained_on(field: str, value: object) -> None:
    def trained(**fields) -> list:
        outcomes, _, _ = run(messy, 60, **fields)
        return [
            (s.role, s.reply.turn.messages, s.reply.turn.temperature, s.reply.text, s.reward)
            for outcome in outcomes
            for s in outcome.samples
        ]

    default = trained()
    assert default == trained() and getattr(SAGE(world=Toy()), field) != value
    assert trained(**{field: value}) != default


def test_as_printed_equation_2_lets_the_worst_question_in_and_pays_it_best() -> None:
    worst = scripted("<question>what</question><type>math</type><answer>5</answer>", quality="<score>1</score>")
    (ours,), _, _ = run(worst)
    (printed,), _, _ = run(worst, literal_norm=True)
    assert ours.adds["tasks"] == [] and earned(ours)[0][1] == pytest.approx((0 + 1) / 2)
    assert printed.adds["tasks"] == [("what", "math", "5")] and printed.facts["valid"] == 0.0
    assert earned(printed)[0][1] == pytest.approx((1 + 1 + 1) / 3), "quality 1, and nobody can solve it"
    best, _, _ = run(scripted(quality="<score>10</score>"), literal_norm=True)
    assert earned(best[0])[0][1] < earned(printed)[0][1], "a good question earns less"


def test_an_unchecked_verifier_pays_for_tests_that_nothing_passes() -> None:
    broken = scripted("<question>2+3</question><type>code</type><tests>assert f(0)==None</tests>")
    (checked,), _, _ = run(broken)
    (free,), _, _ = run(broken, verifier_check=False)
    assert earned(checked)[0][1] == pytest.approx((8 / 9 + 1) / 2) and checked.adds["tasks"] == []
    assert earned(free)[0][1] == pytest.approx((8 / 9 + 1 + 1) / 3) and len(free.adds["tasks"]) == 1


def test_silence_is_paid_as_printed_and_not_with_the_other_choice() -> None:
    assert earned(run(lambda turn: "")[0][0]) == [("challenger", 0.25), ("planner", 0.25), ("solver", 0.1)]
    assert earned(run(lambda turn: "", empty_format=0.0)[0][0]) == [("challenger", 0), ("planner", 0), ("solver", 0)]
    noise = earned(run(lambda turn: "hm")[0][0])
    assert noise == [("challenger", 0), ("planner", 0), ("solver", 0)], "so silence earns more than noise"
    assert run(lambda turn: "")[0][0].facts["empty"] == 1.0


def test_what_the_verifier_could_not_score_is_masked_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def broken(program: str, tests: str) -> CodeResult:
        calls.append(program)
        return CodeResult("unscored", 0, 2, 2, "the machine was starved")

    monkeypatch.setattr(sage, "run_tests", broken)
    world = Toy((("f(1)=3 f(2)=6 f=", "code", TESTS + "\nassert f(5)==15"),))
    say = scripted(CODE.replace(TESTS, TESTS + "\nassert f(6)==18"))
    (outcome,), _, _ = run(lambda t: "<answer>x*3</answer>" if t.role == "solver" else say(t), world=world)
    assert [role for role, _ in earned(outcome)] == ["challenger", "planner", "critic", "critic"], "no solver sample"
    assert outcome.facts["unscored"] == 1.0
    assert outcome.facts["verified"] is None and outcome.facts["difficulty"] is None
    assert earned(outcome)[0][1] == pytest.approx((8 / 9 + 1) / 2), "difficulty unknown is not difficulty 0 or 1"
    assert len(calls) == 6, "an outcome that is in doubt is not remembered"


def test_only_what_algorithm_1_trains_earns_and_at_which_temperature() -> None:
    outcomes, asked, _ = run(scripted(), 4, solves=3)
    for i, outcome in enumerate(outcomes):
        mine = [turn for turn in asked if turn.key[0] == i]
        assert [turn.role for turn in mine] == (
            ["challenger", "critic"] + ["solver"] * 5 + ["planner"] * 3 + ["critic"] * 3 + ["solver"] * 3
        )
        trained = [sample.reply.turn for sample in outcome.samples]
        assert trained == [mine[0], *mine[7:10], *mine[13:], mine[1], *mine[10:13]], "no attempts"
        assert {(turn.role, turn.temperature) for turn in mine} == {
            ("challenger", None),
            ("planner", None),
            ("solver", None),
            ("critic", 0.1),
        }
    _, asked, _ = run(scripted(), critic_temperature=None)
    assert {turn.temperature for turn in asked} == {None}


@pytest.mark.parametrize("variant", ["compact", "full"])
def test_no_verifier_reaches_planner_solver_or_critic(variant: str) -> None:
    world = Toy(tuple((f"{n}+1", "math", f"GOLD{n}") for n in range(5)))
    protocol, seen = SAGE(world=world, prompt=variant, solves=2), []

    def generate(turns: list[Turn]) -> list[Reply]:
        seen.extend(turns)
        said = "<question>{0}+{0}</question><type>math</type><answer>GOLD9</answer>"
        texts = {"challenger": said, "critic": "<score>9</score>", "planner": "<plan>add</plan>"}
        return [Reply(t, texts.get(t.role, "<answer>3</answer>").replace("{0}", str(t.key[0]))) for t in turns]

    for _ in range(3):
        outcomes = play([protocol.episode(Random(i)) for i in range(8)], Batched(generate))
        protocol.tasks.extend(task for outcome in outcomes for task in outcome.adds["tasks"])
    assert len(protocol.tasks) == 5 + 8
    for turn, prompt in zip(seen, prompts(seen), strict=True):
        assert ("GOLD" in prompt) == (turn.role == "challenger"), "only equation 3 shows a verifier, the reference's"
        assert prompt.count("GOLD") <= 1 and turn.policy == "shared"
    assert {turn.role for turn in seen} == set(sage.ROLES)


def test_a_held_out_question_is_assessed_but_never_enters_the_dataset() -> None:
    outcomes, asked, _ = run(scripted(), 12, world=Toy(held=("2+3",)), solves=2, quality_threshold=0.0)
    assert not any(outcome.adds["tasks"] for outcome in outcomes)
    assert prompts(asked).count("solve<question>2+3</question>") == 12 * 5, "attempts only"
    assert all(outcome.facts["accepted"] for outcome in outcomes)


def test_the_dataset_is_read_as_of_the_start_of_the_step() -> None:
    def say(turn: Turn) -> str:
        return SUM.replace("2+3", f"{turn.key[0]}+0") if turn.role == "challenger" else scripted()(turn)

    outcomes, asked, protocol = run(say, 9, solves=6)
    for i, outcome in enumerate(outcomes):
        drawn = {tag(s.reply.turn.messages[0]["content"], "question") for s in outcome.samples if s.role == "planner"}
        assert drawn <= {"1+1", f"{i}+0"} and outcome.adds["tasks"] == [(f"{i}+0", "math", "5")]
    assert protocol.tasks.items == [SEED], "nothing is committed before the step ends"
    assert all(prompt.startswith("challenge<ref>1+1</ref>") for prompt in prompts(asked) if "<ref>" in prompt)


def test_what_the_oracle_says_about_the_dataset() -> None:
    tasks = (SEED, ("9+1", "math", "11"), ("what", "math", "5"), ("f(1)=3 f(2)=6 f=", "code", TESTS))
    assert SAGE(world=Toy(tasks)).measure() == {
        "pool_ill_formed": 0.25,
        "pool_level_3": pytest.approx(1 / 3),
        "pool_unsound": pytest.approx(1 / 3),
        "pool_code": 0.25,
    }
    only = SAGE(world=Toy((("what", "math", "5"),))).measure()
    assert only == {"pool_ill_formed": 1.0, "pool_level_3": None, "pool_unsound": None, "pool_code": 0.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("train", ("challenger", "teacher")),
        ("attempts", 0),
        ("solves", 0),
        ("quality_threshold", 1.1),
        ("quality_threshold", -0.1),
        ("plan_threshold", 2.0),
        ("empty_format", -0.5),
        ("plan_weights", (0.5, 0.6)),
        ("plan_weights", (1.0,)),
        ("solver_weights", (0.5, 0.5)),
        ("solver_weights", (-0.2, 0.6, 0.6)),
        ("critic_temperature", -1.0),
        ("prompt", "short"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field) as error:
        SAGE(**{field: value}, world=Toy())
    assert "\n" not in str(error.value)


PIECES = [
    "<question>",
    "</question>",
    "<type>",
    "</type>",
    "math",
    "code",
    "<answer>",
    "</answer>",
    "<tests>",
    "</tests>",
    "assert f(3)==9",
    "<plan>",
    "</plan>",
    "<score>",
    "</score>",
    "8",
    "1",
    "2+3",
    "```python\n",
    "\n```",
    " ",
    "{question}",
    "\ud800",
    "x*3",
    "<think>",
    "[Your",
]


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=14).map("".join), min_size=1, max_size=8), st.booleans())
def test_whatever_is_said_an_episode_ends_with_rewards_in_range(texts: list[str], literal: bool) -> None:
    spoken = cycle(texts)
    (outcome,), _, _ = run(lambda turn: next(spoken), world=TinyWorld(), literal_norm=literal, solves=2, attempts=2)
    assert outcome.samples[0].role == "challenger"
    assert all(0 <= reward <= 1 for _, reward in earned(outcome))
    for task in outcome.adds["tasks"]:
        assert all(task) and task[1] in ("math", "code") and outcome.facts["accepted"] == 1.0
