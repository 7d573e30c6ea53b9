"""Inference set-ups with scripted replies: who reads what, who votes, what is counted."""

import re
from itertools import cycle

import pytest
from core.conftest import Scripted, prompts
from hostile import CORPUS

from coevolve.evaluation import strategies
from coevolve.evaluation.conversation import Room
from coevolve.evaluation.scoring import score
from coevolve.evaluation.strategies import SETUPS
from coevolve.methods.base import Method
from coevolve.methods.spice import SPICE
from coevolve.rollout.scheduler import play
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.rollout.voting import majority
from coevolve.text.prompts import read
from coevolve.types import Outcome, Reply, Role, Turn

HEAD = "<question>1+1</question>"


class Solve(Method):
    """A method with a solver's prompt of its own, which says how long a reply may be."""

    def define_roles(self) -> None:
        self.solver = Role("solver", "solve {problem}", max_tokens=9)


def says(*answers: object) -> list[str]:
    return [f"so <answer>{answer}</answer>" for answer in answers]


def shows(*solutions: object) -> list[str]:
    return [f"<solution>\\boxed{{{solution}}}</solution>" for solution in solutions]


def walk(
    name: str, *waves: list[str], speak="a", prompt="compact", **numbers
) -> tuple[list[list[Turn]], Outcome]:
    """Answer wave after wave of a set-up by hand; return what was asked in each and how it ended."""
    room = Room(Solve(prompt=prompt), "1+1", tuple(speak), 0.3)
    steps, asked = EpisodeStepper(SETUPS[name](room, **numbers), Scripted()), []
    for wave in waves:
        asked.append(steps.pending_turns)
        steps.answer(wave)
    assert steps.outcome is not None, f"still asking {prompts(steps.pending_turns)}"
    return asked, steps.outcome


def policies(asked: list[list[Turn]]) -> list[str]:
    """Return who speaks in every wave, such as "aab"."""
    return ["".join(turn.policy for turn in wave) for wave in asked]


def test_majority() -> None:
    votes = {
        ("1", "2", "2"): ("2", 2),
        ("2", "1", "1", "2"): ("2", 2),  # a tie: the one seen first
        (None, None, "3"): (
            "3",
            1,
        ),  # unreadable answers do not vote, though there are more of them
        (None, None): (None, 0),
        (): (None, 0),
        ("", None, None): ("", 1),  # empty is an answer, None is not
        ("01", "1", "1"): ("1", 2),  # texts, not numbers
    }
    assert {answers: majority(answers) for answers in votes} == votes


def test_vanilla_asks_once_and_reads_only_the_solvers_own_form() -> None:
    (asked,), outcome = walk("vanilla", says(2))
    assert prompts(asked) == ["solve 1+1"] and outcome.samples == []
    assert outcome.facts == {
        "answer": "2",
        "finished": True,
        "tokens_in": 0,
        "tokens_out": 0,
    }
    assert walk("vanilla", ["\\boxed{2}"])[1].facts["answer"] is None


def test_consistency_takes_the_majority_of_five_samples_of_the_agents_in_turn() -> None:
    said = [*says(3), "?", *says(2, 2, 3)]
    (asked,), outcome = walk("consistency", said, speak="ab")
    assert prompts(asked) == ["solve 1+1"] * 5
    assert (
        policies([asked]) == ["ababa"] and len({turn.key for turn in asked}) == 5
    )  # so that the samples differ
    assert outcome.facts["answer"] == "3" and outcome.facts["votes"] == 2, (
        "ties go to the first"
    )
    assert outcome.facts["answers"] == ["3", None, "2", "2", "3"]
    assert len(walk("consistency", says(1), samples=1)[0][0]) == 1


def test_debate_shows_everybody_the_others_last_solutions() -> None:
    last = ["\\boxed{4}", "\\boxed{5}", "none"]
    asked, outcome = walk(
        "debate", says(1, 2, 3), last, [*says(7), "x", *says(8)], agents=3
    )
    one, two, three = shows(1, 2, 3)
    assert prompts(asked[0]) == ["solve 1+1"] * 3
    orders = [one, two, three], [two, one, three], [three, one, two]
    assert prompts(asked[1]) == [
        f"solve box{HEAD}" + "\n".join(order) for order in orders
    ]
    four, five = shows(4, 5)
    assert prompts(asked[2])[1] == f"solve box{HEAD}" + "\n".join(
        [five, four, "<solution>none</solution>"]
    )
    assert (
        outcome.facts["answers"] == ["7", None, "8"] and outcome.facts["answer"] == "7"
    )
    assert walk("debate", *[says(2) * 4] * 3)[1].facts["votes"] == 4, (
        "four seats and three rounds"
    )


