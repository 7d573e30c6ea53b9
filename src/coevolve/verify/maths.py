"""Formulas compared by math-verify, bounded: cheap exact checks first, then one guarded process for each pair."""

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor

from codesandbox import level
from coevolve import parse
from coevolve.verify import plain

CHARACTERS, DIGITS, DEPTH = 512, 60, 24  # longer, deeper: no answer to a question but a way to keep us busy
CPU, MEMORY_MB = 1.0, 900  # of a process
TIME, GOLD = 2.2, 0.2  # seconds of a whole call (a busy machine adds some); of those for a second look at the gold
DIGIT_RUN = re.compile(rf"[0-9]{{{DIGITS + 1}}}")
WORDS = re.compile(r"[A-Za-z]{3,}(?: [A-Za-z]+)*")
UNIT = re.compile(r"([+-]?[0-9.,]+)\s*(?:\\[ ,;]|\\(?:text|mathrm)\{)?\s*([A-Za-zµ°]+(?:[/^][A-Za-z0-9]+)*)\}?")


def content(text: str) -> str | None:
    r"""What is inside the text's one \boxed{...} and its dollar signs; None when boxes disagree or one hedges."""
    if parse.BOX in text:
        inside = parse.boxed(text)
        before = text[: text.rfind(parse.BOX)]
        if inside is None or parse.boxed(before) not in (None, inside):
            return None
        text = inside
    return text.strip().removeprefix("\\(").removesuffix("\\)").strip(" \t\r\n$")


def refusal(text: str) -> str:
    """Why the text is not even looked at; empty when it is."""
    if not text:
        return "empty"
    if len(text) > CHARACTERS:
        return f"over {CHARACTERS} characters"
    if DIGIT_RUN.search(text):
        return f"over {DIGITS} digits in a row"
    depth = deepest = 0
    for c in text:
        depth += (c in "({[") - (c in ")}]")
        deepest = max(deepest, depth)
    return f"nested over {DEPTH} deep" if deepest > DEPTH else ""


def _cheap(gold: str, answer: str) -> bool | None:
    """Decide what needs no algebra: equal text, two plain numbers, words, units; None when it needs some."""
    if gold == answer:
        return True
    wanted, found = plain.rational(gold), plain.rational(answer)
    if wanted is not None and found is not None:
        return wanted == found
    words = WORDS.fullmatch(plain.bare(gold)), WORDS.fullmatch(plain.bare(answer))
    if any(words):
        return plain.exact(answer, gold)
    units = UNIT.fullmatch(gold), UNIT.fullmatch(answer)
    return False if all(units) and units[0][2] != units[1][2] else None


def _until() -> float:
    """When a call that begins now has to end; the very first starts the servers, before its time is counted."""
    level.formulas()
    return time.monotonic() + TIME


def _run(gold: str, answer: str | None, until: float) -> tuple[str, dict[str, object]]:
    """Compare in one process, again if the machine failed it and there is time. Returns why it ended, what it said."""
    why, frames = "starved", []
    for _ in range(2):
        if why in ("lost", "starved") and (left := until - time.monotonic()) > 0:
            thread = ThreadPoolExecutor(1)  # it sees to the process also when we no longer wait
            job = thread.submit(level.formulas().run, ["math", gold, answer], (), CPU, left, MEMORY_MB)
            thread.shutdown(wait=False)
            with contextlib.suppress(TimeoutError):
                why, frames = job.result(left).why, job.result().frames
    return why, {frame[0]: frame[1] if len(frame) > 1 else None for frame in frames}


def valid(gold: str, until: float | None = None) -> bool:
    """Whether a gold answer can be compared with at all: short enough, and math-verify reads it in time."""
    gold = content(gold) or ""
    if refusal(gold):
        return False
    plainly = plain.rational(gold) is not None or bool(WORDS.fullmatch(plain.bare(gold)))
    return plainly or _run(gold, None, until or _until())[1].get("gold") is True


def compare(answer: str, gold: str) -> tuple[str, str]:
    """Verdict and detail for a formula. A gold that cannot be read gives `unscored`, an answer so `wrong`."""
    wanted, found = content(gold) or "", content(answer) or ""
    if why := refusal(wanted):
        return "unscored", f"the gold answer is {why}"
    if why := refusal(found):
        return "wrong", why
    if (cheap := _cheap(wanted, found)) is not None:
        return ("pass" if cheap else "wrong"), ""
    until = _until()
    why, frames = _run(wanted, found, until - GOLD)
    if frames.get("gold") is not True or why in ("lost", "starved"):
        return "unscored", f"the gold answer could not be read ({why or frames.get('x') or 'not a formula'})"
    if "v" in frames and "end" in frames:
        return ("pass" if frames["v"] is True else "wrong"), ""
    if why == "timeout" and not valid(wanted, until):
        return "unscored", "the gold answer takes too long"
    failed = str(frames.get("x", ""))
    verdict = why if why in ("timeout", "output") else "memory" if failed == "MemoryError" else "error"
    return verdict, failed or why
