"""AZR's episodes and rewards by hand.

The Proposer imitates a task of its mode's buffer, the executor verifies it, and the
Solver solves tasks of the same mode.
"""

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
CORRECT_ANSWERS = {"deduction": "37", "abduction": "5", "induction": "x+x+3"}
ANSWER_FORMS = {"mae": "<answer>{}</answer>", "spice": r"\boxed{{{}}}"}
SOLVER_PROMPTS = {
    "mae": "solve<question>{}</question>",
    "spice": "solve box<question>{}</question>",
}


def start_with_proposal(mode: str, proposal: str, **fields) -> EpisodeStepper:
    """Start an episode that draws `mode` and answer its first turn with `proposal`."""
    seeds = range(100)
    seed = next(seed for seed in seeds if Random(seed).choice(list(MODES)) == mode)
    return by_hand(AZR(**fields), [proposal], seed=seed)


def question_of(turn: Turn) -> str:
    """Return the task that a turn asks to solve."""
    return tag(text(turn), "question")


def correct_reply(turn: Turn, paper: str = "mae") -> str:
    """Return the reply that solves a turn's task, in the form of `paper`."""
    task = tiny.read(question_of(turn))
    return ANSWER_FORMS[paper].format(task.answer)


@pytest.mark.parametrize("mode", MODES)
def test_the_example_of_each_mode_is_a_training_task(mode: str) -> None:
    assert tiny.split(TRAIN_TASKS[mode]) == "train"


@pytest.mark.parametrize("paper", ANSWER_FORMS)
@pytest.mark.parametrize("mode", MODES)
class TestWholeEpisode:
    """One episode in which the Proposer repeats the example task of the mode."""

    @pytest.fixture
    def proposed(self, mode: str, paper: str) -> EpisodeStepper:
        """The episode after its proposal."""
        proposal = f"<question>{TRAIN_TASKS[mode]}</question>"
        return start_with_proposal(mode, proposal, paper=paper)

    @pytest.fixture
    def attempted(
        self, proposed: EpisodeStepper, mode: str, paper: str
    ) -> EpisodeStepper:
        """The episode after five attempts, three of them correct."""
        form = ANSWER_FORMS[paper]
        correct = form.format(CORRECT_ANSWERS[mode])
        proposed.answer([correct, form.format(99), correct, "bare", correct])
        return proposed

    @pytest.fixture
    def finished(
        self, attempted: EpisodeStepper, mode: str, paper: str
    ) -> EpisodeStepper:
        """The episode after four solutions, two of them correct."""
        first, _, _, last = attempted.pending_turns
        attempted.answer(
            [
                correct_reply(first, paper),
                ANSWER_FORMS[paper].format(-1),
                "37",
                correct_reply(last, paper),
            ]
        )
        return attempted

    def test_the_proposer_reads_a_task_of_the_mode(
        self, proposed: EpisodeStepper, mode: str, paper: str
    ) -> None:
        proposer_turn = proposed.replies[0].turn
        assert AZR().fits(tag(text(proposer_turn), "ref"), mode)

    def test_the_proposal_is_attempted_five_times(
        self, proposed: EpisodeStepper, mode: str, paper: str
    ) -> None:
        prompt = SOLVER_PROMPTS[paper].format(TRAIN_TASKS[mode])
        assert prompts(proposed.pending_turns) == [prompt] * 5

    def test_four_tasks_of_the_mode_are_solved(
        self, attempted: EpisodeStepper, mode: str, paper: str
    ) -> None:
        assert len(attempted.pending_turns) == 4
        for turn in attempted.pending_turns:
            assert AZR().fits(question_of(turn), mode)

    def test_every_role_is_rewarded(
        self, finished: EpisodeStepper, mode: str, paper: str
    ) -> None:
        assert earned(finished.outcome) == [
            ("proposer", approx(1 - 3 / 5)),
            ("solver", approx(1.0)),
            ("solver", approx(-0.5)),
            ("solver", approx(-1.0)),
            ("solver", approx(1.0)),
        ]

    def test_baselines_are_per_role_and_mode(
        self, finished: EpisodeStepper, mode: str, paper: str
    ) -> None:
        groups = [sample.group_id for sample in finished.outcome.samples]
        assert groups == [f"propose {mode}", *[f"solve {mode}"] * 4]

    def test_the_task_is_added_to_the_buffer_of_its_mode(
        self, finished: EpisodeStepper, mode: str, paper: str
    ) -> None:
        assert finished.outcome.adds == {mode: [TRAIN_TASKS[mode]]}

    def test_the_facts_are_recorded_in_this_order(
        self, finished: EpisodeStepper, mode: str, paper: str
    ) -> None:
        facts = {
            "valid": 1.0,
            "correct": 0.5,
            "difficulty": approx(0.4),
            "proposal": TRAIN_TASKS[mode],
            "mode": mode,
        }
        assert finished.outcome.facts == facts
        assert list(finished.outcome.facts) == list(facts)


