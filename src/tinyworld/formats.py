"""Patterns of well-formed replies in the compact form; each matches the whole text."""

THOUGHT = r"(?:<think>[^<]+</think>)?"
TEXT = r'[^"<>{}]*'
TYPES = '"(?:Integer|Float|Expression|String|Boolean|List)"'
COMPARISON = r"Agent \d [>=] Agent \d"
RANKING = rf"(?:{COMPARISON}(?:\n{COMPARISON})*)?"

ANSWER = rf"{THOUGHT}<answer>[^<]+</answer>"
QUESTION = r"<question>[^<]+</question>"
SCORE = r"<score>(?:10|[1-9])</score>"
GOLD = "math</type><answer>[^<]+</answer>"
TESTS = "code</type><tests>[^<]+</tests>"
VERIFIED = rf"{QUESTION}<type>(?:{GOLD}|{TESTS})"
PLAN = r"<plan>[^<]+</plan>"
BOXED = rf"{THOUGHT}\\boxed{{[^{{}}]+}}"
EVALUATION = r"[^<:]+: (?:right|wrong)"
SCORING = rf"{THOUGHT}<score>[123]</score>"
JUDGMENT = r"[^<:]+: <judgment>(?:correct|incorrect)</judgment>"
SOLUTION = r"(?:<think>[^<]+</think>\n)?ANSWER: [^<]+"
CRITIQUES = r'(?:<critique target="Agent \d">[^<]+</critique>)+'
REVIEW = rf"{THOUGHT}<initial_ranking>{RANKING}</initial_ranking>{CRITIQUES}"
REVISION = r"<revised_solution>ANSWER: [^<]+</revised_solution>"
VERDICT = rf"{THOUGHT}<final_ranking>{RANKING}</final_ranking>"
POINT = r"[^<]+"
FOR_CHOICE = 'true, "suitable_for_free_form": false'
FOR_FREE_FORM = 'false, "suitable_for_free_form": true'
SUITABLE = (
    rf'{{"suitable_for_mcq": (?:{FOR_CHOICE}|{FOR_FREE_FORM}), '
    rf'"best_answer_type": (?:null|{TYPES}), "reason": "{TEXT}"}}'
)
FREE = rf'{{"question": "{TEXT}", "answer": "{TEXT}", "answer_type": {TYPES}}}'
CHOICE = (
    rf'"multiple_choice_question": "{TEXT} A\){TEXT} B\){TEXT} C\){TEXT} D\){TEXT}"'
)
MCQ = rf'{THOUGHT}{{{CHOICE}, "multiple_choice_correct": "[A-D]"}}'
