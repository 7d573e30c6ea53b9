"""CoNL's rewards (section 3.2, Appendix H) and its rankings, by hand, by brute force and on hostile text."""

import json
import math
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from coevolve.papers.conl import reading as rankings
from coevolve.papers.conl.reading import Ranking, critiques, ranking
from coevolve.papers.conl.rewards import bradley_terry, diagnostic, expected_diagnostic, majority_alignment

STRINGS = Path(__file__).parents[1] / "data" / "hostile_strings.jsonl"
CORPUS = [json.loads(line) for line in STRINGS.read_text(encoding="utf-8").splitlines()]


def brute_force(comparisons: list, n: int, variance: float = 1.0) -> np.ndarray:
    """Maximise likelihood times prior with a general-purpose optimiser, from the formula as printed."""

    def cost(theta: np.ndarray) -> float:
        total = sum(value**2 for value in theta) / (2 * variance)
        for winner, loser, weight in comparisons:
            top = max(theta[winner], theta[loser])
            both = math.exp(theta[winner] - top) + math.exp(theta[loser] - top)
            total -= weight * (theta[winner] - top - math.log(both))
        return total

    found = minimize(cost, np.zeros(n), method="BFGS", options={"gtol": 1e-8})
    return 1 / (1 + np.exp(-found.x))


def random_table(rng: np.random.Generator) -> tuple[list, int]:
    """A table of 1 to 6 agents and 0 to 24 comparisons, with repeats, ties and agents that nobody mentions."""
    n = int(rng.integers(1, 7))
    pairs = rng.integers(0, n, (int(rng.integers(0, 25)), 2)).tolist()
    table = [(a, b, float(rng.choice([0.5, 1.0, 1.0, 3.0]))) for a, b in pairs if a != b]
    return table + [(b, a, weight) for a, b, weight in table if weight == 0.5], n


def test_bradley_terry_finds_what_brute_force_finds_on_1000_tables() -> None:
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(1000):
        table, n = random_table(rng)
        values = bradley_terry(table, n)
        assert len(values) == n and all(0 < value < 1 for value in values)
        worst = max(worst, float(np.abs(brute_force(table, n) - values).max()))
    assert worst < 2e-5


def test_bradley_terry_by_hand() -> None:
    assert bradley_terry([], 3) == [0.5, 0.5, 0.5] and bradley_terry([], 0) == []
    # one win: theta = (t, -t) with t = sigmoid(-2 t)
    t = 0.337416
    assert t == pytest.approx(1 / (1 + math.exp(2 * t)), abs=1e-5)
    won, lost, unseen = bradley_terry([(0, 1, 1.0)], 3)
    assert (won, lost, unseen) == (pytest.approx(1 / (1 + math.exp(-t)), abs=1e-5), pytest.approx(1 - won), 0.5)
    # the example of Appendix H; the paper prints (0.75, 0.55, 0.30) without saying how
    example = [(0, 1, 1.0)] * 3 + [(1, 2, 1.0)] * 2 + [(0, 2, 1.0)] * 4
    assert bradley_terry(example, 3) == pytest.approx([0.753, 0.473, 0.268], abs=5e-4)
    peers = [(a, b, 1.0) for judge in range(4) for a in range(4) for b in range(a + 1, 4) if judge not in (a, b)]
    assert bradley_terry(peers, 4) == pytest.approx([0.761, 0.592, 0.408, 0.239], abs=5e-4)


def test_bradley_terry_is_finite_and_fair_where_maximum_likelihood_is_not() -> None:
    cycle = [(0, 1, 1.0), (1, 2, 1.0), (2, 0, 1.0)]
    assert bradley_terry(cycle, 3) == pytest.approx([0.5] * 3)
    tied = [(0, 1, 0.5), (1, 0, 0.5)]
    assert bradley_terry(tied, 2) == pytest.approx([0.5, 0.5])
    islands = bradley_terry([(0, 1, 1.0), (2, 3, 1.0)], 4)
    assert islands == pytest.approx([islands[0], 1 - islands[0]] * 2)
    million = bradley_terry([(0, 1, 1e6)], 4)
    assert million[0] == pytest.approx(1 / (1 + math.exp(-6.01)), abs=1e-3) and million[2:] == [0.5, 0.5]
    lopsided = bradley_terry([(0, 1, 1e15), (1, 0, 1.0)], 2)
    assert sum(lopsided) == pytest.approx(1) and 0 < lopsided[1] < 1e-6
    assert bradley_terry([(0, 0, 5.0)], 2) == [0.5, 0.5], "compared with itself"
    weak, strong = (bradley_terry([(0, 1, 1.0)], 2, variance)[0] for variance in (0.01, 100.0))
    assert 0.5 < weak < 0.51 < 0.85 < strong < 1


