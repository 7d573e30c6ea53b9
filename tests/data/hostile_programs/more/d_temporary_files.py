# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "temporary files"}
import os, tempfile
def solve(xs):
    with tempfile.TemporaryDirectory() as d:
        open(os.path.join(d, 'x'), 'w').close()
    with tempfile.TemporaryFile() as f: f.write(b'a')
    with tempfile.NamedTemporaryFile() as f: f.write(b'a')
    return sum(x * x for x in xs)
