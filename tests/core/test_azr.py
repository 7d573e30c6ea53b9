"""AZR by hand: propose like the buffer, verify by execution, solve tasks of the same mode."""

from collections.abc import Callable
from random import Random

import pytest
from core.conftest import Sums, by_hand, earned, prompts, text
from pytest import approx

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

TRAIN_TASKS = {
    "deduction": "30+7",
    "abduction": "x+4=9 x?",
    "induction": "f(1)=5 f(2)=7 f=",
}
ANSWERS = {"deduction": "37", "abduction": "5", "induction": "x+x+3"}
ANSWER_FORMS = {"mae": "<answer>{}</answer>", "spice": r"\boxed{{{}}}"}
SOLVER_PROMPTS = {"mae": "solve", "spice": "solve box"}


def question_of(turn: Turn) -> str:
    return tag(text(turn), "question")


def correct_answer(turn: Turn, paper: str = "mae") -> str:
    task = tiny.read(question_of(turn))
    return ANSWER_FORMS[paper].format(task.answer)


def seed_of(mode: str) -> int:
    """The first seed with which an episode draws this mode."""
    seed = 0
    while Random(seed).choice(list(MODES)) != mode:
        seed += 1
    return seed


def propose(mode: str, task: str, **fields) -> EpisodeStepper:
    """An episode of this mode, after the proposal of a task."""
    return propose_text(mode, f"<question>{task}</question>", **fields)


def propose_text(mode: str, proposal: str, **fields) -> EpisodeStepper:
    return by_hand(AZR(**fields), [proposal], seed=seed_of(mode))


@pytest.mark.parametrize("paper", ANSWER_FORMS)
@pytest.mark.parametrize("mode", MODES)
class TestEpisode:
    """A whole episode of each mode, with the prompts of each paper."""

    @pytest.fixture
    def task(self, mode: str) -> str:
        return TRAIN_TASKS[mode]

    @pytest.fixture
    def proposed(self, mode: str, paper: str, task: str) -> EpisodeStepper:
        return propose(mode, task, paper=paper)

    @pytest.fixture
    def attempted(
        self, proposed: EpisodeStepper, mode: str, paper: str
    ) -> EpisodeStepper:
        """The episode after five attempts, of which three are correct."""
        write = ANSWER_FORMS[paper].format
        correct = write(ANSWERS[mode])
        proposed.answer([correct, write(99), correct, "bare", correct])
        return proposed

    @pytest.fixture
    def solved(self, attempted: EpisodeStepper, paper: str) -> EpisodeStepper:
        """The finished episode: correct, incorrect, ill-formed and correct."""
        turns = attempted.pending_turns
        incorrect = ANSWER_FORMS[paper].format(-1)
        first = correct_answer(turns[0], paper)
        last = correct_answer(turns[3], paper)
        attempted.answer([first, incorrect, "37", last])
        return attempted

    def test_the_task_is_of_the_train_split(
        self, mode: str, paper: str, task: str
    ) -> None:
        assert tiny.split(task) == "train"

    def test_the_proposer_reads_a_task_of_the_mode(
        self, proposed: EpisodeStepper, mode: str
    ) -> None:
        reference = tag(text(proposed.replies[0].turn), "ref")
        assert AZR().fits(reference, mode)

    def test_the_proposal_is_attempted_five_times(
        self, proposed: EpisodeStepper, paper: str, task: str
    ) -> None:
        prompt = f"{SOLVER_PROMPTS[paper]}<question>{task}</question>"
        assert prompts(proposed.pending_turns) == [prompt] * 5

    def test_then_four_tasks_of_the_mode_are_solved(
        self, attempted: EpisodeStepper, mode: str
    ) -> None:
        questions = [question_of(turn) for turn in attempted.pending_turns]
        assert len(questions) == 4
        assert all(AZR().fits(question, mode) for question in questions)

    def test_rewards(self, solved: EpisodeStepper) -> None:
        outcome = solved.outcome
        assert earned(outcome, "proposer") == approx([1 - 3 / 5])
        assert earned(outcome, "solver") == approx([1.0, -0.5, -1.0, 1.0])
        roles = [sample.role for sample in outcome.samples]
        assert roles == ["proposer"] + ["solver"] * 4

    def test_baselines_are_by_role_and_mode(
        self, solved: EpisodeStepper, mode: str
    ) -> None:
        groups = [sample.group_id for sample in solved.outcome.samples]
        assert groups == [f"propose {mode}"] + [f"solve {mode}"] * 4

    def test_the_task_enters_the_buffer_of_its_mode(
        self, solved: EpisodeStepper, mode: str, task: str
    ) -> None:
        assert solved.outcome.adds == {mode: [task]}

    def test_facts(self, solved: EpisodeStepper, mode: str, task: str) -> None:
        expected = {
            "valid": 1.0,
            "right": 0.5,
            "difficulty": approx(0.4),
            "proposal": task,
            "mode": mode,
        }
        facts = solved.outcome.facts
        assert facts == expected
        assert list(facts) == list(expected)


