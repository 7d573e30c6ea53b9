"""The embedded backbones by name, and the recipe that remakes them: `python -m tinyworld.recipe --help`.

Finding and verifying a backbone needs no torch; making one does.
"""

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from coevolve.policies import find, load
from tinyworld import BACKBONES

CARD = BACKBONES / "card.md"  # the template of their model cards
SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class Cycle:
    """One cycle of the warm start; each begins with a fresh optimiser."""

    steps: int
    peak: float  # learning rate
    decay: float  # share of the steps over which it falls
    truthful: float = 0.0  # share of the steps that show the truth before the habits
    inventing: bool = False  # favour the roles that invent questions
    batch: int = 24
    level_2: float = 0.5  # how often the demonstrated solver is right on level 2


@dataclass(frozen=True)
class Tuning(Cycle):
    """A cycle that goes on from a shipped backbone, for CoNL: agents that can rank and defend themselves."""

    start: str = "tiny"
    seasoned: float = 15.0  # how many times as often CoNL's reviews, revisions and verdicts are shown


@dataclass(frozen=True)
class Size:
    """Shape and training of one embedded backbone."""

    hidden: int
    layers: int
    heads: int
    cycles: tuple[Cycle, ...]


SIZES = {
    "tiny-small": Size(
        48, 3, 3, (Cycle(30_000, 4e-3, 0.4, 0.4), Cycle(10_000, 2e-3, 0.7), Cycle(8_000, 5e-4, 1.0, inventing=True))
    ),
    "tiny": Size(
        64,
        4,
        4,
        (
            Cycle(56_000, 3e-3, 0.4, 0.4),
            Cycle(32_000, 1.5e-3, 0.7),
            Cycle(10_000, 3.75e-4, 1.0, inventing=True),
            Cycle(2_500, 5e-4, 1.0, inventing=True, batch=96),
            Cycle(1_300, 5e-4, 1.0, inventing=True, batch=192, level_2=0.55),
        ),
    ),
    "tiny-large": Size(
        96,
        4,
        4,
        (Cycle(40_000, 2.5e-3, 0.4, 0.4), Cycle(12_000, 1.25e-3, 0.7), Cycle(6_000, 3.125e-4, 1.0, inventing=True)),
    ),
    "tiny-seasoned": Size(64, 4, 4, (Tuning(10_000, 1e-3, 0.7),)),
}


def digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file of a backbone but the list of sums itself."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def verify(name: str) -> None:
    """Compare a shipped backbone with its checksums; raise ValueError naming the files that differ."""
    folder = find(name)
    lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    listed = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    found = digests(folder)
    wrong = sorted(name for name in {*listed, *found} if listed.get(name) != found.get(name))
    if wrong:
        raise ValueError(f"backbone {name} differs from its checksums in {', '.join(wrong)}")


def make(name: str, out: Path, share: float = 1.0, seed: int = 0) -> None:
    """Train a backbone from nothing into `out`, on one thread; `share` of the steps for a quick look."""
    import torch

    from tinyworld import warmstart
    from tinyworld.demonstrations import INVENTORS
    from tinyworld.demonstrator import HABITS

    torch.set_num_threads(1)
    size, began = SIZES[name], time.monotonic()
    start = getattr(size.cycles[0], "start", "")
    if start:
        policy = load(start)
        tokenizer, model = policy.tokenizer, policy.model
    else:
        tokenizer = warmstart.make_tokenizer()
        model = warmstart.make_model(size.hidden, size.layers, size.heads, len(tokenizer), seed)
    for number, cycle in enumerate(size.cycles):
        steps = max(1, int(share * cycle.steps))

        def watch(step: int, loss: float, number: int = number, steps: int = steps) -> None:
            minutes = (time.monotonic() - began) / 60
            print(f"cycle {number + 1} step {step}/{steps} loss {loss:.4f} after {minutes:.0f} min", flush=True)

        warmstart.warm_start(
            model,
            tokenizer,
            steps=steps,
            peak=cycle.peak,
            decay=cycle.decay,
            truthful=cycle.truthful,
            favoured=INVENTORS if cycle.inventing else (),
            habits=HABITS | {2: cycle.level_2},
            batch=cycle.batch,
            seed=seed + number,
            watch=watch,
            seasoned=getattr(cycle, "seasoned", 0.0),
        )
    if start:
        policy.save(out)  # its tokenizer is portable already
    else:
        warmstart.save(model, tokenizer, out)
    finish(out, recipe(name, share, seed, round((time.monotonic() - began) / 60)))


def recipe(name: str, share: float, seed: int, minutes: int) -> dict[str, object]:
    """What a card says about how a backbone was made."""
    return {"name": name, **asdict(SIZES[name]), "share": share, "seed": seed, "minutes": minutes}


def finish(folder: Path, recipe: dict[str, object]) -> None:
    """Measure a trained backbone, write its card and checksums."""
    from coevolve.policies.causal import Policy
    from tinyworld import gates

    figures = gates.measure(Policy.load(folder).generate)
    (folder / "card.json").write_text(json.dumps({"recipe": recipe, "figures": figures}, indent=1) + "\n")
    (folder / "README.md").write_text(card(recipe, figures, gates.failures(figures)), encoding="utf-8")
    lines = [f"{digest}  {name}" for name, digest in digests(folder).items()]
    (folder / SUMS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def card(recipe: dict[str, object], figures: dict, missed: list[str]) -> str:
    """The model card as Markdown: what it was trained on, what it can and cannot do."""
    from jinja2 import Environment, StrictUndefined

    cycles, families = recipe["cycles"], figures["solve_by_family"]
    template = Environment(undefined=StrictUndefined, keep_trailing_newline=True).from_string(CARD.read_text("utf-8"))
    return template.render(
        recipe=recipe,
        first=cycles[0],
        steps=" + ".join(str(cycle["steps"]) for cycle in cycles),
        families=families,
        level_2=f"{cycles[-1]['level_2']:.2f}".lstrip("0"),
        figures=figures,
        missed=missed,
        weak=[family for family, share in families.items() if share < 0.3],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, measure or verify embedded backbones."""
    parser = argparse.ArgumentParser(prog="python -m tinyworld.recipe", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser("make", help="train a backbone (one core: 15 to 80 minutes, see its card)")
    maker.add_argument("name", choices=SIZES)
    maker.add_argument("--out", type=Path, required=True)
    maker.add_argument("--share", type=float, default=1.0, help="share of the steps, for a quick look")
    maker.add_argument("--seed", type=int, default=0)
    measurer = verbs.add_parser("measure", help="print what a backbone can do")
    measurer.add_argument("model", help="a name or a folder")
    verbs.add_parser("verify", help="check the shipped files against their checksums")
    options = parser.parse_args(arguments)
    try:
        if options.verb == "make":
            make(options.name, options.out, options.share, options.seed)
        elif options.verb == "measure":
            from coevolve.policies.causal import Policy
            from tinyworld import gates

            print(json.dumps(gates.measure(Policy.load(find(options.model)).generate), indent=1))
        else:
            for name in SIZES:
                verify(name)
                print(f"{name}: whole")
    except ValueError as error:
        print(f"coevolve: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
