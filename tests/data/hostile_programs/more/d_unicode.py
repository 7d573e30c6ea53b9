# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "unicode"}
# -*- coding: utf-8 -*-
näme = '😀'
print(näme)
def solve(xs): return sum(x * x for x in xs)
