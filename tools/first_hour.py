"""Cost of the presets for GPUs, computed and never measured: `python -m tools.first_hour`.

Prints a table of the preset one-gpu, and the learner's memory with the preset gpu. The replies of
a step are counted on a few episodes of the embedded backbone. Memory is an estimate of
coevolve.training.memory; seconds follow from the assumed lengths and speeds below.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig, Qwen3Config

from benchmarks.real import shape
from coevolve.engines.loading import load_policy
from coevolve.rollout.engine import BatchedEngine
from coevolve.rollout.scheduler import play
from coevolve.training import config, memory
from coevolve.types import Reply, Turn

METHODS = ("mae", "sage", "spice", "comas", "conl", "ttrl", "ground_truth")
EPISODES = 8  # played to count replies
# Assumed tokens of a full prompt, and of a reply of at most 1,024.
PROMPT_TOKENS = 600
REPLY_TOKENS = 350
# Assumed tokens per second of vLLM in large batches: a 3B model in bfloat16 on a 24 GB card.
SAMPLED_TOKENS_PER_SECOND = 2500
# Assumed floating-point operations per second of such a card during an update.
OPERATIONS_PER_SECOND = 30e12
# Per parameter and token: forward pass, its recomputation, gradients of activations.
OPERATIONS_PER_PARAMETER = 6
DOLLARS_PER_HOUR = 0.5  # assumed
SMALL = "Qwen/Qwen2.5-3B-Instruct"
SHAPES: dict[str, PretrainedConfig] = {  # of the models that the preset gpu names
    SMALL: shape("3b"),
    "Qwen/Qwen3-4B-Base": Qwen3Config(
        vocab_size=151_936,
        num_key_value_heads=8,
        head_dim=128,
        hidden_size=2560,
        intermediate_size=9728,
        num_hidden_layers=36,
        num_attention_heads=32,
        tie_word_embeddings=True,
    ),
    "Qwen/Qwen3-8B": Qwen3Config(
        vocab_size=151_936,
        num_key_value_heads=8,
        head_dim=128,
        hidden_size=4096,
        intermediate_size=12_288,
        num_hidden_layers=36,
        num_attention_heads=32,
    ),
    "Qwen/Qwen3-32B": Qwen3Config(
        vocab_size=151_936,
        num_key_value_heads=8,
        head_dim=128,
        hidden_size=5120,
        intermediate_size=25_600,
        num_hidden_layers=64,
        num_attention_heads=64,
    ),
}
HEADER = "| method | completions a step | of which rewarded | seconds a step | hours | dollars |"


class Counting(BatchedEngine):
    """An engine that counts its turns."""

    def __init__(self, generate: Callable[[list[Turn]], list[Reply]]):
        super().__init__(generate)
        self.count = 0

    def submit(self, turn: Turn) -> object:
        """Count the turn."""
        self.count += 1
        return super().submit(turn)


@dataclass(frozen=True)
class Replies:
    """Mean number of replies of an episode, and of those that earn a reward."""

    total: float
    rewarded: float


def count_replies(method: str, engine: Counting) -> Replies:
    """Play a few episodes of a method with the numbers of preset one-gpu."""
    fields = {
        "model": "tiny",
        "engine": "torch",
        "lora": [],
        "max_tokens": 64,
        "world": "tiny",
        "prompt": "compact",
    }
    run = config.build(method, "one-gpu", out=".", overrides=fields)
    episodes = [run.method.episode(Random(f"{method} {i}")) for i in range(EPISODES)]
    outcomes = play(episodes, engine, (0,))
    rewarded = sum(len(outcome.samples) for outcome in outcomes)
    return Replies(total=engine.count / EPISODES, rewarded=rewarded / EPISODES)


def parameters() -> int:
    """Return the number of parameters of the 3B model."""
    with torch.device("meta"):
        return int(AutoModelForCausalLM.from_config(shape("3b")).num_parameters())


def step_seconds(sampled: float, rewarded: float) -> float:
    """Return the seconds of a step: sampling of all replies, an update on the rewarded ones."""
    sampling = sampled * REPLY_TOKENS / SAMPLED_TOKENS_PER_SECOND
    tokens = rewarded * (PROMPT_TOKENS + REPLY_TOKENS)
    operations = tokens * OPERATIONS_PER_PARAMETER * parameters()
    return sampling + operations / OPERATIONS_PER_SECOND


def row(method: str, folder: str) -> str:
    """Return a method's line of the table."""
    overrides = {"world": "tiny", "model": folder}
    run = config.build(method, "one-gpu", out=".", overrides=overrides)
    policy = load_policy("tiny")
    engine = Counting(lambda turns: policy.generate(turns, max_tokens=64))
    replies = count_replies(method, engine)
    sampled = replies.total * run.batch_size
    rewarded = replies.rewarded * run.batch_size
    seconds = step_seconds(sampled, rewarded)
    hours = run.steps * seconds / 3600
    cells = [
        method,
        f"{sampled:,.0f}",
        f"{rewarded:,.0f}",
        f"{seconds:.0f}",
        f"{hours:.1f}",
        f"{DOLLARS_PER_HOUR * hours:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def learner_gib(method: str, preset: str, folder: Path) -> float:
    """Return the GiB of memory of a method's learner with a preset."""
    run = config.build(method, preset, out=".", overrides={"world": "tiny"})
    overrides = {"world": "tiny", "model": str(folder / run.model)}
    strong = getattr(run.method, "strong", "")
    if strong:
        overrides["strong"] = str(folder / strong)
    return memory.estimate(config.build(method, preset, out=".", overrides=overrides))


def memory_line(preset: str, folder: Path) -> str:
    """Return the rounded GiB of all learners with a preset, each with its methods."""
    methods_by_gib = defaultdict(list)
    for method in sorted(METHODS):
        methods_by_gib[round(learner_gib(method, preset, folder))].append(f"`{method}`")
    groups = []
    for gib, names in sorted(methods_by_gib.items()):
        groups.append(f"{gib} ({', '.join(names)})")
    return f"GiB with the preset {preset}, without vLLM: {', '.join(groups)}"


def main() -> None:
    """Print the table of preset one-gpu, and the learners' memory with both GPU presets."""
    print(HEADER)
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, configuration in SHAPES.items():
            configuration.save_pretrained(folder / name)
        for method in METHODS:
            print(row(method, str(folder / SMALL)), flush=True)
        for preset in ("one-gpu", "gpu"):
            print(f"\n{memory_line(preset, folder)}")


if __name__ == "__main__":
    main()
