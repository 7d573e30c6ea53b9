"""SPICE's prompts hold every element of Figures 8 to 10. Reads the files without the loader."""

import re
from pathlib import Path

import pytest

from coevolve.papers.spice.reading import ANSWER_TYPES

FOLDER = Path(__file__).parents[2] / "src" / "coevolve" / "prompts" / "spice"
FIELDS = {
    "reasoner": {"question"},
    "reasoner_conversation": {"question"},
    "format": {"document"},
    "challenger_mcq": {"document"},
    "challenger_free": {"document", "answer_type"},
    "challenger_alone": {"answer_type"},
}
FIGURES = {
    "reasoner": 8,
    "reasoner_conversation": 8,
    "format": 9,
    "challenger_mcq": 10,
    "challenger_free": 10,
    "challenger_alone": 10,
}
MCQ_KEYS = """identified_answer answer_quote hardening_process exam_question correct_answer multiple_choice_question
    multiple_choice_correct self_test_solution knowledge_and_reasoning_steps question_difficulty""".split()
FREE_KEYS = """identified_information relevant_quotes hardening_process question answer answer_type
    step_by_step_solution intermediate_results difficulty_level difficulty_justification solving_time_estimate
    required_concepts potential_errors""".split()


def parts(role: str, variant: str = "full") -> tuple[list[str], str]:
    """The comment lines of a prompt and the text below them."""
    rows = (FOLDER / f"{role}.{variant}.txt").read_text("utf-8").splitlines()
    count = next(i for i, row in enumerate(rows) if not row.startswith("%%"))
    return rows[:count], "\n".join(rows[count:])


def text(role: str) -> str:
    return parts(role)[1]


def in_order(whole: str, *needed: str) -> None:
    at = 0
    for part in needed:
        found = whole.find(part, at)
        assert found >= 0, f"{part!r} is missing or out of order"
        at = found + len(part)


def test_there_is_one_file_per_prompt_and_no_other() -> None:
    assert {path.name.removesuffix(".full.txt") for path in FOLDER.glob("*.full.txt")} == set(FIELDS)
    compact = {path.name.removesuffix(".compact.txt") for path in FOLDER.glob("*.compact.txt")}
    assert compact == set(FIELDS) - {"reasoner_conversation"}


@pytest.mark.parametrize("role", FIELDS)
def test_placeholders_and_the_figure_that_is_named(role: str) -> None:
    comments, whole = parts(role)
    assert f"Figure {FIGURES[role]}" in " ".join(comments)
    assert set(re.findall(r"\{([a-z_][a-z0-9_]*)\}", whole)) == FIELDS[role]
    if role != "reasoner_conversation":
        assert set(re.findall(r"\{([a-z_][a-z0-9_]*)\}", parts(role, "compact")[1])) == FIELDS[role]


def test_both_reasoners_box_their_answer_and_see_a_question_only() -> None:
    in_order(text("reasoner"), "{question}", "step by step", "\\boxed{}")
    in_order(text("reasoner_conversation"), "conversation", "reasoning", "User: {question}", "\\boxed{}", "Assistant:")


def test_the_choice_of_a_form() -> None:
    whole = text("format")
    in_order(whole, "{document}", "MCQ", "3 wrong options", "several concepts", "Integer", "Expression", "String")
    in_order(whole, '"suitable_for_mcq"', '"suitable_for_free_form"', '"best_answer_type"', "null", '"reason"')
    in_order(whole, "No text beside", "exactly ONE is true", "No backticks", "No LaTeX", "100 characters")


def test_multiple_choice_has_its_eight_steps_and_fields() -> None:
    whole = text("challenger_mcq")
    in_order(whole, "{document}", *(f"### Step {n}:" for n in range(1, 9)), "## Output")
    in_order(whole.split("## Output")[1], *(f'- `"{key}"`' for key in MCQ_KEYS))
    in_order(whole, "A) [option]", "B) [option]", "C) [option]", "D) [option]", "Correct: [letter]")
    in_order(whole, "**Length**", "20%", "**Units**", "**Tone**", "**Plausibility**", "under 30 seconds")
    assert "Fewer than 3: REJECT" in whole and "4 or more concepts" in whole


def test_free_form_has_its_eight_steps_types_and_fields() -> None:
    whole = text("challenger_free")
    in_order(whole, "{document}", "{answer_type}", *(f"### Step {n}:" for n in range(1, 9)), "## Output")
    in_order(whole.split("## Output")[1], *(f'- `"{key}"`' for key in FREE_KEYS))
    answers = whole.split("### Step 4:")[1].split("### Step 5:")[0]
    assert all(f"**{kind}**" in answers for kind in ANSWER_TYPES)
    assert "1 to 3 words" in answers and '"true" or "false"' in answers and "22/7" in answers
    in_order(whole, "**MEDIUM", "**HARD", "**EXTRA HARD", "EXACTLY ONE RIGHT ANSWER", "it will FAIL")
    in_order(
        whole.split("RULES THAT MUST BE KEPT")[1],
        '"question": ""',
        "EXACTLY the form",
        "never speaks of",
        "follows from the document",
        "all that is needed",
        "3 words AT MOST",
    )


@pytest.mark.parametrize("role", ["challenger_mcq", "challenger_free", "challenger_alone"])
def test_every_challenger_writes_for_readers_without_the_document(role: str) -> None:
    whole = text(role)
    in_order(
        whole,
        "100% self-contained",
        "NEVER write",
        '"according to the text"',
        '"in the document"',
        '"as mentioned"',
        '"the passage states"',
        '"based on the analysis"',
        "formal exam",
    )
    in_order(whole, "FIRST think", "THEN", "plain valid JSON", "no code block", "RIGHT:", "WRONG: ```json")


def test_without_a_corpus_there_is_no_document_and_no_gold_of_another() -> None:
    assert "{document}" not in text("challenger_alone") and "[THE DOCUMENT" not in text("challenger_alone")
    assert "ours" in parts("challenger_alone")[0][0]
