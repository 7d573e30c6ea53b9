"""The command line: `coevolve train METHOD --preset quick --seed 0 --out DIR [field=value ...]`."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from coevolve import plugins
from coevolve.engines.loading import load_policy
from coevolve.evaluation import strategies
from coevolve.methods import registry
from coevolve.runs import checkpoint, record, show
from coevolve.training import config, loop, preflight
from coevolve.training.progress import is_first_process, show_elapsed
from coevolve.types import Role
from coevolve.validation import check_choice, expand_home, user_path

app = Typer(
    help=__doc__,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

METHOD_HELP = f"{', '.join(registry.METHODS)}, or your own: path/file.py:Class"
PRESET_HELP = "quick, standard, full, real, one-gpu or gpu; none: the method's own"
POLICY_HELP = "as in model=..., or a run's OUT/policy (of several: OUT/policy/NAME)"
TEMPERATURE_HELP = "0: greedy; none: the role's own, or else 1"

MethodName = Annotated[str, Argument(help=METHOD_HELP)]
Pairs = Annotated[
    list[str] | None,
    Argument(metavar="[FIELD=VALUE]...", help="see `coevolve fields METHOD`"),
]
Texts = Annotated[
    list[str] | None,
    Argument(metavar="[FIELD=TEXT]...", help="the fields of the role's prompt"),
]
Preset = Annotated[str, Option(help=PRESET_HELP)]
# Typer's own paths keep a ~ that the shell has left, as in --out=~/x.
Out = Annotated[Path, Option(parser=user_path, help="folder of the run")]
RunFolder = Annotated[Path, Argument(parser=user_path, metavar="RUN")]
Folder = Annotated[Path, Argument(parser=user_path, metavar="FOLDER")]
Policy = Annotated[str, Argument(parser=expand_home)]
Fresh = Annotated[bool, Option("--fresh", help="remove the folder's run, start again")]
Judge = Annotated[
    str,
    Option(
        parser=expand_home,
        help="a model as in model=..., or a server's (http://HOST/v1#MODEL)",
    ),
]
Dtype = Literal["bfloat16", "float16", "float32"]

USAGE_ERROR = 2  # the exit code of a command line that typer cannot read

# Values of prompt fields in the example that an error message of `ask` shows.
EXAMPLE_VALUES = {
    "question": "3*4",
    "problem": "3*4",
    "query": "3*4",
    "reference": "3*4",
    "answer": "12",
}
COMMAND = "python -m coevolve"  # in lines that can be pasted into a shell
RUNS_HEADER = """\
| folder | method | seed | steps | before | after | seconds |
|---|---|---|---|---|---|---|"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    A mistake of the user is one line on stderr and code 2; any other failure is code 1.
    """
    try:
        app(arguments, prog_name="coevolve")
    except SystemExit as end:
        code = int(end.code or 0)
        if code == USAGE_ERROR:
            _hint_at_fields(sys.argv[1:] if arguments is None else arguments)
        return code
    # ArithmeticError: a model whose weights or output are not finite.
    except (ValueError, OSError, ArithmeticError) as error:
        print(f"coevolve: {error}", file=sys.stderr)
        mistakes = (ValueError, FileNotFoundError, PermissionError)
        return 2 if isinstance(error, mistakes) else 1
    return 0


def _hint_at_fields(arguments: Sequence[str]) -> None:
    """Say how fields are written if an argument looks like one with dashes, as in --steps 10."""
    fields = config.field_defaults(config.Run)
    for argument, following in pairwise([*arguments, ""]):
        option, equals, value = argument.partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and name in fields:
            shown = (value if equals else following) or "VALUE"
            print(f"fields have no dashes: {name}={quote(shown)}", file=sys.stderr)


@app.command()
def train(
    method: MethodName,
    out: Out,
    pairs: Pairs = None,
    preset: Preset = "quick",
    seed: int = 0,
    fresh: Fresh = False,
) -> None:
    """Train one method; resume an interrupted run, and leave a finished one unchanged."""
    overrides = _read_overrides(method, pairs)
    run = config.build(method, preset, seed=seed, out=out, overrides=overrides)
    if not fresh and preflight.is_finished(run):
        return
    if is_first_process():
        _print_differences(run)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # acts like a Ctrl-C
    try:
        loop.train(run, fresh)
    except KeyboardInterrupt:
        step = _last_saved_step(out / "checkpoints")
        print(
            f"stopped at step {step}; run the same command to resume", file=sys.stderr
        )
        raise SystemExit(130) from None
    except OSError as error:  # a full disk, a server that died
        raise OSError(
            f"{error}; --out {quote(str(out))} resumes later from the last checkpoint"
        ) from error
    if is_first_process():
        print(*last_lines(out), sep="\n")


def _read_overrides(method: str, pairs: Sequence[str] | None) -> dict[str, Any]:
    """Read field=value pairs of a method."""
    text_fields = config.text_fields(registry.get_method(method))
    return config.parse_overrides(pairs or (), text_fields)


def _print_differences(run: config.Run) -> None:
    """Print in which fields a run differs from its paper, if in any."""
    changes = []
    for difference in config.differences(run):
        paper_value = plain(difference.paper)
        changes.append(f"{difference.field} {paper_value} -> {plain(difference.run)}")
    if changes:
        print("differs from the paper:", "; ".join(changes))


def _last_saved_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, the loop's or else TRL's; 0 without any."""
    newest = checkpoint.newest(folder)
    if newest is not None:
        step, _ = newest
        return step
    return max(checkpoint.of_trl(folder), default=0)


