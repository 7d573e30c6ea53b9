"""Absolute Zero's tasks as Python programs, for real models: proposed as text, checked by running them.

As in tinyworld.tasks, `read` says what a text is and what the Solver sees of it, and `right` judges an answer. Programs
run in the sandbox; all else that models and programs write is read as Python literals.
"""

import re
import tomllib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from codesandbox import SandboxError, run_calls
from codesandbox.texts import literal_asserts
from coevolve.text.parse import code_block

_TABLES = tomllib.loads(Path(__file__).with_name("executor.toml").read_text(encoding="utf-8"))
KINDS = _TABLES["kinds"]  # {deduction, abduction, induction: its blocks, and what the Solver reads}
FORBIDDEN = re.compile(rf"^[ \t]*(?:import|from)\b[^#\n]*\b(?:{'|'.join(_TABLES['forbidden'])})\b", re.MULTILINE)
SHOWN = 5  # calls of an induction task that the Solver reads; the others judge its program
LONGEST = 8000  # characters of a task, and of its question
SHOW = "\ndef shown(*given): return f'{f(*given)!r}'"  # stands behind a program: a value of f as text


class Task(NamedTuple):
    """A valid task: every call of f returned, and twice the same."""

    family: str
    question: str  # what the Solver reads
    program: str
    inputs: list[str]  # the arguments of each call
    values: tuple


def literals(text: str) -> tuple | None:
    """Return Python literals with commas between them, as they stand in a call; None for any other text."""
    found = literal_asserts(f"assert f({text}\n) == 0")
    return found[0][1] if found else None


def values(program: str, inputs: Sequence[str]) -> tuple | None:
    """Run a program in a process of its own: what f returns for the arguments that each text lists.

    Shorter where a text lists no literals or a call fails; None where no call can be made or a value is no literal.
    Raises SandboxError where the machine fails twice, which says nothing about the program.
    """
    calls = [found for found in map(literals, inputs) if found is not None]
    try:
        ran = run_calls(program + SHOW, "shown", calls, [""] * len(calls))
        if ran.correct is None:  # a server that was killed says nothing about the program: another one runs it
            ran = run_calls(program + SHOW, "shown", calls, [""] * len(calls))
    except (ValueError, TypeError):  # no call, or literals that cannot be sent: complex numbers, an ellipsis
        return None
    if ran.correct is None:
        raise SandboxError(ran.detail)
    return literals(", ".join(map(str, ran.answers)))  # a program may have written anything in its answers' place


@lru_cache(maxsize=20_000)
def read(text: str) -> Task | None:
    """Read and run a task; None unless it has its kind's blocks, imports nothing forbidden and runs twice the same."""
    family, *parts = text.split("```")
    blocks = [part.partition("\n") for part in parts[::2]]
    kind = KINDS.get(family.strip())
    if kind is None or len(text) > LONGEST or [name.strip() for name, _, _ in blocks] != kind["blocks"]:
        return None
    program, *inputs = (body.strip("\n") for _, _, body in blocks)
    message = inputs.pop() if "message" in kind["blocks"] else ""
    found = None if FORBIDDEN.search(program) else values(program, inputs)
    if found is None or len(found) != len(inputs) or values(program, inputs) != found:
        return None
    try:
        pairs = [f"f({one}) == {value!r}" for one, value in zip(inputs[:SHOWN], found, strict=False)]
        shown = {"program": program, "input": inputs[0], "value": repr(found[0]), "message": message}
    except ValueError:  # a number of more digits than Python writes
        return None
    question = kind["question"].strip().format(**shown, pairs="\n".join(pairs))
    return Task(family.strip(), question, program, inputs, found) if len(question) <= LONGEST else None


def is_correct(text: str, answer: str | None) -> bool:
    """Whether an answer solves a task: with the value, arguments that give it, or a program that gives the hidden ones.

    Values are compared as Python compares them (SPICE, Appendix 8).
    """
    if answer is None or (task := read(text)) is None:
        return False
    if task.family == "deduction":
        return literals(answer) == task.values
    if task.family == "abduction":
        return values(task.program, [answer]) == task.values
    return values(code_block(answer) or answer, task.inputs[SHOWN:]) == task.values[SHOWN:]
