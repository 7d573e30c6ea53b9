"""Make a finished role warm start what the package ships: `python -m tools.ship_adapter RUN FOLDER`.

Writes the adapter in bfloat16 (half the bytes), its model card, the measured figures and the checksums.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from safetensors.torch import load_file, save_file

from tinyworld import BACKBONES, gates
from tools.backbones import SUMS, digests

ADAPTER = "adapter_model.safetensors"


def ship(run: Path, folder: Path) -> None:
    """Copy a run's adapter into a folder, and describe it there by the run's own figures."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = load_file(run / "policy" / ADAPTER)
    save_file({name: weight.to(torch.bfloat16) for name, weight in weights.items()}, folder / ADAPTER)
    shutil.copy(run / "policy" / "adapter_config.json", folder)
    config, summary = (json.loads((run / f"{name}.json").read_bytes()) for name in ("config", "summary"))
    protocol, figures = config["protocol"], summary["figures"]
    recipe = {
        "lora": config["lora"],
        "rate": config["learning_rate"],
        "seed": config["seed"],
        "demonstrations": protocol["demonstrations"],
        "truthful": protocol["truthful"],
        "batch": protocol["sft_batch"],
        "asked": protocol["examined"],
        "steps": -(-protocol["demonstrations"] // protocol["sft_batch"]),
        "minutes": round(summary["seconds"] / 60),
    }
    (folder / "card.json").write_text(json.dumps({"recipe": recipe, "figures": figures}, indent=1) + "\n", "utf-8")
    places = FileSystemLoader([Path(__file__).parent, BACKBONES])
    card = Environment(undefined=StrictUndefined, keep_trailing_newline=True, loader=places)
    text = card.get_template("adapter_card.md").render(**recipe, figures=figures, missed=gates.failures(figures))
    (folder / "README.md").write_text(text, "utf-8")
    (folder / SUMS).write_text("\n".join(digests(folder)) + "\n", "utf-8")


if __name__ == "__main__":
    ship(*map(Path, sys.argv[1:3]))
