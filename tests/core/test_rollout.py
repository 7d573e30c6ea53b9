"""Playing episodes: the order of completion changes nothing and mistakes are named."""

from collections.abc import Callable
from dataclasses import replace
from gc import get_threshold
from random import Random

import pytest
from core.conftest import prompts

from coevolve.rollout.engine import BatchedEngine, Engine
from coevolve.rollout.errors import MethodError
from coevolve.rollout.scheduler import play
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Episode, Outcome, Reply, Role, Turn

SPEAKER = Role("speaker", "say {word}")
TURN = SPEAKER(word="a")
KEY = (3, 5)
EngineFactory = Callable[[], Engine]


def noisy_reply(turn: Turn) -> Reply:
    """A reply that depends on the prompt and on the turn's key, as sampling noise does."""
    rng = Random(f"{turn.key} {prompts([turn])}")
    noise = rng.randrange(10**6)
    return Reply(turn, f"{noise}", finished=noise % 2 == 0)


class ShufflingEngine(Engine):
    """Answers a random subset of the waiting turns, in a random order."""

    def __init__(self):
        self.rng = Random(1)
        self.waiting = {}
        self.last_ticket = 100

    def submit(self, turn: Turn) -> int:
        self.last_ticket += 7
        self.waiting[self.last_ticket] = turn
        return self.last_ticket

    def poll(self) -> list[tuple[int, Reply]]:
        count = self.rng.randint(1, len(self.waiting))
        tickets = self.rng.sample(sorted(self.waiting), count)
        answered = []
        for ticket in tickets:
            turn = self.waiting.pop(ticket)
            answered.append((ticket, noisy_reply(turn)))
        return answered


def wave_engine() -> BatchedEngine:
    return BatchedEngine(lambda turns: [noisy_reply(turn) for turn in turns])


ENGINES = {"wave": wave_engine, "random": ShufflingEngine}


def branching_episode(index: int) -> Episode:
    """An episode whose number of turns depends on a reply, so that several get out of phase."""
    first = yield SPEAKER(word=f"a{index}")
    samples = [first.earns(1.0)]
    count = 1 + int(first.text) % 3
    turns = [SPEAKER(word=f"b{first.text}-{i}") for i in range(count)]
    replies = yield turns
    for i, reply in enumerate(replies):
        samples.append(reply.earns(float(i), group_id=index))
    if index % 2:
        last = yield SPEAKER(word="c")
        samples.append(last.earns(-1.0))
    return Outcome(samples, trace=index)


def branching_episodes(*indices: int) -> list[Episode]:
    return [branching_episode(index) for index in indices]


def episode_that_yields(value: object) -> Episode:
    yield SPEAKER(word="first")
    yield value
    return Outcome()


def episode_that_returns(value: object, turns: int = 0) -> Episode:
    for _ in range(turns):
        yield SPEAKER(word="first")
    return value


@pytest.fixture(params=ENGINES)
def new_engine(request: pytest.FixtureRequest) -> EngineFactory:
    """Each kind of engine."""
    return ENGINES[request.param]


@pytest.fixture
def outcomes(new_engine: EngineFactory) -> list[Outcome]:
    """Eight episodes and one without a turn, played by each kind of engine."""
    episodes = branching_episodes(*range(8))
    episodes.append(episode_that_returns(Outcome(trace=8)))
    return play(episodes, new_engine(), KEY)


def test_outcomes_come_in_episode_order_from_every_engine(
    outcomes: list[Outcome],
) -> None:
    assert [outcome.trace for outcome in outcomes] == list(range(9))
    assert outcomes[:8] == play(branching_episodes(*range(8)), wave_engine(), KEY)


def test_turns_are_keyed_by_episode_and_position(outcomes: list[Outcome]) -> None:
    for i, outcome in enumerate(outcomes):
        replies = [sample.reply for sample in outcome.samples]
        expected_keys = [(*KEY, i, n) for n in range(len(replies))]
        assert [reply.turn.key for reply in replies] == expected_keys
        assert {reply.group_id for reply in replies} <= {(*KEY, i)}


def test_a_shard_is_keyed_by_global_numbers(
    outcomes: list[Outcome], new_engine: EngineFactory
) -> None:
    shard = play(branching_episodes(2, 6), new_engine(), KEY, indices=(2, 6))
    assert shard == [outcomes[2], outcomes[6]]


def test_a_stepper_reaches_the_same_outcome(
    outcomes: list[Outcome], new_engine: EngineFactory
) -> None:
    stepper = EpisodeStepper(branching_episode(0), new_engine(), KEY)
    list(stepper)
    assert stepper.outcome == outcomes[0]
    assert play([], new_engine()) == []


def test_another_key_gives_other_samples(outcomes: list[Outcome]) -> None:
    for other_key in ((3, 6), (4, 5)):
        (outcome,) = play(branching_episodes(0), wave_engine(), other_key)
        assert outcome.samples[0].reply.text != outcomes[0].samples[0].reply.text


def test_a_batched_engine_answers_whole_waves_while_the_collector_skips_old_objects() -> (
    None
):
    threshold_before = get_threshold()
    wave_sizes = []
    old_object_thresholds = []

    def generate(turns: list[Turn]) -> list[Reply]:
        wave_sizes.append(len(turns))
        old_object_thresholds.append(get_threshold()[1])
        return [Reply(turn, "0") for turn in turns]

    play(branching_episodes(*range(4)), BatchedEngine(generate))
    assert wave_sizes == [4, 4, 2], "one turn follows, and odd episodes have one more"
    assert all(threshold > 10**6 for threshold in old_object_thresholds)
    assert get_threshold() == threshold_before


