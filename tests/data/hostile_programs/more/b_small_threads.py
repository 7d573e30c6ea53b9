# MUST {"kind": "call", "verdict": ["wrong", "error", "timeout", "memory", "output"], "wall_s": 4.0, "note": "small threads"}
import threading, time
def solve(xs):
    threading.stack_size(32768)
    while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