@pytest.mark.parametrize(
    ("table", "n", "field"),
    [
        ([(0, 2, 1.0)], 2, "comparisons"),
        ([(-1, 0, 1.0)], 2, "comparisons"),
        ([(0, 1, -1.0)], 2, "comparisons"),
        ([(0, 1, math.nan)], 2, "comparisons"),
        ([(0, 1, math.inf)], 2, "comparisons"),
    ],
)
def test_bradley_terry_names_what_is_wrong(table: list, n: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        bradley_terry(table, n)
    with pytest.raises(ValueError, match="prior_variance"):
        bradley_terry([], 2, 0.0)


VOTES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from([0.5, 1.0, 50.0])), max_size=20)


@given(VOTES, st.permutations(range(4)))
def test_bradley_terry_keeps_its_symmetries(votes: list, names: list) -> None:
    values = bradley_terry(votes, 4)
    turned = bradley_terry([(b, a, weight) for a, b, weight in votes], 4)
    assert turned == pytest.approx([1 - value for value in values], abs=1e-9)
    renamed = bradley_terry([(names[a], names[b], weight) for a, b, weight in votes], 4)
    assert [renamed[names[i]] for i in range(4)] == pytest.approx(values, abs=1e-9)
    better = bradley_terry([*votes, (0, 1, 1.0)], 4)
    assert better[0] > values[0] - 1e-12 and better[1] < values[1] + 1e-12


def test_diagnostic_reward_pays_only_improvements_of_those_criticised() -> None:
    before, after = [0.43, 0.65, 0.58, 0.38], [0.71, 0.60, 0.58, 0.40]
    assert diagnostic([0], before, after) == pytest.approx(0.28)
    assert diagnostic([0, 1, 2, 3], before, after) == pytest.approx(0.28 + 0 + 0 + 0.02)
    assert diagnostic([1], before, after) == 0.0 and diagnostic([], before, after) == 0.0
    assert expected_diagnostic([0, 1], before, after) == pytest.approx((0.28 + 0.05) / 2)
    order = (diagnostic([0, 1, 3], before, after) + diagnostic([0, 1, 3], after, before)) / 2
    assert expected_diagnostic([0, 1, 3], before, after) == pytest.approx(order)


def test_case_studies_multiply_by_five() -> None:
    """Appendix K: 5.0 x (0.71 - 0.43) = 1.40, 5.0 x max(0, 0.80 - 0.82) = 0, 5.0 x (0.70 - 0.45) = 1.25."""
    assert 5 * diagnostic([0], [0.43], [0.71]) == pytest.approx(1.40)
    assert 5 * diagnostic([0], [0.82], [0.80]) == 0
    assert 5 * diagnostic([0], [0.45], [0.70]) == pytest.approx(1.25)


@pytest.mark.parametrize(("skill", "level"), [(1.0, 0.0), (0.8, 0.10), (0.5, 0.17), (0.0, 0.20)])
def test_null_level_of_the_diagnostic_reward(skill: float, level: float) -> None:
    """Nobody changes anything, everybody criticises three peers: what noise alone pays (spec: 0.10 to 0.20)."""
    rng, paid = np.random.default_rng(1), []
    for _ in range(300):
        V = []
        for _ in range(2):
            votes = []
            for judge in range(4):
                peers = [k for k in range(4) if k != judge]
                order = peers if rng.random() < skill else rng.permutation(peers).tolist()
                votes += [(order[a], order[b], 1.0) for a, b in ((0, 1), (0, 2), (1, 2))]
            V.append(bradley_terry(votes, 4))
        paid += [diagnostic([k for k in range(4) if k != judge], *V) for judge in range(4)]
    assert np.mean(paid) == pytest.approx(level, abs=0.02)


def test_majority_alignment_by_hand() -> None:
    def win(a: int, b: int) -> tuple[int, int, float]:
        return a, b, 1.0

    everyone = [[win(0, 1), win(2, 3)], [win(0, 1), win(3, 2)], [win(1, 0)]]
    # 0 over 1 leads 2 : 1; 2 against 3 is split evenly and leaves the mean
    assert [majority_alignment(votes, everyone) for votes in everyone] == [1.0, 1.0, 0.0]
    assert majority_alignment([win(0, 1), win(3, 2), win(1, 2)], [*everyone, [win(1, 2)]]) == 1.0
    assert majority_alignment([win(2, 3)], everyone) is None, "only a split pair: nothing to compare with"
    assert majority_alignment([], everyone) == 0.0, "nothing readable"
    assert majority_alignment([(0, 1, 0.5), (1, 0, 0.5)], everyone) is None, "a tie is no vote"
    assert majority_alignment([win(0, 1)], [[win(0, 1)], [(0, 1, 0.5), (1, 0, 0.5)]]) == 1.0
    half = [[win(0, 1), win(2, 1)], [win(0, 1), win(1, 2)], [win(0, 1), win(1, 2)]]
    assert majority_alignment(half[0], half) == 0.5


