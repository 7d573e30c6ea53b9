# MUST {"kind": "call", "verdict": ["error", "output"], "wall_s": 4.0, "note": "sparse files"}
def solve(xs):
    i = 0
    while True:
        f = open(str(i), 'wb'); f.seek(15 << 20); f.write(b'x'); i += 1
