# MUST {"kind": "call", "verdict": ["output"], "wall_s": 4.0, "note": "many files"}
def solve(xs):
    i = 0
    while True:
        open(str(i), 'w').close(); i += 1
