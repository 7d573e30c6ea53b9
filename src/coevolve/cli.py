"""The command line: `coevolve train METHOD --preset quick --seed 0 --out DIR [field=value ...]`.

Longer commands stand in `coevolve.commands`. Starting it loads no tensor library.
"""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

from typer import Argument, Context, Exit, Option, Typer

from coevolve import __version__, plugins
from coevolve.commands import compare, evaluate, fields, play, runs
from coevolve.commands.arguments import (
    FieldsCommand,
    MethodName,
    Model,
    Pairs,
    Preset,
    Temperature,
    read_overrides,
    say_preset_section,
)
from coevolve.commands.verdicts import verdict_on
from coevolve.engines.loading import load_policy
from coevolve.evaluation import strategies
from coevolve.methods import registry
from coevolve.methods.base import Method
from coevolve.runs import checkpoint, publish, record, show
from coevolve.runs.compare import settings_of
from coevolve.training import config, loop, preflight
from coevolve.training.controls.rewards import question_in_prompt
from coevolve.training.progress import is_first_process, show_elapsed
from coevolve.types import Reply, Role
from coevolve.validation import check_choice, expand_home, user_path

app = Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

PUSH_HELP = "also publish it with a model card, as a private repository of the hub"
Texts = Annotated[
    list[str] | None,
    Argument(
        metavar="[FIELD=TEXT]...",
        help="the fields of the role's prompt, also as --field TEXT",
    ),
]
# Typer's own paths keep a ~ that the shell has left, as in --out=~/x.
Out = Annotated[Path, Option(parser=user_path, help="folder of the run")]
RunFolder = Annotated[Path, Argument(parser=user_path, metavar="RUN")]
Policy = Annotated[str, Argument(parser=expand_home)]
Fresh = Annotated[bool, Option("--fresh", help="remove the folder's run, start again")]
Judge = Annotated[
    str,
    Option(
        parser=expand_home,
        help="a model as in model=..., or a server's (http://HOST/v1#MODEL)",
    ),
]
Demonstrations = Annotated[
    Path | None,
    Option(
        parser=user_path,
        metavar="FILE",
        help='your own: a .jsonl file of {"prompt": TEXT, "completion": TEXT}',
    ),
]
Dtype = Literal["bfloat16", "float16", "float32"]

WARM_START = "coevolve.methods.baselines.warm_start:WarmStart"

# Values of prompt fields in the example that an error message of `ask` shows.
EXAMPLE_VALUES = {
    "question": "3*4",
    "problem": "3*4",
    "query": "3*4",
    "reference": "3*4",
    "answer": "12",
}
COMMAND = "coevolve"  # in lines that can be pasted into a shell


@app.callback(invoke_without_command=True)
def start(
    context: Context,
    version: Annotated[
        bool, Option("--version", help="Show the version and exit.")
    ] = False,
) -> None:
    """Train one language model that plays several roles, and look at what it learns."""
    if version:
        print(f"{COMMAND} {__version__}")
        raise Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code.

    A mistake of the user is one line on stderr and code 2; any other failure is code 1.
    """
    try:
        app(arguments, prog_name="coevolve")
    except SystemExit as end:
        return int(end.code or 0)
    # ArithmeticError: a model whose weights or output are not finite.
    except (ValueError, OSError, ArithmeticError) as error:
        print(f"coevolve: {error}", file=sys.stderr)
        mistakes = (ValueError, FileNotFoundError, PermissionError)
        return 2 if isinstance(error, mistakes) else 1
    return 0


@app.command(cls=FieldsCommand)
def train(
    method: MethodName,
    out: Out,
    pairs: Pairs = None,
    preset: Preset = "quick",
    seed: int = 0,
    fresh: Fresh = False,
) -> None:
    """Train a method, or resume its interrupted run.

    A finished run stays as it is.
    """
    overrides = read_overrides(method, pairs)
    run = config.build(method, preset, seed=seed, out=out, overrides=overrides)
    if not fresh and preflight.is_finished(run):
        return
    if is_first_process():
        say_preset_section(method, preset)
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
    except (FileNotFoundError, PermissionError):  # which a resumed run would meet again
        raise
    except OSError as error:  # a full disk, a server that died
        raise OSError(
            f"{error}; --out {quote(str(out))} resumes later from the last checkpoint"
        ) from error
    if is_first_process():
        print(*last_lines(out), sep="\n")


def _print_differences(run: config.Run) -> None:
    """Say in how many fields a run differs from its paper, if in any."""
    changes = config.differences(run)
    if changes:
        print(
            f"{len(changes)} fields differ from the paper; "
            f"`{COMMAND} fields {run.method_name}` and the report list them"
        )


def _last_saved_step(folder: Path) -> int:
    """Return the step of the newest checkpoint, the loop's or else TRL's; 0 without any."""
    newest = checkpoint.newest(folder)
    if newest is not None:
        step, _ = newest
        return step
    return max(checkpoint.of_trl(folder), default=0)


@app.command(cls=FieldsCommand)
def plan(method: MethodName, pairs: Pairs = None, preset: Preset = "one-gpu") -> None:
    """Print which GPU a run needs, its hours and dollars.

    Nothing is trained.
    """
    from coevolve.training.plan import lines

    overrides = read_overrides(method, pairs)
    with show_elapsed("counting replies"):
        table = list(lines(method, preset, overrides))
    say_preset_section(method, preset)
    print(*table, sep="\n")


@app.command(cls=FieldsCommand)
def warm(
    model: str,
    out: Out,
    pairs: Pairs = None,
    seed: int = 0,
    demonstrations: Demonstrations = None,
) -> None:
    """Teach a model to play roles from demonstrations.

    By default these are the roles of all five papers in the tiny world. List the fields with:
    coevolve fields tinyworld.roles:RoleWarmStart --preset none (with a file of your own:
    coevolve.methods.baselines.warm_start:WarmStart).
    """
    if demonstrations is not None:
        own = [f"model={model}", f"demonstrations={json.dumps(str(demonstrations))}"]
        train(WARM_START, out, [*own, *(pairs or ())], "none", seed)
        return
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
    first = summary["resumed_at"] + 1
    last = _steps_taken(summary)
    steps = "no more steps"
    if first <= last:
        steps = f"steps {first} to {last}"
    return [
        *summary["warnings"],
        *accuracy,
        f"gain: {points:+.1f} points{interval}",
        f"{steps} in {summary['seconds'] / 60:.1f} minutes",
        f"Results are in {out}. For a report, run: {COMMAND} report {quote(str(out))}",
    ]


def _steps_taken(summary: Mapping[str, Any]) -> int:
    """Return the steps of a finished run; TRL's trainers count their own."""
    return int(summary.get("taken", summary["steps"]))


