"""Scripted episodes of SAGE in a world of sums, and the tasks that scripts propose."""

from collections.abc import Callable
from dataclasses import dataclass

from core.conftest import TESTS, Sums, prompts, scripted, text

from coevolve.methods.sage.method import SAGE
from coevolve.text.parse import tag
from coevolve.types import Outcome, Turn

Script = Callable[[Turn], str]

SUM = "<question>2+3</question><type>math</type><answer>5</answer>"
CODE_QUESTION = "f(1)=3 f(2)=6 f="
CODE = f"<question>{CODE_QUESTION}</question><type>code</type><tests>{TESTS}</tests>"
PROGRAM = "def f(x):\n    return 3 * x\n"
BLOCK = f"Three times.\n```python\n{PROGRAM}```"


@dataclass(frozen=True)
class Played:
    """Some scripted episodes of one step."""

    outcomes: list[Outcome]
    turns: list[Turn]
    method: SAGE

    @property
    def outcome(self) -> Outcome:
        """The only episode's outcome."""
        (outcome,) = self.outcomes
        return outcome

    @property
    def prompts(self) -> list[str]:
        """The prompts of all turns."""
        return prompts(self.turns)

    @property
    def speakers(self) -> list[str]:
        """The roles of all turns."""
        return [turn.role for turn in self.turns]


def script(
    challenge: str = SUM,
    quality: str = "<score>9</score>",
    plan: str = "<plan>add</plan>",
    plan_judgement: str = "<score>8</score>",
) -> Script:
    """Return a script of correct answers to sums, and of these replies of the other roles."""

    def solve(prompt: str) -> str:
        answer = Sums().answer(tag(prompt, "question") or "")
        is_sum = answer is not None and answer != "x*3"
        return f"<answer>{answer}</answer>" if is_sum else "none"

    def reply(turn: Turn) -> str:
        prompt = text(turn)
        if turn.role == "solver":
            return solve(prompt)
        critic = plan_judgement if "<plan>" in prompt else quality
        replies = {"challenger": challenge, "planner": plan, "critic": critic}
        return replies[turn.role]

    return reply


def play_script(reply: Script, count: int = 1, **fields) -> Played:
    """Play `count` episodes of SAGE by a script, in a world of sums unless `fields` names one."""
    fields.setdefault("world", Sums())
    method = SAGE(**fields)
    outcomes, turns = scripted(method, reply, range(count))
    return Played(outcomes, turns, method)
