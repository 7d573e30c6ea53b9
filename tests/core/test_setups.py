"""Inference set-ups with scripted replies: who reads what, who votes, what is counted.."""

import json
import re
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pytest

from coevolve import prompts, setups
from coevolve.driver import Batched, Steps, play
from coevolve.parse import boxed
from coevolve.setups import SETUPS, majority, read_answer
from coevolve.types import Outcome, Reply, Role, Turn

SOLVER = Role("solver", "solve {question}", "a", max_tokens=9, temperature=0.3)
OTHER = Role("solver", "think about {problem}", "b")
SAMPLES = Path(__file__).parents[1] / "data" / "hostile_strings.jsonl"


def answer(text: str) -> str:
    return f"so <answer>{text}</answer>"


def texts(turns: Sequence[Turn]) -> list[str]:
    return [turn.messages[0]["content"] for turn in turns]


def walk(steps: Steps, *waves: list[str]) -> tuple[list[list[Turn]], Outcome]:
    """Answer wave after wave by hand; return what was asked in each and how it ended."""
    asked = []
    for wave in waves:
        asked.append(steps.asked)
        steps.answer(wave)
    assert steps.outcome is not None, f"still asking {texts(steps.asked)}"
    return asked, steps.outcome


def start(name: str, agents: Sequence[Role] = (SOLVER,), **options: object) -> Steps:
    return Steps(SETUPS[name](agents, "1+1", read_answer, **options), Batched(lambda turns: []))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["1", "2", "2"], ("2", 2)),
        (["2", "1", "1", "2"], ("2", 2)),  # a tie: the one seen first
        (["1", "2", "2", "1"], ("1", 2)),
        ([None, None, "3"], ("3", 1)),  # unreadable answers do not vote, though there are more of them
        ([None, None], (None, 0)),
        ([], (None, 0)),
        (["", None, None], ("", 1)),  # empty is an answer, None is not
        (["01", "1", "1"], ("1", 2)),  # texts, not numbers
    ],
)
def test_majority(answers: list[str | None], expected: tuple[str | None, int]) -> None:
    assert majority(answers) == expected


def test_vanilla_asks_once() -> None:
    (asked,), outcome = walk(start("vanilla"), [answer("2")])
    assert texts(asked) == ["solve 1+1"]
    assert outcome.samples == []
    assert outcome.facts == {"answer": "2", "finished": True, "tokens_in": 0, "tokens_out": 0}


def test_vanilla_reads_only_the_solvers_own_form() -> None:
    _, outcome = walk(start("vanilla"), ["\\boxed{2}"])
    assert outcome.facts["answer"] is None


def test_consistency_takes_the_majority_of_five_samples_and_ties_go_to_the_first() -> None:
    said = [answer("3"), "?", answer("2"), answer("2"), answer("3")]
    (asked,), outcome = walk(start("consistency"), said)
    assert texts(asked) == ["solve 1+1"] * 5
    assert len({turn.key for turn in asked}) == 5  # so that the samples differ
    assert outcome.facts["answer"] == "3" and outcome.facts["votes"] == 2
    assert outcome.facts["answers"] == ["3", None, "2", "2", "3"]


def test_consistency_deals_its_samples_to_the_agents_in_turn() -> None:
    (asked,), _ = walk(start("consistency", [SOLVER, OTHER], samples=3), [answer("1")] * 3)
    assert [turn.policy for turn in asked] == ["a", "b", "a"]
    assert texts(asked) == ["solve 1+1", "think about 1+1", "solve 1+1"]


def test_debate_shows_everybody_the_others_last_solutions() -> None:
    steps = start("debate", seats=3, rounds=3)
    first, second = [answer("1"), answer("2"), answer("3")], ["\\boxed{4}", "\\boxed{5}", "none"]
    asked, outcome = walk(steps, first, second, [answer("7"), "x", answer("8")])
    assert texts(asked[0]) == ["solve 1+1"] * 3
    shown = ["<solution>\\boxed{1}</solution>", "<solution>\\boxed{2}</solution>", "<solution>\\boxed{3}</solution>"]
    head = "solve box<question>1+1</question>"
    assert texts(asked[1]) == [
        f"{head}{shown[0]}\n{shown[1]}\n{shown[2]}",
        f"{head}{shown[1]}\n{shown[0]}\n{shown[2]}",
        f"{head}{shown[2]}\n{shown[0]}\n{shown[1]}",
    ]
    own, *others = ["<solution>\\boxed{5}</solution>", "<solution>\\boxed{4}</solution>", "<solution>none</solution>"]
    assert texts(asked[2])[1] == head + "\n".join([own, *others])
    assert outcome.facts["answers"] == ["7", None, "8"]
    assert outcome.facts["answer"] == "7"


