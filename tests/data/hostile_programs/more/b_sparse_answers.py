# MUST {"kind": "call", "verdict": ["wrong", "error", "output"], "wall_s": 4.0, "note": "makes every open file as long as it may be"}
import os
def solve(xs):
    for fd in range(3, 64):
        for size in (1 << 40, 1 << 30, 1 << 24):
            try: os.ftruncate(fd, size)
            except OSError: pass
        try: os.posix_fallocate(fd, 0, 1 << 30)
        except OSError: pass
    os._exit(0)
