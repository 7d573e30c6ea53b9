"""The driver: order of completion does not matter, keys are stable, mistakes of a protocol are named."""

from collections.abc import Callable
from random import Random

import pytest

from coevolve.driver import Batched, Engine, Steps, play
from coevolve.types import Episode, Outcome, Reply, Role, Turn

SPEAKER = Role("speaker", "say {word}")


def spoken(turn: Turn) -> Reply:
    """A reply that depends on what was asked and on the turn's key, like sampling noise."""
    noise = Random(f"{turn.key} {turn.messages[0]['content']}").randrange(10**6)
    return Reply(turn, f"{noise}", finished=noise % 2 == 0)


class Scattered(Engine):
    """Answers what `choose` picks out of the waiting tickets, whatever was submitted first."""

    def __init__(self, choose: Callable[[list[int]], list[int]]):
        self.choose, self.waiting, self.count = choose, {}, 100

    def submit(self, turn: Turn) -> int:
        self.count += 7
        self.waiting[self.count] = turn
        return self.count

    def poll(self) -> list[tuple[int, Reply]]:
        return [(ticket, spoken(self.waiting.pop(ticket))) for ticket in self.choose(sorted(self.waiting))]


def some(rng: Random) -> Callable[[list[int]], list[int]]:
    return lambda tickets: rng.sample(tickets, rng.randint(1, len(tickets)))


ENGINES = {
    "wave": lambda: Batched(lambda turns: [spoken(turn) for turn in turns]),
    "last in, first out": lambda: Scattered(lambda tickets: tickets[-1:]),
    "first in, first out": lambda: Scattered(lambda tickets: tickets[:1]),
    "all, backwards": lambda: Scattered(lambda tickets: tickets[::-1]),
    "random 1": lambda: Scattered(some(Random(1))),
    "random 2": lambda: Scattered(some(Random(2))),
}


def conversation(index: int) -> Episode:
    """Episodes that drift out of phase: how many turns come next depends on what was said."""
    first = yield SPEAKER(word=f"a{index}")
    several = yield [SPEAKER(word=f"b{first.text}-{i}") for i in range(1 + int(first.text) % 3)]
    samples = [first.earns(1.0)] + [reply.earns(float(i), group=index) for i, reply in enumerate(several)]
    if index % 2:
        last = yield SPEAKER(word="c")
        samples.append(last.earns(-1.0))
    return Outcome(samples, facts={"index": index})


def quiet() -> Episode:
    """An episode that asks nothing."""
    return Outcome([], facts={"index": "quiet"})
    yield


@pytest.mark.parametrize("name", ENGINES)
def test_outcomes_come_in_episode_order_and_alike_whatever_the_engine(name: str) -> None:
    outcomes = play([conversation(i) for i in range(9)], ENGINES[name](), (3, 5))
    assert [outcome.facts["index"] for outcome in outcomes] == list(range(9))
    assert outcomes == play([conversation(i) for i in range(9)], ENGINES["wave"](), (3, 5))


@pytest.mark.parametrize("name", ENGINES)
def test_a_turn_is_keyed_by_seed_step_episode_and_its_number_in_the_episode(name: str) -> None:
    outcomes = play([conversation(i) for i in range(6)], ENGINES[name](), (3, 5))
    for i, outcome in enumerate(outcomes):
        keys = [sample.reply.turn.key for sample in outcome.samples]
        assert keys == [(3, 5, i, n) for n in range(len(outcome.samples))]


def test_replies_of_a_list_come_back_in_the_order_of_the_list() -> None:
    def episode() -> Episode:
        asked = [SPEAKER(word=f"{i}") for i in range(5)]
        replies = yield asked
        assert [reply.turn.messages for reply in replies] == [turn.messages for turn in asked]
        alone = yield asked[:1]
        assert isinstance(alone, list)
        single = yield asked[0]
        assert isinstance(single, Reply)
        return Outcome([reply.earns(1.0) for reply in [*replies, *alone, single]])

    (outcome,) = play([episode()], ENGINES["last in, first out"]())
    assert [sample.reply.turn.key for sample in outcome.samples] == [(0, n) for n in range(7)]


def test_another_key_gives_other_samples() -> None:
    texts = [
        [s.reply.text for s in play([conversation(0)], ENGINES["wave"](), key)[0].samples]
        for key in ((0, 1), (0, 2), (1, 1), (0, 1))
    ]
    assert texts[0] == texts[3]
    assert texts[0][0] not in (texts[1][0], texts[2][0])


