"""Patterns of well-formed replies in the compact form; each is of the whole text."""

THOUGHT = r"(?:<think>[^<]+</think>)?"
TEXT = r'[^"<>{}]*'
TYPES = '"(?:Integer|Float|Expression|String|Boolean|List)"'
LINES = r"(?:Agent \d [>=] Agent \d(?:\nAgent \d [>=] Agent \d)*)?"

ANSWER = rf"{THOUGHT}<answer>[^<]+</answer>"
QUESTION = r"<question>[^<]+</question>"
SCORE = r"<score>(?:10|[1-9])</score>"
VERIFIED = rf"{QUESTION}<type>(?:math</type><answer>[^<]+</answer>|code</type><tests>[^<]+</tests>)"
PLAN = r"<plan>[^<]+</plan>"
BOXED = rf"{THOUGHT}\\boxed{{[^{{}}]+}}"
EVALUATION = r"[^<:]+: (?:right|wrong)"
SCORING = rf"{THOUGHT}<score>[123]</score>"
JUDGMENT = r"[^<:]+: <judgment>(?:correct|incorrect)</judgment>"
SOLUTION = r"(?:<think>[^<]+</think>\n)?ANSWER: [^<]+"
CRITIQUES = r'(?:<critique target="Agent \d">[^<]+</critique>)+'
REVIEW = rf"{THOUGHT}<initial_ranking>{LINES}</initial_ranking>{CRITIQUES}"
REVISION = r"<revised_solution>ANSWER: [^<]+</revised_solution>"
VERDICT = rf"{THOUGHT}<final_ranking>{LINES}</final_ranking>"
POINT = r"[^<]+"
SUITABLE = (
    r'{"suitable_for_mcq": (?:true, "suitable_for_free_form": false|false, "suitable_for_free_form": true), '
    rf'"best_answer_type": (?:null|{TYPES}), "reason": "{TEXT}"}}'
)
FREE = rf'{{"question": "{TEXT}", "answer": "{TEXT}", "answer_type": {TYPES}}}'
CHOICE = rf'"multiple_choice_question": "{TEXT} A\){TEXT} B\){TEXT} C\){TEXT} D\){TEXT}"'
MCQ = rf'{THOUGHT}{{{CHOICE}, "multiple_choice_correct": "[A-D]"}}'