def test_a_lone_vote_agrees_with_itself_unless_it_is_left_out() -> None:
    lone = [[(0, 1, 1.0)], [(2, 3, 1.0)]]
    assert majority_alignment(lone[0], lone) == 1.0
    assert majority_alignment(lone[0], lone, leave_one_out=True) is None
    pair = [[(0, 1, 1.0)], [(1, 0, 1.0)], [(0, 1, 1.0)]]
    assert [majority_alignment(votes, pair, True) for votes in pair] == [None, 0.0, None]
    split = [[(0, 1, 1.0)], [(1, 0, 1.0)]]
    assert majority_alignment(split[0], split) is None and majority_alignment(split[0], split, True) == 0.0


@pytest.mark.parametrize("entry", [e for e in CORPUS if e["kind"].startswith("conl_")], ids=lambda entry: entry["id"])
def test_corpus(entry: dict) -> None:
    if entry["kind"] == "conl_critique":
        assert [c.target for c in critiques(entry["input"], 4, 1)] == entry["expected"]["targets"]
        return
    read = ranking(entry["input"], "final_ranking", 4, 1)
    assert [list(vote) for vote in read.comparisons] == entry["expected"]["comparisons"]
    assert read.dropped == entry["expected"]["dropped_lines"]


def test_corpus_has_rankings_and_critiques() -> None:
    assert {"conl_ranking", "conl_critique"} <= {entry["kind"] for entry in CORPUS}


@pytest.mark.parametrize(
    ("lines", "votes", "dropped"),
    [
        ("Agent 0 < Agent 2", [(2, 0, 1.0)], 0),
        ("Agent 0>Agent 2\r\nAgent 3  =  Agent 2", [(0, 2, 1.0), (2, 3, 0.5), (3, 2, 0.5)], 0),
        ("Agent 0 > Agent 2 > Agent 3", [(0, 2, 1.0), (2, 3, 1.0)], 0),
        ("Agent 0 > Agent 2 = Agent 3 < Agent 0", [(0, 2, 1.0), (2, 3, 0.5), (3, 2, 0.5), (0, 3, 1.0)], 0),
        ("Agent 0 > Agent 2\nAgent 2 > Agent 0", [], 2),
        ("Agent 0 > Agent 2\nAgent 2 < Agent 0", [(0, 2, 1.0)], 1),
        ("Agent 0 > Agent 2\nAgent 0 = Agent 2\nAgent 2 > Agent 3", [(2, 3, 1.0)], 2),
        ("Agent 0 > Agent 1 > Agent 2", [], 1),
        ("Agent 4 > Agent 0", [], 1),
        ("Agent 00 > Agent 2", [], 1),
        ("Agent -1 > Agent 2", [], 1),
        ("Agent \u0662 > Agent 0", [], 1),
        ("Agent \uff12 > Agent 0", [], 1),
        ("Agent 2\u200b > Agent 0", [], 1),
        ("Agent 0 > Agent 2 because it is right", [], 1),
        ("I say Agent 0 > Agent 2", [], 1),
        ("0 > 2", [], 1),
        ("agent 0 > agent 2", [], 1),
        ("Agent 0 >> Agent 2", [], 1),
        ("Agent 0 > ", [], 1),
        ("Agent 0", [], 1),
        ("Agent 0 > Agent 2, Agent 3", [], 1),
        ("\n\n  Agent 0 > Agent 2  \n\n", [(0, 2, 1.0)], 0),
        ("2) Agent 0 > Agent 2\n\u2022 Agent 2 > Agent 3", [(0, 2, 1.0), (2, 3, 1.0)], 0),
        ("Agent 9999999999999999 > Agent 0", [], 1),
        ("", [], 0),
        ("...", [], 1),
    ],
)
def test_ranking_lines(lines: str, votes: list, dropped: int) -> None:
    assert ranking(f"<think>so</think><initial_ranking>{lines}</initial_ranking>", "initial_ranking", 4, 1) == (
        Ranking(tuple(votes), dropped)
    )


