"""The command line: `python -m coevolve train METHOD --preset quick --seed 0 --out DIR [field=value ...]`."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from coevolve import plugins
from coevolve.engines.loading import load_policy
from coevolve.evaluation import strategies
from coevolve.methods import registry
from coevolve.runs import checkpoint, record, show
from coevolve.training import config, loop, preflight
from coevolve.validation import check_choice

app = Typer(help=__doc__, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
Name = Annotated[str, Argument(help=f"{', '.join(registry.METHODS)}, or your own: path/file.py:Class")]
Pairs = Annotated[list[str] | None, Argument(metavar="[FIELD=VALUE]...", help="see `coevolve fields METHOD`")]
SAID = {"question": "3*4", "problem": "3*4", "query": "3*4", "reference": "3*4", "answer": "12"}  # in examples
Out = Annotated[Path, Option(help="folder of the run")]
Judge = Annotated[str, Option(help="a model as in model=..., or a server's (http://HOST/v1#MODEL)")]
Dtype = Literal["bfloat16", "float16", "float32"]
Preset = Annotated[str, Option(help="quick, standard, full, real, one-gpu or gpu; none: the method's own")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code; a user's mistake is one line on stderr and code 2."""
    try:
        app(arguments, prog_name="coevolve")
    except SystemExit as end:
        return int(end.code or 0)
    except (ValueError, OSError, ArithmeticError) as error:  # the last: a model whose output is no number
        print(f"coevolve: {error}", file=sys.stderr)
        return 2 if isinstance(error, (ValueError, FileNotFoundError, PermissionError)) else 1
    return 0


