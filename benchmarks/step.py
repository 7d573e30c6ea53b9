"""Time one MAE step on the embedded backbone by phase, and the sampler against transformers' generate.

Both samplers run alternately in one process; medians and their ratio are printed and written to step.json.
"""

import json
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from coevolve import config
from coevolve.driver import play
from coevolve.trainer import Trainer
from coevolve.types import Turn
from tinyworld import tasks

ROUNDS = 15
ROWS = (32, 128, 512)
TOKENS = 32


def seconds(function: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def mae_step() -> dict[str, float]:
    """Median seconds of a step's phases in the quick preset, and turns per second."""
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(config.build("mae", "quick", out=out))
        turns, played, learnt, submit = 0, [], [], trainer.engine.submit

        def count(turn: Turn) -> object:
            nonlocal turns
            turns += 1
            return submit(turn)

        trainer.engine.submit = count

        for number in range(ROUNDS):
            episodes = [trainer.method.observed(random.Random(f"{number}/{i}")) for i in range(trainer.run.batch_size)]
            start = time.perf_counter()
            outcomes = play(episodes, trainer.engine, (0, number))
            played.append(time.perf_counter() - start)
            for name, pool in trainer.method.pools.items():
                pool.extend(item for outcome in outcomes for item in outcome.adds.get(name, ()))
            learnt.append(seconds(lambda number=number, outcomes=outcomes: trainer.learn(number, outcomes)))
    return {
        "play_s": statistics.median(played),
        "learn_s": statistics.median(learnt),
        "turns_per_s": turns / sum(played),
    }


def sampling() -> list[dict[str, float]]:
    """Median tokens per second when every row runs to the end: ours, and transformers with its dynamic cache."""
    with tempfile.TemporaryDirectory() as out:
        policy = Trainer(config.build("base", "quick", out=out)).team.policies["shared"]
    policy.end_ids = frozenset()  # every row runs to the end
    questions, rows = [item.question for item in tasks.items("train", 40)], []
    for count in ROWS:
        texts = [f"solve<question>{questions[i % len(questions)]}</question>" for i in range(count)]
        messages = [({"role": "user", "content": text},) for text in texts]
        turns = [Turn("solver", m, max_tokens=TOKENS, key=(i,)) for i, m in enumerate(messages)]
        batch = policy.tokenizer.pad({"input_ids": [policy.render(m) for m in messages]}, return_tensors="pt")

        def theirs(batch=batch) -> None:
            with torch.no_grad():
                policy.model.generate(**batch, do_sample=True, max_new_tokens=TOKENS, min_new_tokens=TOKENS)

        times: dict[str, list[float]] = {"ours": [], "transformers": []}
        for _ in range(ROUNDS):
            times["ours"].append(seconds(lambda turns=turns: policy.generate(turns)))
            times["transformers"].append(seconds(theirs))
        speed = {name: count * TOKENS / statistics.median(values) for name, values in times.items()}
        rows.append({"rows": count, **speed, "ratio": speed["ours"] / speed["transformers"]})
    return rows


def main() -> None:
    """Measure, print Markdown, write JSON beside this file."""
    torch.set_num_threads(1)
    result = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": 1,
        "step": mae_step(),
        "sampling": sampling(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    phases = result["step"]
    print(f"one MAE step (quick): play {phases['play_s']:.3f} s ({phases['turns_per_s']:.0f} turns/s), ", end="")
    print(f"learn {phases['learn_s']:.3f} s\n")
    print("| rows | ours, tokens/s | transformers | ratio |\n|---|---|---|---|")
    for row in result["sampling"]:
        print(f"| {row['rows']} | {row['ours']:,.0f} | {row['transformers']:,.0f} | {row['ratio']:.2f} |")


if __name__ == "__main__":
    main()
