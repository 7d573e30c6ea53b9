"""AZR's episode and rewards by hand: propose like the buffer, verify by execution, solve tasks of the same mode."""

from collections.abc import Callable
from random import Random

import pytest

from coevolve.baselines.azr import AZR, MODE_OF, MODES, proposer_reward, solver_reward
from coevolve.driver import Batched, Steps, play
from coevolve.parse import tag
from coevolve.types import Outcome, Reply, Turn
from tinyworld import tasks as tiny

TRAIN = {"deduction": "30+7", "abduction": "x+4=9 x?", "induction": "f(1)=5 f(2)=7 f="}  # of the train split
ANSWERS = {"deduction": "37", "abduction": "5", "induction": "x*2+3"}


def seed_of(mode: str) -> int:
    """A seed with which the episode draws this mode."""
    return next(seed for seed in range(100) if Random(seed).choice(list(MODES)) == mode)


def begin(mode: str, **fields) -> Steps:
    return Steps(AZR(**fields).episode(Random(seed_of(mode))), Batched(lambda turns: []))


def question_of(turn: Turn) -> str:
    return tag(turn.messages[0]["content"], "question")


def right(turn: Turn) -> str:
    return f"<answer>{tiny.read(question_of(turn)).answer}</answer>"


def rows(outcome: Outcome) -> list[tuple[str, float, str]]:
    return [(sample.role, sample.reward, sample.group) for sample in outcome.samples]


def run(say: Callable[[Turn], str], seeds: range, **fields) -> tuple[list[Outcome], list[Turn], AZR]:
    azr, asked = AZR(**fields), []

    def generate(turns: list[Turn]) -> list[Reply]:
        asked.extend(turns)
        return [Reply(turn, say(turn)) for turn in turns]

    return play([azr.episode(Random(seed)) for seed in seeds], Batched(generate)), asked, azr


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_episode_by_hand(mode: str) -> None:
    assert tiny.split(TRAIN[mode]) == "train"
    steps = begin(mode)
    (turn,) = steps.asked
    reference = turn.messages[0]["content"].removeprefix("propose<ref>").removesuffix("</ref>")
    assert MODE_OF[tiny.read(reference).family] == mode
    steps.answer([f"<question>{TRAIN[mode]}</question>"])
    assert [question_of(turn) for turn in steps.asked] == [TRAIN[mode]] * 5
    good, bad = f"<answer>{ANSWERS[mode]}</answer>", "<answer>99</answer>"
    steps.answer([good, bad, good, "no tags", good])
    assert len(steps.asked) == 4
    assert all(MODE_OF[tiny.read(question_of(turn)).family] == mode for turn in steps.asked)
    said = [right(steps.asked[0]), "<answer>-1</answer>", "37", right(steps.asked[3]) * 2]
    steps.answer(said)
    assert rows(steps.outcome) == [
        ("proposer", pytest.approx(1 - 3 / 5), f"propose {mode}"),
        ("solver", 1.0, f"solve {mode}"),
        ("solver", -0.5, f"solve {mode}"),
        ("solver", -1.0, f"solve {mode}"),
        ("solver", -1.0, f"solve {mode}"),
    ]
    assert steps.outcome.adds == {mode: [TRAIN[mode]]}
    facts = steps.outcome.facts
    assert (facts["valid"], facts["right"], facts["difficulty"]) == (1.0, 0.25, pytest.approx(2 / 5))


@pytest.mark.parametrize(
    ("rate", "form", "paid"),
    [
        (None, 0.0, -1.0),
        (None, 0.5, -1.0),
        (None, 1.0, -0.5),
        (0.0, 1.0, 0.0),
        (1.0, 1.0, 0.0),
        (0.2, 1.0, 0.8),
        (0.8, 1.0, 0.2),
    ],
)
def test_learnability(rate: float | None, form: float, paid: float) -> None:
    assert proposer_reward(rate, form) == pytest.approx(paid)


def test_solver_reward() -> None:
    assert [solver_reward(truth, form) for truth in (True, False) for form in (1.0, 0.5, 0.0)] == [
        1.0,
        -1.0,
        -1.0,
        -0.5,
        -1.0,
        -1.0,
    ]


