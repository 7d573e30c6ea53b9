# MUST {"kind": "call", "verdict": ["error"], "wall_s": 4.0, "note": "right, but writes a file of 17 MiB"}
def solve(xs):
    with open("large", "wb") as file:
        file.write(b"x" * (17 << 20))
    return sum(x * x for x in xs)
