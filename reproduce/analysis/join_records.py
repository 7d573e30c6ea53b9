"""Join the records of a batch whose runs were made on several machines.

    python -m reproduce.analysis.join_records FOLDER FOLDER ... --out FOLDER

Each folder is one that the artefact records, or judge_records, has written. Loads no torch.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from reproduce import UserError, one_line, user_path
from reproduce.analysis import records

PROVENANCE = "provenance.json"
KEYS = ["run", "seed"]
# Files whose rows name a list of questions.
BY_LIST = (records.ANSWERS, records.CONVERSATIONS)


def join(folders: Sequence[Path], out: Path) -> None:
    """Write the records of all folders to `out`, lists of questions that are equal as one.

    Raises UserError if a folder has no records, or if two of them have the same run and seed.
    """
    lists = records.QuestionLists()
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in records.TABLES}
    for folder in folders:
        tables = {name: _read(folder / name) for name in records.TABLES}
        new_number = {}
        for number, items in tables[records.ITEMS].groupby("list", sort=True):
            new_number[number] = str(lists.number(items))
        for name, table in tables.items():
            if name in BY_LIST:
                table["list"] = table["list"].map(new_number)
            parts[name].append(table)
    joined = {name: _together(frames) for name, frames in parts.items()}
    _check_runs(joined[records.RUNS])
    joined[records.ITEMS] = lists.table()
    out.mkdir(parents=True, exist_ok=True)
    for name, table in joined.items():
        records.write(table, out / name)
    _copy_readme(folders[0], out)
    origins = [_provenance(folder) for folder in folders]
    text = json.dumps({"joined": origins}, indent=1)
    (out / PROVENANCE).write_text(text + "\n", encoding="utf-8")


def _read(path: Path) -> pd.DataFrame:
    """Read a table with every cell as it is written."""
    if not path.is_file():
        raise UserError(
            f"no {path.name} in {path.parent}: it must be a folder of records"
        )
    return pd.read_csv(path, dtype=str, keep_default_na=False, lineterminator="\n")


def _together(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of all tables; a metric that one of them lacks is empty there."""
    return pd.concat(tables, ignore_index=True).fillna("")


def _check_runs(runs: pd.DataFrame) -> None:
    """Raise UserError if a run and seed is there twice."""
    is_twice = runs.duplicated(KEYS)
    if is_twice.any():
        first = runs[is_twice].iloc[0]
        raise UserError(
            f"each run and seed must be in one folder, got {first['run']} of seed "
            f"{first['seed']} twice"
        )


def _copy_readme(folder: Path, out: Path) -> None:
    text = (folder / records.README).read_text(encoding="utf-8")
    (out / records.README).write_text(text, encoding="utf-8")


def _provenance(folder: Path) -> dict[str, Any]:
    """Return where and with what some records were made; of joined ones, of each part."""
    path = folder / PROVENANCE
    if not path.is_file():
        return {"folder": folder.name}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        "python -m reproduce.analysis.join_records",
        description="Join the records of a batch whose runs were made on several machines.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "folders",
        nargs="+",
        type=user_path,
        metavar="FOLDER",
        help="with the files of the artefact records, such as results/standard/records",
    )
    parser.add_argument(
        "--out",
        type=user_path,
        required=True,
        metavar="FOLDER",
        help="where the joined files go",
    )
    return parser


def main(arguments: Sequence[str]) -> None:
    """Do what the command line says."""
    options = parser().parse_args(arguments)
    join(options.folders, options.out)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        print(f"join_records: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
