"""Checkpoints are whole after a crash or a full disk at any point, and damage is found."""

import builtins
import errno
import io
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from coevolve.runs.checkpoint import MANIFEST, damage, newest, save

OS_OPERATIONS = ["mkdir", "rename", "unlink", "rmdir", "fsync", "open"]
SHA256_OF_EMPTY_OBJECT = (
    "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
)


def writer(step: int) -> Callable[[Path], None]:
    """Return the function that writes the files of a small checkpoint of this step."""

    def write(folder: Path) -> None:
        inner = folder / "policy" / "inner"
        inner.mkdir(parents=True)
        (folder / "policy" / "config.json").write_text("{}")
        (inner / "weights").write_bytes(b"w" * 1000)
        state = {"step": step, "pool": [1, 2]}
        (folder / "state.json").write_text(json.dumps(state))
        (folder / "rng").write_bytes(b"\x00\x01")

    return write


def step_written_in(checkpoint: Path) -> int:
    state = json.loads((checkpoint / "state.json").read_text())
    return state["step"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def two_checkpoints(tmp_path: Path) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    folder = tmp_path / "two_checkpoints"
    for step in (1, 2):
        save(folder, step, writer(step))
    return folder


class TestSave:
    """One checkpoint, of step 3."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path / "deep"

    @pytest.fixture
    def checkpoint(self, folder: Path) -> Path:
        return save(folder, 3, writer(3))

    def test_without_a_checkpoint_there_is_no_newest(self, tmp_path: Path) -> None:
        assert newest(tmp_path) is None
        assert newest(tmp_path / "nowhere") is None

    def test_what_was_saved_is_the_newest(self, folder: Path, checkpoint: Path) -> None:
        assert newest(folder) == (3, checkpoint)
        assert step_written_in(checkpoint) == 3
        weights = checkpoint / "policy" / "inner" / "weights"
        assert weights.read_bytes() == b"w" * 1000

    def test_the_manifest_lists_the_hash_of_every_file(self, checkpoint: Path) -> None:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        hashes = manifest["sha256"]
        assert sorted(hashes) == [
            "policy/config.json",
            "policy/inner/weights",
            "rng",
            "state.json",
        ]
        assert hashes["policy/config.json"] == SHA256_OF_EMPTY_OBJECT


class FailingDisk:
    """Counts file operations and lets the n-th fail.

    Only that one fails (`once`: a full disk), or all from that one on (a kill).
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, fail_at: int | None, once: bool
    ) -> None:
        self.operations = 0
        self.fail_at = fail_at
        self.once = once
        for name in OS_OPERATIONS:
            patch.setattr(os, name, self.failing(getattr(os, name)))
        failing_open = self.failing(io.open)
        patch.setattr(io, "open", failing_open)
        patch.setattr(builtins, "open", failing_open)

    def failing(self, operation: Callable) -> Callable:
        """Return the operation with its call counted, and failed when it is due."""

        def counted(*args, **kwargs) -> object:
            self.operations += 1
            if self.fails():
                raise OSError(errno.ENOSPC, "No space left on device")
            return operation(*args, **kwargs)

        return counted

    def fails(self) -> bool:
        """Whether the current operation fails."""
        if self.fail_at is None:
            return False
        if self.once:
            return self.operations == self.fail_at
        return self.operations >= self.fail_at


@dataclass(frozen=True)
class Attempt:
    """An attempt to save step 3 on a disk that may fail."""

    is_saved: bool
    operations: int


def attempt_to_save(
    folder: Path, fail_at: int | None = None, once: bool = False
) -> Attempt:
    with pytest.MonkeyPatch.context() as patch:
        disk = FailingDisk(patch, fail_at, once)
        try:
            checkpoint = save(folder, 3, writer(3))
        except OSError:
            checkpoint = None
    return Attempt(checkpoint is not None, disk.operations)


def check_newest_is_whole(folder: Path, allowed_steps: list[int]) -> None:
    with warnings.catch_warnings():
        # A half-written folder never has the name of a checkpoint, so none is skipped.
        warnings.simplefilter("error")
        step, checkpoint = newest(folder)
    assert step in allowed_steps
    assert step_written_in(checkpoint) == step
    assert damage(checkpoint) is None