def test_a_reply_that_is_missing_is_an_error_and_restores_the_collector() -> None:
    threshold_before = get_threshold()
    engine = BatchedEngine(lambda turns: [noisy_reply(turns[0])])
    with pytest.raises(ValueError, match="shorter"):
        play(branching_episodes(0, 1), engine)
    assert get_threshold() == threshold_before


def test_turns_of_an_interrupted_call_do_not_disturb_later_calls(
    new_engine: Callable,
) -> None:
    engine = new_engine()
    for _ in range(2):  # the second call finds turns of the first
        episodes = [branching_episode(0), episode_that_returns(None, turns=1)]
        with pytest.raises(MethodError, match="episode 1 returned None"):
            play(episodes, engine)
    assert len(engine.answer([TURN])) == 1


NOT_A_TURN = [None, "text", branching_episode(0), (TURN,), [TURN, "b"]]


@pytest.mark.parametrize("value", NOT_A_TURN, ids=range(5))
def test_mistakes_of_an_episode_are_named(value: object) -> None:
    episodes = [branching_episode(0), episode_that_yields(value)]
    with pytest.raises(MethodError, match=r"^episode 1 yielded .*Turn.*`yield from`"):
        play(episodes, wave_engine())
    with pytest.raises(MethodError, match="^episode 0 yielded"):
        stepper = EpisodeStepper(episode_that_yields(value), wave_engine())
        list(stepper)
    episodes = [*branching_episodes(0, 1), episode_that_returns(value, turns=1)]
    with pytest.raises(MethodError, match=r"^episode 2 returned .*Outcome"):
        play(episodes, ShufflingEngine())


def test_an_empty_list_of_turns_is_answered_at_once() -> None:
    def episode_with_empty_waves() -> Episode:
        replies = yield []
        replies += yield [TURN]
        replies += yield []
        return Outcome(trace=[reply.turn.key for reply in replies])

    outcomes = play(
        [episode_with_empty_waves(), episode_with_empty_waves()], wave_engine()
    )
    assert [outcome.trace for outcome in outcomes] == [[(0, 0)], [(1, 0)]]


@pytest.mark.parametrize(
    "fields", [{}, {"word": "a", "more": "b"}], ids=["missing", "surplus"]
)
def test_a_role_names_wrong_fields(fields: dict[str, str]) -> None:
    with pytest.raises(
        ValueError, match=r"^role 'speaker' takes the fields \['word'\], got "
    ):
        SPEAKER(**fields)


def test_a_role_fills_its_fields_in_one_pass() -> None:
    turn = SPEAKER(word="{word} \\1 {x}")
    assert prompts([turn]) == ["say {word} \\1 {x}"], (
        "braces in a value are never expanded"
    )
    turn = SPEAKER(word="a\ud800")
    assert prompts([turn]) == ["say a?"], "tokenizers reject half of a surrogate pair"


@pytest.fixture
def stepper() -> EpisodeStepper:
    """An episode that is at its second wave, of two turns."""
    stepper = EpisodeStepper(branching_episode(1), ShufflingEngine(), (2,))
    stepper.answer(["4"])
    return stepper


def test_a_stepper_starts_with_the_first_turn_and_no_outcome() -> None:
    stepper = EpisodeStepper(branching_episode(1), ShufflingEngine(), (2,))
    assert prompts(stepper.pending_turns) == ["say a1"]
    assert stepper.outcome is None
    assert stepper.replies == []
    (turn,) = stepper.pending_turns
    assert stepper.answer(["4"]) == stepper.replies == [Reply(turn, "4")]
    assert prompts(stepper.pending_turns) == ["say b4-0", "say b4-1"]


@pytest.mark.parametrize("texts", [["one"], ["one", "two", "three"]], ids=len)
def test_a_wrong_number_of_replies_is_refused_and_changes_nothing(
    stepper: EpisodeStepper, texts: list[str]
) -> None:
    with pytest.raises(
        ValueError, match=f"2 turns are asked, {len(texts)} replies given"
    ):
        stepper.answer(texts)
    stepper.answer(["one", "two"])
    assert prompts(stepper.pending_turns) == ["say c"]


def test_an_episode_is_answered_by_hand_with_strings_and_replies_and_then_by_the_engine(
    stepper: EpisodeStepper,
) -> None:
    reply = Reply(stepper.pending_turns[1], "two", completion_ids=(1, 2))
    stepper.answer(["one", reply])
    assert prompts(stepper.pending_turns) == ["say c"]
    (last,) = next(stepper)
    assert stepper.pending_turns == []
    assert list(stepper) == []
    assert stepper.outcome.trace == 1
    assert [sample.reply for sample in stepper.outcome.samples] == stepper.replies
    assert stepper.replies[2:] == [reply, last]
    with pytest.raises(ValueError, match="0 turns are asked"):
        stepper.answer(["more"])


def test_the_tokens_of_all_replies_are_counted() -> None:
    def generate(turns: list[Turn]) -> list[Reply]:
        return [replace(noisy_reply(turn), completion_ids=(1, 2, 3)) for turn in turns]

    stepper = EpisodeStepper(branching_episode(1), BatchedEngine(generate))
    assert list(stepper)
    assert stepper.outcome.generated == 3 * len(stepper.replies) > 0
