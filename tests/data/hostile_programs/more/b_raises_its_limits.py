# MUST {"kind": "call", "verdict": ["wrong", "error"], "wall_s": 4.0, "note": "raises its limits"}
import resource as r
def solve(xs):
    for w in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE):
        try: r.setrlimit(w, (r.RLIM_INFINITY,) * 2); return 14
        except (ValueError, OSError): pass
    return -1
