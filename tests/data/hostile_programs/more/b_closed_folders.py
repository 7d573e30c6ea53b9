# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "closed folders"}
import os
os.makedirs('a/b'); os.mkdir('a/b/c', 0); os.mkdir('z', 0)
def solve(xs): return -1
