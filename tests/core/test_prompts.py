"""All papers' prompts: the same fields in both forms, and every element of the paper's listings, in order."""

import re

import pytest
from core.conftest import Sums

from coevolve import config
from coevolve.papers.conl import reading
from coevolve.papers.conl.method import PERSONAS
from coevolve.parse import answer_line
from coevolve.prompts import HERE, available, text

PAPERS = {"mae": "MAE", "sage": "SAGE", "spice": "SPICE", "comas": "CoMAS", "conl": "CoNL"}
COMPACT = {  # what the backbones were trained on
    "mae/solver": "solve<question>{question}</question>", "mae/proposer": "propose",
    "mae/proposer_reference": "propose<ref>{reference}</ref>", "mae/judge_question": "judge<question>{question}</question>",
    "mae/judge_answer": "judge<question>{question}</question><answer>{answer}</answer>",
    "sage/challenger": "challenge<ref>{reference}</ref><type>{type}</type><answer>{verifier}</answer>",
    "sage/planner": "plan<question>{question}</question>", "sage/critic_question": "judge<question>{question}</question>",
    "sage/solver": "solve<question>{question}</question><plan>{plan}</plan>",
    "sage/solver_unplanned": "solve<question>{question}</question>",
    "sage/critic_plan": "judge<question>{question}</question><plan>{plan}</plan>",
    "sage/critic_answer": "judge<question>{question}</question><answer>{answer}</answer>",
    "spice/reasoner": "solve box<question>{question}</question>", "spice/format": "<doc>{document}</doc>format",
    "spice/challenger_mcq": "<doc>{document}</doc>ask mcq", "spice/challenger_alone": "ask {answer_type}",
    "spice/challenger_free": "<doc>{document}</doc>ask {answer_type}",
    "comas/solver": "solve box<question>{question}</question>",
    "comas/solution": "solve box<question>{problem}</question>{discussion}",
    "comas/evaluation": "evaluate<question>{problem}</question>{discussion}<solution>{solution}</solution>",
    "comas/judgment": "evaluate judgment<question>{problem}</question>{discussion}<solution>{solution}</solution>",
    "comas/scoring": "score<question>{problem}</question><solution>{solution}</solution><evaluation>{evaluation}</evaluation>",
    "comas/scoring_alone": "score<question>{problem}</question><solution>{solution}</solution>",
    "conl/proposal": "{persona} propose<question>{query}</question>",
    "conl/review": "{persona} review as {agent}<question>{query}</question>{solutions}",
    "conl/revision": "{persona} revise<question>{query}</question><solution>{solution}</solution>{critiques}",
    "conl/verdict": "{persona} rank as {agent}<question>{query}</question>{solutions}",
    "conl/compress_solution": "compress<solution>{solution}</solution>",
    "conl/compress_critique": "compress<critique>{critique}</critique>",
}  # fmt: skip
RUBRIC = ["<think>\n", "</think>", "- 8-10:", "- 4-7:", "- 1-3:", "<score>X</score>", "1 to 10"]
TASK = ["complete in itself", "deterministic", "Keep away from", "trivia", "<question>\n[Your ", "]\n</question>"]
TRUTH = ["{question}", "{ground_truth}", "{model_answer}", "<answer>TRUE</answer> or <answer>FALSE</answer>"]
CRITIC = [
    "<think>\n",
    "- 8-10: Excellent",
    "- 4-7: Acceptable",
    "- 1-3: Poor",
    "</think>",
    "<score>7</score>",
    "1 to 10",
]
ALONE = ["100% self-contained", "NEVER write", '"according to the text"', '"in the document"', '"as mentioned"']
SCORES = ["1 to 3", "3: ", "2: ", "1: ", "fatal", "<score>1</score>"]
RANK = ["{persona}", "'>' means", "'<'", "'='", "{query}", "{solutions}"]
STEPS = [f"### Step {n}:" for n in range(1, 9)]
ELEMENTS = {  # where the paper prints a prompt, and its elements in order
    "mae/solver": ("Listing 1 ", ["step by step", "<answer>", "</answer>", "{question}"]),
    "mae/proposer": ("Listing 2 ", [*TASK, "FORMAT MATTERS"]), "mae/proposer_reference": ("Listing 3 ", [*TASK, "{reference}"]),
    "mae/judge_answer": ("Listing 4 ", ["{question}", "{answer}", *RUBRIC]),
    "mae/judge_question": ("Listing 5 ", ["{question}", *RUBRIC]),
    "mae/eval_math": ("Listing 6 ", TRUTH), "mae/eval_choice": ("Listing 7 ", TRUTH),
    "mae/eval_truthfulness": ("Listing 8 ", TRUTH), "mae/eval_general": ("Listing 9 ", TRUTH),
    "sage/challenger": ("Figure 5 ", ["Complete in itself", "Difficult, but solvable", "{type}", "{reference}", "{verifier}",
                                      "fail for an empty solution", "<question>\n[Your ", "<type>math</type>",
                                      "<type>code</type>", "<answer>\n[Your ", "<tests>\n[Your ", "]\n</tests>"]),
    "sage/planner": ("Figure 6 ", ["a solver can follow", "{question}", "<plan>\n1. ...\n2. ...\n</plan>"]),
    "sage/solver": ("Figure 7 ", ["{question}", "<answer>", "</answer>", "```python"]),
    "sage/solver_unplanned": ("Figure 7 ", ["{question}", "<answer>", "</answer>", "```python"]),
    "sage/critic_question": ("Figure 8 ", ["{question}", "- Solvability:", "- Logical soundness:", "- Conciseness:"]),
    "sage/critic_plan": ("Figure 9 ", ["{question}", "{plan}", "- Clarity:", "- Correctness:", "- Efficiency:"]),
    "sage/critic_answer": ("Figure 10 ", ["{question}", "{answer}", "- Accuracy:", "- Completeness:", "- Conciseness:"]),
    "spice/reasoner": ("Figure 8", ["{question}", "step by step", "\\boxed{}"]),
    "spice/reasoner_conversation": ("Figure 8", ["User: {question}", "\\boxed{}", "Assistant:"]),
    "spice/format": ("Figure 9", ["{document}", "3 wrong options", '"suitable_for_mcq"', '"suitable_for_free_form"',
                                  '"best_answer_type"', "null", "exactly ONE is true", "No backticks"]),
    "spice/challenger_mcq": ("Figure 10", ["{document}", *STEPS, '"multiple_choice_question"', '"multiple_choice_correct"']),
    "spice/challenger_free": ("Figure 10", ["{document}", "{answer_type}", *STEPS, '`"question"`', '`"answer"`',
                                            '`"answer_type"`', "RULES THAT MUST BE KEPT", '"question": ""', "3 words AT MOST"]),
    "spice/challenger_alone": ("ours", ["{answer_type}"]),
    "comas/solution": ("Appendix B", ["{problem}", "{discussion}", "step by step", r"\boxed{}", "unit"]),
    "comas/solver": ("4.1.2", ["{question}", "step by step", r"\boxed{}", "unit"]),
    "comas/evaluation": ("Appendix B", ["{problem}", "{discussion}", "{solution}", "every error", "what is wrong and why"]),
    "comas/scoring": ("Appendix B", ["{problem}", "{solution}", "{evaluation}", *SCORES]),
    "comas/scoring_alone": ("4.3.1", ["{problem}", "{solution}", *SCORES]),
    "comas/judgment": ("4.3.1", ["every error", "<judgment>correct</judgment>", "<judgment>incorrect</judgment>"]),
    "conl/proposal": ("round 0", ["{persona}", "ROUND 1: ", "{query}"]),
    "conl/review": ("round 1", [*RANK, "<initial_ranking>", '<critique target="Agent X">', "</critique>"]),
    "conl/revision": ("round 2", ["{persona}", "defending", "{solution}", "{critiques}", "<revised_solution>"]),
    "conl/verdict": ("round 3", [*RANK, "<final_ranking>", "Agent X > Agent Y", "</final_ranking>"]),
    "conl/compress_solution": ("Appendix J", ["{solution}", "1. ", "5. "]),
    "conl/compress_critique": ("Appendix J", ["{critique}", "1. ", "5. "]),
}  # fmt: skip
LOWEST = [  # rubrics: what must lie in the lowest band, and the bands of lesser faults
    ("mae/judge_answer", r"ANY factual error [^\n]* MUST lie in \[1,3\]"),
    ("mae/judge_answer", r"repetition[^\n]* MUST lie in \[1,3\]"), ("mae/judge_answer", r"Invented[^\n]* MUST lie in \[1,3\]"),
    ("mae/judge_answer", r"missing key step[^\n]*\[4,7\][^\n]*\[1,3\]"),
    ("mae/judge_question", r"Not solvable[^\n]*common sense[^\n]* MUST lie in \[1,3\]"),
    ("mae/judge_question", r"Unsafe[^\n]* MUST lie in \[1,3\]"), ("mae/judge_question", r"open-ended[^\n]* MUST lie in \[1,3\]"),
    ("mae/judge_question", r"two meanings[^\n]*\[4,7\][^\n]*\[1,3\]"),
    ("sage/critic_question", r"unsolvability or any breach of common sense[^\n]* must lie in \[1-3\]"),
    ("sage/critic_question", r"- 4-7:[^\n]*ambiguous or short of details[^\n]*without a fatal flaw"),
    ("sage/critic_question", r"- 1-3:[^\n]*cannot be solved[^\n]*contradicts itself"),
    ("sage/critic_answer", r"- Any factual error[^\n]* must lie in \[1-3\]"),
    ("sage/critic_answer", r"- Hallucinated references[^\n]* must lie in \[1-3\]"),
    ("sage/critic_answer", r"- Meaningless repetition[^\n]* must lie in \[1-3\]"),
    ("mae/eval_choice", "No letter given counts as wrong"),
]  # fmt: skip