def check_next_save_clears_up(folder: Path) -> None:
    save(folder, 4, writer(4))
    step, _ = newest(folder)
    assert step == 4
    assert list(folder.glob(".tmp-*")) == []


@pytest.mark.parametrize("once", [True, False])
def test_a_failure_at_any_file_operation_leaves_a_whole_state(
    tmp_path: Path, two_checkpoints: Path, once: bool
) -> None:
    folder = shutil.copytree(two_checkpoints, tmp_path / "without_failure")
    without_failure = attempt_to_save(folder)
    assert without_failure.is_saved
    assert without_failure.operations >= 40
    failed_saves = 0
    for fail_at in range(1, without_failure.operations + 1):
        folder = shutil.copytree(two_checkpoints, tmp_path / f"case{fail_at}")
        attempt = attempt_to_save(folder, fail_at, once)
        if not attempt.is_saved:
            failed_saves += 1
        check_newest_is_whole(folder, [3] if attempt.is_saved else [2, 3])
        check_next_save_clears_up(folder)
    # A few failures do no harm, such as making a folder that exists.
    assert failed_saves > 35


def flip_a_bit(file: Path, rng: random.Random) -> None:
    data = bytearray(file.read_bytes())
    position = rng.randrange(len(data))
    data[position] ^= 1 << rng.randrange(8)
    file.write_bytes(data)


def truncate(file: Path, rng: random.Random) -> None:
    data = file.read_bytes()
    length = rng.randrange(len(data))
    file.write_bytes(data[:length])


def empty(file: Path, rng: random.Random) -> None:
    file.write_bytes(b"")


def remove(file: Path, rng: random.Random) -> None:
    file.unlink()


@pytest.mark.parametrize("spoil", [flip_a_bit, truncate, empty, remove])
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    tmp_path: Path,
    two_checkpoints: Path,
    spoil: Callable[[Path, random.Random], None],
) -> None:
    rng = random.Random(spoil.__name__)
    for case in range(25):
        folder = shutil.copytree(two_checkpoints, tmp_path / str(case))
        damaged = folder / "step-00000002"
        files = [path for path in damaged.rglob("*") if path.is_file()]
        spoil(rng.choice(sorted(files)), rng)
        assert damage(damaged) is not None
        with pytest.warns(UserWarning, match="step-00000002"):
            assert newest(folder) == (1, folder / "step-00000001")


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"step": "x", "files": {}}',
        b'{"step": 1}',
    ],
)
def test_a_run_with_damaged_checkpoints_alone_never_starts_again_from_step_0(
    two_checkpoints: Path, manifest: bytes
) -> None:
    (two_checkpoints / "step-00000001" / MANIFEST).write_bytes(manifest)
    (two_checkpoints / "step-00000002" / "rng").write_bytes(b"\x00\x02")
    with (
        warnings.catch_warnings(record=True) as caught,
        pytest.raises(FileNotFoundError, match="step-00000001"),
    ):
        newest(two_checkpoints)
    messages = [str(warning.message) for warning in caught]
    assert "rng changed since it was written" in messages[0]
    assert "it cannot be read" in messages[1]


class TestWhatIsKept:
    """Of the checkpoints of steps 1, 2, 9, 10 and 11 the newest two are kept."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for step in (1, 2, 9, 10, 11):
            save(tmp_path, step, writer(step), keep=2)
        return tmp_path

    @pytest.fixture
    def folder_with_damage(self, folder: Path) -> Path:
        """The same with damaged checkpoints of steps 12, 13 and 14."""
        for step in (12, 13, 14):
            checkpoint = save(folder, step, writer(step), keep=4)
            (checkpoint / "rng").write_bytes(b"")
        return folder

    def test_the_newest_are_kept(self, folder: Path) -> None:
        assert names(folder) == ["step-00000010", "step-00000011"]

    def test_the_newest_that_is_whole_is_found(self, folder_with_damage: Path) -> None:
        with pytest.warns(UserWarning, match="damaged"):
            step, _ = newest(folder_with_damage)
        assert step == 11

    def test_the_next_checkpoint_replaces_the_damaged_ones(
        self, folder_with_damage: Path
    ) -> None:
        checkpoint = save(folder_with_damage, 12, writer(12))
        assert damage(checkpoint) is None
        assert names(folder_with_damage) == ["step-00000011", "step-00000012"]