@pytest.mark.parametrize(
    ("proposal", "paid"),
    [
        ("<question>what is it</question>", -0.5),  # no task
        ("<question>Al has 5. Gives 2. Has?</question>", -0.5),  # a task of no mode
        (f"<question>{TRAIN['abduction']}</question>", -0.5),  # a task of another mode
        ("<question>30+7</question><question>30+7</question>", -1.0),
        ("30+7", -1.0),
        ("", -1.0),
    ],
)
def test_an_invalid_proposal_is_not_attempted_and_not_kept(proposal: str, paid: float) -> None:
    steps = begin("deduction")
    steps.answer([proposal])
    assert len(steps.asked) == 4, "straight on to tasks of the buffer"
    steps.answer(["<answer>0</answer>"] * 4)
    assert rows(steps.outcome)[0] == ("proposer", paid, "propose deduction")
    assert steps.outcome.adds == {"deduction": []}
    assert steps.outcome.facts["difficulty"] is None and steps.outcome.facts["valid"] == 0.0


@pytest.mark.parametrize("answer", ["<answer>37</answer>", "<answer>36</answer>"])
def test_tasks_always_or_never_solved_teach_nothing(answer: str) -> None:
    steps = begin("deduction", attempts=3, solves=1)
    steps.answer(["<question>30+7</question>"])
    steps.answer([answer] * 3)
    steps.answer(["<answer>0</answer>"])
    assert steps.outcome.samples[0].reward == 0.0


def test_equivalent_programs_are_verified_by_execution() -> None:
    programs = ["x*2+3", "3+2*x", "x+x+3", "(x+1)*2+1", "x*3+2", "x*2", "x+4", "2x+3"]
    steps = begin("induction", attempts=len(programs))
    steps.answer([f"<question>{TRAIN['induction']}</question>"])
    steps.answer([f"<answer>{program}</answer>" for program in programs])
    steps.answer(["<answer>0</answer>"] * 4)
    assert steps.outcome.facts["difficulty"] == pytest.approx(1 - 4 / 8)
    assert tiny.right("g(132)=321 g(504)=540 g=", "sort rev")
    assert tiny.right("g(132)=321 g(504)=540 g=", "rev sort rev"), "what comes before sorting does not matter"
    assert not tiny.right("g(132)=321 g(504)=540 g=", "rev sort")


def test_groups_are_role_and_mode_and_attempts_never_earn() -> None:
    def say(turn: Turn) -> str:
        reference = tag(turn.messages[0]["content"], "ref")
        return f"<question>{reference}</question>" if turn.role == "proposer" else right(turn)

    outcomes, asked, azr = run(say, range(30))
    assert len(asked) == 30 * (1 + 5 + 4)
    assert all(len(outcome.samples) == 1 + 4 for outcome in outcomes)
    groups = {(sample.role, sample.group) for outcome in outcomes for sample in outcome.samples}
    assert groups == {
        (role, f"{verb} {mode}") for role, verb in (("proposer", "propose"), ("solver", "solve")) for mode in MODES
    }
    assert all(outcome.adds == {outcome.facts["mode"]: []} for outcome in outcomes), "copies add nothing"


def test_held_out_tasks_are_paid_but_never_enter_a_buffer() -> None:
    held = {
        mode: next(task.question for task in tiny.items("test", 1, (families[0],))) for mode, families in MODES.items()
    }

    def say(turn: Turn) -> str:
        if turn.role != "proposer":
            return right(turn)
        reference = tag(turn.messages[0]["content"], "ref")
        return f"<question>{held[MODE_OF[tiny.read(reference).family]]}</question>"

    outcomes, _, azr = run(say, range(30))
    for outcome in outcomes:
        assert outcome.facts["valid"] == 1.0 and outcome.samples[0].reward == 0.0
        assert outcome.adds == {outcome.facts["mode"]: []}
        assert not {question_of(s.reply.turn) for s in outcome.samples[1:]} & set(held.values())


@pytest.mark.parametrize("seeds", [1, 16, 60])
def test_buffers_start_with_easy_tasks_of_their_mode(seeds: int) -> None:
    pools = AZR(seeds=seeds).pools
    assert list(pools) == list(MODES)
    for mode, pool in pools.items():
        tasks = [tiny.read(question) for question in pool.items]
        assert len(tasks) == max(1, seeds // 3)
        assert all(task.level == 1 and task.family in MODES[mode] for task in tasks)
        assert all(tiny.split(task.question) == "train" for task in tasks)
    assert AZR(seeds=seeds).pools["induction"].items == pools["induction"].items


@pytest.mark.parametrize(("field", "value"), [("attempts", 0), ("solves", 0), ("seeds", 0), ("seeds", 1000)])
def test_a_wrong_field_is_named(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"^{field} must be .* got {value}"):
        AZR(**{field: value})
