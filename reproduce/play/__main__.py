"""Builds the page: `python -m reproduce.play`.

The weights are those of the page that is there, unless `--train` names a folder of runs.
"""

import argparse
from pathlib import Path

from coevolve.runs.record import write_atomically
from reproduce import HOME
from reproduce.play import page, runs

PAGE = HOME / "results/play.html"


def main() -> None:
    """Build the page and print what the training of each method gained."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduce.play", description=__doc__
    )
    parser.add_argument(
        "--train",
        type=Path,
        metavar="DIR",
        help="train the methods that have no run in DIR, and take all weights from there",
    )
    parser.add_argument(
        "--out", type=Path, default=PAGE, help="default: results/play.html"
    )
    arguments = parser.parse_args()
    if arguments.train:
        runs.train(arguments.train)
        packed = runs.pack(arguments.train)
    else:
        content = page.read_data(PAGE.read_text(encoding="utf-8"))
        packed = {key: content[key] for key in ("weights", "runs")}
    html = page.render(page.data(packed))
    write_atomically(arguments.out, html)
    for name, run in packed["runs"].items():
        print(
            f"{name}: {run['before']:.1f} % before training, {run['after']:.1f} % after, "
            f"gain {run['points']:+.1f} (95 % {run['low']:+.1f} to {run['high']:+.1f})"
        )
    print(f"{arguments.out}: {len(html.encode()) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
