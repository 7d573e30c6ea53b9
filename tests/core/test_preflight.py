"""What a run needs from outside: one line before anything loads, nothing written, the hub asked once."""

import json
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from coevolve.models.names import find
from coevolve.training import config, preflight

OWN = f"{Path(__file__).with_name('own_method.py')}:Debate"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """Stands in for the hub, which answers with the error that is set as its side effect."""
    made = Mock()
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", made)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return made


def refused(out: Path, method: str = OWN, **overrides: object) -> str:
    """The one line with which a run is refused; nothing is made."""
    run = config.build(method, "smoke", out=out / "deep" / "run", overrides=overrides)
    with pytest.raises(ValueError) as error:
        preflight.check(run)
    assert "\n" not in str(error.value) and not (out / "deep").exists()
    return str(error.value)


SENT = [errors.OfflineModeIsEnabled("Cannot\nreach it."), errors.HTTPError("[Errno -2]"), TimeoutError()]
REFUSALS = (errors.RepositoryNotFoundError, errors.GatedRepoError, errors.RemoteEntryNotFoundError)
SENT += [kind("no\nmore", response=Mock(headers={})) for kind in REFUSALS]


@pytest.mark.parametrize("error", SENT, ids=lambda error: type(error).__name__)
def test_a_model_of_the_hub_is_asked_for_once(error: Exception, hub: Mock, tmp_path: Path) -> None:
    hub.side_effect = error
    url = "https://huggingface.co/Org/Nope-3B/resolve/main/config.json"
    line = f"model 'Org/Nope-3B' cannot be had from the hub: {type(error).__name__} at {url}"
    assert refused(tmp_path, model="Org/Nope-3B") == f"{line}; a gated or private model needs HF_TOKEN"
    hub.assert_called_once_with(url, timeout=preflight.HUB_TIMEOUT_SECONDS)
    assert "datasets/Org/Nope" in preflight.why_hub_cannot_serve("Org/Nope", "dataset", "README.md")


def test_what_needs_no_hub_asks_none(hub: Mock, tmp_path: Path) -> None:
    base = tmp_path / "cache" / "models--Org--Here-3B"
    (base / "refs").mkdir(parents=True), (base / "snapshots" / "abc").mkdir(parents=True)
    (base / "refs" / "main").write_text("abc")
    (base / "snapshots" / "abc" / "config.json").write_text("{}")
    for name in ("tiny", str(find("tiny")), "Org/Here-3B"):
        preflight.check_model(name)
    hub.assert_not_called()
    preflight.check(config.build(OWN, "smoke", out=tmp_path / "deep" / "run"))
    assert not (tmp_path / "deep").exists()


def test_an_adapters_base_is_asked_for(hub: Mock, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Org/Base-3B"}))
    hub.side_effect = TimeoutError
    assert refused(tmp_path, model=str(adapter)).startswith("model 'Org/Base-3B' cannot be had from the hub: Timeout")


PACKAGES = {"docs/gpu.md says how": "vllm unsloth unsloth+vllm", "pip install it": "tensorboard trackio wandb"}


@pytest.mark.parametrize(("value", "how"), [(value, how) for how in PACKAGES for value in PACKAGES[how].split()])
def test_a_package_that_is_not_installed(value: str, how: str, tmp_path: Path, monkeypatch) -> None:
    field, missing = "track" if "pip" in how else "engine", value.split("+")[-1]
    monkeypatch.setattr(preflight, "find_spec", lambda package: None if package == missing else package)
    line = f"{field} {value!r} needs the package {missing}, which is not installed; {how}"
    assert refused(tmp_path, model="no such model", **{field: value}) == line


def test_a_folder_that_cannot_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "run"):
        with pytest.raises(ValueError, match=f"^out must be a folder that can be written, and {file} is not$"):
            preflight.check(config.build(OWN, "smoke", out=out))
    monkeypatch.setattr(preflight.os, "access", lambda place, mode: False)  # root may write anywhere
    assert refused(tmp_path) == f"out must be a folder that can be written, and {tmp_path} is not"
    assert file.read_text() == "mine"
