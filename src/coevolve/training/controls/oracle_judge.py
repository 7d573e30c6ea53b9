"""An engine in which an oracle speaks for every judge, and the policies for all other roles.

A judge is known by its prompt, so no method needs to know that its judge has been replaced. The
oracle's replies hold no tokens and belong to no policy: they are never trained on.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, count
from typing import Any

from coevolve.rollout.engine import Engine, Ticket
from coevolve.text.parse import answer_line, boxed
from coevolve.training.controls.dial import Dial
from coevolve.types import Reply, Turn

ORACLE = "oracle"  # the policy of its replies
Fields = Mapping[str, Any]  # of a prompt
Key = tuple[int, ...]
Verdict = Callable[[Dial, Fields, Key], str]
SOLUTION = re.compile(r"Agent (\d+)<solution>(.*?)</solution>", re.DOTALL)
INITIAL_RANKING = re.compile(r"<initial_ranking>.*?</initial_ranking>", re.DOTALL)


def _score_of_ten(is_good: bool) -> str:
    return f"<score>{10 if is_good else 1}</score>"


def _score_of_three(is_good: bool) -> str:
    return f"<score>{3 if is_good else 1}</score>"


def _judge_answer(dial: Dial, fields: Fields, key: Key) -> str:
    """MAE and SAGE: a score of ten for an answer."""
    is_correct = dial.answer_is_correct(fields["question"], fields["answer"], key)
    return _score_of_ten(is_correct)


def _judge_question(dial: Dial, fields: Fields, key: Key) -> str:
    """MAE and SAGE: a score of ten for a question."""
    return _score_of_ten(dial.question_is_well_formed(fields["question"], key))


def _judge_plan(dial: Dial, fields: Fields, key: Key) -> str:
    """SAGE: a score of ten for a plan."""
    return _score_of_ten(dial.plan_fits(fields["question"], fields["plan"], key))


def _solution_is_correct(dial: Dial, fields: Fields, key: Key) -> bool:
    answer = boxed(fields["solution"])
    return dial.answer_is_correct(fields["problem"], answer, key)


def _evaluate(dial: Dial, fields: Fields, key: Key) -> str:
    """CoMAS: an evaluation in words."""
    return "right" if _solution_is_correct(dial, fields, key) else "wrong"


def _judge_solution(dial: Dial, fields: Fields, key: Key) -> str:
    """CoMAS without scoring: an evaluation that ends in a judgment."""
    word = "correct" if _solution_is_correct(dial, fields, key) else "incorrect"
    return f"<judgment>{word}</judgment>"


def _score_solution(dial: Dial, fields: Fields, key: Key) -> str:
    """CoMAS: a score of three for a solution."""
    return _score_of_three(_solution_is_correct(dial, fields, key))


def _rank(dial: Dial, fields: Fields, key: Key) -> str:
    """CoNL: one line per pair of agents; the right one wins, two right or two wrong ones tie."""
    is_correct = {}
    for number, text in SOLUTION.findall(fields["solutions"]):
        agent = int(number)
        is_correct[agent] = dial.answer_is_correct(
            fields["query"], answer_line(text), (*key, agent)
        )
    lines = []
    for first, second in combinations(is_correct, 2):
        if is_correct[first] == is_correct[second]:
            lines.append(f"Agent {first} = Agent {second}")
        elif is_correct[first]:
            lines.append(f"Agent {first} > Agent {second}")
        else:
            lines.append(f"Agent {second} > Agent {first}")
    return "\n".join(lines)


def _final_ranking(dial: Dial, fields: Fields, key: Key) -> str:
    return f"<final_ranking>{_rank(dial, fields, key)}</final_ranking>"


VERDICTS: dict[str, Verdict] = {  # by the source of a judge's prompt
    "mae/judge_answer": _judge_answer,
    "mae/judge_question": _judge_question,
    "sage/critic_question": _judge_question,
    "sage/critic_plan": _judge_plan,
    "comas/evaluation": _evaluate,
    "comas/judgment": _judge_solution,
    "comas/scoring": _score_solution,
    "comas/scoring_alone": _score_solution,
    "conl/verdict": _final_ranking,
}
REVIEW = "conl/review"  # ranks and criticises: the oracle takes over the ranking alone


def has_judge(sources: Sequence[str]) -> bool:
    """Whether one of these prompts is a judge's."""
    return any(source in VERDICTS for source in sources)


class OracleJudge(Engine):
    """Answers the turns of judges by the verdicts of a `Dial`, and passes on all others."""

    def __init__(self, engine: Engine, dial: Dial):
        """`engine` answers for the policies, and is still the one to put to sleep and to close."""
        self.engine = engine
        self.dial = dial
        self.remote = engine.remote
        self.numbers = count()
        self.written: list[tuple[Ticket, Reply]] = []

    def submit(self, turn: Turn) -> Ticket:
        """Write a judge's reply at once, or pass the turn on."""
        write = VERDICTS.get(turn.source)
        if write is None:
            return "policy", self.engine.submit(turn)
        ticket = (ORACLE, next(self.numbers))
        text = write(self.dial, turn.fields, turn.key)
        reply = Reply(replace(turn, policy=ORACLE), text)
        self.written.append((ticket, reply))
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Return what the oracle has written, or else finished replies of the policies."""
        if self.written:
            finished, self.written = self.written, []
            return finished
        finished = []
        for ticket, reply in self.engine.poll():
            if reply.turn.source == REVIEW:
                reply = self._with_oracles_ranking(reply)
            finished.append((("policy", ticket), reply))
        return finished

    def _with_oracles_ranking(self, review: Reply) -> Reply:
        """Put the oracle's ranking into a review; a review without one gets it in front.

        The critiques stay the policy's, with the tokens that wrote them.
        """
        turn = review.turn
        ranking = _rank(self.dial, turn.fields, turn.key)
        block = f"<initial_ranking>{ranking}</initial_ranking>"
        own = INITIAL_RANKING.search(review.text)
        start, end = own.span() if own else (0, 0)
        return replace_text(review, start, end, block)


def replace_text(reply: Reply, start: int, end: int, new: str) -> Reply:
    """Replace characters of a reply; the tokens around them keep their places in the text.

    A token that ends within the replaced characters ends with the new ones.
    """
    text = reply.text[:start] + new + reply.text[end:]
    shift = len(new) - (end - start)
    char_ends = []
    for char_end in reply.char_ends:
        if char_end <= start:
            char_ends.append(char_end)
        else:
            char_ends.append(max(char_end, end) + shift)
    return replace(reply, text=text, char_ends=tuple(char_ends))
