# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "shadows"}
list = len = type = isinstance = 3
def solve(xs):
    total = 0
    for x in xs: total += x * x
    return total
