# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "annotations"}
from __future__ import annotations
import pickle
from dataclasses import dataclass
from typing import NamedTuple, get_type_hints
@dataclass
class A:
    x: int
class B(NamedTuple):
    y: A
get_type_hints(B); pickle.loads(pickle.dumps(A(1)))
def solve(xs): return sum(x * x for x in xs)
