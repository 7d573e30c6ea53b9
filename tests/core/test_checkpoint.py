"""Checkpoints: whole after a crash or a full disk at any point, damage found, optimisers restored exactly."""

import builtins
import io
import json
import math
import os
import pickle
import random
import shutil
import warnings

import pytest
import torch

from coevolve.checkpoint import MANIFEST, damage, load_optimizer, newest, save, save_optimizer

OPERATIONS = [(os, name) for name in ("mkdir", "rename", "unlink", "rmdir", "fsync", "open")] + [(io, "open")]


def tree(path):
    (path / "inner").mkdir(parents=True)
    (path / "config.json").write_text("{}")
    (path / "inner" / "weights").write_bytes(b"w" * 1000)


def files(step):
    state = json.dumps({"step": step, "pool": [1, 2]}).encode()
    return {"policy": tree, "state.json": state, "rng": b"\x00\x01"}


def content(path):
    return json.loads((path / "state.json").read_text())["step"]


class Disk:
    """Counts file operations and fails from the n-th on: just once (a full disk) or for ever (a kill)."""

    def __init__(self, monkeypatch, fail_at=None, once=False):
        self.count, self.fail_at, self.once = 0, fail_at, once
        for module, name in OPERATIONS:
            monkeypatch.setattr(module, name, self.wrap(getattr(module, name)))
        monkeypatch.setattr(builtins, "open", io.open)

    def wrap(self, real):
        def operation(*args, **kwargs):
            self.count += 1
            if self.count == self.fail_at or (not self.once and self.count > (self.fail_at or math.inf)):
                raise OSError(28, "No space left on device")
            return real(*args, **kwargs)

        return operation


def test_save_and_newest(tmp_path):
    assert newest(tmp_path) is None and newest(tmp_path / "nowhere") is None
    path = save(tmp_path / "deep", 3, files(3))
    assert newest(tmp_path / "deep") == (3, path) and content(path) == 3
    assert (path / "policy" / "inner" / "weights").read_bytes() == b"w" * 1000
    listed = json.loads((path / MANIFEST).read_text())["files"]
    assert sorted(listed) == ["policy/config.json", "policy/inner/weights", "rng", "state.json"]
    assert listed["rng"]["size"] == 2 and len(listed["rng"]["sha256"]) == 64


@pytest.mark.parametrize("once", [True, False])
def test_a_failure_at_any_file_operation_leaves_a_whole_state(tmp_path, once):
    start = tmp_path / "start"
    for step in (1, 2):
        save(start, step, files(step))

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
    assert saved and count >= 50
    failures = 0
    for fail_at in range(1, count + 1):
        folder, _, saved = attempt(f"case{fail_at}", fail_at)
        failures += not saved
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # nothing half written goes by a checkpoint's name
            step, path = newest(folder)
        assert step in ((3,) if saved else (2, 3)) and content(path) == step and damage(path) is None
        save(folder, 4, files(4))  # the next save works and clears up
        assert newest(folder)[0] == 4 and not list(folder.glob(".tmp-*"))
    assert failures > 40  # the others fail in peace: making a folder that is there, verifying an older one


@pytest.mark.parametrize("how", ["flip", "truncate", "empty", "missing"])
def test_damage_is_found_and_the_older_one_used_with_a_warning(tmp_path, how):
    rng, start = random.Random(how), tmp_path / "start"
    for step in (1, 2):
        save(start, step, files(step))
    for case in range(25):
        folder = shutil.copytree(start, tmp_path / str(case))
        path = folder / "step-00000002"
        victim = rng.choice(sorted(p for p in path.rglob("*") if p.is_file()))
        data = bytearray(victim.read_bytes())
        if how == "flip":
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        victim.write_bytes({"truncate": data[: rng.randrange(len(data))], "empty": b""}.get(how, data))
        if how == "missing":
            victim.unlink()
        assert damage(path) is not None
        with pytest.warns(UserWarning, match="step-00000002"):
            assert newest(folder) == (1, folder / "step-00000001")


@pytest.mark.parametrize("manifest", [b"", b"\xff", b"[]", b"{}", b'{"step": "x", "files": {}}', b'{"step": 1}'])
def test_a_damaged_run_never_starts_afresh(tmp_path, manifest):
    for step in (1, 2):
        save(tmp_path, step, files(step))
    (tmp_path / "step-00000001" / MANIFEST).write_bytes(manifest)
    (tmp_path / "step-00000002").rename(tmp_path / "step-00000009")
    with warnings.catch_warnings(record=True) as said, pytest.raises(FileNotFoundError, match="step-00000001"):
        newest(tmp_path)
    assert "is of step 2" in str(said[0].message) and "it cannot be read" in str(said[1].message)


def test_a_damaged_checkpoint_is_replaced_and_a_whole_one_stays(tmp_path):
    save(tmp_path, 1, files(1))
    (save(tmp_path, 2, files(2)) / "rng").unlink()
    again = save(tmp_path, 2, files(2))
    assert newest(tmp_path) == (2, again) and damage(again) is None
    assert save(tmp_path, 2, {"state.json": b"other"}) == again and content(again) == 2


def test_the_newest_whole_ones_are_kept(tmp_path):
    for step in (1, 2, 9, 10, 11):
        save(tmp_path, step, files(step), keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000010", "step-00000011"]
    for step in (12, 13):
        (save(tmp_path, step, files(step), keep=3) / "rng").write_bytes(b"")
    save(tmp_path, 14, files(14))
    assert sorted(path.name[-2:] for path in tmp_path.iterdir()) == ["11", "12", "13", "14"], "11 is the second whole"


def test_a_writer_that_fails_leaves_no_checkpoint(tmp_path):
    with pytest.raises(ZeroDivisionError):
        save(tmp_path, 1, {"state": lambda path: path.write_bytes(b"half") / 0})
    assert newest(tmp_path) is None


def model_and(make):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2, bias=False))
    return model, make(model.parameters())


def steps(model, optimizer, count, seed):
    torch.manual_seed(seed)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(5, 3)).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda p: torch.optim.AdamW(p, lr=0.1 / 3, betas=(0.9, 0.95)),
        lambda p: torch.optim.Adam(p, lr=1e-3, amsgrad=True),
        lambda p: torch.optim.SGD(p, lr=0.1),
    ],
)
def test_an_optimizer_goes_on_bit_for_bit(tmp_path, make):
    model, optimizer = model_and(make)
    steps(model, optimizer, 3, seed=1)
    save_optimizer(tmp_path / "shared.safetensors", optimizer.state_dict())
    twin, restored = model_and(make)
    twin.load_state_dict(model.state_dict())
    restored.param_groups[0]["lr"] = 99.0
    load_optimizer(tmp_path / "shared.safetensors", restored)
    assert restored.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    steps(model, optimizer, 3, seed=2)
    steps(twin, restored, 3, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    with pytest.raises(ValueError, match="doesn't match the size"):
        load_optimizer(tmp_path / "shared.safetensors", make(torch.nn.Linear(3, 5).parameters()))


class Sneaky:
    def __reduce__(self):
        return (print, ("code ran",))


def test_loading_an_optimizer_runs_no_code(tmp_path, capsys):
    save_optimizer(tmp_path / "sneaky", {"state": Sneaky(), "param_groups": []})
    with pytest.raises(pickle.UnpicklingError, match="[Ww]eights"):
        load_optimizer(tmp_path / "sneaky", torch.optim.SGD(torch.nn.Linear(3, 5).parameters()))
    assert capsys.readouterr().out == ""