def fields(prompt: str) -> set[str]:
    return set(re.findall(r"\{([a-z_]+)\}", prompt))


@pytest.mark.parametrize("paper", PAPERS)
def test_both_forms_of_a_prompt_take_the_same_fields_and_say_whose_it_is(paper: str) -> None:
    compact = {name: text(paper, name, "compact") for name in available(paper, "compact")}
    assert compact == {name.partition("/")[2]: said for name, said in COMPACT.items() if name.startswith(f"{paper}/")}
    assert {f"{paper}/{name}" for name in available(paper)} == {
        name for name in ELEMENTS if name.startswith(f"{paper}/")
    }
    for name, said in compact.items():
        assert fields(said) == fields(text(paper, name)), name
    for path in (HERE / paper).glob("*.*.txt"):
        first, *rest = path.read_text("utf-8").splitlines()
        assert first.startswith(f"%% {PAPERS[paper]}") and "%%" not in text(paper, *path.name.split(".")[:2])


def in_order(said: str, elements: list[str]) -> bool:
    return re.search(".*".join(map(re.escape, elements)), said, re.DOTALL) is not None


@pytest.mark.parametrize("name", ELEMENTS)
def test_full_prompts_hold_the_papers_elements_in_order(name: str) -> None:
    said, (printed, elements) = text(*name.split("/")), ELEMENTS[name]
    comments = (HERE / f"{name}.full.txt").read_text("utf-8").removesuffix(said)
    assert printed in comments and in_order(said, elements)
    assert not name.startswith("sage/critic") or in_order(said, CRITIC)
    assert not name.startswith("spice/challenger") or in_order(said, ALONE)


