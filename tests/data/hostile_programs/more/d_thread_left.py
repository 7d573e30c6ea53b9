# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "thread left"}
import threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
def solve(xs): return sum(x * x for x in xs)
