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

from tinyworld import BACKBONES, NAMES

CARD = "card.md"  # the template of their model cards, in BACKBONES
NUMBERS = BACKBONES / "numbers.json"  # the number that each token had in the training of a new model
SUMS = "SHA256SUMS"


def read_card(folder: Path) -> dict[str, Any]:
    """A backbone's recipe and measured figures."""
    return json.loads((folder / "card.json").read_text(encoding="utf-8"))


def digests(folder: Path) -> list[str]:
    """SHA-256 and name of every file of a backbone but the list of sums itself, as sha256sum writes them."""
    files = sorted(path for path in folder.iterdir() if path.name != SUMS)
    return [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in files]


def verify(folder: Path) -> None:
    """Compare a backbone with its checksums; raise ValueError naming the files that differ."""
    listed = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    wrong = sorted({line.split("  ")[1] for line in {*listed} ^ {*digests(folder)}})
    if wrong:
        raise ValueError(f"backbone {folder.name} differs from its checksums in {', '.join(wrong)}")


def make(name: str, out: Path, share: float = 1.0, seed: int = 0) -> None:
    """Train a shipped backbone again into `out`, on one thread; `share` of the steps for a quick look.

    The tokenizer is the shipped one (tools/tiny_tokenizer.py made it).
    """
    import torch

    from coevolve.engines.loading import load_policy
    from tinyworld.warmstart import Cycle, make_model, warm_start

    torch.set_num_threads(1)
    recipe, began = read_card(BACKBONES / name)["recipe"], time.monotonic()
    cycles = [Cycle(**fields) for fields in recipe["cycles"]]
    policy, numbers_V = load_policy(name), torch.tensor(json.loads(NUMBERS.read_text()))
    model = make_model(policy.model.config, seed)
    for number, cycle in enumerate(cycles):
        steps = max(1, int(share * cycle.steps))
        warm_start(model, policy.tokenizer, numbers_V, replace(cycle, steps=steps), seed + number)
    embeddings = model.model.embed_tokens.weight
    embeddings.data = embeddings.data[numbers_V]
    model.save_pretrained(out)
    for file in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BACKBONES / name / file, out)
    minutes = round((time.monotonic() - began) / 60)
    finish(out, recipe | {"share": share, "seed": seed, "minutes": minutes})


def finish(folder: Path, recipe: dict[str, Any]) -> None:
    """Measure a trained backbone, write its card and checksums."""
    made = {"recipe": recipe, "figures": measure(folder)}
    (folder / "card.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(card(**made), encoding="utf-8")
    (folder / SUMS).write_text("\n".join(digests(folder)) + "\n", encoding="utf-8")


def measure(model: str | Path) -> dict[str, Any]:
    """What a backbone can do, by name or folder."""
    from coevolve.engines.loading import load_policy
    from tinyworld import gates

    return gates.measure(load_policy(str(model)).generate)


def card(recipe: dict[str, Any], figures: dict[str, Any]) -> str:
    """The model card as Markdown: what the backbone was trained on, what it can and cannot do."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from tinyworld import gates

    files = Environment(undefined=StrictUndefined, keep_trailing_newline=True, loader=FileSystemLoader(BACKBONES))
    return files.get_template(CARD).render(recipe=recipe, figures=figures, missed=gates.failures(figures))


def main(arguments: Sequence[str] | None = None) -> None:
    """Make, measure or verify embedded backbones."""
    parser = argparse.ArgumentParser(prog="python -m tools.backbones", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    maker = verbs.add_parser("make", help="train a backbone (one core: about an hour, see its card)")
    maker.add_argument("name", choices=NAMES)
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
            print(json.dumps(measure(options.model), indent=1))
        else:
            for name in NAMES:
                verify(BACKBONES / name)
                print(f"{name}: whole")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
