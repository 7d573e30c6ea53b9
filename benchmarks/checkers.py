"""Our verifier beside other projects' checkers on the same pairs of gold answer and answer.

`pairs FILE` draws the pairs; `judge CHECKER FILE` judges them in any Python that has the checker's
requirements; `table FILE` counts. docs/verifiers.md says how the committed table was made.
"""

import importlib
import json
import random
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.written_forms import KINDS, TEMPLATES, Written, wrapped, written

SECONDS = 10  # for one pair; a checker that takes longer rewards nothing
GOLDS = 40  # of each published set
OWN = 10  # golds of each kind of written form
BOX = "\\boxed{"
WITH_EQUALS = ("name", "equals")
DIGIT = re.compile("[0-9]")
OURS = "coevolve"
RESULT = Path(__file__).with_suffix(".json")

ALL = "all"
Counts = dict[str, Any]  # checker: source: counts
Check = Callable[[str, str], bool]  # answer and gold


# Pairs.


def published_golds(path: Path) -> list[str]:
    """Return the gold answers of a file of GSM8K or MATH, in a random but fixed order."""
    golds = set()
    for line in path.read_text(encoding="utf-8").splitlines():
        answer = json.loads(line)["answer"]
        golds.add(answer.rpartition("####")[2].strip())
    shuffled = sorted(golds)
    random.Random(0).shuffle(shuffled)
    return shuffled


def pairs(gsm8k: Path, math: Path) -> Iterator[dict[str, Any]]:
    """Yield golds of both sets in twenty forms with two near misses, and all our own forms."""
    for source, path in {"GSM8K": gsm8k, "MATH": math}.items():
        golds = published_golds(path)
        others = golds[GOLDS:]
        for gold, other in zip(golds[:GOLDS], others, strict=False):
            forms = [form for form in wrapped(gold) if _fits(form)]
            for miss in (_changed(gold), other):
                forms.append(Written(gold, miss, False, "other"))
            for form in forms:
                yield {"source": source, **vars(form)}
    for kind in KINDS:
        for seed in range(OWN):
            for form in written(kind, seed):
                if form.form not in TEMPLATES["wrappings"]:
                    yield {"source": "written forms", **vars(form)}


def _fits(form: Written) -> bool:
    """Whether a wrapping suits its gold: x = y = 2x is no form of y = 2x."""
    return "=" not in form.gold or form.form not in WITH_EQUALS


def _changed(gold: str) -> str:
    """Return a gold with its last digit, or else a sign, changed."""
    digits = list(DIGIT.finditer(gold))
    if not digits:
        return f"2 + {gold}"
    last = digits[-1]
    other = (int(last[0]) + 1) % 10
    before = gold[: last.start()]
    behind = gold[last.end() :]
    return f"{before}{other}{behind}"


# Checkers: each is loaded from its project's own file, which has to be on sys.path.


def ours() -> Check:
    """Return our verifier."""
    from coevolve.text.verify import verify

    return lambda answer, gold: verify("math", answer, gold).correct is True


def math_verify() -> Check:
    """Return math-verify as its page says: gold and answer parsed, then compared."""
    library = importlib.import_module("math_verify")

    def check(answer: str, gold: str) -> bool:
        gold_readings = library.parse(f"${gold}$")
        return library.verify(gold_readings, library.parse(answer))

    return check


def verl_math() -> Check:
    """Return verl's reward for MATH, after hendrycks/math."""
    module = importlib.import_module("verl_math_reward")
    return lambda answer, gold: module.compute_score(answer, gold) > 0


def verl_dapo() -> Check:
    """Return verl's reward of DAPO, after Minerva: by the line `Answer:` or by the box."""
    module = importlib.import_module("verl_math_dapo")

    def check(answer: str, gold: str) -> bool:
        by_line, _ = module.verify(answer, gold, strict_box_verify=False)
        by_box, _ = module.verify(answer, gold, strict_box_verify=True)
        return by_line or by_box

    return check


def prime() -> Check:
    """Return PRIME's reward for mathematics, as verl ships it."""
    module = importlib.import_module("prime_math")
    return lambda answer, gold: bool(module.compute_score(answer, gold)[0])


