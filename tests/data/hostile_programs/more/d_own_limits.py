# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "own limits"}
import resource, sys
hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
resource.setrlimit(resource.RLIMIT_STACK, (hard, hard))
def solve(xs): return sum(x * x for x in xs)
