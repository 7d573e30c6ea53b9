"""Small copies of the papers' data sets in their original schema. All content is invented here."""

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

Row = dict[str, Any]
DOUBLE = "def double(n):\n    return 2 * n\n"
PLUS = """import numpy as np
def is_floats(x):
    return isinstance(x, float)
def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp
"""
HUMANEVAL_PLUS = (
    PLUS
    + """
def check(candidate):
    inputs = [[1], [2.5], [-3]]
    results = [2, 5.0, -6]
    for i, (inp, exp) in enumerate(zip(inputs, results)):
        assertion(candidate(*inp), exp, 0)
"""
)
MBPP_PLUS = (
    PLUS
    + """
inputs = [[1], [40]]
results = [2, 80]
for i, (inp, exp) in enumerate(zip(inputs, results)):
    assertion(double(*inp), exp, 0)
"""
)
HUMANEVAL = """
METADATA = {'author': 'us'}


def check(candidate):
    assert candidate(2) == 4
    assert candidate(0) == 0
"""
START = 'TWO = 2\n\n\ndef double(n):\n    """Twice the number.\n    >>> double(2)\n    4\n    """\n'


def labelled(question: str, texts: list[str], right: int, labels: str, field: str = "question") -> Row:
    return {
        "id": f"row {question}",
        field: question,
        "choices": {"text": texts, "label": list(labels[: len(texts)])},
        "answerKey": labels[right],
    }


def gpqa(number: int) -> Row:
    wrong = {f"Incorrect Answer {i}": f" {number + i} zorks " for i in (1, 2, 3)}
    return {
        "Question": f"How many zorks weigh {number} grams?",
        "Correct Answer": f"{number} zorks",
        **wrong,
        "Record ID": f"rec{number}",
    }