def lm_eval() -> Check:
    """Return lm-evaluation-harness's comparison of hendrycks_math, on the content of the box."""
    module = importlib.import_module("lm_eval_hendrycks")

    def check(answer: str, gold: str) -> bool:
        box = module.last_boxed_only_string(answer)
        text = module.remove_boxed(box) if box else answer
        return module.is_equiv(text, gold)

    return check


CHECKERS: dict[str, Callable[[], Check]] = {
    OURS: ours,
    "math-verify": math_verify,
    "PRIME": prime,
    "verl, MATH": verl_math,
    "verl, DAPO": verl_dapo,
    "lm-eval, hendrycks_math": lm_eval,
}


def judge(check: Check, pair: dict[str, Any]) -> bool:
    """Return a checker's verdict; it may read an answer as it is, in a box or behind `Answer:`.

    The best way counts: an answer that is correct is found if one way finds it, another one is
    rewarded only if all ways reward it.
    """
    answer = pair["answer"]
    ways = [answer]
    if BOX not in answer:
        ways.append(f"{BOX}{answer}}}")
        ways.append(f"Answer: {answer}")
    rewarded = [_in_time(check, way, pair["gold"]) for way in ways]
    return any(rewarded) if pair["is_correct"] else all(rewarded)


def _in_time(check: Check, answer: str, gold: str) -> bool:
    """Return a verdict; False where the checker fails or takes too long."""
    signal.alarm(SECONDS)
    try:
        return bool(check(answer, gold))
    except Exception:  # noqa: BLE001 - other projects' code may raise anything
        return False
    finally:
        signal.alarm(0)


def _stop(number: int, frame: object) -> None:
    raise TimeoutError


# The table.


def count(judged: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Count the pairs, the correct answers that were missed and the wrong ones rewarded."""
    rows = pd.DataFrame(judged)
    correct = rows[rows.is_correct]
    wrong = rows[~rows.is_correct]
    return {
        "correct": len(correct),
        "missed": int((~correct.rewarded).sum()),
        "wrong": len(wrong),
        "rewarded": int(wrong.rewarded.sum()),
    }


def table(result: Counts) -> str:
    """Return the counts as Markdown: a row for each checker, a column for each source."""
    first = result[OURS]
    heads = ["checker"]
    for source, counts in first.items():
        correct = counts["correct"]
        wrong = counts["wrong"]
        heads.append(f"{source}: {correct} correct, {wrong} wrong")
    lines = [heads, ["---"] * len(heads)]
    for checker, by_source in result.items():
        cells = [_cell(counts) for counts in by_source.values()]
        lines.append([checker, *cells])
    rows = []
    for cells in lines:
        joined = " | ".join(cells)
        rows.append(f"| {joined} |")
    return "\n".join(rows)


def _cell(counts: dict[str, int]) -> str:
    missed = counts["missed"]
    rewarded = counts["rewarded"]
    share = 100 * missed / counts["correct"]
    return f"{missed} missed ({share:.1f} %), {rewarded} wrong rewarded"


def _read(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Draw pairs, judge them, or count the verdicts of all checkers that judged them."""
    match sys.argv[1:]:
        case ["pairs", path, gsm8k, math]:
            drawn = pairs(Path(gsm8k), Path(math))
            _write(Path(path), list(drawn))
        case ["judge", name, path]:
            signal.signal(signal.SIGALRM, _stop)
            check = CHECKERS[name]()
            rows = _read(Path(path))
            for row in rows:
                row["rewarded"] = judge(check, row)
            _write(Path(f"{path}.{name}"), rows)
        case ["table", path]:
            _write_table(Path(path))
        case _:
            print(table(json.loads(RESULT.read_text(encoding="utf-8"))))


def _write_table(path: Path) -> None:
    result: Counts = {}
    for checker in CHECKERS:
        by_source: dict[str, list] = {}
        rows = _read(Path(f"{path}.{checker}"))
        for row in rows:
            by_source.setdefault(row["source"], []).append(row)
        by_source[ALL] = rows
        result[checker] = {name: count(group) for name, group in by_source.items()}
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
