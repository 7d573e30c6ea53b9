# MUST {"kind": "call", "verdict": ["timeout"], "wall_s": 4.0, "note": "closes everything and spins"}
import os
def solve(xs):
    os.closerange(0, 64)
    while True: pass