@app.command()
def warm(model: str, out: Out, pairs: Pairs = None, seed: int = 0) -> None:
    """Teach a model the roles of all five papers, by LoRA on demonstrations of the tiny world.

    List its fields with: coevolve fields tinyworld.roles:RoleWarmStart --preset none.
    """
    method = plugins.announced(plugins.METHODS)["role_warm_start"].value
    train(method, out, [f"model={model}", *(pairs or ())], "none", seed)


def last_lines(out: Path) -> list[str]:
    """Return the lines that end a run: warnings, accuracy, its gain, the duration, the folder."""
    from coevolve.evaluation.scoring import format_accuracy, gain

    summary = json.loads((out / "summary.json").read_bytes())
    points, low, high = gain(record.read(out, "scores"))
    interval = ""
    if low < high:
        interval = (
            f" (95 % {low:+.1f} to {high:+.1f} over the questions, for this seed)"
        )
    accuracy = []
    for stage, counts in summary["held_out"].items():
        accuracy.append(f"test questions {stage}: {format_accuracy(counts)}")
    steps = f"{summary['resumed_at']} to {_steps_taken(summary)}"
    return [
        *summary["warnings"],
        *accuracy,
        f"gain: {points:+.1f} points{interval}",
        f"steps {steps} in {summary['seconds'] / 60:.1f} minutes",
        f"all is in {out}; for a page of it: {COMMAND} report {quote(str(out))}",
    ]


def _steps_taken(summary: Mapping[str, Any]) -> int:
    """Return the steps of a finished run; TRL's trainers count their own."""
    return int(summary.get("taken", summary["steps"]))


@app.command()
def ask(
    who: Annotated[str, Argument(metavar="METHOD/ROLE")],
    pairs: Texts = None,
    model: Annotated[str, Option(parser=expand_home, help=POLICY_HELP)] = "tiny",
    prompt: Annotated[str, Option(help=", ".join(strategies.LIMITS))] = "compact",
    temperature: Annotated[float | None, Option(min=0, help=TEMPERATURE_HELP)] = None,
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    seed: int = 0,
) -> None:
    """Ask one role of a method and print the reply: `coevolve ask mae/solver question="3*4"`."""
    role = _find_role(who, prompt)
    fields = _read_prompt_fields(who, role, pairs or ())
    turn = replace(
        role(**fields),
        temperature=role.temperature if temperature is None else temperature,
        key=(seed,),
    )
    preflight.check_model(model)
    with show_elapsed("loading and asking"):
        limit = max_tokens or strategies.limit(prompt)
        engine = load_policy(model).serve(1.0, limit)
        (reply,) = engine.answer([turn])
    print(show.visible(reply.text))
    if not reply.text.strip():
        print("the reply is empty", file=sys.stderr)
    if not reply.finished:
        print(
            "the reply was cut off: a larger --max-tokens N lets it go on",
            file=sys.stderr,
        )


def _find_role(who: str, prompt: str) -> Role:
    """Return the role METHOD/ROLE with the given variant of its prompt."""
    method, slash, name = who.rpartition("/")
    if not slash:
        method, name = name, method
        if method not in registry.METHODS:
            raise ValueError(
                f"expected METHOD/ROLE, such as mae/solver, got {who!r}; "
                f"methods are {', '.join(registry.METHODS)}"
            )
    fields: dict[str, Any] = {"prompt": prompt}
    roles = registry.get_method(method)(**fields).roles
    check_choice(f"role of {method}", name, roles)
    return roles[name]


def _read_prompt_fields(who: str, role: Role, pairs: Sequence[str]) -> dict[str, str]:
    """Read field=text pairs; raise ValueError, with an example, unless they are the role's."""
    required = sorted(role.fields)
    fields = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if equals:
            fields[name] = text
    if sorted(fields) == required and len(pairs) == len(required):
        return fields
    example = [COMMAND, "ask", quote(who)]
    example += [f'{name}="{EXAMPLE_VALUES.get(name, "...")}"' for name in required]
    raise ValueError(
        f"{who} takes {', '.join(required) or 'no field'}; "
        f"for example: {' '.join(example)}"
    )