@app.command()
def train(method: Name, out: Out, pairs: Pairs = None, preset: Preset = "quick", seed: int = 0) -> None:
    """Train one method; an interrupted run goes on where it stopped, and a finished one is left as it is."""
    run = config.build(method, preset, seed=seed, out=out, overrides=config.parse_overrides(pairs or ()))
    speaks = os.environ.get("RANK", "0") == "0"  # of several processes, the first
    if preflight.finished(run):
        return
    if speaks and (changed := config.differences(run)):
        print("differs from the paper:", "; ".join(f"{key} {plain(was)} -> {plain(now)}" for key, was, now in changed))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it is a Ctrl-C
    try:
        loop.train(run)
    except KeyboardInterrupt:
        folder = out / "checkpoints"
        step, _ = checkpoint.newest(folder) or max(checkpoint.of_trl(folder).items(), default=(0, out))
        print(f"stopped at step {step}; the same command goes on", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:  # a full disk, a server that died
        raise OSError(f"{error}; later --out {out} goes on from the last checkpoint") from error
    if speaks:
        print(*last_lines(out), sep="\n")


@app.command()
def warm(model: str, out: Out, pairs: Pairs = None, seed: int = 0) -> None:
    """Teach a model the roles of all five papers, by LoRA on demonstrations of the tiny world (tinyworld.roles).

    Its fields: coevolve fields tinyworld.roles:RoleWarmStart --preset none.
    """
    method = plugins.announced(plugins.METHODS)["role_warm_start"].value
    train(method, out, [f"model={model}", *(pairs or ())], "none", seed)


def last_lines(out: Path) -> list[str]:
    """Return the last lines of a finished run: what was idle, what was gained, where it lies and what can be done."""
    from coevolve.evaluation.scoring import gain, in_words

    run, (points, low, high) = json.loads((out / "summary.json").read_bytes()), gain(record.read(out, "scores"))
    reach = f" (95 % {low:+.1f} to {high:+.1f} over the questions, for this seed)" if low < high else ""
    return [
        *run["warnings"],
        *(f"test questions {stage}: {in_words(counts)}" for stage, counts in run["held_out"].items()),
        f"gain: {points:+.1f} points{reach}",
        f"steps {run['resumed_at']} to {run.get('taken', run['steps'])} in {run['seconds'] / 60:.1f} minutes",
        f"all is in {out}; python -m coevolve report {out} makes a page of it",
    ]


@app.command()
def ask(
    who: Annotated[str, Argument(metavar="METHOD/ROLE")],
    pairs: Annotated[list[str] | None, Argument(metavar="[FIELD=TEXT]...", help="what the role's prompt takes")] = None,
    model: Annotated[str, Option(help="as in model=..., or a run's OUT/policy (of several: OUT/policy/NAME)")] = "tiny",
    prompt: Annotated[str, Option(help=", ".join(strategies.LIMITS))] = "compact",
    temperature: Annotated[float | None, Option(min=0, help="0: greedy; none: the role's own, or else 1")] = None,
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    seed: int = 0,
) -> None:
    """Ask one role of a method one question and print the reply: `coevolve ask mae/solver question="3*4"`."""
    method, _, name = who.rpartition("/") if "/" in who else (who, "", "")
    method_fields: dict[str, Any] = {"prompt": prompt}
    roles = registry.get_method(method)(**method_fields).roles
    check_choice(f"role of {method}", name, roles)
    role, given = roles[name], [pair.partition("=") for pair in pairs or ()]
    wanted = sorted(role.fields)
    if sorted(field for field, equals, _ in given if equals) != wanted or len(given) != len(wanted):
        example = " ".join(["python -m coevolve ask", who, *(f'{name}="{SAID.get(name, "...")}"' for name in wanted)])
        raise ValueError(f"{who} takes {', '.join(wanted) or 'no field'}; for example: {example}")
    heat = role.temperature if temperature is None else temperature
    asked = replace(role(**{field: text for field, _, text in given}), temperature=heat, key=(seed,))
    preflight.model(model)
    with loop.waiting("loading and asking"):
        (reply,) = load_policy(model).serve(1.0, max_tokens or strategies.limit(prompt)).answer([asked])
    print(show.visible(reply.text))
    if not reply.finished:
        print("the reply was cut off: a larger --max-tokens N lets it go on", file=sys.stderr)


@app.command()
def fields(method: Name, pairs: Pairs = None, preset: Preset = "quick") -> None:
    """List a method's fields: the paper's value (without a paper the default), the preset's if another, the meaning."""
    run = config.build(method, preset, out=".", overrides=config.parse_overrides(pairs or ()))
    values = config.flatten(run.describe())
    help_texts = config.field_help(type(run.protocol))
    defaults = config.field_defaults(type(run.protocol)) | config.field_defaults(config.Run)
    defaults |= run.protocol.TRAINING
    paper_values = defaults
    if run.protocol.paper_name:
        paper_values = {name: paper for name, paper, _ in config.differences(run)}
    print(f"{'field':20} {'paper, or default':24} {'preset, if another':24} meaning")
    for name in defaults:
        value = values[name]
        paper = paper_values.get(name, value)
        changed = repr(value) if value != paper else ""
        print(f"{name:20} {paper!r:24} {changed:24} {help_texts[name]}".rstrip())


def plain(value: Any) -> str:
    """Return a value as text; lists without their brackets, empty ones as "none"."""
    return ", ".join(map(plain, value)) or "none" if isinstance(value, (tuple, list)) else str(value)


@app.command()
def runs(folder: Path) -> None:
    """Print a Markdown table of the finished runs below a folder, with the share of held-out questions right."""
    if not folder.is_dir():
        raise ValueError(f"folder must be one that holds runs, and there is no {folder}")
    print("| folder | method | seed | steps | before | after | seconds |\n|---|---|---|---|---|---|---|")
    for path in sorted(path for path in folder.rglob("summary.json") if path.with_name("scores.csv").is_file()):
        run = json.loads(path.read_bytes())
        right = [f"{one['k']}/{one['n']} ({one['k'] / max(one['n'], 1):.1%})" for one in run["held_out"].values()]
        steps = run.get("taken", run["steps"])
        cells = [path.parent.relative_to(folder), run["method"], run["seed"], steps, *right, run["seconds"]]
        print("|", " | ".join(map(str, cells)), "|")


@app.command()
def report(run: Path, to: Annotated[Path | None, Option(help="none: RUN/report.html")] = None) -> None:
    """Make one page of a run, finished or not: scores, curves, transcripts, settings (notebooks/run_report.ipynb)."""
    if not (run / "config.json").is_file() or b'"protocol"' not in (run / "config.json").read_bytes():
        raise ValueError(f"run must be the folder of a run, and in {run} there is no config.json of one")
    import papermill
    from nbconvert import HTMLExporter

    root, page = Path(__file__).parents[2], to or run / "report.html"
    if page.is_dir() or not page.parent.is_dir():
        raise ValueError(f"--to must be a file in a folder that is there, got {page}")
    given = {"parameters": {"out": str(run.resolve())}, "extra_arguments": ["--log-level=CRITICAL"]}
    with loop.waiting("making the page"):
        made = papermill.execute_notebook(root / "notebooks/run_report.ipynb", None, progress_bar=False, **given)
    looks = HTMLExporter(template_file=str(root / "reproduce/report_run.html.j2"), exclude_anchor_links=True)
    record.write_atomically(page, looks.from_notebook_node(made)[0])
    print(f"wrote {page}")


@app.command()
def export(policy: str, to: Annotated[Path, Option()], dtype: Dtype = "bfloat16") -> None:
    """Write a policy (OUT/policy of a run, or OUT/policy/NAME), its adapter merged, as a checkpoint into a new one."""
    if to.exists() and any(to.iterdir()):
        raise ValueError(f"--to must be a new or empty folder, and {to} holds files")
    import torch

    from coevolve.models.loading import load_local

    with loop.waiting("loading and writing"):
        made = load_local(policy)
        made.model.to(getattr(torch, dtype))
        made.save(to)
    print(f"wrote {to}: {sum(part.numel() for part in made.model.parameters()):,} parameters in {dtype}")


@app.command()
def grade(run: Path, judge: Judge, kind: str | None = None, max_tokens: Annotated[int, Option(min=1)] = 2048) -> None:
    """Have a judge grade the answers of a finished run that nothing else scored, into RUN/grades.csv.

    KIND is the prompt: math, choice, truthfulness or general; none: the one of each data set.
    """
    grade_run = plugins.load(plugins.COMMANDS, "grade")
    print(*grade_run(run, judge, kind, max_tokens), sep="\n")

