# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "deep frame"}
import json, os
def send(*frames):
    for frame in frames:
        data = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        data = data + b"\n"
        for fd in range(3, 64):
            try: os.write(fd, data)
            except OSError: pass
def solve(xs): send(b'[' * 300_000); os._exit(0)