def test_debate_has_four_seats_and_three_rounds_unless_told_otherwise() -> None:
    asked, outcome = walk(start("debate"), *[[answer("2")] * 4] * 3)
    assert outcome.facts["votes"] == 4
    assert [turn.policy for turn in asked[2]] == ["a"] * 4


def test_later_rounds_speak_with_the_policy_heat_and_length_of_their_seat() -> None:
    asked, _ = walk(start("debate", [SOLVER, OTHER], seats=3, rounds=2), [answer("1")] * 3, [answer("2")] * 3)
    for wave in asked:
        said = [(turn.policy, turn.temperature, turn.max_tokens) for turn in wave]
        assert said == [("a", 0.3, 9), ("b", None, None), ("a", 0.3, 9)]


def test_full_prompts_show_solutions_whole() -> None:
    asked, _ = walk(start("debate", seats=2, rounds=2, prompt="full"), [answer("1"), answer("2")], ["\\boxed{1}"] * 2)
    first = texts(asked[1])[0]
    assert "Your own last solution:\n<solution>so <answer>1</answer></solution>\n" in first
    assert "other agents' last solutions:\n<solution>so <answer>2</answer></solution>\n" in first


def test_self_refine_criticises_and_solves_again_three_times() -> None:
    said = [answer("0")], ["1: wrong"], ["\\boxed{1}"], ["2: wrong"], ["\\boxed{2}"], ["2: right"], ["\\boxed{3}"]
    asked, outcome = walk(start("self_refine"), *said)
    prompt = [texts(wave)[0] for wave in asked]
    head, zero = "<question>1+1</question>", "<solution>\\boxed{0}</solution>"
    assert prompt[1] == f"evaluate{head}{zero}"
    first = f"{zero}\n<evaluation>1: wrong</evaluation>"
    assert prompt[2] == f"solve box{head}{first}"
    assert prompt[3] == f"evaluate{head}{first}<solution>\\boxed{{1}}</solution>"
    second = "<solution>\\boxed{1}</solution>\n<evaluation>2: wrong</evaluation>"
    third = "<solution>\\boxed{2}</solution>\n<evaluation>2: right</evaluation>"
    assert prompt[4] == f"solve box{head}{first}\n{second}"
    assert prompt[6] == f"solve box{head}{second}\n{third}"  # two rounds back, as in CoMAS
    assert outcome.facts["answers"] == ["0", "1", "2", "3"]
    assert outcome.facts["answer"] == "3"


def test_self_refine_is_one_policy_talking_to_itself() -> None:
    asked, _ = walk(start("self_refine", [SOLVER, OTHER], iterations=1), [answer("0")], ["no"], [answer("1")])
    assert [turn.policy for wave in asked for turn in wave] == ["a", "a", "a"]


def test_the_last_solution_counts_even_when_it_cannot_be_read() -> None:
    _, outcome = walk(start("self_refine", iterations=1), [answer("2")], ["2: right"], ["?"])
    assert outcome.facts["answer"] is None
    assert outcome.facts["answers"] == ["2", None]


@pytest.mark.parametrize("verdict", ["2: right", "fine\nverdict: right", "**Verdict: Right.**\n"])
def test_autogen_ends_when_the_proxy_accepts(verdict: str) -> None:
    asked, outcome = walk(start("autogen", [SOLVER, OTHER]), [answer("2")], [verdict])
    assert [wave[0].policy for wave in asked] == ["a", "b"]
    assert outcome.facts["answer"] == "2"


@pytest.mark.parametrize("verdict", ["2: wrong", "verdict: right or wrong", "alright", "", "right", ": righteous"])
def test_autogen_goes_on_otherwise_for_at_most_three_solutions(verdict: str) -> None:
    said = [answer("0")], [verdict], [answer("1")], [verdict], [answer("2")]
    asked, outcome = walk(start("autogen", [SOLVER, OTHER]), *said)
    assert [wave[0].policy for wave in asked] == ["a", "b", "a", "b", "a"]
    assert outcome.facts["answers"] == ["0", "1", "2"]
    before = f"<solution>\\boxed{{0}}</solution>\n<evaluation>{verdict}</evaluation>"
    assert texts(asked[3]) == [f"evaluate<question>1+1</question>{before}<solution>\\boxed{{1}}</solution>"]


def test_autogen_with_one_agent_talks_to_itself() -> None:
    asked, _ = walk(start("autogen"), [answer("2")], ["2: right"])
    assert asked[1][0].policy == "a"


