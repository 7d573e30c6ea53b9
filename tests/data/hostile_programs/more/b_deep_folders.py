# MUST {"kind": "call", "verdict": ["wrong", "error", "timeout", "memory", "output"], "wall_s": 4.0, "note": "deep folders"}
import os
def solve(xs):
    while True: os.mkdir('d'); os.chdir('d')
