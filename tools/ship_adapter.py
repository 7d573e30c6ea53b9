"""Turn a finished role warm start into package data: `python -m tools.ship_adapter RUN FOLDER`.

Writes the adapter in bfloat16 (half the bytes), its model card, the measured figures and the
checksums.
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from safetensors.torch import load_file, save_file

from tinyworld import BACKBONES, gates
from tools.backbones import SUMS, digests

ADAPTER = "adapter_model.safetensors"


def copy_in_bfloat16(source: Path, target: Path) -> None:
    """Copy the weights of a safetensors file in bfloat16."""
    weights = {}
    for name, weight in load_file(source).items():
        weights[name] = weight.to(torch.bfloat16)
    save_file(weights, target)


def recipe_of(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return the recipe of a role warm start, as its card states it."""
    method = config["method_fields"]
    demonstrations = method["demonstrations"]
    batch = method["sft_batch"]
    return {
        "lora": config["lora"],
        "rate": config["learning_rate"],
        "seed": config["seed"],
        "demonstrations": demonstrations,
        "truthful": method["truthful"],
        "batch": batch,
        "asked": method["examined"],
        "steps": -(-demonstrations // batch),  # rounded up
        "minutes": round(seconds / 60),
    }


def card(recipe: dict[str, Any], figures: dict[str, Any]) -> str:
    """Return the model card as Markdown."""
    environment = Environment(
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        loader=FileSystemLoader([Path(__file__).parent, BACKBONES]),
    )
    template = environment.get_template("adapter_card.md")
    missed = gates.failures(figures)
    return template.render(**recipe, figures=figures, missed=missed)


def ship(run: Path, folder: Path) -> None:
    """Copy a run's adapter into a folder, with a card of the run's figures."""
    folder.mkdir(parents=True, exist_ok=True)
    copy_in_bfloat16(run / "policy" / ADAPTER, folder / ADAPTER)
    shutil.copy(run / "policy" / "adapter_config.json", folder)
    config = json.loads((run / "config.json").read_bytes())
    summary = json.loads((run / "summary.json").read_bytes())
    recipe = recipe_of(config, summary["seconds"])
    figures = summary["figures"]
    text = json.dumps({"recipe": recipe, "figures": figures}, indent=1) + "\n"
    (folder / "card.json").write_text(text, "utf-8")
    (folder / "README.md").write_text(card(recipe, figures), "utf-8")
    (folder / SUMS).write_text("\n".join(digests(folder)) + "\n", "utf-8")


if __name__ == "__main__":
    ship(Path(sys.argv[1]), Path(sys.argv[2]))
