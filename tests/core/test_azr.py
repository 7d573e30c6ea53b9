"""AZR's episode and rewards by hand: propose like the buffer, verify by execution, solve tasks of the same mode."""

from random import Random

import pytest
from core.conftest import Sums, by_hand, earned, prompts, text

from coevolve.methods.baselines.absolute_zero import (
    AZR,
    MODES,
    proposer_reward,
    solver_reward,
)
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.text.parse import tag
from coevolve.types import Turn
from tinyworld import tasks as tiny

TRAIN = {
    "deduction": "30+7",
    "abduction": "x+4=9 x?",
    "induction": "f(1)=5 f(2)=7 f=",
}  # of the train split
ANSWERS = {"deduction": "37", "abduction": "5", "induction": "x+x+3"}
FORMS = {"mae": "<answer>{}</answer>", "spice": r"\boxed{{{}}}"}


def begin(mode: str, proposal: str, **fields) -> EpisodeStepper:
    """An episode that draws this mode, after its proposal."""
    seed = next(seed for seed in range(100) if Random(seed).choice(list(MODES)) == mode)
    return by_hand(AZR(**fields), [proposal], seed=seed)


def question_of(turn: Turn) -> str:
    return tag(text(turn), "question")


def right(turn: Turn, paper: str = "mae") -> str:
    return FORMS[paper].format(tiny.read(question_of(turn)).answer)


@pytest.mark.parametrize("paper", FORMS)
@pytest.mark.parametrize("mode", MODES)
def test_a_whole_episode_by_hand(mode: str, paper: str) -> None:
    assert tiny.split(TRAIN[mode]) == "train"
    say, solve = FORMS[paper].format, "solve" if paper == "mae" else "solve box"
    steps = begin(mode, f"<question>{TRAIN[mode]}</question>", paper=paper)
    assert AZR().fits(tag(text(steps.replies[0].turn), "ref"), mode)
    assert (
        prompts(steps.pending_turns)
        == [f"{solve}<question>{TRAIN[mode]}</question>"] * 5
    )
    steps.answer(
        [say(ANSWERS[mode]), say(99), say(ANSWERS[mode]), "bare", say(ANSWERS[mode])]
    )
    assert len(steps.pending_turns) == 4 and all(
        AZR().fits(question_of(turn), mode) for turn in steps.pending_turns
    )
    steps.answer(
        [
            right(steps.pending_turns[0], paper),
            say(-1),
            "37",
            right(steps.pending_turns[3], paper),
        ]
    )
    outcome = steps.outcome
    assert earned(outcome, "proposer", "solver") == pytest.approx(
        [1 - 3 / 5, 1.0, -0.5, -1.0, 1.0]
    )
    assert [sample.role for sample in outcome.samples] == ["proposer"] + ["solver"] * 4
    assert [sample.group_id for sample in outcome.samples] == [f"propose {mode}"] + [
        f"solve {mode}"
    ] * 4
    assert outcome.adds == {mode: [TRAIN[mode]]}
    assert " ".join(outcome.facts) == "valid right difficulty proposal mode"
    assert [*outcome.facts.values()] == [
        1.0,
        0.5,
        pytest.approx(0.4),
        TRAIN[mode],
        mode,
    ]


def test_rewards_by_hand() -> None:
    assert [proposer_reward(None, form) for form in (0.0, 0.5, 1.0)] == [
        -1.0,
        -1.0,
        -0.5,
    ]
    assert [proposer_reward(rate, 1.0) for rate in (0.0, 0.2, 0.75, 1.0)] == [
        0.0,
        0.8,
        0.25,
        0.0,
    ]
    assert [solver_reward(True, form) for form in (1.0, 0.5, 0.0)] == [1.0, -1.0, -1.0]
    assert [solver_reward(False, form) for form in (1.0, 0.5, 0.0)] == [
        -0.5,
        -1.0,
        -1.0,
    ]


INVALID = {
    "<question>what is it</question>": -0.5,  # no task
    "<question>Al has 5. Gives 2. Has?</question>": -0.5,  # a task of no mode
    f"<question>{TRAIN['abduction']}</question>": -0.5,  # a task of another mode
    "<question>30+7</question><question>30+7</question>": -1.0,
    "": -1.0,
}


@pytest.mark.parametrize(("proposal", "paid"), INVALID.items())
def test_an_invalid_proposal_is_not_attempted_and_not_kept(
    proposal: str, paid: float
) -> None:
    steps = begin("deduction", proposal)
    assert len(steps.pending_turns) == 4, "straight on to tasks of the buffer"
    steps.answer(["<answer>0</answer>"] * 4)
    assert earned(steps.outcome, "proposer") == [paid]
    assert steps.outcome.adds == {"deduction": []}
    assert (
        steps.outcome.facts["difficulty"] is None
        and steps.outcome.facts["valid"] == 0.0
    )


@pytest.mark.parametrize("mode", MODES)
def test_held_out_tasks_are_paid_but_never_enter_a_buffer_and_neither_do_copies(
    mode: str,
) -> None:
    held = next(
        task.question for task in tiny.items("test", 1, (MODES[mode]["families"][0],))
    )
    for proposal in (held, AZR().pools[mode].items[0]):
        steps = begin(mode, f"<question>{proposal}</question>")
        steps.answer([right(turn) for turn in steps.pending_turns])
        assert held not in map(question_of, steps.pending_turns)
        steps.answer([right(turn) for turn in steps.pending_turns])
        assert earned(steps.outcome, "proposer", "solver") == [0.0] + [1.0] * 4, (
            "what is always solved teaches nothing"
        )
        assert steps.outcome.adds == {mode: []}


@pytest.mark.parametrize(("world", "count"), [("tiny", 5), (Sums(), 1)])
def test_buffers_start_with_train_tasks_of_their_mode(
    world: str | Sums, count: int, landlock: None
) -> None:
    method = AZR(world=world)
    for mode, pool in method.pools.items():
        assert len(pool) == count and all(
            method.fits(task, mode) for task in pool.items
        )
        assert not any(method.world.held_out(task) for task in pool.items)
