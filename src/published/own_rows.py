"""A user's own questions: the rows of a file become items, and one line counts them.

A row has `question` and `answer`; COLUMNS lists what else is read. A row that cannot be used is
left out with its reason, as in a benchmark (see `row_counts`).
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coevolve.validation import check_choice
from published.files import (
    EXTRA_CELLS,
    NumberedRow,
    read_array,
    read_csv,
    read_lines,
    read_parquet,
)
from published.own_answers import (
    KINDS,
    OwnItem,
    Question,
    gold_of,
    is_readable,
    kind_of,
    read_choices,
)
from published.own_choices import first_number
from published.row_counts import RowCounts, say
from published.rows import digest, normal
from published.values import LeftOut, Unwanted, is_missing, plain_text

COLUMNS = (
    "question",
    "answer",
    "choices",
    "kind",
    "aliases",
    "tests",
    "id",
    "split",
    "topic",
    "level",
)
SPLITS = ("train", "validation", "test")
FILE_READERS = {
    ".jsonl": read_lines,
    ".json": read_array,
    ".csv": read_csv,
    ".parquet": read_parquet,
}
TEST_BUCKETS = (0, 1)  # of ten, by the hash of the question
VALIDATION_BUCKET = 2


@dataclass(frozen=True)
class Candidate:
    """An item, the row that it comes from and how that differs from the plain form."""

    row: int
    item: OwnItem
    changes: tuple[str, ...]


def read_items(file: Path) -> list[OwnItem]:
    """Return the items of a file, and say on stderr how many rows make them.

    Raises ValueError, which names the file and the row, when the file is not what its name says,
    has no column `question` or `answer`, when a kind or split is unknown, when it is not clear
    which options numbers mean, and when too many rows are left out.
    """
    rows = _read_mappings(file)
    columns = _columns(rows, file)
    has_splits = "split" in columns
    counts = RowCounts(file.name, str(file))
    questions = _questions(rows, file, counts)
    first = _first_number(questions, file)
    candidates = _candidates(questions, file, first, has_splits, counts)
    items = _distinct(candidates, counts)
    counts.check()
    say("; ".join([counts.line(), *_facts(items, columns)]))
    return items


def _read_mappings(file: Path) -> list[NumberedRow]:
    """Return the rows as mappings."""
    try:
        rows = FILE_READERS[file.suffix.lower()](file)
    except (ValueError, OSError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"world: {file} cannot be read: {reason}") from None
    mappings = []
    for row in rows:
        content = row.content
        try:
            cells = json.loads(content) if isinstance(content, str) else content
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"world: {file} row {row.number} is not JSON: {error}"
            ) from None
        if not isinstance(cells, Mapping):
            raise ValueError(
                f"world: {file} row {row.number} must be an object with question and "
                f"answer, got {repr(cells)[:60]}"
            )
        mappings.append(NumberedRow(row.number, cells))
    return mappings


def _columns(rows: Sequence[NumberedRow], file: Path) -> list[str]:
    """Return all columns; raises ValueError without question and answer."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.content)
    names.pop(EXTRA_CELLS, None)
    answers = {"answer", "tests"} & set(names)
    if rows and not ("question" in names and answers):
        raise ValueError(
            f"world: {file} must have the columns question and answer, and may have "
            f"{', '.join(COLUMNS[2:])}; it has {', '.join(names) or 'none'}"
        )
    return list(names)


def _questions(
    rows: Sequence[NumberedRow], file: Path, counts: RowCounts
) -> list[Question]:
    """Return the rows that have a question and an answer; count the others."""
    questions = []
    for row in rows:
        try:
            questions.append(_question(row))
        except LeftOut as why:
            counts.leave_out(f"row {row.number}", why)
        except ValueError as error:
            raise ValueError(f"world: {file} row {row.number}: {error}") from None
    return questions


def _question(row: NumberedRow) -> Question:
    cells = row.content
    if EXTRA_CELLS in cells:
        raise LeftOut("there are more cells than columns (quote texts with commas)")
    text = cells.get("question")
    if is_missing(text):
        raise LeftOut("question is missing")
    if not isinstance(text, str):
        raise LeftOut("question is not text", repr(text)[:60])
    if is_missing(cells.get("tests")) and is_missing(cells.get("answer")):
        raise LeftOut("answer is missing")
    kind = plain_text(cells.get("kind")).lower()
    if kind:
        check_choice("kind", kind, KINDS)
    choices = read_choices(cells.get("choices"))
    question = Question(row.number, text.strip(), cells, choices, kind)
    if choices.texts and kind_of(question) != "choice":
        raise ValueError(f"kind must be choice or absent beside choices, got {kind!r}")
    return question


