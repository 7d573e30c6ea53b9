"""The trained models of the page: how each is trained, and what the training gained.

The gain is that of the weights that the page holds, which are rounded: they answer the run's test
questions anew.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from coevolve.engines.loading import load_policy
from coevolve.engines.router import EngineRouter
from coevolve.evaluation.scoring import count_correct, gain, score
from coevolve.runs import record
from reproduce.play import tables, weights

SEED = 0
PRESET = "standard"
MAX_ANSWER_TOKENS = 64
OVERRIDES = {"comas": ["agents=2"]}  # as many as the page has


def command(method: str, out: Path) -> list[str]:
    """Return the arguments of `coevolve` that train a method."""
    settings = ["--preset", PRESET, "--seed", str(SEED), "--out", str(out)]
    return ["train", method, *settings, *OVERRIDES.get(method, [])]


def train(folder: Path) -> None:
    """Train the methods that have no finished run below a folder, a minute or two each."""
    for method in tables.methods():
        out = folder / method
        if not (out / "summary.json").is_file():
            arguments = [sys.executable, "-m", "coevolve", *command(method, out)]
            subprocess.run(arguments, check=True)


def pack(folder: Path) -> dict[str, Any]:
    """Return the weights of the runs below a folder as text, and what each run gained.

    Raises FileNotFoundError if a run is missing.
    """
    base = weights.tensors_of(load_policy(tables.MODEL))
    trained = {}
    gains = {}
    for name, method in tables.methods().items():
        run = folder / name
        tensors_of = {}
        for policy in method.policies:
            saved = run / "policy"
            if len(method.policies) > 1:
                saved = saved / policy
            packed = weights.pack_trained(base, weights.tensors_of(load_policy(saved)))
            trained[f"{name}/{policy}"] = packed
            tensors_of[policy] = weights.unpack_trained(base, packed)
        gains[name] = gained(name, run, tensors_of)
    return {
        "weights": {"base": weights.pack_base(base), "trained": trained},
        "runs": gains,
    }


def gained(
    name: str, run: Path, tensors_of: Mapping[str, weights.Tensors]
) -> dict[str, Any]:
    """Return a run's accuracy on its test questions before and after training, in percent.

    `points`, `low` and `high` are the gain and its 95 % interval over the questions.
    """
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    method = tables.methods()[name]
    items = method.world.items("test", config["test_items"] or config["eval_items"])
    engines = {}
    for policy_name, tensors in tensors_of.items():
        policy = load_policy(tables.MODEL, policy_name)
        weights.load_tensors(policy, tensors)
        engines[policy_name] = policy.serve(0.0, MAX_ANSWER_TOKENS)
    after = pd.DataFrame(score(EngineRouter(engines), method, items)).assign(
        stage="after"
    )
    scores = record.read(run, "scores")
    is_before = (scores["stage"] == "before") & (scores["strategy"] == "vanilla")
    before = scores[is_before]
    points, low, high = gain(pd.concat([before, after]))
    out = Path("runs") / name
    return {
        "steps": config["steps"],
        "command": " ".join(["coevolve", *command(name, out)]),
        "questions": len(items),
        "before": _percent(before),
        "after": _percent(after),
        "points": round(points, 1),
        "low": round(low, 1),
        "high": round(high, 1),
    }


def _percent(rows: pd.DataFrame) -> float:
    counts = count_correct(rows.to_dict("records"))
    return round(100 * counts["k"] / counts["n"], 1)