@app.command()
def fields(method: MethodName, pairs: Pairs = None, preset: Preset = "quick") -> None:
    """List a method's fields: the paper's value or the default, the preset's, the meaning."""
    overrides = _read_overrides(method, pairs)
    run = config.build(method, preset, out=".", overrides=overrides)
    values = config.flatten(run.describe())
    help_texts = config.field_help(type(run.method))
    defaults = config.field_defaults(type(run.method))
    defaults |= config.field_defaults(config.Run)
    defaults |= run.method.PAPER_RUN_VALUES
    paper_values = defaults
    if run.method.paper_name:
        paper_values = {
            change.field: change.paper for change in config.differences(run)
        }
    print(f"{'field':20} {'paper or default':24} {'preset if different':24} meaning")
    for name in defaults:
        value = values[name]
        paper = paper_values.get(name, value)
        changed = repr(value) if value != paper else ""
        print(f"{name:20} {paper!r:24} {changed:24} {help_texts[name]}".rstrip())


def plain(value: Any) -> str:
    """Return a value as text: lists without their brackets, empty ones as "none"."""
    if isinstance(value, (tuple, list)):
        return ", ".join(map(plain, value)) or "none"
    return str(value) or "none"


@app.command()
def runs(folder: Folder) -> None:
    """Print a Markdown table of the finished runs below a folder, with their test accuracy."""
    if not folder.is_dir():
        raise ValueError(
            f"folder must be one that holds runs, and there is no {folder}"
        )
    print(RUNS_HEADER)
    for path in sorted(folder.rglob("summary.json")):
        if not path.with_name("scores.csv").is_file():
            continue
        summary = json.loads(path.read_bytes())
        cells = [
            path.parent.relative_to(folder),
            summary["method"] + _control_of(path.parent),
            summary["seed"],
            _steps_taken(summary),
            *map(_accuracy, summary["held_out"].values()),
            summary["seconds"],
        ]
        print("|", " | ".join(map(str, cells)), "|")


def _control_of(folder: Path) -> str:
    """Return the control of a run that is a control arm, as ", control shuffled", else ""."""
    path = folder / "config.json"
    settings = json.loads(path.read_bytes()) if path.is_file() else {}
    control = settings.get("control", "")
    return f", control {control}" if control else ""


def _accuracy(counts: Mapping[str, int]) -> str:
    """Return correct answers of scored ones, with the percentage."""
    correct = counts["k"]
    scored = counts["n"]
    return f"{correct}/{scored} ({correct / max(scored, 1):.1%})"


@app.command()
def report(
    run: RunFolder,
    to: Annotated[
        Path | None, Option(parser=user_path, help="none: RUN/report.html")
    ] = None,
) -> None:
    """Make one page of a run, finished or not: scores, curves, transcripts and settings."""
    settings = run / "config.json"
    if not settings.is_file() or b'"method_fields"' not in settings.read_bytes():
        raise ValueError(
            f"run must be the folder of a run, and in {run} there is no config.json of one"
        )
    page = to or run / "report.html"
    if page.is_dir() or not page.parent.is_dir():
        raise ValueError(f"--to must be a file in an existing folder, got {page}")
    import papermill
    from nbconvert import HTMLExporter

    root = Path(__file__).parents[2]
    with show_elapsed("making the page"):
        notebook = papermill.execute_notebook(
            root / "notebooks/run_report.ipynb",
            None,
            parameters={"out": str(run.resolve())},
            extra_arguments=["--log-level=CRITICAL"],
            progress_bar=False,
        )
    template = str(root / "reproduce/report_run.html.j2")
    exporter = HTMLExporter(template_file=template, exclude_anchor_links=True)
    html, _ = exporter.from_notebook_node(notebook)
    record.write_atomically(page, html)
    print(f"wrote {page}")


@app.command()
def export(
    policy: Policy,
    to: Annotated[Path, Option(parser=user_path)],
    dtype: Dtype = "bfloat16",
) -> None:
    """Write a run's policy, its adapter merged, as an ordinary checkpoint into a new folder.

    POLICY is OUT/policy of a run, or OUT/policy/NAME.
    """
    if to.exists() and any(to.iterdir()):
        raise ValueError(f"--to must be a new or empty folder, and {to} holds files")
    import torch

    from coevolve.models.loading import load_local

    with show_elapsed("loading and writing"):
        merged = load_local(policy)
        merged.model.to(getattr(torch, dtype))
        merged.save(to)
    parameters = sum(weights.numel() for weights in merged.model.parameters())
    print(f"wrote {to}: {parameters:,} parameters in {dtype}")


@app.command()
def grade(
    run: RunFolder,
    judge: Judge,
    kind: str | None = None,
    max_tokens: Annotated[int, Option(min=1)] = 2048,
) -> None:
    """Have a judge grade the answers of a finished run that have no score, into RUN/grades.csv.

    KIND is the prompt: math, choice, truthfulness or general; none: the data set's own.
    """
    grade_run = plugins.load(plugins.COMMANDS, "grade")
    print(*grade_run(run, judge, kind, max_tokens), sep="\n")
