"""LiveCodeBench's checker: what it gives to a program, and how it compares what comes back.

The rules are those of `lcb_runner/evaluation/testing_util.py` (May 2025). Three of its accidents
are not copied: it wraps scripts in a function, replaces standard input by an object with fewer
methods, and removes `quit`.
"""

from collections.abc import Sequence
from typing import Any

# The checker imports all names of each module, in this order, and then the modules themselves.
MODULES = [
    "string",
    "re",
    "datetime",
    "collections",
    "heapq",
    "bisect",
    "copy",
    "math",
    "random",
    "statistics",
    "itertools",
    "functools",
    "operator",
    "io",
    "sys",
    "json",
]
NAMES_ONLY = ["builtins", "typing"]
RECURSION_LIMIT = 50_000
PRELUDE = "\n".join(
    [
        *(f"from {module} import *" for module in MODULES + NAMES_ONLY),
        *(f"import {module}" for module in MODULES),
        f"sys.setrecursionlimit({RECURSION_LIMIT})",
    ]
)
# One object answers all calls; without the class, a function of the same name does.
ENTRY = """
if "Solution" in globals():
    {function} = Solution().{function}
"""


def stdio_gold(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the gold of a task with pairs of standard input and output."""
    options = {"compare": "numbers", "any_exit_code": True}
    return {"stdio": pairs, "before": PRELUDE, "options": options}


def calls_gold(
    function: str, calls: Sequence[Sequence[Any]], expected: Sequence[Any]
) -> dict[str, Any]:
    """Return the gold of a task with calls of a function and the values that they return."""
    return {
        "entry": function,
        "calls": calls,
        "expected": expected,
        "before": PRELUDE,
        "after": ENTRY.format(function=function),
        "options": {"tuple_is_list": True},
    }
