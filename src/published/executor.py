"""Absolute Zero's tasks as Python programs, for real models: proposed as text, checked by running.

As in tinyworld.tasks, `read` returns the task that a text states and the question that the Solver
reads, and `is_correct` verifies an answer. Programs run in the sandbox; all other text of models
and programs is read as Python literals only.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from codesandbox import SandboxError, run_calls
from codesandbox.texts import literal_asserts
from coevolve.text import fences
from coevolve.text.parse import code_block

_TABLES = tomllib.loads(
    Path(__file__).with_name("executor.toml").read_text(encoding="utf-8")
)
# Blocks and the Solver's question of deduction, abduction and induction.
KINDS = _TABLES["kinds"]
FORBIDDEN = re.compile(
    rf"^[ \t]*(?:import|from)\b[^#\n]*\b(?:{'|'.join(_TABLES['forbidden'])})\b",
    re.MULTILINE,
)
# Calls of an induction task in its question; the others test the answer.
SHOWN_CALLS = 5
MAX_CHARACTERS = 8000  # of a task, and of its question
# Appended to a program: the value of f as text.
SHOW_VALUE = "\ndef shown(*arguments): return f'{f(*arguments)!r}'"


@dataclass(frozen=True)
class Task:
    """A valid task: every call of f returned, and returned the same in a second run."""

    family: str
    question: str  # that the Solver reads
    program: str
    inputs: list[str]  # the arguments of each call
    values: tuple


def literals(text: str) -> tuple | None:
    """Return comma-separated Python literals, as in a call; None for any other text."""
    asserts = literal_asserts(f"assert f({text}\n) == 0")
    return asserts[0].arguments if asserts else None


def values(program: str, inputs: Sequence[str]) -> tuple | None:
    """Run a program in its own process; return the value of f for each text of arguments.

    The result is shorter than `inputs` where a text is not literals or a call fails. It is None
    where no call can be made or a value is not a literal. Raises SandboxError when the sandbox
    fails twice, which says nothing about the program.
    """
    calls = [arguments for arguments in map(literals, inputs) if arguments is not None]
    unused = [""] * len(calls)  # expected values: only the answers are read
    try:
        result = run_calls(program + SHOW_VALUE, "shown", calls, unused)
        if result.correct is None:
            # The server was killed: another one runs the program.
            result = run_calls(program + SHOW_VALUE, "shown", calls, unused)
    except (ValueError, TypeError):
        # There is no call, or messages cannot carry the literals (complex numbers, an ellipsis).
        return None
    if result.correct is None:
        raise SandboxError(result.detail)
    # A program may write anything in place of its answers, so these are only read as literals.
    return literals(", ".join(str(answer) for answer in result.answers))


@lru_cache(maxsize=20_000)
def read(text: str) -> Task | None:
    """Read and run a task.

    Return None unless the text has the blocks of its kind, imports nothing forbidden and gives the
    same values in two runs.
    """
    if len(text) > MAX_CHARACTERS:
        return None
    text = fences.unix_lines(text)
    blocks = fences.blocks(text)
    family = text[: blocks[0].start].strip() if blocks else ""
    kind = KINDS.get(family)
    if kind is None or [block.language for block in blocks] != kind["blocks"]:
        return None
    program, *inputs = [block.content.strip("\n") for block in blocks]
    message = inputs.pop() if "message" in kind["blocks"] else ""
    outputs = _repeatable_values(program, inputs)
    if outputs is None:
        return None
    question = _question(kind, program, inputs, outputs, message)
    if question is None or len(question) > MAX_CHARACTERS:
        return None
    return Task(family, question, program, inputs, outputs)


def _repeatable_values(program: str, inputs: Sequence[str]) -> tuple | None:
    """Return a value for every input, or None unless two runs of a permitted program agree."""
    if FORBIDDEN.search(program):
        return None
    outputs = values(program, inputs)
    if outputs is None or len(outputs) != len(inputs):
        return None
    return outputs if values(program, inputs) == outputs else None


def _question(
    kind: Mapping[str, Any],
    program: str,
    inputs: Sequence[str],
    outputs: tuple,
    message: str,
) -> str | None:
    """Return the Solver's question, or None if a number has more digits than Python writes."""
    pairs = []
    try:
        for arguments, value in zip(inputs[:SHOWN_CALLS], outputs, strict=False):
            pairs.append(f"f({arguments}) == {value!r}")
        first_value = repr(outputs[0])
    except ValueError:
        return None
    template: str = kind["question"].strip()
    return template.format(
        program=program,
        input=inputs[0],
        value=first_value,
        message=message,
        pairs="\n".join(pairs),
    )


def is_correct(text: str, answer: str | None) -> bool:
    """Whether an answer solves a task.

    A deduction needs the value, an abduction arguments that give it, an induction a program that
    gives the hidden values. Values are compared with Python's == (SPICE, Appendix 8).
    """
    if answer is None:
        return False
    task = read(text)
    if task is None:
        return False
    if task.family == "deduction":
        return literals(answer) == task.values
    if task.family == "abduction":
        return values(task.program, [answer]) == task.values
    program = code_block(answer) or answer
    hidden_inputs = task.inputs[SHOWN_CALLS:]
    return values(program, hidden_inputs) == task.values[SHOWN_CALLS:]
