"""Control arm `format`: what the form of a prompt is, and that nothing else is paid."""

from collections import Counter

import pytest

from coevolve.methods.mae.method import MAE
from coevolve.methods.registry import get_method
from coevolve.text import prompts
from coevolve.training.controls import rewards
from coevolve.training.controls.forms import FORMS, has_form
from coevolve.types import Outcome, Reply, Sample, Turn


def answer(text: str, finished: bool = True) -> Sample:
    """Return a sample of MAE's Solver."""
    turn = Turn("solver", (), source="mae/solver", fields={"question": "1+1"})
    return Sample(Reply(turn, text, finished=finished), 0.5)


def test_format_pays_the_form_alone():
    wrong = answer("<answer>99</answer>")
    unreadable = answer("2")
    cut_off = answer("<answer>2</answer>", finished=False)
    (paid,) = rewards.by_form([Outcome([wrong, unreadable, cut_off])], MAE())
    assert [sample.reward for sample in paid.samples] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("role", "text", "expected"),
    [
        ("solver", "<answer>2</answer>", True),
        ("solver", "```python\nprint(2)\n```", True),
        ("solver", "2", False),
        (
            "challenger",
            "<question>q</question><type>math</type><answer>2</answer>",
            True,
        ),
        ("challenger", "<question>q</question><type>code</type><tests>t</tests>", True),
        (
            "challenger",
            "<question>q</question><type>code</type><answer>2</answer>",
            False,
        ),
        ("challenger", "<question>q</question><type>math</type>", False),
        ("challenger", "<question>q</question><answer>2</answer>", False),
    ],
)
def test_the_forms_of_sage_are_those_that_it_pays_for(role, text, expected):
    reply = Reply(Turn(role, (), source=f"sage/{role}"), text)
    assert has_form(reply, get_method("sage")()) is expected


@pytest.mark.parametrize("source", sorted(FORMS))
def test_every_form_belongs_to_a_shipped_prompt(source):
    paper, name = source.split("/")
    assert name in prompts.available(paper, "full")


def test_a_form_is_that_of_the_demonstrations():
    """Demonstrations that are well formed by the tiny world's patterns have the form here."""
    from tinyworld.demonstrations import ROLES, demonstrate, well_formed
    from tinyworld.demonstrator import Demonstrator

    rng = Demonstrator("forms")
    method = MAE()
    disagreements = Counter()
    for role in ROLES:
        for _ in range(60):
            shown = demonstrate(rng, role)
            reply = Reply(Turn("any", (), source=role), shown.completion)
            if role in FORMS and well_formed(role, shown.completion):
                disagreements[role] += not has_form(reply, method)
    assert not +disagreements
