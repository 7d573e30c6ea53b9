"""The command line: `python -m coevolve train PROTOCOL --preset quick --seed 0 --out DIR [field=value ...]`."""

import argparse
import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from coevolve import config, preflight
from published.judge import PROMPTS


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
    fields = verbs.add_parser("fields", help="list a method's fields: the default, and the preset's value")
    fields.add_argument("protocol")
    fields.add_argument("--preset", default="quick")
    apart = verbs.add_parser("differences", help="a table of what differs from the papers: field, paper's value, ours")
    apart.add_argument("protocol", nargs="?", help="one method; none: all of them")
    apart.add_argument("--preset", default="gpu")
    export = verbs.add_parser("export", help="write a trained policy, its adapter merged, as an ordinary checkpoint")
    export.add_argument("policy", help="folder of a policy (OUT/policy of a run), an adapter's or a whole model's")
    export.add_argument("--to", required=True, help="folder to write")
    export.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    grade = verbs.add_parser("grade", help="have a judge grade the answers of a finished run that nothing else scored")
    grade.add_argument("run", help="folder of a finished run; its grades.csv is written")
    grade.add_argument("--judge", required=True, help="a model as in model=..., or a server's (http://HOST/v1#MODEL)")
    grade.add_argument("--kind", choices=PROMPTS, help="which of MAE's prompts; none: the data set's own")
    grade.add_argument("--max-tokens", type=int, default=2048, help="of one reply of the judge")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and exit code 2."""
    options, pairs = parser().parse_known_args(arguments)  # argparse cannot mix options and pairs by itself
    try:
        overrides = config.parse_overrides(pairs)
        if options.verb == "fields":
            return show_fields(options.protocol, options.preset, overrides)
        if options.verb == "differences":
            return show_differences(options.protocol, options.preset, overrides)
        if options.verb == "export":
            return export(options.policy, options.to, options.dtype, overrides)
        if options.verb == "grade":
            return grade(options, overrides)
        run = config.build(options.protocol, options.preset, seed=options.seed, out=options.out, overrides=overrides)
        return train(run)
    except (ValueError, FileNotFoundError, PermissionError) as error:
        print(f"coevolve: {error}", file=sys.stderr)
        return 2
    except ConnectionError as error:  # a server that died on the way
        print(f"coevolve: {error}; the same command goes on from the last checkpoint", file=sys.stderr)
        return 1


def show_fields(protocol: str, preset: str, overrides: Mapping[str, Any]) -> int:
    """Print every field with the method's default and, where it differs, the value of the preset and overrides."""
    run = config.build(protocol, preset, out=".", overrides=overrides)
    cls, mine = type(run.protocol), run.describe()
    mine |= mine.pop("protocol")
    for name, default in (config.settable(cls) | config.settable(config.Run) | config.training(cls)).items():
        print(f"{name:20} {default!r:24} {repr(mine[name]) if mine[name] != default else ''}".rstrip())
    return 0


def show_differences(protocol: str | None, preset: str, overrides: Mapping[str, Any]) -> int:
    """Print a Markdown table of where a preset, with overrides, departs from the papers."""
    print("| method | field | paper | here |\n|---|---|---|---|")
    for name in [protocol] if protocol else config.METHODS:
        run = config.build(name, preset, out=".", overrides=overrides)
        for field, paper, here in config.differences(run):
            print(f"| {name} | `{field}` | {plain(paper)} | {plain(here)} |")
    return 0


def plain(value: Any) -> str:
    """A value as text; lists without their brackets, empty ones as "none"."""
    return ", ".join(map(plain, value)) or "none" if isinstance(value, (tuple, list)) else str(value)


def export(policy: str, to: str, dtype: str, unknown: Mapping[str, Any]) -> int:
    """Write safetensors weights, configuration and tokenizer, adapters merged, in the type asked for."""
    if unknown:
        raise ValueError(f"export takes no field=value pairs, got {sorted(unknown)}")
    if Path(to).exists() and any(Path(to).iterdir()):
        raise ValueError(f"--to must be a new or empty folder, and {to} holds files")
    import torch

    from coevolve.policies import load_local

    made = load_local(policy)
    made.model.to(getattr(torch, dtype))
    made.save(to)
    print(f"wrote {to}: {made.size:,} parameters in {dtype}")
    return 0


def grade(options: argparse.Namespace, unknown: Mapping[str, Any]) -> int:
    """Grade a finished run's unscored answers and print a line a data set; see `evaluate.grades`."""
    if unknown:
        raise ValueError(f"grade takes no field=value pairs, got {sorted(unknown)}")
    from published import grades

    grades.unscored(options.run)  # the cheapest question first
    preflight.model(options.judge)
    for line in grades.grade(options.run, options.judge, options.kind, options.max_tokens):
        print(line)
    return 0


def train(run: config.Run) -> int:
    """Say where the run differs from its paper, train, then print the summary."""
    preflight.check(run)
    run.protocol.world.items("test", 1)  # published data that cannot be used is named here
    new = preflight.made(run.out)
    try:
        return _train(run)
    except Exception:
        with suppress(OSError):  # what was written stays
            for folder in new:
                folder.rmdir()
        raise


def _train(run: config.Run) -> int:
    gc.disable()  # what the imports make is not garbage: looking through it again and again costs a fifth of their time
    from coevolve.loop import train as start  # torch loads only once everything else has been checked
    from coevolve.policies import memory

    gc.freeze()
    gc.enable()
    memory.check(run)
    speaks = os.environ.get("RANK", "0") == "0"  # of several processes, the first
    if speaks:
        for field, paper, here in config.differences(run):
            print(f"differs from the paper: {field} {plain(paper)} -> {plain(here)}")
    start(run)
    if speaks:
        print(json.dumps(json.loads((run.out / "summary.json").read_text(encoding="utf-8"))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