@pytest.mark.parametrize(
    ("solve_rate", "format_score", "reward"),
    [
        (None, 0.0, -1.0),
        (None, 0.5, -1.0),
        (None, 1.0, -0.5),
        (0.0, 1.0, 0.0),
        (0.2, 1.0, 0.8),
        (0.75, 1.0, 0.25),
        (1.0, 1.0, 0.0),
    ],
)
def test_proposer_reward(
    solve_rate: float | None, format_score: float, reward: float
) -> None:
    assert proposer_reward(solve_rate, format_score) == reward


@pytest.mark.parametrize(
    ("is_correct", "format_score", "reward"),
    [
        (True, 1.0, 1.0),
        (True, 0.5, -1.0),
        (True, 0.0, -1.0),
        (False, 1.0, -0.5),
        (False, 0.5, -1.0),
        (False, 0.0, -1.0),
    ],
)
def test_solver_reward(is_correct: bool, format_score: float, reward: float) -> None:
    assert solver_reward(is_correct, format_score) == reward


ABDUCTION_TASK = TRAIN_TASKS["abduction"]


@pytest.mark.parametrize(
    ("proposal", "reward"),
    [
        pytest.param("<question>what is it</question>", -0.5, id="no task"),
        pytest.param(
            "<question>Al has 5. Gives 2. Has?</question>",
            -0.5,
            id="a task of no mode",
        ),
        pytest.param(
            f"<question>{ABDUCTION_TASK}</question>",
            -0.5,
            id="a task of another mode",
        ),
        pytest.param(
            "<question>30+7</question><question>30+7</question>",
            -1.0,
            id="two questions",
        ),
        pytest.param("", -1.0, id="nothing"),
    ],
)
def test_an_invalid_proposal_is_neither_attempted_nor_kept(
    proposal: str, reward: float
) -> None:
    steps = propose_text("deduction", proposal)
    assert len(steps.pending_turns) == 4, "only tasks of the buffer"
    steps.answer(["<answer>0</answer>"] * 4)
    outcome = steps.outcome
    assert earned(outcome, "proposer") == [reward]
    assert outcome.adds == {"deduction": []}
    assert outcome.facts["difficulty"] is None
    assert outcome.facts["valid"] == 0.0


def held_out_task(mode: str) -> str:
    family = MODES[mode]["families"][0]
    (task, *_) = tiny.items("test", 1, (family,))
    return task.question


def task_of_the_buffer(mode: str) -> str:
    return AZR().pools[mode].items[0]


@pytest.mark.parametrize("task_of", [held_out_task, task_of_the_buffer])
@pytest.mark.parametrize("mode", MODES)
def test_held_out_tasks_and_copies_are_rewarded_but_not_kept(
    mode: str, task_of: Callable[[str], str]
) -> None:
    steps = propose(mode, task_of(mode))
    steps.answer([correct_answer(turn) for turn in steps.pending_turns])
    to_solve = [question_of(turn) for turn in steps.pending_turns]
    assert held_out_task(mode) not in to_solve
    steps.answer([correct_answer(turn) for turn in steps.pending_turns])
    outcome = steps.outcome
    assert earned(outcome, "proposer") == [0.0], "a task that is always solved"
    assert earned(outcome, "solver") == [1.0] * 4
    assert outcome.adds == {mode: []}


@pytest.mark.parametrize(("world", "count"), [("tiny", 5), (Sums(), 1)])
def test_buffers_start_with_train_tasks_of_their_mode(
    world: str | Sums, count: int, landlock: None
) -> None:
    method = AZR(world=world)
    for mode, buffer in method.pools.items():
        assert len(buffer) == count
        for task in buffer.items:
            assert method.fits(task, mode)
            assert not method.world.held_out(task)
