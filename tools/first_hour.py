"""What the presets for GPUs will cost, computed and never measured: `python -m tools.first_hour` prints Markdown.

First a table of the preset one-gpu, then the memory that the learner wants with the preset gpu.

Replies a step are counted: the embedded backbone plays a few episodes of each method with the preset's numbers. Memory
is what coevolve.training.memory estimates for a model of Qwen2.5-3B's shape. Seconds are those replies at the assumed
lengths and speeds below.
"""

import tempfile
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, Qwen3Config

from benchmarks.real import shape
from coevolve.engines.limits import VLLM_SHARE
from coevolve.engines.loading import load_policy
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.training import config, memory

METHODS = ("mae", "sage", "spice", "comas", "conl", "ttrl", "ground_truth")
EPISODES = 8  # played to count replies
PROMPT, REPLY = 600, 350  # assumed tokens of a full prompt, and of a reply of at most 1,024
WRITES = 2500  # assumed tokens a second that vLLM writes in large batches, a 3B model in bfloat16 on a 24 GB card
LEARNS = 30e12  # assumed floating-point operations a second of such a card while learning
PRODUCTS = 6  # operations a parameter and token: forward, again for the backward pass, gradients of activations
PRICE = 0.5  # assumed dollars an hour
SMALL = "Qwen/Qwen2.5-3B-Instruct"
QWEN3 = {"vocab_size": 151_936, "num_key_value_heads": 8, "head_dim": 128}
SHAPES: dict[str, PretrainedConfig] = {  # of the models that the preset gpu names
    SMALL: shape("3b"),
    "Qwen/Qwen3-4B-Base": Qwen3Config(
        **QWEN3,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-8B": Qwen3Config(
        **QWEN3, hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36, num_attention_heads=32
    ),
    "Qwen/Qwen3-32B": Qwen3Config(
        **QWEN3, hidden_size=5120, intermediate_size=25_600, num_hidden_layers=64, num_attention_heads=64
    ),
}


def replies(method: str, engine: BatchedEngine) -> tuple[float, float]:
    """How many replies an episode has, and how many of them earn something."""
    small = {"world": "tiny", "prompt": "compact"}
    fields = {"model": "tiny", "engine": "torch", "lora": [], "max_tokens": 64, **small}
    run = config.build(method, "one-gpu", out=".", overrides=fields)
    outcomes = play([run.protocol.episode(Random(f"{method} {i}")) for i in range(EPISODES)], engine, (0,))
    return engine.count / EPISODES, sum(len(outcome.samples) for outcome in outcomes) / EPISODES


class Counting(BatchedEngine):
    """An engine that counts the turns it is asked."""

    count = 0

    def submit(self, turn):  # type: ignore[no-untyped-def]
        """Count the turn."""
        self.count += 1
        return super().submit(turn)


def parameters() -> int:
    """How many the model has."""
    with torch.device("meta"):
        return int(AutoModelForCausalLM.from_config(shape("3b")).num_parameters())


def row(method: str, folder: str) -> str:
    """One line of the table."""
    run = config.build(method, "one-gpu", out=".", overrides={"world": "tiny", "model": folder})
    speaker = load_policy("tiny")
    said, paid = replies(method, Counting(lambda turns: speaker.generate(turns, max_tokens=64)))
    said, paid = said * run.batch_size, paid * run.batch_size
    seconds = said * REPLY / WRITES + paid * (PROMPT + REPLY) * PRODUCTS * parameters() / LEARNS
    hours, gib = run.steps * seconds / 3600, memory.estimate(run)
    numbers = f"{said:,.0f} | {paid:,.0f} | {seconds:.0f} | {hours:.1f} | {gib:.0f} + {VLLM_SHARE:.0%} of the card"
    return f"| {method} | {run.engine} | {numbers} | {PRICE * hours:.2f} |"


def wants(method: str, folder: Path) -> float:
    """GiB that the learner of a method wants with the preset gpu."""
    run = config.build(method, "gpu", out=".", overrides={"world": "tiny"})
    fields = {"model": str(folder / run.model)}
    if strong := getattr(run.protocol, "strong", ""):
        fields["strong"] = str(folder / strong)
    return memory.estimate(config.build(method, "gpu", out=".", overrides={"world": "tiny", **fields}))


def main() -> None:
    """Print the table and the line."""
    print(
        "| method | engine | replies a step | of which paid | seconds a step | hours | GiB, learner + vLLM | dollars |"
    )
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, wanted in SHAPES.items():
            wanted.save_pretrained(Path(folder) / name)
        for method in METHODS:
            print(row(method, str(Path(folder) / SMALL)), flush=True)
        groups = groupby(sorted((round(wants(name, Path(folder))), name) for name in METHODS), itemgetter(0))
        said = (f"{gib} ({', '.join(f'`{name}`' for _, name in group)})" for gib, group in groups)
        print("\nGiB with the preset gpu, without vLLM:", ", ".join(said))


if __name__ == "__main__":
    main()