class TestRewards:
    """The rewards as functions of solve rate, correctness and format."""

    @pytest.mark.parametrize(
        ("format_score", "reward"),
        [
            (0.0, -1.0),
            (0.5, -1.0),
            (1.0, -0.5),
        ],
    )
    def test_an_invalid_proposal_is_penalised(
        self, format_score: float, reward: float
    ) -> None:
        assert proposer_reward(None, format_score) == reward

    @pytest.mark.parametrize(
        ("solve_rate", "reward"),
        [
            (0.0, 0.0),
            (0.2, 0.8),
            (0.75, 0.25),
            (1.0, 0.0),
        ],
    )
    def test_a_valid_proposal_earns_its_learnability(
        self, solve_rate: float, reward: float
    ) -> None:
        assert proposer_reward(solve_rate, 1.0) == reward

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
    def test_a_solution_earns_by_verdict_and_format(
        self, is_correct: bool, format_score: float, reward: float
    ) -> None:
        assert solver_reward(is_correct, format_score) == reward


INVALID_PROPOSALS = {
    "<question>what is it</question>": -0.5,  # no task
    "<question>Al has 5. Gives 2. Has?</question>": -0.5,  # a task of no mode
    "<question>x+4=9 x?</question>": -0.5,  # a task of another mode
    "<question>30+7</question><question>30+7</question>": -1.0,
    "": -1.0,
}


@pytest.mark.parametrize(("proposal", "reward"), INVALID_PROPOSALS.items())
def test_an_invalid_proposal_is_not_attempted_and_not_kept(
    proposal: str, reward: float
) -> None:
    steps = start_with_proposal("deduction", proposal)
    assert len(steps.pending_turns) == 4, "tasks of the buffer follow at once"
    steps.answer(["<answer>0</answer>"] * 4)
    assert earned(steps.outcome, "proposer") == [reward]
    assert steps.outcome.adds == {"deduction": []}
    assert steps.outcome.facts["difficulty"] is None
    assert steps.outcome.facts["valid"] == 0.0


@pytest.mark.parametrize("mode", MODES)
class TestTasksThatAreNotAdded:
    """A buffer takes neither held-out tasks nor copies of its own tasks."""

    @pytest.fixture
    def held_out_task(self, mode: str) -> str:
        family = MODES[mode]["families"][0]
        tasks = tiny.items("test", 1, (family,))
        return next(task.question for task in tasks)

    @pytest.fixture(params=["held-out", "copy"])
    def steps(
        self, request: pytest.FixtureRequest, mode: str, held_out_task: str
    ) -> EpisodeStepper:
        """The episode after a proposal that was solved in all attempts."""
        copy = AZR().pools[mode].items[0]
        task = held_out_task if request.param == "held-out" else copy
        steps = start_with_proposal(mode, f"<question>{task}</question>")
        steps.answer([correct_reply(turn) for turn in steps.pending_turns])
        return steps

    def test_the_solver_does_not_train_on_a_held_out_task(
        self, steps: EpisodeStepper, held_out_task: str
    ) -> None:
        for turn in steps.pending_turns:
            assert question_of(turn) != held_out_task

    def test_the_task_is_not_added_though_the_episode_is_rewarded(
        self, steps: EpisodeStepper, mode: str
    ) -> None:
        steps.answer([correct_reply(turn) for turn in steps.pending_turns])
        rewards = earned(steps.outcome, "proposer", "solver")
        always_solved = 0.0
        assert rewards == [always_solved, 1.0, 1.0, 1.0, 1.0]
        assert steps.outcome.adds == {mode: []}


@pytest.mark.parametrize(("world", "count"), [("tiny", 5), (Sums(), 1)])
def test_buffers_start_with_training_tasks_of_their_mode(
    world: str | Sums, count: int, landlock: None
) -> None:
    method = AZR(world=world)
    for mode, pool in method.pools.items():
        assert len(pool) == count
        for task in pool.items:
            assert method.fits(task, mode)
            assert not method.world.held_out(task)
