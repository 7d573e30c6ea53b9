"""One MAE step of a random-weight model of a real shape with LoRA: time and memory by phase.

Weights are random and the tokenizer is the embedded backbone's, so nothing is downloaded. Random
weights rarely end a reply or write a tag: replies have full length, and the Judge gets fewer
requests than from a trained model.
"""

import argparse
import json
import platform
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

from coevolve.models.names import find
from coevolve.training import config
from coevolve.training.trainer import Trainer
from coevolve.validation import user_path

QWEN = {  # what Qwen2.5's small models have in common
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "tie_word_embeddings": True,
    "layer_types": None,
    "dtype": "bfloat16",
}
WIDTHS = {
    "0.5b": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "intermediate_size": 4864,
    },
    "3b": {
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "intermediate_size": 11008,
    },
}
LONG = {"max_tokens": 1024, "eval_items": 16}
Fields = dict[str, Any]
# Sizes over the embedded backbone's configuration, and the fields of the run.
SHAPES: dict[str, tuple[Fields, Fields]] = {
    "0.5b": (QWEN | WIDTHS["0.5b"], LONG),
    "3b": (QWEN | WIDTHS["3b"], LONG),
    "tiny": (
        {},
        {
            "prompt": "compact",
            "max_tokens": 32,
            "max_tokens_per_micro_batch": 1024,
            "batch_size": 4,
            "attempts": 2,
            "eval_items": 2,
        },
    ),
}
MIB = 2**20


def shape(name: str) -> Qwen2Config:
    """Return the configuration of a shape."""
    embedded = AutoConfig.from_pretrained(find("tiny")).to_dict()
    sizes, _ = SHAPES[name]
    return Qwen2Config(**(embedded | sizes))


def make(name: str, folder: Path) -> int:
    """Write a random-weight model with the embedded tokenizer; return its parameter count."""
    configuration = shape(name)
    torch.manual_seed(0)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = Qwen2ForCausalLM(configuration).to(configuration.dtype)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(find("tiny")).save_pretrained(folder)
    return model.num_parameters()


class Phases:
    """Seconds, tokens and peak memory of each phase."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.sampled_tokens = 0  # by the engine so far

    def __call__(
        self, name: str, function: Callable, *args: Any, tokens: Callable | None = None
    ) -> Any:
        """Run a function as a phase; `tokens` reads its number of tokens from the result."""
        on_gpu = torch.cuda.is_available()
        before = self.sampled_tokens
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        result = function(*args)
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        count = tokens(result) if tokens else self.sampled_tokens - before
        # Linux counts KiB.
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        peak = torch.cuda.max_memory_allocated() / MIB if on_gpu else host
        self.rows.append(
            {
                "phase": name,
                "seconds": seconds,
                "tokens": int(count),
                "tokens_per_s": count / seconds if count else None,
                "peak_mib": peak,
            }
        )
        return result

    def listen(self, engine: Any) -> None:
        """Count the tokens that an engine samples from now on."""
        poll = engine.poll

        def counting() -> list:
            finished = poll()
            self.sampled_tokens += sum(
                len(reply.completion_ids) for _, reply in finished
            )
            return finished

        engine.poll = counting


def measure(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Load, play, learn, evaluate and save once; return the report."""
    phases = Phases()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        count = make(name, folder)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        # The engine of the preset is vLLM, whose own speed is not what this measures.
        fields = {
            "world": "tiny",
            "engine": "torch",
            **SHAPES[name][1],
            "model": str(folder),
            **fields,
        }
        # The entropy bonus of preset gpu sends replies without an advantage through the model too.
        run = config.build("mae", "gpu", out=Path(scratch, "run"), overrides=fields)
        trainer = phases("load", Trainer, run)
        phases.listen(trainer.engine)
        try:
            outcomes = phases("play", trainer.play, 1)
            phases(
                "learn",
                trainer.learn,
                1,
                outcomes,
                tokens=lambda metrics: metrics["tokens"],
            )
            phases("evaluate", trainer.evaluate, "validation")
            phases("save", trainer.save, 1)
        finally:
            trainer.engine.close()
    device = platform.processor() or platform.machine()
    memory = "peak RSS so far"
    if torch.cuda.is_available():
        device = torch.cuda.get_device_name()
        memory = "max_memory_allocated of the phase"
    keys = ("engine", "lora", "batch_size", "max_tokens", "max_tokens_per_micro_batch")
    return {
        "shape": name,
        "parameters": count,
        "device": device,
        "torch": torch.__version__,
        **{key: getattr(run, key) for key in keys},
        "memory": memory,
        "phases": phases.rows,
    }


def show(report: dict[str, Any]) -> None:
    """Print a report as Markdown."""
    print(
        f"{report['shape']}: {report['parameters']:,} parameters on {report['device']}; "
        f"engine {report['engine']}, lora {list(report['lora'])}, "
        f"{report['batch_size']} episodes of at most {report['max_tokens']} tokens\n"
    )
    print(f"| phase | seconds | tokens | tokens/s | MiB ({report['memory']}) |")
    print("|---|---|---|---|---|")
    for row in report["phases"]:
        speed = "" if row["tokens_per_s"] is None else f"{row['tokens_per_s']:,.0f}"
        cells = [
            row["phase"],
            f"{row['seconds']:.2f}",
            f"{row['tokens']:,}",
            speed,
            f"{row['peak_mib']:,.0f}",
        ]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Measure, print Markdown, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="3b")
    parser.add_argument(
        "--out", type=user_path, default=Path(__file__).with_suffix(".json")
    )
    options, pairs = parser.parse_known_args()  # pairs: field=value of a run
    if options.shape != "tiny" and not torch.cuda.is_available():
        print("not measured: there is no CUDA device")
        return
    report = measure(
        options.shape, {"lora": [64, 128, 0.0], **config.parse_overrides(pairs)}
    )
    show(report)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