@app.command(cls=FieldsCommand)
def ask(
    who: Annotated[str, Argument(metavar="METHOD/ROLE")],
    pairs: Texts = None,
    model: Model = "tiny",
    prompt: Annotated[str, Option(help=", ".join(strategies.LIMITS))] = "compact",
    temperature: Temperature = None,
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    seed: int = 0,
) -> None:
    """Ask one role of a method, and print its reply.

    For example: coevolve ask mae/solver question="3*4".
    """
    method, role = _find_role(who, prompt)
    fields = _read_prompt_fields(who, role, pairs or ())
    turn = replace(
        role(**fields),
        temperature=role.temperature if temperature is None else temperature,
        max_tokens=max_tokens or role.max_tokens,
        key=(seed,),
    )
    preflight.check_model(model)
    with show_elapsed("loading and asking"):
        engine = load_policy(model).serve(1.0, strategies.limit(prompt))
        (reply,) = engine.answer([turn])
    print(show.visible(reply.text))
    for remark in _remarks(method, model, reply):
        print(remark, file=sys.stderr)


def _remarks(method: Method, model: str, reply: Reply) -> list[str]:
    """Return what to know about a reply: is it right, was it cut off, could it be read?"""
    remarks = []
    if not reply.text.strip():
        remarks.append("The reply is empty.")
    if not reply.finished:
        remarks.append("The reply was cut off; --max-tokens N allows a longer one.")
    verdict = verdict_on(method, reply)
    if verdict is not None and verdict.is_correct is not None:
        remarks.append(f"{verdict.mark} oracle: {verdict.note}")
    question = question_in_prompt(reply)
    is_foreign = question is not None and method.world.valid(question) is False
    if is_foreign and model in plugins.announced(plugins.MODELS):
        examples = " or ".join(map(repr, method.world.zero_questions()[:2]))
        remarks.append(
            f"The question is none of the {method.world.name} world's, and model {model!r} knows "
            f"no others. Ask one such as {examples}."
        )
    return remarks


def _find_role(who: str, prompt: str) -> tuple[Method, Role]:
    """Return the method and the role of METHOD/ROLE, with the given variant of its prompt."""
    method, slash, name = who.rpartition("/")
    if not slash:
        method, name = name, method
        if method not in registry.METHODS:
            raise ValueError(
                f"expected METHOD/ROLE, such as mae/solver, got {who!r}; "
                f"methods are {', '.join(registry.METHODS)}"
            )
    fields: dict[str, Any] = {"prompt": prompt}
    player = registry.make_method(method, **fields)
    check_choice(f"role of {method}", name, player.roles)
    return player, player.roles[name]


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
def report(
    run: RunFolder,
    other: Annotated[
        Path | None,
        Argument(parser=user_path, metavar="[OTHER]", help="a run to compare with"),
    ] = None,
    to: Annotated[
        Path | None, Option(parser=user_path, help="none: RUN/report.html")
    ] = None,
) -> None:
    """Write a page about a run, finished or not.

    It has scores, curves, transcripts and settings. With a second run it compares both.
    """
    for folder in filter(None, (run, other)):
        settings_of(folder)
    page = to or run / "report.html"
    if page.is_dir() or not page.parent.is_dir():
        raise ValueError(f"--to must be a file in an existing folder, got {page}")
    write_page = plugins.load(plugins.COMMANDS, "report")
    with show_elapsed("making the page"):
        write_page(run, page, other)
    print(f"wrote {page}")


@app.command()
def export(
    policy: Policy,
    to: Annotated[Path, Option(parser=user_path)],
    dtype: Dtype = "bfloat16",
    push: Annotated[str, Option(metavar="ORG/NAME", help=PUSH_HELP)] = "",
) -> None:
    """Write a trained policy as an ordinary model folder.

    Adapters are merged. POLICY is the folder of a run, or RUN/policy/NAME.
    """
    if push:
        publish.check(push)
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
    if push:
        print(f"published as {publish.push(to, policy, push)}")


@app.command()
def grade(
    run: RunFolder,
    judge: Judge,
    kind: str | None = None,
    max_tokens: Annotated[int, Option(min=1)] = 2048,
) -> None:
    """Let a judge grade answers that no verifier can score.

    It grades those of a finished run, and writes RUN/grades.csv. KIND is the prompt: math, choice,
    truthfulness or general; none: the data set's own.
    """
    grade_run = plugins.load(plugins.COMMANDS, "grade")
    print(*grade_run(run, judge, kind, max_tokens), sep="\n")


# In the order of `coevolve --help`.
app.command(cls=FieldsCommand)(play.play)
app.command(cls=FieldsCommand)(fields.fields)
app.command()(runs.runs)
app.command()(compare.compare)
app.command()(evaluate.evaluate)
