# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "colliding keys"}
import json, os
def send(*frames):
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        data = data + b"\n"
        for fd in range(3, 64):
            try: os.write(fd, data)
            except OSError: pass
def solve(xs):
    send(['v', ['s', [['i', hex(i * (2**61 - 1))] for i in range(20000)]]])
    os._exit(0)
