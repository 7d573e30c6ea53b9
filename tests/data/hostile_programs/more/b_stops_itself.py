# MUST {"kind": "call", "verdict": ["timeout"], "wall_s": 4.0, "note": "stops itself"}
import os, signal
def solve(xs): os.kill(os.getpid(), signal.SIGSTOP)
