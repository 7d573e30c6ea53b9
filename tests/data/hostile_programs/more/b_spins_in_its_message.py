# MUST {"kind": "call", "verdict": ["timeout"], "wall_s": 4.0, "note": "spins in its message"}
class E(Exception):
    def __str__(self):
        while True: pass
def solve(xs): raise E
