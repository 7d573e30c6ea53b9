"""The driver: order of completion does not matter, keys are stable, mistakes of a method are named."""

from dataclasses import replace
from gc import get_threshold
from random import Random

import pytest
from core.conftest import prompts

from coevolve.rollout.engine import BatchedEngine, Engine
from coevolve.rollout.scheduler import play
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.types import Episode, Outcome, Reply, Role, Turn

SPEAKER = Role("speaker", "say {word}")


def spoken(turn: Turn) -> Reply:
    """A reply that depends on what was asked and on the turn's key, like sampling noise."""
    noise = Random(f"{turn.key} {prompts([turn])}").randrange(10**6)
    return Reply(turn, f"{noise}", finished=noise % 2 == 0)


class Scattered(Engine):
    """Answers some of the waiting tickets, drawn at random, whatever was submitted first."""

    def __init__(self):
        self.rng, self.waiting, self.count = Random(1), {}, 100

    def submit(self, turn: Turn) -> int:
        self.count += 7
        self.waiting[self.count] = turn
        return self.count

    def poll(self) -> list[tuple[int, Reply]]:
        chosen = self.rng.sample(sorted(self.waiting), self.rng.randint(1, len(self.waiting)))
        return [(ticket, spoken(self.waiting.pop(ticket))) for ticket in chosen]


def wave() -> BatchedEngine:
    return BatchedEngine(lambda turns: [spoken(turn) for turn in turns])


ENGINES = {"wave": wave, "random": Scattered}


def conversation(index: int) -> Episode:
    """Episodes that drift out of phase: how many turns come next depends on what was said."""
    first = yield SPEAKER(word=f"a{index}")
    several = yield [SPEAKER(word=f"b{first.text}-{i}") for i in range(1 + int(first.text) % 3)]
    samples = [first.earns(1.0)] + [reply.earns(float(i), group_id=index) for i, reply in enumerate(several)]
    if index % 2:
        last = yield SPEAKER(word="c")
        samples.append(last.earns(-1.0))
    return Outcome(samples, trace=index)


def yields(what: object) -> Episode:
    yield SPEAKER(word="first")
    yield what
    return Outcome()


def returns(what: object, asked: int = 0) -> Episode:
    for _ in range(asked):
        yield SPEAKER(word="first")
    return what


@pytest.mark.parametrize("name", ENGINES)
def test_outcomes_and_keys_do_not_depend_on_the_engine(name: str) -> None:
    episodes = [*map(conversation, range(8)), returns(Outcome(trace=8))]  # the last one asks nothing
    outcomes = play(episodes, ENGINES[name](), (3, 5))
    assert [outcome.trace for outcome in outcomes] == list(range(9))
    assert outcomes[:8] == play([conversation(i) for i in range(8)], wave(), (3, 5))
    for i, outcome in enumerate(outcomes):
        assert [s.reply.turn.key for s in outcome.samples] == [(3, 5, i, n) for n in range(len(outcome.samples))]
        assert {s.reply.group_id for s in outcome.samples} <= {(3, 5, i)}
    shard = play([conversation(i) for i in (2, 6)], ENGINES[name](), (3, 5), numbers=(2, 6))
    assert shard == [outcomes[2], outcomes[6]], "a shard is keyed by global numbers"
    steps = EpisodeStepper(conversation(0), ENGINES[name](), (3, 5))
    list(steps)
    assert steps.outcome == outcomes[0] and play([], ENGINES[name]()) == []
    others = [play([conversation(0)], wave(), key)[0].samples[0].reply.text for key in ((3, 6), (4, 5))]
    assert outcomes[0].samples[0].reply.text not in others, "another key gives other samples"


