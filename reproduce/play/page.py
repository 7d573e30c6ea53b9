"""Puts `results/play.html` together: one file with style, scripts and data, and nothing to load.

The modules are joined in the order in which they need each other; `import` and `export` go.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reproduce.play import tables, weights

HERE = Path(__file__).parent
TEMPLATE = HERE / "page.html"
STYLE = HERE / "style.css"
MODULES = (
    "arithmetic.js",
    "noise.js",
    "random.js",
    "tokenizer.js",
    "model.js",
    "parse.js",
    "json.js",
    "world.js",
    "verify.js",
    "turns.js",
    "methods/mae.js",
    "methods/sage.js",
    "methods/comas.js",
    "methods/conl.js",
    "methods/spice.js",
    "episode.js",
    "played.js",
    "guesses.js",
    "controls.js",
    "view.js",
    "cards.js",
    "page.js",
)
IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
EXPORT = re.compile(r"^export ", re.MULTILINE)
DATA = re.compile(
    r'<script type="application/json" id="(\w+)">(.*?)</script>', re.DOTALL
)


def script() -> str:
    """Return the page's code: all modules in one scope."""
    parts = []
    for name in MODULES:
        source = (HERE / name).read_text(encoding="utf-8")
        parts.append(EXPORT.sub("", IMPORT.sub("", source)).strip())
    return "\n\n".join(parts)


def data(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return all data of the page; `packed` are the weights and gains of `runs.pack`."""
    from coevolve.engines.loading import load_policy

    model = weights.configuration(load_policy(tables.MODEL))
    return {**tables.all_tables(), "model": model, **packed}


def render(content: Mapping[str, Any]) -> str:
    """Return the page with this data."""
    tables_and_gains = dict(content)
    packed = tables_and_gains.pop("weights")
    parts = {
        "STYLE": STYLE.read_text(encoding="utf-8").strip(),
        "DATA": _json(tables_and_gains),
        "SCRIPT": script(),
        "BASE": _json(packed["base"]),
        "TRAINED": _json(packed["trained"]),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, part in parts.items():
        page = page.replace(f"/*{name}*/", part)
    return page


def _json(content: Any) -> str:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    # No "<" may end the script that holds the data.
    return text.replace("<", "\\u003c")


def read_data(page: str) -> dict[str, Any]:
    """Return the data of a page that `render` made; raise ValueError if a part is missing."""
    parts = {}
    for match in DATA.finditer(page):
        parts[match[1]] = json.loads(match[2])
    if parts.keys() != {"data", "base", "trained"}:
        raise ValueError(f"the page must hold data, base and trained; got {[*parts]}")
    packed = {"base": parts["base"], "trained": parts["trained"]}
    return {**parts["data"], "weights": packed}
