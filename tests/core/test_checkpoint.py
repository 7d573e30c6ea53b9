"""Checkpoints are whole after a crash or a full disk at any point, and damage is found."""

import builtins
import io
import json
import math
import os
import random
import shutil
import warnings

import pytest

from coevolve.runs.checkpoint import MANIFEST, damage, newest, save

OPERATIONS = [
    (os, name) for name in ("mkdir", "rename", "unlink", "rmdir", "fsync", "open")
] + [(io, "open")]


def files(step):
    """Return what writes a small checkpoint of this step."""

    def write(folder):
        (folder / "policy" / "inner").mkdir(parents=True)
        (folder / "policy" / "config.json").write_text("{}")
        (folder / "policy" / "inner" / "weights").write_bytes(b"w" * 1000)
        (folder / "state.json").write_text(json.dumps({"step": step, "pool": [1, 2]}))
        (folder / "rng").write_bytes(b"\x00\x01")

    return write


def content(path):
    return json.loads((path / "state.json").read_text())["step"]


@pytest.fixture
def start(tmp_path):
    """A folder with two checkpoints."""
    for step in (1, 2):
        save(tmp_path / "start", step, files(step))
    return tmp_path / "start"


class Disk:
    """Counts file operations and fails at the n-th.

    Only there (`once`: a full disk), or from there on (a kill).
    """

    def __init__(self, monkeypatch, fail_at=None, once=False):
        self.count = 0
        self.fail_at = fail_at
        self.once = once
        for module, name in OPERATIONS:
            monkeypatch.setattr(module, name, self.wrap(getattr(module, name)))
        monkeypatch.setattr(builtins, "open", io.open)

    def wrap(self, real):
        def operation(*args, **kwargs):
            self.count += 1
            if self.count == self.fail_at or (
                not self.once and self.count > (self.fail_at or math.inf)
            ):
                raise OSError(28, "No space left on device")
            return real(*args, **kwargs)

        return operation


def test_save_and_newest(tmp_path):
    assert newest(tmp_path) is None and newest(tmp_path / "nowhere") is None
    path = save(tmp_path / "deep", 3, files(3))
    assert newest(tmp_path / "deep") == (3, path) and content(path) == 3
    assert (path / "policy" / "inner" / "weights").read_bytes() == b"w" * 1000
    listed = json.loads((path / MANIFEST).read_text())["sha256"]
    assert sorted(listed) == [
        "policy/config.json",
        "policy/inner/weights",
        "rng",
        "state.json",
    ]
    assert (
        listed["policy/config.json"]
        == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    )


@pytest.mark.parametrize("once", [True, False])
def test_a_failure_at_any_file_operation_leaves_a_whole_state(tmp_path, start, once):
    def attempt(name, fail_at=None):
        folder = shutil.copytree(start, tmp_path / name)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, fail_at, once)
            try:
                saved = save(folder, 3, files(3)) is not None
            except OSError:
                saved = False
        return folder, disk.count, saved

    _, count, saved = attempt("counted")
    assert saved and count >= 40
    failures = 0
    for fail_at in range(1, count + 1):
        folder, _, saved = attempt(f"case{fail_at}", fail_at)
        failures += not saved
        with warnings.catch_warnings():
            warnings.simplefilter(
                "error"
            )  # nothing half written goes by a checkpoint's name
            step, path = newest(folder)
        assert (
            step in ((3,) if saved else (2, 3))
            and content(path) == step
            and damage(path) is None
        )
        save(folder, 4, files(4))  # the next save works and clears up
        assert newest(folder)[0] == 4 and not list(folder.glob(".tmp-*"))
    assert failures > 35  # the others fail in peace: making a folder that is there


@pytest.mark.parametrize("how", ["flip", "truncate", "empty", "missing"])
def test_damage_is_found_and_the_older_one_used_with_a_warning(tmp_path, start, how):
    rng = random.Random(how)
    for case in range(25):
        folder = shutil.copytree(start, tmp_path / str(case))
        path = folder / "step-00000002"
        victim = rng.choice(sorted(p for p in path.rglob("*") if p.is_file()))
        data = bytearray(victim.read_bytes())
        if how == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        victim.write_bytes(
            {"truncate": data[: rng.randrange(len(data))], "empty": b""}.get(how, data)
        )
        if how == "missing":
            victim.unlink()
        assert damage(path) is not None
        with pytest.warns(UserWarning, match="step-00000002"):
            assert newest(folder) == (1, folder / "step-00000001")


@pytest.mark.parametrize(
    "manifest",
    [b"", b"\xff", b"[]", b"{}", b'{"step": "x", "files": {}}', b'{"step": 1}'],
)
def test_a_damaged_run_never_starts_afresh(start, manifest):
    (start / "step-00000001" / MANIFEST).write_bytes(manifest)
    (start / "step-00000002" / "rng").write_bytes(b"\x00\x02")
    with (
        warnings.catch_warnings(record=True) as said,
        pytest.raises(FileNotFoundError, match="step-00000001"),
    ):
        newest(start)
    assert "rng changed since it was written" in str(
        said[0].message
    ) and "it cannot be read" in str(said[1].message)


def test_the_newest_are_kept_and_the_damaged_that_a_run_went_back_from_are_not(
    tmp_path,
):
    for step in (1, 2, 9, 10, 11):
        save(tmp_path, step, files(step), keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000010",
        "step-00000011",
    ]
    for step in (12, 13, 14):
        (save(tmp_path, step, files(step), keep=4) / "rng").write_bytes(b"")
    with pytest.warns(UserWarning, match="damaged"):
        assert newest(tmp_path)[0] == 11
    assert damage(save(tmp_path, 12, files(12))) is None, (
        "in the place of the damaged one"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step-00000011",
        "step-00000012",
    ]
