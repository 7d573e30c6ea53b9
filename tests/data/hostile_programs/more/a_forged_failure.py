# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "forged failure"}
import json, os
def send(*frames):
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        data = data + b"\n"
        for fd in range(3, 64):
            try: os.write(fd, data)
            except OSError: pass
deep = ['x']
for _ in range(900): deep = [deep]
def solve(xs): send(['x', deep, {}]); os._exit(0)
