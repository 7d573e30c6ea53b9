"""SAGE's prompts hold every element of the paper's figures 5 to 10. Reads the files without the loader."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "src" / "coevolve" / "prompts" / "sage"
FIELDS = {  # the paper's slots, and for the Challenger those of equation 3, which its figure lacks
    "challenger": {"reference", "type", "verifier"},
    "planner": {"question"},
    "solver": {"question", "plan"},
    "solver_unplanned": {"question"},
    "critic_question": {"question"},
    "critic_plan": {"question", "plan"},
    "critic_answer": {"question", "answer"},
}
FIGURES = {
    "challenger": 5,
    "planner": 6,
    "solver": 7,
    "solver_unplanned": 7,
    "critic_question": 8,
    "critic_plan": 9,
    "critic_answer": 10,
}
CRITERIA = {
    "critic_question": ("Solvability", "Logical soundness", "Clarity", "Appropriateness", "Conciseness"),
    "critic_plan": ("Clarity", "Completeness", "Correctness", "Feasibility", "Efficiency"),
    "critic_answer": ("Accuracy", "Completeness", "Coherence", "Conciseness", "Instruction following"),
}
CRITICS = tuple(CRITERIA)


def lines(role: str, variant: str = "full") -> tuple[list[str], str]:
    """The comment lines at the top of a file and the text below them."""
    rows = (FOLDER / f"{role}.{variant}.txt").read_text(encoding="utf-8").splitlines()
    count = next((i for i, row in enumerate(rows) if not row.startswith("%%")), len(rows))
    return rows[:count], "\n".join(rows[count:])


def prompt(role: str) -> str:
    return lines(role)[1]


def fields(text: str) -> set[str]:
    return set(re.findall(r"\{([a-z_][a-z0-9_]*)\}", text))


def assert_order(text: str, *parts: str) -> None:
    """Each part occurs, after the one before it."""
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is missing or out of order"
        at = found + len(part)


def test_there_is_one_file_per_role_and_form_and_no_other() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{r}.{v}.txt" for r in FIELDS for v in ("full", "compact")}


@pytest.mark.parametrize("variant", ["full", "compact"])
@pytest.mark.parametrize("role", FIELDS)
def test_placeholders_and_the_comment_that_names_the_figure(role: str, variant: str) -> None:
    comments, text = lines(role, variant)
    assert "SAGE" in comments[0] and "%%" not in text and text.strip()
    assert fields(text) == FIELDS[role]
    if variant == "full":
        assert f"Figure {FIGURES[role]} " in comments[0]


def test_challenger_elements() -> None:
    text = prompt("challenger")
    assert_order(
        text,
        "one single",
        "Complete in itself",
        "Not trivial",
        "several steps",
        "constraints",
        "Deterministic",
        "Neutral as to culture",
        "Difficult, but solvable",
        "Keep away from",
        "Trivia",
        "opinion",
        "ambiguous",
        "web",
        "cannot be solved",
    )
    assert_order(
        text,
        "Reference type: {type}",
        "Reference task: {reference}",
        "Reference verifier: {verifier}",
        "End of the reference",
        "type math",
        "type code",
        "assert name(arguments) == value",
        "fail for an empty solution",
        "<question>\n[Your ",
        "]\n</question>",
        "<type>math</type>",
        "<type>code</type>",
        "<answer>\n[Your ",
        "]\n</answer>",
        "<tests>\n[Your ",
        "]\n</tests>",
    )
    assert any("are ours" in comment for comment in lines("challenger")[0]), "what the figure lacks is marked"


def test_planner_elements() -> None:
    assert_order(prompt("planner"), "concise", "a solver can follow", "{question}", "<plan>\n1. ...\n2. ...\n</plan>")


@pytest.mark.parametrize("role", ["solver", "solver_unplanned"])
def test_solver_elements(role: str) -> None:
    text = prompt(role)
    assert_order(
        text,
        "correct and well reasoned",
        "formatting",
        "{question}",
        "Explain",
        "steps of reasoning",
        "in which format to answer",
        "no wrappers or tags",
        "explicitly required",
        "<answer>",
        "</answer>",
        "```python",
    )
    assert ("along the verified plan" in text) == ("{plan}" in text) == (role == "solver")
    assert not re.search("plan", text) or role == "solver"
    assert any(" ours, from section 4.4" in comment for comment in lines(role)[0])


@pytest.mark.parametrize("role", CRITICS)
def test_critic_elements(role: str) -> None:
    text = prompt(role)
    slots = [f"{{{name}}}" for name in ("question", "plan", "answer") if name in FIELDS[role]]
    assert_order(
        text,
        "expert in evaluation",
        *slots,
        "<think>\n",
        *[f"- {name}:" for name in CRITERIA[role]],
        "- 8-10: Excellent",
        "- 4-7: Acceptable",
        "- 1-3: Poor",
        "[Write your ",
        "]\n</think>",
        "final score",
        "only one tag",
        "<score>7</score>",
        "1 to 10",
    )
    assert text.count("<score>") == 1


def test_critics_put_fatal_faults_into_the_lowest_band() -> None:
    rule = r"unsolvability or any breach of common sense[^\n]* must lie in \[1-3\]"
    assert re.search(rule, prompt("critic_question"))
    for fault in ("Any factual error", "Hallucinated references", "Meaningless repetition"):
        assert re.search(rf"- {fault}[^\n]* must lie in \[1-3\]", prompt("critic_answer"))
    assert "[1-3]" not in prompt("critic_plan"), "the plan's figure has no such rule"
    for band in ("ambiguous or short of details", "without a fatal flaw"):
        assert band in re.search(r"- 4-7:[^\n]*", prompt("critic_question"))[0]
    for fault in (
        "cannot be solved",
        "contradicts itself",
        "everyday knowledge",
        "unsafe",
        "open without limit",
        "not a question",
    ):
        assert fault in re.search(r"- 1-3:[^\n]*", prompt("critic_question"))[0]


def test_compact_prompts_are_the_ones_the_backbone_was_trained_on() -> None:
    assert {role: lines(role, "compact")[1] for role in FIELDS} == {
        "challenger": "challenge<ref>{reference}</ref><type>{type}</type><answer>{verifier}</answer>",
        "planner": "plan<question>{question}</question>",
        "solver": "solve<question>{question}</question><plan>{plan}</plan>",
        "solver_unplanned": "solve<question>{question}</question>",
        "critic_question": "judge<question>{question}</question>",
        "critic_plan": "judge<question>{question}</question><plan>{plan}</plan>",
        "critic_answer": "judge<question>{question}</question><answer>{answer}</answer>",
    }
