# MUST {"kind": "call", "verdict": ["output"], "wall_s": 4.0, "note": "files in a folder that cannot be listed"}
import os
def solve(xs):
    os.mkdir('d', 0o300); os.chdir('d')
    i = 0
    while True:
        f = open(str(i), 'wb'); f.seek(1 << 20); f.write(b'x'); f.close(); i += 1
