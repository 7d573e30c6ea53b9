# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "threads"}
from concurrent.futures import ThreadPoolExecutor
def solve(xs):
    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(lambda x: x * x, xs))
