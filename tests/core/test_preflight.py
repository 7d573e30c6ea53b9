"""Checks before a run: one line before anything loads, nothing written, the hub asked once."""

import json
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
from data_files import OWN
from huggingface_hub import constants, errors

from coevolve.models.names import find, locate
from coevolve.runs import record
from coevolve.training import config, preflight


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """Replace the hub, whose cache is empty; it answers with the error set as side effect."""
    get_metadata = Mock()
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", get_metadata)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return get_metadata


def refusal(folder: Path, method: str = OWN, **overrides: object) -> str:
    """Return the line that refuses a run; nothing is written."""
    out = folder / "deep" / "run"
    run = config.build(method, "smoke", out=out, overrides=overrides)
    with pytest.raises(ValueError) as error:
        preflight.check(run)
    assert "\n" not in str(error.value)
    assert not out.parent.exists()
    return str(error.value)


HUB_ERRORS = [
    errors.OfflineModeIsEnabled("Cannot\nreach it."),
    errors.HTTPError("[Errno -2]"),
    TimeoutError(),
    errors.RepositoryNotFoundError("no\nmore", response=Mock(headers={})),
    errors.GatedRepoError("no\nmore", response=Mock(headers={})),
    errors.RemoteEntryNotFoundError("no\nmore", response=Mock(headers={})),
]


class TestHub:
    """Models and data sets that are asked for."""

    @pytest.mark.parametrize(
        "error", HUB_ERRORS, ids=lambda error: type(error).__name__
    )
    def test_a_model_of_the_hub_is_asked_for_once(
        self, error: Exception, hub: Mock, tmp_path: Path
    ) -> None:
        hub.side_effect = error
        url = "https://huggingface.co/Org/Nope-3B/resolve/main/config.json"
        assert refusal(tmp_path, model="Org/Nope-3B") == (
            "model 'Org/Nope-3B' cannot be had from the hub: "
            f"{type(error).__name__} at {url}; "
            "a gated or private model needs HF_TOKEN"
        )
        hub.assert_called_once_with(url, timeout=preflight.HUB_TIMEOUT_SECONDS)

    @pytest.mark.parametrize(
        "error", HUB_ERRORS, ids=lambda error: type(error).__name__
    )
    def test_a_data_set_is_asked_for_at_its_address(
        self, error: Exception, hub: Mock
    ) -> None:
        hub.side_effect = error
        reason = preflight.why_hub_cannot_serve("Org/Nope", "dataset", "README.md")
        assert "datasets/Org/Nope" in reason

    def test_local_and_cached_models_need_no_hub(
        self, hub: Mock, tmp_path: Path
    ) -> None:
        cached = tmp_path / "cache" / "models--Org--Here-3B"
        snapshot = cached / "snapshots" / "abc"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
        (cached / "refs").mkdir()
        (cached / "refs" / "main").write_text("abc")
        for name in ("tiny", str(find("tiny")), "Org/Here-3B"):
            preflight.check_model(name)
        hub.assert_not_called()

    def test_a_check_that_passes_writes_nothing(
        self, hub: Mock, tmp_path: Path
    ) -> None:
        preflight.check(config.build(OWN, "smoke", out=tmp_path / "deep" / "run"))
        assert not (tmp_path / "deep").exists()

    def test_the_base_of_an_adapter_is_asked_for(
        self, hub: Mock, tmp_path: Path
    ) -> None:
        adapter = tmp_path / "adapter"
        adapter.mkdir()
        settings = {"base_model_name_or_path": "Org/Base-3B"}
        (adapter / "adapter_config.json").write_text(json.dumps(settings))
        hub.side_effect = TimeoutError
        line = "model 'Org/Base-3B' cannot be had from the hub: Timeout"
        assert refusal(tmp_path, model=str(adapter)).startswith(line)


def refusal_without_package(
    package: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **field: str
) -> str:
    """Return the line that refuses a run where one package is not installed."""

    def find_spec(name: str) -> str | None:
        return None if name == package else name

    monkeypatch.setattr(preflight, "find_spec", find_spec)
    return refusal(folder, model="no such model", **field)


