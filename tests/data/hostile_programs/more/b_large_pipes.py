# MUST {"kind": "call", "verdict": ["wrong", "error", "timeout", "memory", "output"], "wall_s": 4.0, "note": "large pipes"}
import fcntl, os
def solve(xs):
    kept = []
    while True:
        a, b = os.pipe(); fcntl.fcntl(b, 1031, 1 << 20); kept.append(a)
