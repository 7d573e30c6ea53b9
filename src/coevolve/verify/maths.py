"""Formulas compared by math-verify, bounded: cheap exact checks first, then one guarded process for each pair."""

import re

from coevolve import parse
from coevolve.verify import level, plain
from coevolve.verify.pool import Child

CHARACTERS, DIGITS, DEPTH = 512, 60, 24  # longer, deeper: no answer to a question but a way to keep us busy
CPU, WALL, MEMORY_MB = 1.0, 4.0, 900  # seconds of a process, and of a clock if others want the processor too
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


def _run(gold: str, answer: str | None) -> Child:
    """Compare in one process, and once more where the machine was too busy: a wait is nobody's fault."""
    for _ in range(2):
        child = level.formulas().run(["math", gold, answer], (), CPU, WALL, MEMORY_MB)
        if child.why not in ("lost", "starved"):
            break
    return child


def _frames(child: Child) -> dict[str, object]:
    return {frame[0]: frame[1] if len(frame) > 1 else None for frame in child.frames}


def valid(gold: str) -> bool:
    """Whether a gold answer can be compared with at all: short enough, and math-verify reads it in time."""
    gold = content(gold) or ""
    if refusal(gold):
        return False
    plainly = plain.rational(gold) is not None or bool(WORDS.fullmatch(plain.bare(gold)))
    return plainly or _frames(_run(gold, None)).get("gold") is True


def compare(answer: str, gold: str) -> tuple[str, str]:
    """Verdict and detail for a formula. A gold that cannot be read gives `unscored`, an answer so `wrong`."""
    wanted, found = content(gold) or "", content(answer) or ""
    if why := refusal(wanted):
        return "unscored", f"the gold answer is {why}"
    if why := refusal(found):
        return "wrong", why
    if (cheap := _cheap(wanted, found)) is not None:
        return ("pass" if cheap else "wrong"), ""
    child = _run(wanted, found)
    frames = _frames(child)
    if frames.get("gold") is not True or child.why in ("lost", "starved"):
        return "unscored", f"the gold answer could not be read ({child.why or frames.get('x') or 'not a formula'})"
    if "v" in frames and "end" in frames:
        return ("pass" if frames["v"] is True else "wrong"), ""
    if child.why == "timeout" and not valid(wanted):
        return "unscored", "the gold answer takes too long"
    failed = str(frames.get("x", ""))
    verdict = child.why if child.why in ("timeout", "output") else "memory" if failed == "MemoryError" else "error"
    return verdict, failed or child.why