@pytest.mark.parametrize("engine", ["vllm", "unsloth", "unsloth+vllm"])
def test_an_engine_that_is_not_installed(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = engine.split("+")[-1]
    line = refusal_without_package(package, tmp_path, monkeypatch, engine=engine)
    assert line == (
        f"engine {engine!r} needs the package {package}, which is not installed; "
        "docs/gpu.md says how"
    )


@pytest.mark.parametrize("tracker", ["tensorboard", "trackio", "wandb"])
def test_a_tracker_that_is_not_installed(
    tracker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = refusal_without_package(tracker, tmp_path, monkeypatch, track=tracker)
    assert line == (
        f"track {tracker!r} needs the package {tracker}, which is not installed; "
        "pip install it"
    )


@pytest.mark.parametrize("place", ["file", "file/run"])
def test_a_file_cannot_hold_a_run(place: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    line = f"^out must be a folder that can be written, and {file} is not$"
    with pytest.raises(ValueError, match=line):
        preflight.check(config.build(OWN, "smoke", out=tmp_path / place))
    assert file.read_text() == "mine"


def test_a_folder_must_be_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The user root may write anywhere.
    monkeypatch.setattr(preflight.os, "access", lambda path, mode: False)
    line = f"out must be a folder that can be written, and {tmp_path} is not"
    assert refusal(tmp_path) == line


@pytest.mark.parametrize("holds", ["a run", "an adapter"])
def test_an_embedded_model_comes_before_a_folder_of_its_name(
    holds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiny"
    policy = folder / "policy"
    if holds == "a run":
        policy.mkdir(parents=True)
        record.write_json(folder / "config.json", {"method_fields": {}})
        record.write_json(policy / "config.json", {})
    else:
        policy = folder
        policy.mkdir()
        record.write_json(policy / "config.json", {})
        adapter = {"base_model_name_or_path": "tiny-small"}
        record.write_json(policy / "adapter_config.json", adapter)
    embedded = find("tiny")
    monkeypatch.chdir(tmp_path)
    assert find("tiny") == embedded
    assert locate("tiny").base == embedded
    assert locate("tiny").adapters == ()
    assert find("./tiny").resolve() == policy


def test_an_unfinished_run_called_like_a_model_does_not_hide_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.write_json(tmp_path / "config.json", {"method_fields": {}})
    folder = tmp_path / "tiny"
    folder.mkdir()
    (tmp_path / "config.json").rename(folder / "config.json")
    monkeypatch.chdir(tmp_path)
    preflight.check_model("tiny")


def described(folder: Path, method: str = OWN, **overrides: object) -> config.Run:
    """Return a run whose folder holds its configuration."""
    run = config.build(method, "smoke", out=folder, overrides=overrides)
    record.write_json(folder / "config.json", run.describe())
    return run


class TestSteps:
    """Another number of steps in the folder of a run."""

    @pytest.mark.parametrize("steps", [3, 8])
    @pytest.mark.parametrize("schedule", ["linear", "cosine"])
    def test_a_rate_that_falls_to_the_last_step_keeps_it(
        self, schedule: str, steps: int, tmp_path: Path
    ) -> None:
        fields = {"schedule": schedule, "steps": 4}
        preflight.check_same_run(described(tmp_path, **fields), tmp_path)
        fields["steps"] = steps
        other = config.build(OWN, "smoke", out=tmp_path, overrides=fields)
        line = rf"steps 4 there, {steps} now \(schedule '{schedule}' depends on them"
        with pytest.raises(ValueError, match=line):
            preflight.check_same_run(other, tmp_path)

    def test_a_constant_rate_goes_on(self, tmp_path: Path) -> None:
        described(tmp_path, steps=4)
        longer = config.build(OWN, "smoke", out=tmp_path, overrides={"steps": 8})
        preflight.check_same_run(longer, tmp_path)

    @pytest.mark.parametrize(
        ("method", "fields", "can_be_extended"),
        [
            ("mae", {}, True),
            ("mae", {"schedule": "linear"}, False),
            ("sft", {}, False),
            ("base", {}, False),
        ],
        ids=["constant", "linear", "its own trainer", "trains nothing"],
    )
    def test_more_steps_are_advised_where_they_train_on(
        self,
        method: str,
        fields: dict,
        can_be_extended: bool,
        tmp_path: Path,
        capsys: pytest.CaptureFixture,
    ) -> None:
        run = described(tmp_path, method, **fields)
        record.write_json(tmp_path / "summary.json", {"steps": run.steps})
        assert preflight.is_finished(run)
        line = capsys.readouterr().out
        assert "is already finished" in line
        assert ("steps=N" in line) == can_be_extended
