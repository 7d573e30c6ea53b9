"""What a well-formed reply of each role looks like in the compact form: one pattern for the whole text."""

import re

_THOUGHT = r"(?:<think>[^<]+</think>)?"
_QUESTION = r"<question>[^<]+</question>"
_BOXED = rf"{_THOUGHT}\\boxed{{[^{{}}]+}}"
_SCORE = r"<score>(?:10|[1-9])</score>"
_LINES = r"Agent \d [>=] Agent \d(?:\nAgent \d [>=] Agent \d)*"
_TYPES = "Integer|Float|Expression|String|Boolean|List"
_TEXT = r'[^"<>{}]*'
_FREE = rf'{{"question": "{_TEXT}", "answer": "{_TEXT}", "answer_type": "(?:{_TYPES})"}}'

FORMATS = {
    role: re.compile(pattern)
    for role, pattern in {
        "mae/solver": rf"{_THOUGHT}<answer>[^<]+</answer>",
        "mae/proposer": _QUESTION,
        "mae/proposer_reference": _QUESTION,
        "mae/judge_question": _SCORE,
        "mae/judge_answer": _THOUGHT + _SCORE,
        "sage/challenger": rf"{_QUESTION}<type>(?:math</type><answer>[^<]+</answer>|code</type><tests>[^<]+</tests>)",
        "sage/planner": r"<plan>[^<]+</plan>",
        "sage/solver": rf"{_THOUGHT}<answer>[^<]+</answer>",
        "sage/critic_plan": _SCORE,
        "comas/solution": _BOXED,
        "comas/evaluation": r"[^<:]+: (?:right|wrong)",
        "comas/scoring": rf"{_THOUGHT}<score>[123]</score>",
        "comas/scoring_alone": rf"{_THOUGHT}<score>[123]</score>",
        "comas/judgment": r"[^<:]+: <judgment>(?:correct|incorrect)</judgment>",
        "conl/proposal": r"ANSWER: [^<]+",
        "conl/review": rf"{_THOUGHT}<initial_ranking>(?:{_LINES})?</initial_ranking>"
        r'(?:<critique target="Agent \d">[^<]+</critique>)+',
        "conl/revision": r"<revised_solution>ANSWER: [^<]+</revised_solution>",
        "conl/verdict": rf"{_THOUGHT}<final_ranking>(?:{_LINES})?</final_ranking>",
        "conl/compress_solution": r"ANSWER: [^<]+",
        "conl/compress_critique": r"[^<]+",
        "spice/reasoner": _BOXED,
        "spice/format": r'{"suitable_for_mcq": (?:true, "suitable_for_free_form": false|'
        r'false, "suitable_for_free_form": true), '
        rf'"best_answer_type": (?:null|"(?:{_TYPES})"), "reason": "{_TEXT}"}}',
        "spice/challenger_free": _FREE,
        "spice/challenger_alone": _FREE,
        "spice/challenger_mcq": rf'{_THOUGHT}{{"multiple_choice_question": "{_TEXT} A\){_TEXT} B\){_TEXT} C\){_TEXT} '
        rf'D\){_TEXT}", "multiple_choice_correct": "[A-D]"}}',
    }.items()
}


def well_formed(role: str, text: str) -> bool:
    """Whether the whole reply has the role's form."""
    return FORMATS[role].fullmatch(text) is not None