def test_later_rounds_speak_with_the_policy_temperature_and_length_of_their_seat() -> (
    None
):
    asked, _ = walk(
        "debate", says(1, 1, 1), says(2, 2, 2), speak="ab", agents=3, rounds=2
    )
    for wave in asked:
        said = [(turn.policy, turn.temperature, turn.max_tokens) for turn in wave]
        assert said == [("a", 0.3, 9), ("b", 0.3, 9), ("a", 0.3, 9)]


def test_full_prompts_show_solutions_whole() -> None:
    asked, _ = walk(
        "debate", says(1, 2), ["\\boxed{1}"] * 2, agents=2, rounds=2, prompt="full"
    )
    first = prompts(asked[1])[0]
    assert (
        "Your own last solution:\n<solution>so <answer>1</answer></solution>\n" in first
    )
    assert (
        "other agents' last solutions:\n<solution>so <answer>2</answer></solution>\n"
        in first
    )


def test_self_refine_criticises_and_solves_again_three_times_with_one_policy() -> None:
    said = (
        says(0),
        ["1: wrong"],
        ["\\boxed{1}"],
        ["2: wrong"],
        ["\\boxed{2}"],
        ["2: right"],
        ["\\boxed{3}"],
    )
    asked, outcome = walk("self_refine", *said, speak="ab")
    prompt, (zero, one, two) = [prompts(wave)[0] for wave in asked], shows(0, 1, 2)
    first = f"{zero}\n<evaluation>1: wrong</evaluation>"
    second, third = (
        f"{one}\n<evaluation>2: wrong</evaluation>",
        f"{two}\n<evaluation>2: right</evaluation>",
    )
    assert (
        prompt[1] == f"evaluate{HEAD}{zero}" and prompt[2] == f"solve box{HEAD}{first}"
    )
    assert (
        prompt[3] == f"evaluate{HEAD}{first}{one}"
        and prompt[4] == f"solve box{HEAD}{first}\n{second}"
    )
    assert (
        prompt[6] == f"solve box{HEAD}{second}\n{third}"
    )  # two rounds back, as in CoMAS
    assert (
        outcome.facts["answers"] == ["0", "1", "2", "3"]
        and outcome.facts["answer"] == "3"
    )
    assert policies(asked) == ["a"] * 7
    _, outcome = walk("self_refine", says(2), ["2: right"], ["?"], iterations=1)
    assert outcome.facts["answer"] is None, (
        "the last solution counts even when it cannot be read"
    )


@pytest.mark.parametrize(
    "verdict", ["2: right", "fine\nverdict: right", "**Verdict: Right.**\n"]
)
def test_autogen_ends_when_the_proxy_accepts(verdict: str) -> None:
    asked, outcome = walk("autogen", says(2), [verdict], speak="ab")
    assert policies(asked) == ["a", "b"] and outcome.facts["answer"] == "2"
    assert policies(walk("autogen", says(2), [verdict])[0]) == ["a", "a"], (
        "one agent talks to itself"
    )


@pytest.mark.parametrize(
    "verdict",
    ["2: wrong", "verdict: right or wrong", "alright", "", "right", ": righteous"],
)
def test_autogen_goes_on_otherwise_for_at_most_three_solutions(verdict: str) -> None:
    asked, outcome = walk(
        "autogen", says(0), [verdict], says(1), [verdict], says(2), speak="ab"
    )
    assert policies(asked) == ["a", "b", "a", "b", "a"] and outcome.facts[
        "answers"
    ] == ["0", "1", "2"]
    zero, one = shows(0, 1)
    assert prompts(asked[3]) == [
        f"evaluate{HEAD}{zero}\n<evaluation>{verdict}</evaluation>{one}"
    ]