@pytest.mark.parametrize(
    "text",
    [
        "Agent 0 > Agent 2",
        "<final_ranking>Agent 0 > Agent 2",
        "</final_ranking>Agent 0 > Agent 2<final_ranking>",
        "<final_ranking><final_ranking>Agent 0 > Agent 2</final_ranking></final_ranking>",
        "<Final_Ranking>Agent 0 > Agent 2</Final_Ranking>",
        "<final_ranking >Agent 0 > Agent 2</final_ranking>",
    ],
)
def test_without_exactly_one_pair_of_tags_there_is_no_vote(text: str) -> None:
    assert ranking(text, "final_ranking", 4) == Ranking() and rankings.span(text, "final_ranking") is None


def test_own_votes_count_only_when_asked_for() -> None:
    text = "<final_ranking>Agent 1 > Agent 0\nAgent 0 > Agent 2</final_ranking>"
    assert ranking(text, "final_ranking", 3, 1).comparisons == ((0, 2, 1.0),)
    assert ranking(text, "final_ranking", 3).comparisons == ((1, 0, 1.0), (0, 2, 1.0))


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            '<critique target="Agent 2">sign</critique>x<critique target="Agent 0"> edge </critique>',
            [(2, "sign"), (0, "edge")],
        ),
        ('<critique target="Agent 2">a</critique><critique target="Agent 2">b</critique>', [(2, "a")]),
        ('<critique target="Agent 1">me</critique>', []),
        ('<critique target="Agent 2"> </critique>', []),
        ('<critique target="Agent 2">[Your critique of Agent X]</critique>', []),
        ("<critique>x</critique>", []),
        ('<critique target="2">x</critique>', []),
        ('<critique target="Agent 9">x</critique><critique target="Agent 3">y</critique>', [(3, "y")]),
        ('<critique target="Agent 2">x', []),
        ('x</critique><critique target="Agent 2">', []),
        ('<critique target="Agent 0">a<critique target="Agent 2">b</critique></critique>', []),
        ('<critique target="Agent \u0662">x</critique>', []),
        ("<critiques>x</critiques>", []),
    ],
)
def test_critiques(text: str, read: list) -> None:
    found = critiques(text, 4, 1)
    assert [(c.target, c.text) for c in found] == read
    for critique in found:
        start, end = critique.span
        opening, _, rest = text[start:end].partition(">")
        assert opening == f'<critique target="Agent {critique.target}"'
        assert rest.endswith("</critique>") and rest.removesuffix("</critique>").strip() == critique.text


PIECES = st.sampled_from(
    [
        "<final_ranking>",
        "</final_ranking>",
        '<critique target="Agent 2">',
        "</critique>",
        "Agent 0",
        " > ",
        " = ",
        "Agent 3",
        "\n",
        "- ",
        "x",
        "\ud800",
        "<critique",
        ">",
        "é",
    ]
)


@given(st.one_of(st.text(st.characters()), st.lists(PIECES, max_size=30).map("".join)))
def test_no_text_raises_and_every_value_is_sound(text: str) -> None:
    read = ranking(text, "final_ranking", 4, 1)
    assert all(a != b and {a, b} <= {0, 2, 3} and weight in (0.5, 1.0) for a, b, weight in read.comparisons)
    assert len({frozenset(vote[:2]) for vote in read.comparisons if vote[2] == 1.0}) <= 3
    assert all(0 <= value <= 1 for value in bradley_terry(read.comparisons, 4))
    for critique in critiques(text, 4, 1):
        start, end = critique.span
        assert critique.target in (0, 2, 3) and critique.text in text[start:end]


@pytest.mark.parametrize(
    "piece",
    [
        "Agent 0 > ",
        "Agent 0 > Agent 2\n",
        "<critique ",
        "<critique target=",
        "\n",
        " ",
        '<critique target="Agent 2">',
        "</critique>",
        "<final_ranking>",
        "- ",
        "9",
    ],
)
def test_long_input_ends(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    ranking(f"<final_ranking>{text}</final_ranking>", "final_ranking", 4)
    ranking(text, "final_ranking", 4)
    critiques(text, 4)


def test_all_orders_of_four_agents_read_back() -> None:
    for order in permutations(range(4)):
        line = " > ".join(f"Agent {i}" for i in order)
        votes = ranking(f"<final_ranking>{line}</final_ranking>", "final_ranking", 4).comparisons
        values = bradley_terry(votes, 4)
        assert sorted(range(4), key=lambda i: -values[i]) == list(order)