def _first_number(questions: Sequence[Question], file: Path) -> int:
    """Return whether numbers in the answers of multiple choice count from 0 or from 1."""
    chosen = [question for question in questions if question.choices.texts]
    try:
        return first_number(chosen)
    except ValueError as error:
        raise ValueError(f"world: {file}: {error}") from None


def _candidates(
    questions: Sequence[Question],
    file: Path,
    first: int,
    has_splits: bool,
    counts: RowCounts,
) -> list[Candidate]:
    """Return the items whose gold answers the verifiers can read; count the other rows."""
    candidates = []
    for question in questions:
        try:
            candidates.append(_candidate(question, file, first, has_splits))
        except LeftOut as why:
            counts.leave_out(f"row {question.row}", why)
        except ValueError as error:
            raise ValueError(f"world: {file} row {question.row}: {error}") from None
    with ThreadPoolExecutor() as threads:
        verdicts = list(threads.map(is_readable, [one.item for one in candidates]))
    readable = []
    for candidate, can_be_read in zip(candidates, verdicts, strict=True):
        if can_be_read:
            readable.append(candidate)
            continue
        item = candidate.item
        reason = f"the verifier of kind {item.scorer} cannot read answer"
        why = LeftOut(reason, repr(item.answer)[:60])
        counts.leave_out(f"row {candidate.row}", why)
    return readable


def _candidate(
    question: Question, file: Path, first: int, has_splits: bool
) -> Candidate:
    cells = question.cells
    gold = gold_of(question, first)
    text = question.shown
    kind = kind_of(question)
    level = plain_text(cells.get("level"))
    meta = {name: value for name, value in cells.items() if not is_missing(value)}
    if kind == "tests" and not is_missing(cells.get("tests")):
        meta["solution"] = plain_text(cells.get("answer"))
    item = OwnItem(
        family=plain_text(cells.get("topic")) or file.stem,
        id=plain_text(cells.get("id")) or digest(text),
        question=text,
        gold=gold.value,
        scorer=KINDS[kind].scorer,
        judge=KINDS[kind].judge,
        stem=question.text,
        split=_split(cells, text, has_splits),
        meta=meta,
        level=int(level) if level.isdecimal() else None,
    )
    return Candidate(question.row, item, gold.changes)


def _split(cells: Mapping[str, Any], question: str, has_splits: bool) -> str:
    """Return the split that the row states, or without such a column that of the hash."""
    if has_splits:
        split = plain_text(cells.get("split")).lower()
        if not split:
            raise LeftOut("split is missing")
        check_choice("split", split, SPLITS)
        return split
    bucket = int(digest(question), 16) % 10
    if bucket in TEST_BUCKETS:
        return "test"
    return "validation" if bucket == VALIDATION_BUCKET else "train"


def _distinct(candidates: Sequence[Candidate], counts: RowCounts) -> list[OwnItem]:
    """Return the items without repeated questions and ids, and count all rows."""
    by_question: dict[str, OwnItem] = {}
    ids: set[str] = set()
    for candidate in candidates:
        item = candidate.item
        place = f"row {candidate.row}"
        other = by_question.get(normal(item.question))
        if other and other.gold == item.gold:
            counts.leave_out(place, Unwanted("question is there before"))
        elif other:
            why = LeftOut("question is there before, with another answer")
            counts.leave_out(place, why)
        elif item.id in ids:
            why = LeftOut("id is there before", repr(item.id)[:60])
            counts.leave_out(place, why)
        else:
            by_question[normal(item.question)] = item
            ids.add(item.id)
            counts.add(place, candidate.changes)
    return list(by_question.values())


def _facts(items: Sequence[OwnItem], columns: Sequence[str]) -> list[str]:
    """Return how many items each kind and each split has, and which columns have no effect."""
    kinds = Counter(item.kind for item in items)
    splits = Counter(item.split for item in items)
    facts = [
        "kinds: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items()),
        "splits: " + ", ".join(f"{splits[split]} {split}" for split in SPLITS),
    ]
    others = [name for name in columns if name not in COLUMNS]
    if others:
        facts.append(f"columns without effect: {', '.join(others)}")
    return facts
