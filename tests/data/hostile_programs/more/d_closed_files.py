# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "closed files"}
import sys
sys.stdout.close(); sys.stdin.close()
def solve(xs): return sum(x * x for x in xs)
