# MUST {"kind": "call", "verdict": ["timeout"], "wall_s": 4.0, "note": "spinning threads"}
import threading
def spin():
    while True: pass
def solve(xs):
    for _ in range(8): threading.Thread(target=spin).start()
    spin()
