# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "large stack"}
import sys, threading
sys.setrecursionlimit(10**6); threading.stack_size(256 << 20)
def down(n): return n and 1 + down(n - 1)
def solve(xs):
    thread = threading.Thread(target=down, args=(30000,)); thread.start(); thread.join()
    return sum(x * x for x in xs)
