# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "alarm"}
import signal
rung = []
signal.signal(signal.SIGALRM, lambda *a: rung.append(1))
def solve(xs):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while not rung: pass
    return sum(x * x for x in xs)
