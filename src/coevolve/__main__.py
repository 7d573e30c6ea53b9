"""The command line: `python -m coevolve train METHOD --preset quick --seed 0 --out DIR [field=value ...]`."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from coevolve import config

app = Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
Name = Annotated[str, Argument(help=f"{', '.join(config.METHODS)}, or your own: path/file.py:Class")]
Pairs = Annotated[list[str] | None, Argument(metavar="[FIELD=VALUE]...", help="see `coevolve fields METHOD`")]
Out = Annotated[Path, Option(help="folder of the run")]
Judge = Annotated[str, Option(help="a model as in model=..., or a server's (http://HOST/v1#MODEL)")]
Preset = Annotated[str, Option(help="quick, standard, full or gpu; none: the method's own defaults")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a user's mistake is one line on stderr and code 2."""
    try:
        app(arguments, prog_name="coevolve")
    except SystemExit as end:
        return int(end.code or 0)
    except (ValueError, FileNotFoundError, PermissionError) as error:
        print(f"coevolve: {error}", file=sys.stderr)
        return 2
    except ConnectionError as error:  # a server that died on the way
        print(f"coevolve: {error}; the same command goes on from the last checkpoint", file=sys.stderr)
    return 1


@app.command()
def train(method: Name, out: Out, pairs: Pairs = None, preset: Preset = "quick", seed: int = 0) -> None:
    """Train one method; an interrupted run goes on where it stopped."""
    run = config.build(method, preset, seed=seed, out=out, overrides=config.parse_overrides(pairs or ()))
    speaks = os.environ.get("RANK", "0") == "0"  # of several processes, the first
    if speaks:
        for field, paper, here in config.differences(run):
            print(f"differs from the paper: {field} {plain(paper)} -> {plain(here)}", flush=True)
    from coevolve import loop

    loop.train(run)
    if speaks:
        summary = json.loads((run.out / "summary.json").read_bytes())
        print(*summary["warnings"], json.dumps(summary), sep="\n")


@app.command()
def fields(method: Name, pairs: Pairs = None, preset: Preset = "quick") -> None:
    """List a method's fields: the default, and the preset's value where it differs."""
    run = config.build(method, preset, out=".", overrides=config.parse_overrides(pairs or ()))
    mine = run.describe()
    mine |= mine.pop("protocol")
    own = config.settable(type(run.protocol))
    for name, default in {**own, **config.settable(config.Run), **run.protocol.TRAINING}.items():
        print(f"{name:20} {default!r:24} {repr(mine[name]) if mine[name] != default else ''}".rstrip())


@app.command()
def differences(method: Annotated[str | None, Argument()] = None, pairs: Pairs = None, preset: Preset = "gpu") -> None:
    """Print a Markdown table of what differs from the papers, for one method or all: field, paper's value, ours."""
    print("| method | field | paper | here |\n|---|---|---|---|")
    for name in [method] if method else config.METHODS:
        if not config.method(name).paper:  # a method of your own
            continue
        run = config.build(name, preset, out=".", overrides=config.parse_overrides(pairs or ()))
        for field, paper, here in config.differences(run):
            print(f"| {name} | `{field}` | {plain(paper)} | {plain(here)} |")


def plain(value: Any) -> str:
    """Return a value as text; lists without their brackets, empty ones as "none"."""
    return ", ".join(map(plain, value)) or "none" if isinstance(value, (tuple, list)) else str(value)


@app.command()
def runs(folder: Path) -> None:
    """Print a Markdown table of the finished runs below a folder, with the share of held-out questions right."""
    print("| folder | method | seed | steps | before | after | seconds |\n|---|---|---|---|---|---|---|")
    for path in sorted(folder.rglob("summary.json")):
        run = json.loads(path.read_bytes())
        right = [f"{one['k']}/{one['n']} ({one['k'] / max(one['n'], 1):.1%})" for one in run["held_out"].values()]
        cells = [path.parent.relative_to(folder), run["method"], run["seed"], run["steps"], *right, run["seconds"]]
        print("|", " | ".join(map(str, cells)), "|")


@app.command()
def export(
    policy: str, to: Annotated[Path, Option()], dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
) -> None:
    """Write a policy (OUT/policy of a run), its adapter merged, as an ordinary checkpoint into a new folder."""
    if to.exists() and any(to.iterdir()):
        raise ValueError(f"--to must be a new or empty folder, and {to} holds files")
    import torch

    from coevolve.policies import load_local

    made = load_local(policy)
    made.model.to(getattr(torch, dtype))
    made.save(to)
    print(f"wrote {to}: {sum(part.numel() for part in made.model.parameters()):,} parameters in {dtype}")


@app.command()
def grade(run: Path, judge: Judge, kind: str | None = None, max_tokens: int = 2048) -> None:
    """Have a judge grade the answers of a finished run that nothing else scored, into RUN/grades.csv.

    KIND is the prompt: math, choice, truthfulness or general; none: the one of each data set.
    """
    from published.judge import grade_run

    for line in grade_run(run, judge, kind, max_tokens):
        print(line)


if __name__ == "__main__":
    sys.exit(main())
