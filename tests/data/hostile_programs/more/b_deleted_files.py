# MUST {"kind": "call", "verdict": ["error", "output"], "wall_s": 4.0, "note": "deleted files"}
import os, time
def solve(xs):
    kept = []
    while len(kept) < 9:
        f = open('a', 'wb'); f.write(b'x' * (15 << 20)); f.flush(); os.unlink('a'); kept.append(f)
    time.sleep(9)
