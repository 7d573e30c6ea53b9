# MUST {"kind": "call", "verdict": ["pass"], "wall_s": 4.0, "note": "asyncio"}
import asyncio
async def one(x): return x * x
async def every(xs): return sum(await asyncio.gather(*map(one, xs)))
def solve(xs): return asyncio.run(every(xs))