def test_episodes_without_turns_and_no_episodes_at_all() -> None:
    outcomes = play([quiet(), conversation(1), quiet()], ENGINES["wave"]())
    assert [outcome.facts["index"] for outcome in outcomes] == ["quiet", 1, "quiet"]
    assert play([], ENGINES["wave"]()) == []


def test_batched_answers_a_whole_wave_at_once() -> None:
    sizes = []

    def generate(turns: list[Turn]) -> list[Reply]:
        sizes.append(len(turns))
        return [Reply(turn, "0") for turn in turns]  # one turn follows, and odd episodes say one more

    play([conversation(i) for i in range(4)], Batched(generate))
    assert sizes == [4, 4, 2]


def test_batched_refuses_an_engine_that_loses_a_turn() -> None:
    with pytest.raises(ValueError, match="shorter"):
        play([conversation(0), conversation(1)], Batched(lambda turns: [spoken(turns[0])]))


def yields(what: object) -> Episode:
    yield SPEAKER(word="first")
    yield what
    return Outcome()


def returns(what: object) -> Episode:
    yield SPEAKER(word="first")
    return what


@pytest.mark.parametrize("what", [[], None, "text", conversation(0), (SPEAKER(word="a"),), [SPEAKER(word="a"), "b"]])
def test_an_episode_that_yields_no_turn_is_named(what: object) -> None:
    with pytest.raises(TypeError, match=r"^episode 1 yielded .*Turn"):
        play([conversation(0), yields(what)], ENGINES["wave"]())


def test_a_protocol_inside_a_protocol_is_told_about_yield_from() -> None:
    with pytest.raises(TypeError, match="`yield from`"):
        play([yields(conversation(0))], ENGINES["wave"]())


@pytest.mark.parametrize("what", [None, [], {"samples": []}])
def test_an_episode_that_returns_no_outcome_is_named(what: object) -> None:
    with pytest.raises(TypeError, match=r"^episode 2 returned .*Outcome"):
        play([conversation(0), conversation(1), returns(what)], ENGINES["last in, first out"]())


def test_an_error_inside_an_episode_is_not_swallowed() -> None:
    def broken() -> Episode:
        yield SPEAKER(word="a")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        play([conversation(0), broken()], ENGINES["wave"]())


def test_steps_plays_one_wave_at_a_time() -> None:
    steps = Steps(conversation(1), ENGINES["last in, first out"](), (0, 4))
    assert [turn.messages[0]["content"] for turn in steps.asked] == ["say a1"]
    assert steps.outcome is None and steps.replies == []
    first = next(steps)
    assert steps.replies == first and len(first) == 1
    asked = steps.asked
    second = next(steps)
    assert [reply.turn for reply in second] == asked
    assert [turn.messages[0]["content"] for turn in steps.asked] == ["say c"]
    rest = list(steps)
    assert steps.asked == [] and steps.replies == [*first, *second, *rest[0]]
    assert steps.outcome.facts == {"index": 1}
    assert [sample.reply for sample in steps.outcome.samples] == steps.replies
    assert list(steps) == []


def test_steps_says_the_same_as_play() -> None:
    for name in ENGINES:
        steps = Steps(conversation(0), ENGINES[name](), (6,))
        list(steps)
        assert steps.outcome == play([conversation(0)], ENGINES["wave"](), (6,))[0]


def test_a_reader_answers_by_hand() -> None:
    steps = Steps(conversation(1), ENGINES["wave"](), (2,))
    asked = steps.asked[0]
    assert steps.answer(["4"]) == [Reply(asked, "4")]
    assert [turn.messages[0]["content"] for turn in steps.asked] == ["say b4-0", "say b4-1"]
    with pytest.raises(ValueError, match="2 turns are asked, 1 replies given"):
        steps.answer(["one"])
    with pytest.raises(ValueError, match="2 turns are asked, 3 replies given"):
        steps.answer(["one", "two", "three"])
    machine = Reply(steps.asked[1], "two", ids=(1, 2))
    steps.answer(["one", machine])  # strings and replies may be mixed, and a refused answer changed nothing
    steps.answer(["end"])
    assert [s.reply.text for s in steps.outcome.samples] == ["4", "one", "two", "end"]
    assert steps.outcome.samples[2].reply is machine
    with pytest.raises(ValueError, match="0 turns are asked"):
        steps.answer(["more"])


def test_steps_names_the_episode_too() -> None:
    with pytest.raises(TypeError, match="episode 0 yielded"):
        list(Steps(yields([]), ENGINES["wave"]()))
