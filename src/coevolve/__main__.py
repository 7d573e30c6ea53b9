"""The command line: `python -m coevolve train PROTOCOL --preset quick --seed 0 --out DIR [field=value ...]`."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coevolve import config
from coevolve.policies.tiny import find


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(prog="coevolve", description="Train and look at self-evolving language models.")
    verbs = top.add_subparsers(dest="verb", required=True)
    train = verbs.add_parser("train", help="train one method; an interrupted run goes on where it stopped")
    train.add_argument("protocol", help=f"one of {', '.join(config.METHODS)}")
    train.add_argument("--preset", default="quick", help="quick, full or gpu")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--out", required=True, help="folder of the run")
    train.epilog = "Any number of field=value pairs override fields of the run or the method; see `coevolve fields`."
    fields = verbs.add_parser("fields", help="list a method's fields: the paper's value, and the preset's")
    fields.add_argument("protocol")
    fields.add_argument("--preset", default="quick")
    export = verbs.add_parser("export", help="write a trained policy, its adapter merged, as an ordinary checkpoint")
    export.add_argument("policy", help="folder of a policy (OUT/policy of a run), an adapter's or a whole model's")
    export.add_argument("--to", required=True, help="folder to write")
    export.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and exit code 2."""
    options, pairs = parser().parse_known_args(arguments)  # argparse cannot mix options and pairs by itself
    try:
        overrides = config.parse_overrides(pairs)
        if options.verb == "fields":
            return show_fields(options.protocol, options.preset, overrides)
        if options.verb == "export":
            return export(options.policy, options.to, options.dtype, overrides)
        run = config.build(options.protocol, options.preset, seed=options.seed, out=options.out, overrides=overrides)
        return train(run)
    except (ValueError, FileNotFoundError, PermissionError) as error:
        print(f"coevolve: {error}", file=sys.stderr)
        return 2


def show_fields(protocol: str, preset: str, overrides: Mapping[str, Any]) -> int:
    """Print every field with the paper's default and, where it differs, the value of the preset and overrides."""
    run = config.build(protocol, preset, out=".", overrides=overrides)
    changed = {name: value for name, _, value in config.differences(run)}
    for owner in (type(run.protocol), config.Run):
        for name, default in config.settable(owner).items():
            print(f"{name:20} {default!r:24} {repr(changed[name]) if name in changed else ''}".rstrip())
    return 0


def export(policy: str, to: str, dtype: str, unknown: Mapping[str, Any]) -> int:
    """Write safetensors weights, configuration and tokenizer, adapters merged, in the type asked for."""
    if unknown:
        raise ValueError(f"export takes no field=value pairs, got {sorted(unknown)}")
    if Path(to).exists() and any(Path(to).iterdir()):
        raise ValueError(f"--to must be a new or empty folder, and {to} holds files")
    import torch

    from coevolve.policies import load

    made = load(policy)
    made.model.to(getattr(torch, dtype))
    made.save(to)
    print(f"wrote {to}: {sum(part.numel() for part in made.model.parameters()):,} parameters in {dtype}")
    return 0


def train(run: config.Run) -> int:
    """Train, then print the summary."""
    models, _ = config.assign(run.protocol, run.model)
    for model in models.values():  # before anything is written
        if not model.startswith(("http://", "https://")):
            find(model)
    try:
        run.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"out must be a folder, and {run.out} cannot be made: {error.strerror}") from None
    if not os.access(run.out, os.W_OK):
        raise ValueError(f"out must be a folder that can be written, and {run.out} cannot")
    from coevolve.policies import memory
    from coevolve.train import train as start  # torch loads only once everything has been checked

    memory.check(run)
    start(run)
    print(json.dumps(json.loads((run.out / "summary.json").read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
