# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "much output"}
def solve(xs):
    for _ in range(3000): print('y' * 100)
    return sum(x * x for x in xs)