def hidden(tests: list[Row]) -> str:
    """LiveCodeBench's private tests: JSON in a pickled string under zlib and base64."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def contest(name: str, starter: str, shown: list[Row], private: str) -> Row:
    metadata = json.dumps({"func_name": name} if starter else {})
    return {
        "question_content": f"Contest {name}: print or return twice the number.",
        "question_id": name,
        "starter_code": starter,
        "public_test_cases": json.dumps(shown),
        "private_test_cases": private,
        "metadata": metadata,
    }


STDIN = [{"input": "3\n", "output": "6\n", "testtype": "stdin"}]
CALLS = [{"input": "3\n", "output": "6", "testtype": "functional"}]
HIDDEN = [{"input": "-4\n", "output": "-8\n", "testtype": "stdin"}]
STARTER = "class Solution:\n    def twice(self, n: int) -> int:\n        "

TESTS: dict[str, list[Row]] = {
    "gsm8k": [
        {"question": f"Ann has {n} eggs and buys 1000. How many?", "answer": f"{n}+1000\n#### {n + 1000:,}"}
        for n in range(5)
    ],
    "math": [
        {
            "problem": f"What is half of ${n}$ over three? Test.",
            "level": "Level 5",
            "type": "Algebra",
            "solution": f"First \\boxed{{0}}, then $\\boxed{{\\frac{{{n}}}{{6}}}}$.",
        }
        for n in (1, 5, 7)
    ],
    "math500": [
        {
            "problem": "Write the point in polar form.",
            "unique_id": "test/a/1.json",
            "subject": "Geometry",
            "answer": "\\left( 3, \\frac{\\pi}{2} \\right)",
            "level": 2,
        },
        {"problem": "Which numbers?", "answer": "[-2,7]", "unique_id": "test/a/2.json", "level": 3},
    ],
    "arc_c": [
        labelled("Why is it dark?", ["moon", "night", "paint"], 1, "ABC"),
        labelled("Why is it wet?", ["sun", "sand", "rain", "dust"], 2, "1234"),
    ],
    "mmlu": [{"question": "Which is even?", "choices": ["1", "3", "4", "5"], "answer": 2, "subject": "numbers"}],
    "gpqa_main": [gpqa(n) for n in range(60)],
    "gpqa_diamond": [gpqa(n) for n in range(20)],
    "csqa": [
        labelled("Where do cups sleep?", ["shelf", "sea", "sky", "bed", "car"], 0, "ABCDE"),
        {**labelled("Unlabelled?", ["a", "b"], 0, "AB"), "answerKey": ""},
    ],
    "obqa": [labelled("Ice is", ["hot", "cold"], 1, "ABCD", "question_stem")],
    "nq": [{"question": "who wrote the zork", "answer": ["Anna Blum", "A. Blum"]}],
    "triviaqa": [
        {
            "question": "Which town has no clock?",
            "question_id": "t1",
            "answer": {"value": "Uhrlos", "aliases": ["Uhrlos", "Town of Uhrlos"]},
        }
    ],
    "squad": [
        {"context": "The zork is blue.", "question": "What is blue?", "answers": {"text": ["The zork", "zork"]}},
        {"context": "The zork is blue.", "question": "What is green?", "answers": {"text": []}},
    ],
    "boolq": [
        {"question": "is the zork blue", "passage": "The zork is blue.", "answer": True},
        {"question": "is the zork red", "passage": "The zork is blue.", "answer": False},
    ],
    "hellaswag": [
        {"ind": 7, "ctx": "He opens it and", "endings": ["flies", "enters", "melts", "sings"], "label": "1"},
        {"ind": 8, "ctx": "Hidden", "endings": ["a", "b", "c", "d"], "label": ""},
    ],
    "mbpp": [
        {
            "task_id": 11,
            "text": "Write a function that doubles.",
            "code": DOUBLE,
            "test_setup_code": "import math",
            "test_list": ["assert double(2) == 4", "assert set([double(3)]) == {6}"],
            "challenge_test_list": [],
        }
    ],
    "mbpp_plus": [
        {
            "task_id": 11,
            "prompt": "Double the number.",
            "code": DOUBLE,
            "test": MBPP_PLUS,
            "test_list": ["assert math.isclose(double(2), 4)"],
        }
    ],
    "humaneval": [
        {
            "task_id": f"HumanEval/{i}",
            "prompt": START.replace("Twice", f"{i}. Twice"),
            "test": HUMANEVAL,
            "canonical_solution": "    return 2 * n\n",
            "entry_point": "double",
        }
        for i in range(2)
    ],
    "humaneval_plus": [
        {
            "task_id": f"HumanEval/{i}",
            "prompt": START.replace("Twice", f"{i}! Twice"),
            "test": HUMANEVAL_PLUS,
            "canonical_solution": "    return 2 * n\n",
            "entry_point": "double",
        }
        for i in range(2)
    ],
    "truthfulqa": [
        {"question": "Do zorks bite?", "best_answer": "No.", "correct_answers": ["No."], "incorrect_answers": ["Yes."]}
    ],
    "livebench_reasoning": [
        {
            "question_id": "lb1",
            "turns": ["Who lies, Ann or Bob?"],
            "ground_truth": "yes, no",
            "task": "web_of_lies",
            "level": 2,
        }
    ],
    "amc_aimo": [
        {"id": 0, "problem": "Half of 285?", "answer": 142.5, "url": ""},
        {"id": 1, "problem": "Half of 284?", "answer": 142.0, "url": ""},
    ],
    "amc23": [{"question": "A number with sqrt?", "answer": "3\\sqrt{2}"}],
    "aime24": [{"id": 60, "problem": "Find it.", "answer": "025", "url": "", "year": "2024"}],
    "aime25": [{"id": 0, "problem": "Find that.", "answer": "70"}],
    "minerva": [{"question": "How fast, in m/s?", "answer": "4.5e33"}],
    "winogrande": [
        {
            "sentence": "The cup fell off the shelf because the _ was tilted.",
            "option1": "cup",
            "option2": "shelf",
            "answer": "2",
        }
    ],
    "olympiadbench": [
        {
            "id": 1,
            "question": "Give both roots.",
            "final_answer": ["$1$", "$-2$"],
            "unit": None,
            "is_multiple_answer": True,
            "answer_type": "Numerical",
            "error": None,
        },
        {
            "id": 2,
            "question": "How long?",
            "final_answer": ["12.5"],
            "unit": "cm",
            "error": "1e-1",
            "is_multiple_answer": False,
            "answer_type": "Numerical",
        },
    ],
    "omni_math": [{"problem": "Count the zorks.", "answer": "$2^{n}$", "difficulty": 5.5, "domain": ["Algebra"]}],
    "mmlu_pro": [
        {
            "question_id": 70,
            "question": "Which letter is tenth?",
            "options": list("ZYXWVUTSRJ"),
            "answer": "J",
            "answer_index": 9,
            "category": "other",
        }
    ],
    "supergpqa": [
        {
            "uuid": "u1",
            "question": "Which is round?",
            "options": ["cube", "ball"],
            "answer": "ball",
            "answer_letter": "B",
            "discipline": "shapes",
        }
    ],
    "bbeh": [{"task": "zork", "input": "Is it (a), (b) or (c)?", "target": "(b)"}],
    "lcb_v1_5": [contest("a", "", STDIN, hidden(HIDDEN)), contest("twice", STARTER, CALLS, json.dumps(CALLS))],
    "scibench": [
        {"problem_text": "How long is the wire?", "answer_number": "+49.14 ", "unit": " cm", "source": "us"},
        {"problem_text": "How small is it?", "answer_number": "0.002", "unit": "", "source": "us"},
        {"problem_text": "What is the net force?", "answer_number": "0", "unit": "N", "source": "us"},
        {"problem_text": "How many atoms?", "answer_number": "3.2 \\times 10^{5}", "unit": ""},
    ],
    "deepmath": [
        {"question": f"Count case {n}.", "final_answer": f"\\dfrac{{{n}}}{{7}}", "difficulty": n % 10, "topic": "count"}
        for n in range(400)
    ],
    "frontierscience": [
        {"problem": "Which rate?", "answer": " 7.5", "subject": "physics", "task_group_id": "g"},
        {"problem": "Research this.", "answer": "Points: 1.0, Item: ...", "subject": "physics"},
    ],
    "fusionbench": [{"query": "Name a zork.", "ground_truth": "Blum", "task_name": "trivia_qa"}],
    "kodcode": [
        {
            "question_id": f"k{i}",
            "question": f"Write double, task {i}.",
            "solution": DOUBLE,
            "style": "full",
            "subset": "Prefill",
            "gpt_difficulty": ("easy", "medium", "hard")[i % 3],
            "test": "from solution import double\n\ndef test_two():\n    assert double(2) == 4\n\n"
            "def test_zero():\n    assert double(0) == 0\n",
        }
        for i in range(60)
    ],
    "webinstruct_verified": [
        {
            "id": f"w{i}",
            "question": f"What charge has zork {i}?",
            "answer": f"{i} C",
            "answer_type": "Float",
            "difficulty": "University",
            "category": ("Physics", "History")[i % 2],
        }
        for i in range(60)
    ],
}

TRAIN: dict[str, list[Row]] = {
    "gsm8k": [{"question": f"Bob had {n} nuts and lost 1.", "answer": f"#### {n - 1}"} for n in range(200)],
    "math": [
        {
            "problem": f"Train: compute ${n}^2$.",
            "solution": f"\\boxed{{{n * n}}}",
            "level": f"Level {n % 5 + 1}",
            "type": "Algebra",
        }
        for n in range(200)
    ],
    "arc_c": [labelled(f"Train {n}?", ["a", "b"], n % 2, "AB") for n in range(100)],
    "mmlu": [
        {"question": f"Train {n}?", "choices": ["1", "2", "3", "4"], "answer": n % 4, "subject": ""} for n in range(100)
    ],
    "csqa": [labelled(f"Train {n}?", list("vwxyz"), n % 5, "ABCDE") for n in range(100)],
    "obqa": [labelled(f"Train {n} is", list("wxyz"), n % 4, "ABCD", "question_stem") for n in range(100)],
    "nq": [{"question": f"who is zork {n}", "answer": [f"zork the {n}th"]} for n in range(100)],
    "triviaqa": [
        {
            "question": f"Which town is number {n}?",
            "question_id": f"t{n}x",
            "answer": {"value": f"Town {n}", "aliases": []},
        }
        for n in range(100)
    ],
    "squad": [
        {"context": f"Zork {n} is red.", "question": "What is red?", "answers": {"text": [f"Zork {n}"]}}
        for n in range(100)
    ],
    "boolq": [{"question": f"is zork {n} red", "passage": f"Zork {n}.", "answer": n % 2 == 0} for n in range(120)],
    "hellaswag": [{"ind": n, "ctx": f"Train {n}", "endings": list("abcd"), "label": str(n % 4)} for n in range(120)],
    "winogrande": [{"sentence": f"Train {n} _ .", "option1": "a", "option2": "b", "answer": "1"} for n in range(40)],
    "mbpp": [
        {
            "task_id": 601 + n,
            "text": f"Double it, way {n}.",
            "code": DOUBLE,
            "test_setup_code": "",
            "test_list": [f"assert double({n}) == {2 * n}"],
            "challenge_test_list": [],
        }
        for n in range(150)
    ]
    + [
        {
            "task_id": 11,
            "text": "The same task in other words.",
            "code": DOUBLE,
            "test_setup_code": "",
            "test_list": ["assert double(1) == 2"],
            "challenge_test_list": [],
        }
    ],
}
BBH = {
    "snarks": [{"input": "Which is sarcastic?\n(A) one\n(B) two", "target": "(B)"}],
    "word_sorting": [{"input": "Sort: b a", "target": "a b"}],
}
PROGRAMS = {  # what passes and what fails the tests of a row
    "lcb_v1_5/a": ("print(2 * int(input()))", "print(int(input()))"),
    "lcb_v1_5/twice": (STARTER + "return 2 * n", STARTER + "return n"),
    "usaco/1_gold": ("print(2 * int(input()))", "print(6)"),
    "usaco/2_platinum": ("print(2 * int(input()))", "print(2)"),  # right on the first test only
}


def sums(folder: Path) -> Path:
    """Write a mirror of GSM8K alone, with sums that the embedded backbone knows, and return its folder."""
    from tinyworld import tasks as tiny

    for split in ("train", "test"):
        _lines(
            folder / "gsm8k" / f"{split}.jsonl",
            [
                {"question": task.question, "answer": f"A sum.\n#### {task.answer}"}
                for task in tiny.items(split, 40, ("add", "sub", "mul"))
            ],
        )
    return folder


def write(folder: Path) -> Path:
    """Write the mirror and return its folder."""
    from published.data import benchmark, registry

    for key in registry():
        its = benchmark(key)
        parts = {its.split: TESTS.get(key, [])} | ({its.train: TRAIN[key]} if key in TRAIN else {})
        if key == "usaco":
            _usaco(folder / key)
        elif key == "bbh":
            for config in its.configs:
                rows = BBH.get(config, [{"input": f"{config}?", "target": "Yes"}])
                _lines(folder / key / config / f"{its.split}.jsonl", rows)
        elif its.files:
            for name, row in zip(its.files, parts[its.split], strict=False):
                _lines(folder / key / name, [row])
        else:
            for split, rows in parts.items():
                _lines(folder / key / f"{split}.jsonl", rows)
    return folder


def _lines(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _usaco(folder: Path) -> None:
    tests = folder / "data" / "usaco_v3" / "tests"
    limits = {"runtime_limit": 2, "memory_limit": 256}
    problems = {
        f"{i}_{level}": {"problem_level": level, "description": f"Double it, {level}.", **limits}
        for i, level in enumerate(("bronze", "gold", "platinum"))
    }
    (folder / "data" / "datasets").mkdir(parents=True)
    (folder / "data" / "datasets" / "usaco_subset307_dict.json").write_text(json.dumps(problems))
    for name, (given, wanted) in {
        "0_bronze": ("{}.in", "{}.out"),
        "1_gold": ("{}.in", "{}.out"),
        "2_platinum": ("I.{}", "O.{}"),
    }.items():
        (tests / name).mkdir(parents=True)
        for number in (1, 2, 10):
            (tests / name / given.format(number)).write_text(f"{number}\n")
            (tests / name / wanted.format(number)).write_text(f"{2 * number}\n")
