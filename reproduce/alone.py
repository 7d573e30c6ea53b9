"""One item alone: what `python -m reproduce cell` does, and with it every task of Ray and rule of Snakemake."""

import time
from dataclasses import replace

from reproduce import UserError, keys
from reproduce.folder import LATENCY, workshop
from reproduce.local import Local
from reproduce.plan import Item, Plan, check_items
from reproduce.run import Batch, Report, Show, stoppable


def cell_command(plan: Plan, item: Item, force: bool) -> list[str]:
    """Return the arguments of Python that make the item alone; works in the folder of this repository."""
    arguments = ["-m", "reproduce", "cell", item.id, "--preset", plan.preset.name, "--root", str(plan.root)]
    return [*arguments, *(["--force"] if force else [])]


def run_cell(plan: Plan, item: Item, force: bool, engine: bool, show: Show) -> Report:
    """Make one item, whole or not at all, unless it is up to date. Says how it ended.

    `engine`: a scheduler has called, so what the item needs was made just now, maybe on another machine, and an
    earlier attempt may still be ending: wait for both. Raises UserError if the item never runs, its parameters are
    wrong, a run it needs is not done, or another command is at work on it.
    """
    if item.skip is not None:
        raise UserError(f"{item.id} never runs: {item.skip}")
    forced = {item.id} if force else set()
    check_items(plan, keys.todo(plan, [item], forced))
    patience = LATENCY if engine else 0.0
    check_needs(plan, item, patience)
    plan = replace(plan, preset=replace(plan.preset, kernel="python3", retries=0))  # both pay off in a batch only
    with stoppable(), workshop(plan, [item], cell=True, patience=patience) as scratch:
        return Batch(plan, [item], forced, Local(plan, 1), scratch).run(show)


def check_needs(plan: Plan, item: Item, patience: float) -> None:
    """Refuse an item whose runs are not done, after waiting for at most `patience` seconds."""
    limit = time.monotonic() + patience
    while True:
        states = keys.statuses(plan, [plan.items[need] for need in item.needs])
        late = [need for need in item.needs if states[need] != "done"]
        if not late:
            return
        if time.monotonic() >= limit:
            raise UserError(
                f"{item.id} needs {late[0]}, which is {states[late[0]]}; "
                f"run it first: python -m reproduce cell {late[0]} --preset {plan.preset.name}"
            )
        time.sleep(1)
