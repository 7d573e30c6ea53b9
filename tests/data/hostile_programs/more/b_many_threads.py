# MUST {"kind": "call", "verdict": ["error"], "wall_s": 4.0, "note": "right, but keeps 100 threads"}
import threading, time
threading.stack_size(65536)
for _ in range(100):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
time.sleep(0.4)
def solve(xs):
    return sum(x * x for x in xs)