def test_top_ranked_gives_the_answer_that_the_final_rankings_put_first() -> None:
    proposals = ["ANSWER: 1", "ANSWER: 2", "ANSWER: 3"]
    reviews = ["<initial_ranking></initial_ranking>"] * 3
    revised = [f"<revised_solution>ANSWER: {text}</revised_solution>" for text in ("4", "5", "")]
    verdicts = [f"<final_ranking>{text}</final_ranking>" for text in ("Agent 1 > Agent 2", "", "Agent 1 > Agent 0")]
    asked, outcome = walk(start("top_ranked", [SOLVER, OTHER], seats=3), proposals, reviews, revised, verdicts)
    assert [[turn.policy for turn in wave] for wave in asked] == [["a", "b", "a"]] * 4
    assert [turn.temperature for turn in asked[3]] == [0.3, None, 0.3]
    assert all("<question>1+1</question>" in text for wave in asked for text in texts(wave))
    assert outcome.facts["answers"] == ["4", "5", None]
    assert outcome.facts["answer"] == "5"  # agent 1 won both of its comparisons
    assert outcome.facts["scores"][1] > 0.5 > outcome.facts["scores"][0] == outcome.facts["scores"][2]


def test_top_ranked_without_any_vote_is_the_first_agents_answer() -> None:
    _, outcome = walk(start("top_ranked"), ["ANSWER: 1", *["ANSWER: 2"] * 3], *[["?"] * 4] * 3)
    assert outcome.facts["scores"] == [0.5] * 4
    assert outcome.facts["answer"] == "1"


@pytest.mark.parametrize("name", SETUPS)
def test_every_setup_earns_nothing_and_adds_up_what_all_its_replies_cost(name: str) -> None:
    count = 0

    def generate(turns: list[Turn]) -> list[Reply]:
        nonlocal count
        count += len(turns)
        return [Reply(turn, answer("2"), (1, 2, 3), (4, 5), finished=turn.key[-1] > 0) for turn in turns]

    (outcome,) = play([SETUPS[name]([SOLVER], "1+1", read_answer)], Batched(generate))
    assert outcome.samples == [] and outcome.adds == {}
    assert (outcome.facts["tokens_in"], outcome.facts["tokens_out"]) == (3 * count, 2 * count)
    assert outcome.facts["finished"] is False  # the very first reply was cut off


@pytest.mark.parametrize("name", SETUPS)
def test_no_reply_breaks_a_setup(name: str) -> None:
    samples = [json.loads(line)["input"] for line in SAMPLES.read_text(encoding="utf-8").splitlines()]
    hostile = [sample for sample in samples if isinstance(sample, str)]
    assert len(hostile) > 90
    told = cycle(hostile)
    episodes = [SETUPS[name]([SOLVER], "1+1", read) for read in (read_answer, boxed) for _ in hostile[::4]]
    outcomes = play(episodes, Batched(lambda turns: [Reply(turn, next(told)) for turn in turns]))
    assert all(o.facts["answer"] is None or isinstance(o.facts["answer"], str) for o in outcomes)


def test_a_users_mistakes_are_one_line() -> None:
    with pytest.raises(
        ValueError, match=r"^setup must be one of vanilla, .*, got 'vanila'; did you mean 'vanilla'[?]$"
    ):
        setups.find("vanila")
    with pytest.raises(ValueError, match=r"^agents must hold at least one solver"):
        start("vanilla", [])
    with pytest.raises(ValueError, match=r"^solver must have one placeholder.*\['discussion', 'problem'\]$"):
        start("debate", [prompts.load("comas", "solution", "compact")])
    with pytest.raises(ValueError, match=r"^samples must be at least 1, got 0$"):
        start("consistency", samples=0)


@pytest.mark.parametrize("role", ["feedback", "proxy", "revision", "debate"])
def test_compact_prompts_are_prompts_the_backbone_was_trained_on(role: str) -> None:
    known = {"feedback": "evaluation", "proxy": "evaluation", "revision": "solution", "debate": "solution"}[role]
    ours, trained = prompts.text("setups", role, "compact"), prompts.text("comas", known, "compact")
    assert re.sub(r"\{own\}\n\{others\}", "{discussion}", ours) == trained.replace("{problem}", "{question}")


@pytest.mark.parametrize("role", ["feedback", "proxy", "revision", "debate"])
def test_full_prompts_have_what_the_readers_need(role: str) -> None:
    text = prompts.text("setups", role)
    assert ("\\boxed{...}" in text) == (role in ("revision", "debate"))
    assert ("verdict: right\nverdict: wrong" in text) == (role == "proxy")
    assert "{question}" in text
