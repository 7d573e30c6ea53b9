"""MAE's prompts hold every element of the paper's listings. Reads the files without the loader."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "src" / "coevolve" / "prompts" / "mae"
FIELDS = {
    "solver": {"question"},
    "proposer": set(),
    "proposer_reference": {"reference"},
    "judge_question": {"question"},
    "judge_answer": {"question", "answer"},
    "eval_math": {"question", "ground_truth", "model_answer"},
    "eval_choice": {"question", "ground_truth", "model_answer"},
    "eval_truthfulness": {"question", "ground_truth", "model_answer"},
    "eval_general": {"question", "ground_truth", "model_answer"},
}
LISTINGS = {
    "solver": 1,
    "proposer": 2,
    "proposer_reference": 3,
    "judge_answer": 4,
    "judge_question": 5,
    "eval_math": 6,
    "eval_choice": 7,
    "eval_truthfulness": 8,
    "eval_general": 9,
}
JUDGES = ("judge_question", "judge_answer")
PROPOSERS = ("proposer", "proposer_reference")
EVALUATORS = ("eval_math", "eval_choice", "eval_truthfulness", "eval_general")


def lines(path: Path) -> tuple[list[str], str]:
    """The comment lines at the top of a file and the text below them."""
    rows = path.read_text(encoding="utf-8").splitlines()
    count = next((i for i, row in enumerate(rows) if not row.startswith("%%")), len(rows))
    return rows[:count], "\n".join(rows[count:])


def prompt(role: str) -> str:
    """The full prompt of a role, without comments."""
    return lines(FOLDER / f"{role}.full.txt")[1]


def fields(text: str) -> set[str]:
    """Names of the placeholders of a template."""
    return set(re.findall(r"\{([a-z_][a-z0-9_]*)\}", text))


def assert_order(text: str, *parts: str) -> None:
    """Each part occurs, after the one before it."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is missing or out of order"
        at = found + len(part)


def test_there_is_one_file_per_listing_and_no_other() -> None:
    assert {path.name.removesuffix(".full.txt") for path in FOLDER.glob("*.full.txt")} == set(FIELDS)


@pytest.mark.parametrize("role", FIELDS)
def test_comment_names_the_listing_and_is_only_at_the_top(role: str) -> None:
    comments, text = lines(FOLDER / f"{role}.full.txt")
    assert f"Listing {LISTINGS[role]} " in comments[0]
    assert "%%" not in text
    assert text.strip()


@pytest.mark.parametrize("role", FIELDS)
def test_placeholders(role: str) -> None:
    assert fields(prompt(role)) == FIELDS[role]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.compact.txt")), ids=lambda path: path.name)
def test_compact_prompt_takes_the_same_fields(path: Path) -> None:
    comments, text = lines(path)
    assert comments
    assert fields(text) == FIELDS[path.name.removesuffix(".compact.txt")]


def test_solver_elements() -> None:
    text = prompt("solver")
    assert_order(text, "step by step", "<answer>", "</answer>", "**correct**", "**meet every constraint**")
    assert_order(text, "Reasoning tasks", "generation tasks", "Mathematics", "Creative tasks", "{question}")
    assert text.rstrip().endswith("{question}")


@pytest.mark.parametrize("role", PROPOSERS)
def test_proposer_elements(role: str) -> None:
    text = prompt(role)
    assert_order(text, "complete in itself", "deterministic", "Keep away from", "trivia", "ambiguous", "internet")
    assert_order(
        text,
        "<question>\n[Your ",
        "]\n</question>",
        "<question></question>",
        "NOTHING ELSE",
        "FORMAT MATTERS",
    )
    assert "{answer}" not in text


def test_proposer_without_reference_lists_the_accepted_domains() -> None:
    parts = (
        "logic",
        "context",
        "common knowledge",
        "patterns or symbols",
        "planning in space",
        "instructions",
    )
    assert_order(prompt("proposer").split("Welcome kinds")[1], *parts)
    assert "possible" in prompt("proposer")


def test_proposer_with_reference_keeps_the_kind_of_reasoning_and_raises_difficulty() -> None:
    text = prompt("proposer_reference")
    assert_order(text, "harder", "controlled", "kind of reasoning", "constraints", "distractors or traps", "numbers")
    assert text.index("{reference}") > text.index("</question>")


@pytest.mark.parametrize("role", JUDGES)
def test_judge_elements(role: str) -> None:
    text = prompt(role)
    rubric = text.split("<think>\n")[1].split("\n</think>")[0]
    assert_order(text, "{question}", "<think>\n", "[Write your ", "</think>", "- 8-10:", "- 4-7:", "- 1-3:")
    assert_order(text, "- 1-3:", "<score>X</score>", "1 to 10")
    assert all(band in rubric for band in ("[1,3]", "[4,7]", "[8,10]"))
    assert rubric.count("MUST lie in [1,3]") == 3


def test_judge_of_answers_puts_any_factual_error_into_the_lowest_band() -> None:
    text = prompt("judge_answer")
    assert re.search(r"ANY factual error [^\n]* MUST lie in \[1,3\]", text)
    assert re.search(r"repetition[^\n]* MUST lie in \[1,3\]", text)
    assert re.search(r"Invented[^\n]* MUST lie in \[1,3\]", text)
    assert re.search(r"missing key step[^\n]*\[4,7\][^\n]*\[1,3\]", text)
    assert_order(text, "{question}", "{answer}", "<think>")


def test_judge_of_questions_puts_unsolvable_and_open_ended_into_the_lowest_band() -> None:
    text = prompt("judge_question")
    assert re.search(r"Not solvable[^\n]*common sense[^\n]* MUST lie in \[1,3\]", text)
    assert re.search(r"Unsafe[^\n]* MUST lie in \[1,3\]", text)
    assert re.search(r"open-ended[^\n]* MUST lie in \[1,3\]", text)
    assert re.search(r"two meanings[^\n]*\[4,7\][^\n]*\[1,3\]", text)


@pytest.mark.parametrize("role", EVALUATORS)
def test_evaluator_elements(role: str) -> None:
    parts = (
        "{question}",
        "{ground_truth}",
        "{model_answer}",
        "<think>\n",
        "[Write ",
        "</think>",
        "- TRUE:",
        "- FALSE:",
    )
    assert_order(prompt(role), *parts, "<answer>TRUE</answer> or <answer>FALSE</answer>")


def test_evaluators_ask_what_their_benchmarks_need() -> None:
    assert "numerical result" in prompt("eval_math")
    assert "No letter given counts as wrong" in prompt("eval_choice")
    assert "misleading" in prompt("eval_truthfulness")
    assert "agree" in prompt("eval_general")


def test_sixteen_starting_questions() -> None:
    comments, text = lines(FOLDER / "zero_questions.txt")
    questions = text.splitlines()
    assert "our own" in comments[0]
    assert len(questions) == len(set(questions)) == 16
    assert all(question == question.strip() and len(question.split()) > 5 for question in questions)
