"""CoNL's prompts hold every element of Appendix J. Reads the files without the loader."""

import re
from pathlib import Path

import pytest

from coevolve.papers.conl import reading as rankings
from coevolve.papers.conl.method import PERSONAS
from coevolve.parse import answer_line

FOLDER = Path(__file__).parents[2] / "src" / "coevolve" / "prompts" / "conl"
FIELDS = {
    "proposal": {"persona", "query"},
    "review": {"persona", "agent", "query", "solutions"},
    "revision": {"persona", "query", "solution", "critiques"},
    "verdict": {"persona", "agent", "query", "solutions"},
    "compress_solution": {"solution"},
    "compress_critique": {"critique"},
}
NAMES = {
    "analyst": "Rigorous Formalist",
    "creator": "Creative Pattern-Finder",
    "critic": "Devil's Advocate",
    "synthesizer": "Pragmatic Synthesizer",
    "verifier": "Meticulous Verifier",
    "planner": "Strategic Decomposer",
    "tester": "Empirical Experimenter",
    "builder": "Axiomatic Constructor",
}
OURS = ("creator", "critic")


def lines(path: Path) -> tuple[list[str], str]:
    rows = path.read_text(encoding="utf-8").splitlines()
    count = next(i for i, row in enumerate(rows) if not row.startswith("%%"))
    return rows[:count], "\n".join(rows[count:])


def prompt(role: str, form: str = "full") -> str:
    return lines(FOLDER / f"{role}.{form}.txt")[1]


def assert_order(text: str, *parts: str) -> None:
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is missing or out of order"
        at = found + len(part)


def test_the_files_are_these() -> None:
    for form in ("full", "compact"):
        assert {path.name.removesuffix(f".{form}.txt") for path in FOLDER.glob(f"*.{form}.txt")} == set(FIELDS)
    assert {path.name.removesuffix(".full.txt") for path in (FOLDER / "personas").iterdir()} == set(PERSONAS)
    assert {path.name for path in (FOLDER / "ablations").iterdir()} == {f"{n}.full.txt" for n in ("open", "own", "all")}


@pytest.mark.parametrize("role", FIELDS)
@pytest.mark.parametrize("form", ["full", "compact"])
def test_fields_and_comment(role: str, form: str) -> None:
    comments, text = lines(FOLDER / f"{role}.{form}.txt")
    assert "Appendix J" in comments[0] and "%%" not in text
    assert set(re.findall(r"\{([a-z_]+)\}", text)) == FIELDS[role]


@pytest.mark.parametrize("role", ["proposal", "review", "revision", "verdict"])
def test_every_round_says_which_it_is_and_puts_the_persona_first(role: str) -> None:
    number = ["proposal", "review", "revision", "verdict"].index(role) + 1
    assert_order(prompt(role), "protocol", "{persona}", f"ROUND {number}: ", "{query}")


@pytest.mark.parametrize("role", ["proposal", "revision"])
def test_solutions_end_in_an_answer_line(role: str) -> None:
    text = prompt(role)
    assert 'in the form "ANSWER: $ANSWER"' in text and "\\boxed command is not needed" in text
    assert answer_line(text) is None, "the instruction itself is no answer"


def test_review_asks_for_a_blind_ranking_and_a_critique_per_agent_mentioned() -> None:
    comments, text = lines(FOLDER / "review.full.txt")
    assert "ours" in " ".join(comments)
    assert_order(
        text,
        "BLIND",
        "Nobody sees your ranking",
        "in pairs",
        "'>' means",
        "'<'",
        "'='",
        "specific issues",
        "strengths",
        "One critique per agent",
        "{solutions}",
        "<initial_ranking>",
        "</initial_ranking>",
        '<critique target="Agent X">',
        "</critique>",
    )


def test_revision_lists_the_four_ways_to_improve() -> None:
    assert_order(
        prompt("revision"),
        "valid",
        "defending",
        "invalid or misguided",
        "correcting every error",
        "considerations that were missing",
        "{solution}",
        "{critiques}",
        "<revised_solution>",
        "</revised_solution>",
    )


def test_verdict_asks_for_a_final_ranking() -> None:
    assert_order(
        prompt("verdict"),
        "FINAL VERDICT",
        "revised solutions",
        "One comparison a line",
        "'>' means",
        "'<'",
        "'='",
        "{solutions}",
        "<final_ranking>",
        "Agent X > Agent Y",
        "</final_ranking>",
    )


@pytest.mark.parametrize("name", ["open", "own", "all"])
def test_an_ablation_replaces_lines_of_the_full_prompts_and_keeps_their_fields(name: str) -> None:
    comments, text = lines(FOLDER / "ablations" / f"{name}.full.txt")
    assert "Ours" in comments[0]
    every = [line for role in FIELDS for line in prompt(role).splitlines()]
    for pair in text.split("\n\n"):
        old, new = pair.split("\n")
        assert every.count(old) == 1 and new not in every
        assert re.findall(r"\{[a-z_]+\}", old) == re.findall(r"\{[a-z_]+\}", new)


@pytest.mark.parametrize("role", ["review", "verdict", "revision"])
def test_a_model_that_echoes_the_format_casts_no_vote_and_criticises_nobody(role: str) -> None:
    text = prompt(role)
    form = text[text.index("OUTPUT FORMAT") :]
    for name in ("initial_ranking", "final_ranking"):
        assert rankings.ranking(form, name, 8).comparisons == ()
    assert rankings.critiques(form, 8) == []


def test_memory_buffer_prompts_keep_their_five_points() -> None:
    solution, critique = prompt("compress_solution"), prompt("compress_critique")
    for text in (solution, critique):
        assert re.findall(r"(?m)^(\d)\. ", text) == ["1", "2", "3", "4", "5"]
    assert_order(solution, "{solution}", "approach", "intermediate result", "CRITICAL", "ANSWER: ", "assumptions")
    assert_order(critique, "{critique}", "who is criticised", "flaw", "evidence", "logic", "fix", "Invent no new")


@pytest.mark.parametrize("name", PERSONAS)
def test_a_persona_has_a_name_a_strength_five_habits_and_a_focus_for_critiques(name: str) -> None:
    comments, text = lines(FOLDER / "personas" / f"{name}.full.txt")
    assert f"persona {PERSONAS.index(name) + 1} of 8" in comments[0]
    assert ("missing from our copy" in " ".join(comments)) == (name in OURS)
    assert_order(
        text, f"**{NAMES[name]}**", "What you are good at", "When you solve problems:", "When you criticise, look for:"
    )
    assert len(re.findall(r"(?m)^- ", text)) == 5 and "{" not in text
