"""The files of a split in a mirror: one file, or parts as the hub names them, all of them there."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from published.row_counts import say

SUFFIXES = ("jsonl", "parquet")  # the first that is there is read


def split_files(folder: Path, split: str, key: str) -> list[Path]:
    """Return the files of a split in their order: SPLIT.jsonl, SPLIT.parquet, or all its parts.

    If a split is there in several forms, the first of these is read, and a line on stderr names
    the others. Raises ValueError if there is none, or if a part is missing or there twice.
    """
    files = [folder / f"{split}.{suffix}" for suffix in SUFFIXES]
    files = [file for file in files if file.is_file()]
    parts = _parts(folder, split)
    if not files and not parts:
        raise ValueError(f"{key}: no {split}.jsonl or .parquet in {folder}")
    if not files:
        _check_parts(parts, key)
        return [part.file for part in parts]
    unread = files[1:] + [part.file for part in parts]
    if unread:
        names = ", ".join(file.name for file in unread)
        say(f"{key}: {files[0]} is read, and not {names} beside it")
    return files[:1]


@dataclass(frozen=True)
class Part:
    """A numbered part of a split."""

    file: Path
    number: int
    total: int


def _parts(folder: Path, split: str) -> list[Part]:
    """Return the parts of a split in their order."""
    suffixes = "|".join(SUFFIXES)
    name = re.compile(rf"{re.escape(split)}-(\d+)-of-(\d+)\.({suffixes})")
    parts = []
    for file in sorted(folder.glob("*")):
        match = name.fullmatch(file.name)
        if match:
            parts.append(Part(file, int(match[1]), int(match[2])))
    return parts


def _check_parts(parts: Sequence[Part], key: str) -> None:
    """Raise ValueError unless every part of a split is there once."""
    first = parts[0]
    folder = first.file.parent
    by_number: dict[int, Part] = {}
    for part in parts:
        is_of_other_set = part.total != first.total
        other = first if is_of_other_set else by_number.get(part.number)
        if other:
            raise ValueError(
                f"{key}: {other.file.name} and {part.file.name} in {folder} "
                "are not parts of one split; remove one of them"
            )
        by_number[part.number] = part
    for number in range(first.total):
        if number not in by_number:
            name = re.sub(r"-\d+-of", f"-{number:05}-of", first.file.name)
            raise ValueError(
                f"{key}: {name} is missing in {folder}; "
                f"all {first.total} parts of the split must be there"
            )


def listed_files(folder: Path, names: Sequence[str], key: str) -> list[Path]:
    """Return the files with these names; a line on stderr counts those that are missing.

    Raises ValueError if none is there.
    """
    files = []
    missing = []
    for name in names:
        file = folder / name
        if file.is_file():
            files.append(file)
        else:
            missing.append(name)
    if not files:
        raise ValueError(f"{key}: no {' or '.join(names)} in {folder}")
    if missing:
        say(
            f"{key}: {len(files)} of {len(names)} files in {folder} are read; "
            f"{', '.join(missing)} not there"
        )
    return files
