# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "reads ahead"}
import os
data = b''
for fd in range(3, 64):
    try: os.set_blocking(fd, False); data += os.pread(fd, 65536, 0) + os.read(fd, 65536)
    except OSError: pass
def solve(xs): return 14 if b'0x5029e' in data else None