def test_top_ranked_gives_the_answer_that_the_final_rankings_put_first() -> None:
    proposals, reviews = (
        ["ANSWER: 1", "ANSWER: 2", "ANSWER: 3"],
        ["<initial_ranking></initial_ranking>"] * 3,
    )
    revised = [
        f"<revised_solution>ANSWER: {answer}</revised_solution>"
        for answer in ("4", "5", "")
    ]
    verdicts = [
        f"<final_ranking>{votes}</final_ranking>"
        for votes in ("Agent 1 > Agent 2", "", "Agent 1 > Agent 0")
    ]
    asked, outcome = walk(
        "top_ranked", proposals, reviews, revised, verdicts, speak="ab", agents=3
    )
    assert policies(asked) == ["aba"] * 4 and {
        turn.temperature for turn in asked[3]
    } == {0.3}
    assert all(HEAD in prompt for wave in asked for prompt in prompts(wave))
    assert outcome.facts["answers"] == ["4", "5", None]
    assert outcome.facts["answer"] == "5"  # agent 1 won both of its comparisons
    assert (
        outcome.facts["scores"][1]
        > 0.5
        > outcome.facts["scores"][0]
        == outcome.facts["scores"][2]
    )
    _, outcome = walk("top_ranked", ["ANSWER: 1", *["ANSWER: 2"] * 3], *[["?"] * 4] * 3)
    assert outcome.facts["scores"] == [0.5] * 4 and outcome.facts["answer"] == "1", (
        "no votes: the first agent's"
    )


@pytest.mark.parametrize("name", SETUPS)
def test_every_setup_earns_nothing_and_adds_up_what_all_its_replies_cost(
    name: str,
) -> None:
    engine = Scripted(
        lambda turn: Reply(turn, *says(2), (1, 2, 3), (4, 5), finished=turn.key[-1] > 0)
    )
    (outcome,) = play([SETUPS[name](Room(Solve(), "1+1"))], engine)
    assert outcome.samples == [] and outcome.adds == {}
    count = len(engine.asked)
    assert (outcome.facts["tokens_in"], outcome.facts["tokens_out"]) == (
        3 * count,
        2 * count,
    )
    assert outcome.facts["finished"] is False  # the very first reply was cut off


@pytest.mark.parametrize("name", SETUPS)
def test_no_reply_breaks_a_setup(name: str) -> None:
    hostile = [entry["input"] for entry in CORPUS if isinstance(entry["input"], str)]
    told = cycle(hostile)
    episodes = [
        SETUPS[name](Room(method, "1+1"))
        for method in (Solve(), SPICE())
        for _ in hostile[::8]
    ]
    outcomes = play(episodes, Scripted(lambda turn: next(told)))
    assert all(
        o.facts["answer"] is None or isinstance(o.facts["answer"], str)
        for o in outcomes
    )


def test_a_users_mistakes_are_one_line() -> None:
    unknown = r"^setup must be one of vanilla, .*'vanila'; did you mean 'vanilla'[?]$"
    with pytest.raises(ValueError, match=unknown):
        strategies.ask(Scripted(), "1+1", "vanila")
    with pytest.raises(ValueError, match=unknown):
        score(Scripted(), Solve(), [], "vanila")
    with pytest.raises(ValueError, match=r"^samples must be at least 1, got 0$"):
        strategies.ask(Scripted(), "1+1", "consistency", samples=0)
    two = Solve()
    two.solver = Role("solver", "{problem} {discussion}")
    with pytest.raises(
        ValueError,
        match=r"^solver must have one placeholder.*\['discussion', 'problem'\]$",
    ):
        Room(two, "1+1")


KNOWN = {
    "feedback": "evaluation",
    "proxy": "evaluation",
    "revision": "solution",
    "debate": "solution",
}


@pytest.mark.parametrize(("role", "known"), KNOWN.items())
def test_compact_prompts_are_known_to_the_backbone_and_full_ones_suit_the_readers(
    role: str, known: str
) -> None:
    ours, trained = read("strategies", role, "compact"), read("comas", known, "compact")
    assert re.sub(r"\{own\}\n\{others\}", "{discussion}", ours) == trained.replace(
        "{problem}", "{question}"
    )
    full = read("strategies", role)
    assert ("\\boxed{...}" in full) == (role in ("revision", "debate"))
    assert ("verdict: right\nverdict: wrong" in full) == (role == "proxy")
    assert "{question}" in full
