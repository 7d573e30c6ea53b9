"""`coevolve evaluate POLICY`: the accuracy of a model or a trained policy on held-out questions."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from coevolve.commands.arguments import METHOD_HELP, POLICY_HELP
from coevolve.engines.loading import load_policy
from coevolve.evaluation import strategies
from coevolve.evaluation.scoring import Row, count_correct, format_accuracy, score
from coevolve.methods.base import Method
from coevolve.methods.registry import make_method
from coevolve.runs import record
from coevolve.runs.compare import settings_of
from coevolve.training import preflight
from coevolve.training.progress import show_elapsed
from coevolve.validation import check_choice, expand_home, user_path
from coevolve.worlds import World

Policy = Annotated[str, Argument(parser=expand_home, help=POLICY_HELP)]
MethodOption = Annotated[
    str, Option("--method", help=f"who answers: {METHOD_HELP}; none: the run's, or mae")
]
WorldName = Annotated[
    str, Option(help="as in world=...; none: the run's, or else tiny")
]
StrategyName = Annotated[
    str, Option("--strategy", "--setup", help=", ".join(strategies.STRATEGIES))
]
Prompt = Annotated[
    str, Option(help="full, plain or compact; none: the run's, or else compact")
]
SPLITS = ("validation", "test")


def evaluate(
    policy: Policy,
    world: WorldName = "",
    strategy: StrategyName = "vanilla",
    method: MethodOption = "",
    prompt: Prompt = "",
    split: str = "test",
    items: Annotated[int, Option(min=1, help="questions per family")] = 40,
    max_tokens: Annotated[int | None, Option(min=1)] = None,
    seed: int = 0,
    to: Annotated[
        Path | None, Option(parser=user_path, help="a CSV file for the answers")
    ] = None,
) -> None:
    """Score a policy on held-out questions, in any world.

    POLICY may be a run: its method, prompts and world are then the defaults.
    """
    check_choice("--strategy", strategy, strategies.STRATEGIES)
    check_choice("--split", split, SPLITS)
    solver = _solver_of(policy, method, {"world": world, "prompt": prompt})
    preflight.check_model(policy)
    solver.world.check()
    if to is not None and not to.parent.is_dir():
        raise ValueError(f"--to must be a file in an existing folder, got {to}")
    questions = solver.world.items(split, items)
    if not questions:
        raise ValueError(_no_questions(solver.world, split))
    with show_elapsed(f"asking {len(questions)} questions"):
        engine = load_policy(policy).serve(1.0, strategies.limit(solver.prompt))
        rows = score(
            engine,
            solver,
            questions,
            strategy,
            max_tokens=max_tokens,
            policies=["shared"],
            key=(seed,),
        )
    _print_accuracy(rows)
    if to is not None:
        _write(rows, to)
        typer.echo(f"wrote {to}")


def _solver_of(policy: str, method_name: str, options: dict[str, str]) -> Method:
    """Return the method that asks; where options say nothing, with a run's own settings."""
    fields: dict[str, Any] = {}
    run = record.run_of(policy)
    if run is not None:
        settings = settings_of(run)
        if method_name in ("", settings["method"]):
            method_name = settings["method"]
            fields = dict(settings["method_fields"])
    fields |= {name: value for name, value in options.items() if value}
    return make_method(method_name or "mae", **fields)


def _no_questions(world: World, split: str) -> str:
    """Say which splits of a world have questions, because the given one has none."""
    filled = [name for name in SPLITS if world.items(name, 1)]
    return (
        f"--split must be one with questions, got {split!r}; the world {world.name!r} has "
        f"questions in: {', '.join(filled) or 'none'}"
    )


def _print_accuracy(rows: Sequence[Row]) -> None:
    families = list(dict.fromkeys(str(row["family"]) for row in rows))
    for family in families:
        of_family = [row for row in rows if row["family"] == family]
        counts = count_correct(of_family)
        typer.echo(f"{family:20} {counts['k']:4} of {counts['n']} correct")
    typer.echo(format_accuracy(count_correct(rows)))


def _write(rows: Sequence[Row], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
