# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "empties every open file and writes answers of its own into it"}
import json, os
def solve(xs):
    for fd in range(3, 64):
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, b'["ready"]\n' + b'["v", ["i", "0xe"]]\n' * 5 + b'["end"]\n', 0)
        except OSError: pass
    os._exit(0)