def test_batched_answers_a_whole_wave_at_once_and_loses_no_turn() -> None:
    waves, usual = [], get_threshold()
    engine = BatchedEngine(lambda turns: waves.append((len(turns), *get_threshold())) or [Reply(t, "0") for t in turns])
    play([conversation(i) for i in range(4)], engine)  # one turn follows, and odd episodes say one more
    assert [wave[0] for wave in waves] == [4, 4, 2] and all(wave[2] > 10**6 for wave in waves), "old objects rest"
    with pytest.raises(ValueError, match="shorter"):
        play([conversation(0), conversation(1)], BatchedEngine(lambda turns: [spoken(turns[0])]))
    assert get_threshold() == usual
    for one in (engine, engine, *[Scattered()] * 2):  # what a call that was broken off had asked is answered to nobody
        with pytest.raises(TypeError, match="episode 1 returned None"):
            play([conversation(0), returns(None, 1)], one)
    assert len(one.answer([TURN])) == 1


TURN = SPEAKER(word="a")


@pytest.mark.parametrize("what", [None, "text", conversation(0), (TURN,), [TURN, "b"]], ids=range(5))
def test_mistakes_of_an_episode_are_named(what: object) -> None:
    with pytest.raises(TypeError, match=r"^episode 1 yielded .*Turn.*`yield from`"):
        play([conversation(0), yields(what)], wave())
    with pytest.raises(TypeError, match="^episode 0 yielded"):
        list(EpisodeStepper(yields(what), wave()))
    with pytest.raises(TypeError, match=r"^episode 2 returned .*Outcome"):
        play([conversation(0), conversation(1), returns(what, 1)], Scattered())


def test_an_empty_list_is_answered_at_once() -> None:
    def asks_nobody() -> Episode:
        said = yield []
        said += yield [TURN]
        said += yield []
        return Outcome(trace=[reply.turn.key for reply in said])

    assert [outcome.trace for outcome in play([asks_nobody(), asks_nobody()], wave())] == [[(0, 0)], [(1, 0)]]


def test_a_role_fills_its_fields_in_one_pass_and_names_wrong_ones() -> None:
    for fields in ({}, {"word": "a", "more": "b"}):
        with pytest.raises(ValueError, match=r"^role 'speaker' takes the fields \['word'\], got "):
            SPEAKER(**fields)
    assert prompts([SPEAKER(word="{word} \\1 {x}")]) == ["say {word} \\1 {x}"], "braces in a value are never expanded"
    assert prompts([SPEAKER(word="a\ud800")]) == ["say a?"], "no tokenizer takes half a surrogate pair"


def test_steps_by_hand() -> None:
    steps = EpisodeStepper(conversation(1), Scattered(), (2,))
    assert prompts(steps.pending_turns) == ["say a1"] and steps.outcome is None and steps.replies == []
    asked = steps.pending_turns[0]
    assert steps.answer(["4"]) == steps.replies == [Reply(asked, "4")]
    assert prompts(steps.pending_turns) == ["say b4-0", "say b4-1"]
    for wrong in (["one"], ["one", "two", "three"]):
        with pytest.raises(ValueError, match=f"2 turns are asked, {len(wrong)} replies given"):
            steps.answer(wrong)
    machine = Reply(steps.pending_turns[1], "two", completion_ids=(1, 2))
    steps.answer(["one", machine])  # strings and replies may be mixed, and a refused answer changed nothing
    assert prompts(steps.pending_turns) == ["say c"]
    (last,) = next(steps)  # the engine takes over
    assert steps.pending_turns == [] and list(steps) == [] and steps.outcome.trace == 1
    assert [s.reply for s in steps.outcome.samples] == steps.replies and steps.replies[2:] == [machine, last]
    with pytest.raises(ValueError, match="0 turns are asked"):
        steps.answer(["more"])


def test_the_tokens_of_all_replies_are_counted() -> None:
    steps = EpisodeStepper(conversation(1), BatchedEngine(lambda turns: [replace(spoken(turn), completion_ids=(1, 2, 3)) for turn in turns]))
    assert [*steps] and steps.outcome.generated == 3 * len(steps.replies) > 0
