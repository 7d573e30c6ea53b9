"""What a run needs from outside: one line before anything loads, nothing written, the hub asked once."""

import json
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants, errors

from coevolve import config, preflight
from coevolve.policies import load
from tinyworld.recipe import BACKBONES

CLOSED = "http://127.0.0.1:1/v1#judge-1"
OWN = f"{Path(__file__).with_name('own_method.py')}:Debate"


class Hub:
    """Stands in for the hub: which files were asked for, and the error that it answers with."""

    def __init__(self) -> None:
        self.asked, self.error = [], None

    def __call__(self, url: str, *, timeout: float, **_: object) -> None:
        self.asked.append((url.removeprefix("https://huggingface.co/"), timeout))
        if self.error:
            raise self.error


def answered(kind: type, status: int) -> Exception:
    """An error of the hub with the answer that it came with."""
    answer = type("Answer", (), {"status_code": status, "headers": {}, "request": None})()
    return kind("no\nmore", response=answer)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    made = Hub()
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


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (answered(errors.RepositoryNotFoundError, 401), "RepositoryNotFoundError"),
        (answered(errors.GatedRepoError, 403), "GatedRepoError"),
        (answered(errors.RemoteEntryNotFoundError, 404), "RemoteEntryNotFoundError"),
        (errors.OfflineModeIsEnabled("Cannot\nreach it."), "OfflineModeIsEnabled"),
        (errors.HTTPError("[Errno -2] Name or service not known"), "HTTPError"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_a_model_of_the_hub_is_asked_for_once(error: Exception, why: str, hub: Hub, tmp_path: Path) -> None:
    hub.error = error
    line = f"model 'Org/Nope-3B' cannot be had from the hub: {why} at https://huggingface.co/Org/Nope-3B/resolve/main/"
    assert refused(tmp_path, model="Org/Nope-3B") == f"{line}config.json; a gated or private model needs HF_TOKEN"
    assert hub.asked == [("Org/Nope-3B/resolve/main/config.json", preflight.SECONDS)]
    assert "datasets/Org/Nope" in preflight.ask("Org/Nope", "dataset", "README.md")


def test_what_needs_no_hub_asks_none(hub: Hub, tmp_path: Path) -> None:
    base = tmp_path / "cache" / "models--Org--Here-3B"
    (base / "refs").mkdir(parents=True), (base / "snapshots" / "abc").mkdir(parents=True)
    (base / "refs" / "main").write_text("abc")
    (base / "snapshots" / "abc" / "config.json").write_text("{}")
    for name in ("tiny", str(BACKBONES / "tiny"), "Org/Here-3B"):
        preflight.model(name)
    assert hub.asked == []
    preflight.check(config.build(OWN, "smoke", out=tmp_path / "deep" / "run"))
    assert not (tmp_path / "deep").exists()


def test_an_adapters_base_is_asked_for_and_another_engine_wants_it_merged(hub: Hub, tmp_path: Path) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Org/Base-3B"}))
    hub.error = answered(errors.GatedRepoError, 403)
    assert refused(tmp_path, model=str(adapter)).startswith("model 'Org/Base-3B' cannot be had from the hub: Gated")
    run = config.build(OWN, "smoke", out=tmp_path / "run", overrides={"model": str(adapter), "engine": "vllm"})
    with pytest.MonkeyPatch.context() as installed, pytest.raises(ValueError, match="is an adapter; merge it with"):
        installed.setattr(preflight, "find_spec", lambda package: package)
        preflight.check(run)


@pytest.mark.parametrize("field", ["engine", "track"])
@pytest.mark.parametrize("value", ["vllm", "unsloth", "unsloth+vllm", "tensorboard", "trackio", "wandb"])
def test_a_package_that_is_not_installed(
    field: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = value.split("+")[-1]
    if (missing in ("vllm", "unsloth")) is (field == "engine"):
        monkeypatch.setattr(preflight, "find_spec", lambda package: None if package == missing else package)
        line = f"{field} {value!r} needs the package {missing}, which is not installed"
        assert refused(tmp_path, model="no such model", **{field: value}) == line


@pytest.mark.parametrize("name", ["missing", ".", "a/b/c"])
def test_a_model_that_is_nowhere(name: str, tmp_path: Path) -> None:
    line = refused(tmp_path, model=name)
    assert line.startswith("model must be one of tiny-small, tiny,") and line.endswith(f"got {name!r}")


def test_a_server_that_nobody_keeps(tmp_path: Path) -> None:
    line = refused(tmp_path, "mae", judge_model=CLOSED)
    assert f"model '{CLOSED}': no server answers at http://127.0.0.1:1/v1" in line


def test_a_worlds_own_check_is_asked(tmp_path: Path) -> None:
    class Away:
        name = "away"

        def check(self) -> None:
            raise ValueError("gsm8k cannot be had")

    run = config.build(OWN, "smoke", out=tmp_path / "run")
    run.protocol.world = Away()
    with pytest.raises(ValueError, match="^gsm8k cannot be had$"):
        preflight.check(run)


def test_a_folder_that_cannot_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "run"):
        with pytest.raises(ValueError, match=f"^out must be a folder that can be written, and {file} is not$"):
            preflight.check(config.build(OWN, "smoke", out=out))
    monkeypatch.setattr(preflight.os, "access", lambda place, mode: False)  # root may write anywhere
    assert refused(tmp_path) == f"out must be a folder that can be written, and {tmp_path} is not"
    assert file.read_text() == "mine"


def test_a_model_without_a_chat_template_is_named_when_it_loads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in (BACKBONES / "tiny").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "chat_template.jinja").unlink(missing_ok=True)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    settings.pop("chat_template", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    monkeypatch.setattr("coevolve.policies.causal.AutoModelForCausalLM", None)  # the weights are not read
    with pytest.raises(ValueError, match=r"^model '.*' cannot be loaded: its tokenizer has no chat template, [^\n]*$"):
        load(str(tmp_path))
