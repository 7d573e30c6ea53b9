"""Episodes without a model: an engine that says what a test tells it to."""

from collections.abc import Callable, Sequence
from random import Random

from coevolve.driver import Batched, Steps, play
from coevolve.method import Method
from coevolve.types import Outcome, Reply, Turn


class Scripted(Batched):
    """An engine that says what `say` makes of a turn, or the texts of a list in order; `asked` keeps the turns."""

    def __init__(self, say: Callable[[Turn], str | Reply] | Sequence[str] = ()):
        super().__init__(self.answer)
        texts = iter(() if callable(say) else say)
        self.say = say if callable(say) else lambda turn: next(texts)
        self.asked: list[Turn] = []

    def answer(self, turns: list[Turn]) -> list[Reply]:
        """Answer a wave."""
        self.asked += turns
        said = [(turn, self.say(turn)) for turn in turns]
        return [reply if isinstance(reply, Reply) else Reply(turn, reply) for turn, reply in said]


def text(turn: Turn) -> str:
    """Return what a turn's user says."""
    return turn.messages[0]["content"]


def texts(turns: Sequence[Turn]) -> list[str]:
    """Return what the user says in each turn."""
    return [text(turn) for turn in turns]


def begun(method: Method, seed: int = 0, key: tuple[int, ...] = ()) -> Steps:
    """Begin an episode to answer by hand; its outcome has facts."""
    return Steps(method.observed(Random(seed)), Scripted(), key)


def played(
    method: Method, say: Callable[[Turn], str | Reply] | Sequence[str], seed: int = 0, key: tuple[int, ...] = ()
) -> tuple[Outcome, list[Turn]]:
    """Play a whole episode; return its outcome with facts, and what was asked."""
    engine = Scripted(say)
    (outcome,) = play([method.observed(Random(seed))], engine, key)
    return outcome, engine.asked


def earned(outcome: Outcome, role: str | None = None) -> list[float]:
    """Return what was earned, by a role or by all."""
    return [sample.reward for sample in outcome.samples if role in (None, sample.role)]
