"""Remake, measure and verify the embedded backbones: `python -m tools.backbones --help`.

The recipe of a backbone is data: its config.json, and the training cycles in its card.json.
"""

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coevolve.validation import user_path
from tinyworld import BACKBONES, NAMES

CARD = "card.md"  # the template of the model cards, in BACKBONES
# The id of each token during the training of a new model.
NUMBERS = BACKBONES / "numbers.json"
SUMS = "SHA256SUMS"


def read_card(folder: Path) -> dict[str, Any]:
    """Return a backbone's recipe and measured figures."""
    return json.loads((folder / "card.json").read_text(encoding="utf-8"))


def digests(folder: Path) -> list[str]:
    """Return SHA-256 and name of every file but the list of sums, in the format of sha256sum."""
    lines = []
    for path in sorted(folder.iterdir()):
        if path.name != SUMS:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            lines.append(f"{digest}  {path.name}")
    return lines


def verify(folder: Path) -> None:
    """Compare a backbone with its checksums; raise ValueError naming the files that differ."""
    listed = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    different_lines = {*listed} ^ {*digests(folder)}
    names = sorted({line.split("  ")[1] for line in different_lines})
    if names:
        different = ", ".join(names)
        raise ValueError(
            f"backbone {folder.name} differs from its checksums in {different}"
        )


def make(name: str, out: Path, share: float = 1.0, seed: int | None = None) -> None:
    """Train a shipped backbone from scratch into `out`, on one thread.

    Called again with the same arguments, it continues a stopped training after its last cycle.

    `share` is the fraction of the steps, for a quick look; `seed` is by default the shipped one's.
    The tokenizer is the shipped one, made by tools/tiny_tokenizer.py.
    """
    import torch

    from coevolve.engines.loading import load_policy
    from tinyworld.warmstart import Cycle, make_model, warm_start

    torch.set_num_threads(1)
    start = time.monotonic()
    recipe = read_card(BACKBONES / name)["recipe"]
    if seed is None:
        seed = recipe["seed"]
    policy = load_policy(name)
    numbers_V = torch.tensor(json.loads(NUMBERS.read_text()))
    model = make_model(policy.model.config, seed)
    out.mkdir(parents=True, exist_ok=True)
    for number, fields in enumerate(recipe["cycles"]):
        cycle = Cycle(**fields)
        # A cycle begins with a fresh optimizer, so its weights are all that a restart needs.
        checkpoint = out / f"cycle-{number}.pt"
        if checkpoint.exists():
            model.load_state_dict(torch.load(checkpoint))
            continue
        steps = max(1, int(share * cycle.steps))
        cycle = replace(cycle, steps=steps)
        # Each seed and cycle has demonstrations of its own.
        stream = 100 * seed + number
        warm_start(model, policy.tokenizer, numbers_V, cycle, stream)
        torch.save(model.state_dict(), checkpoint)
    for checkpoint in out.glob("cycle-*.pt"):
        checkpoint.unlink()
    embeddings = model.model.embed_tokens.weight
    embeddings.data = embeddings.data[numbers_V]
    model.save_pretrained(out)
    for file in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BACKBONES / name / file, out)
    minutes = round((time.monotonic() - start) / 60)
    made = {"share": share, "seed": seed, "minutes": minutes, "split": "train"}
    finish(out, recipe | made)


def finish(folder: Path, recipe: dict[str, Any]) -> None:
    """Measure a trained backbone; write its card and checksums."""
    figures = measure(folder)
    text = json.dumps({"recipe": recipe, "figures": figures}, indent=1) + "\n"
    (folder / "card.json").write_text(text, encoding="utf-8")
    (folder / "README.md").write_text(card(recipe, figures), encoding="utf-8")
    (folder / SUMS).write_text("\n".join(digests(folder)) + "\n", encoding="utf-8")


def measure(model: str | Path) -> dict[str, Any]:
    """Return the measured abilities of a backbone, by name or folder."""
    from coevolve.engines.loading import load_policy
    from tinyworld import gates

    return gates.measure(load_policy(str(model)).generate)


def card(recipe: dict[str, Any], figures: dict[str, Any]) -> str:
    """Return the model card as Markdown: the training data, the abilities and their limits."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from tinyworld import gates

    environment = Environment(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        loader=FileSystemLoader(BACKBONES),
    )
    template = environment.get_template(CARD)
    missed = gates.failures(figures)
    return template.render(recipe=recipe, figures=figures, missed=missed)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.backbones", description=__doc__
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser(
        "make", help="train a backbone (one core: about an hour, see its card)"
    )
    maker.add_argument("name", choices=NAMES)
    maker.add_argument("--out", type=user_path, required=True)
    maker.add_argument(
        "--share",
        type=float,
        default=1.0,
        help="fraction of the steps, for a quick look",
    )
    maker.add_argument("--seed", type=int, help="default: that of the shipped one")
    measurer = verbs.add_parser("measure", help="print what a backbone can do")
    measurer.add_argument("model", help="a name or a folder")
    verbs.add_parser("verify", help="check the shipped files against their checksums")
    return parser


def carry_out(options: argparse.Namespace) -> None:
    """Make, measure or verify, as the options say."""
    if options.verb == "make":
        make(options.name, options.out, options.share, options.seed)
    elif options.verb == "measure":
        print(json.dumps(measure(options.model), indent=1))
    else:
        for name in NAMES:
            verify(BACKBONES / name)
            print(f"{name}: whole")


def main(arguments: Sequence[str] | None = None) -> None:
    """Make, measure or verify embedded backbones."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        carry_out(options)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
