# MUST {"kind": "call", "verdict": ["output"], "wall_s": 4.0, "note": "files below a path too long to name"}
import os
def solve(xs):
    for _ in range(20):
        os.mkdir('d' * 250); os.chdir('d' * 250)
    i = 0
    while True:
        f = open(str(i), 'wb'); f.seek(1 << 20); f.write(b'x'); f.close(); i += 1