def test_rubrics_and_what_a_prompt_must_not_say() -> None:
    assert [(name, rule) for name, rule in LOWEST if not re.search(rule, text(*name.split("/")))] == []
    for name in ("judge_question", "judge_answer"):
        assert text("mae", name).count("MUST lie in [1,3]") == 3
    assert "[1-3]" not in text("sage", "critic_plan"), "the plan's figure has no such rule"
    assert "plan" not in text("sage", "solver_unplanned") and "along the verified plan" in text("sage", "solver")
    assert "{discussion}" not in text("comas", "scoring"), "the scorer is shown no discussion"
    assert "[THE DOCUMENT" not in text("spice", "challenger_alone")


def test_a_model_that_echoes_conls_formats_answers_nothing_votes_for_nobody_and_criticises_nobody() -> None:
    for name in ("proposal", "revision"):
        assert 'in the form "ANSWER: $ANSWER"' in text("conl", name) and answer_line(text("conl", name)) is None
    for name in ("review", "verdict", "revision"):
        form = text("conl", name).partition("OUTPUT FORMAT")[2]
        assert not any(reading.ranking(form, tag, 8).comparisons for tag in ("initial_ranking", "final_ranking"))
        assert form and reading.critiques(form, 8) == []


def test_personas_ablations_and_starting_questions() -> None:
    personas = {path.name.removesuffix(".full.txt") for path in (HERE / "conl" / "personas").iterdir()}
    assert personas == {*PERSONAS} and len({text("conl/personas", name) for name in personas}) == 8
    for name in personas:
        assert len(re.findall(r"(?m)^- ", text("conl/personas", name))) == 5 and "{" not in text("conl/personas", name)
    every = [line for name in available("conl") for line in text("conl", name).splitlines()]
    for name in available("conl/ablations"):
        for pair in text("conl/ablations", name).split("\n\n"):
            old, new = pair.split("\n")
            assert every.count(old) == 1 and new not in every and fields(old) == fields(new)
    questions = (HERE / "mae" / "zero_questions.txt").read_text("utf-8").splitlines()[1:]
    assert len(set(questions)) == len(questions) == 16 and all(len(question.split()) > 5 for question in questions)


@pytest.mark.parametrize("form", ["full", "compact"])
@pytest.mark.parametrize("paper", PAPERS)
def test_every_role_of_every_method_loads_and_the_solver_takes_one_field(paper: str, form: str, tmp_path) -> None:
    method = config.method(paper)(prompt=form, world=Sums())
    assert len(method.roles) > 3 and len(method.answering.fields) == 1
    (tmp_path / f"solver.{form}.txt").write_text("%% mine\nMy own {question}", "utf-8")
    mine = config.method("mae")(prompt=form, world=Sums(), prompt_folder=str(tmp_path))
    assert mine.solver.prompt == "My own {question}"
