"""What a run needs from outside: one line before anything loads, no folder left, the hub asked once."""

import json
import sys
from pathlib import Path

import huggingface_hub
import mirror
import pytest
from huggingface_hub import constants, errors

from coevolve import config, preflight
from coevolve.__main__ import main
from coevolve.policies import load
from published.data import check
from tinyworld.recipe import BACKBONES

CLOSED = "http://127.0.0.1:1/v1#judge-1"


class Hub:
    """Stands in for the hub: which files were asked for, and the error that it answers with."""

    def __init__(self) -> None:
        self.asked, self.error = [], None

    def __call__(self, url: str, *, timeout: float, **_: object) -> None:
        self.asked.append((url.removeprefix("https://huggingface.co/"), timeout))
        if self.error:
            raise self.error


def refused(kind: type, status: int) -> Exception:
    """An error of the hub with the answer that it came with."""
    answer = type("Answer", (), {"status_code": status, "headers": {}, "request": None})()
    return kind("no\nmore", response=answer)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    made = Hub()
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", made)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.file_download.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    monkeypatch.delenv("COEVOLVE_DATA", raising=False)
    return made


ANSWERS = {  # what the hub says of a model, and what the user reads
    "none": (refused(errors.RepositoryNotFoundError, 401), "is no model of the hub, or a private one (set HF_TOKEN)"),
    "gated": (
        refused(errors.GatedRepoError, 403),
        "is gated: accept its conditions on https://huggingface.co/Org/Nope-3B, then set HF_TOKEN",
    ),
    "no model": (refused(errors.RemoteEntryNotFoundError, 404), "holds no config.json"),
    "nobody": (
        errors.HTTPError("[Errno -2] Name or service not known"),
        "is not in the cache, and the hub cannot be reached ([Errno -2] Name or service not known)",
    ),
    "too late": (TimeoutError(), "is not in the cache, and the hub cannot be reached (TimeoutError)"),
}


@pytest.fixture
def nothing_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model and no data may be read."""
    import coevolve.loop  # noqa: F401

    monkeypatch.setattr(sys.modules["coevolve.loop"], "Team", None)
    monkeypatch.setattr("published.world.items", None)
    monkeypatch.setattr("tinyworld.oracle.TinyWorld.items", None)


def said(out: Path, capsys: pytest.CaptureFixture, *fields: str) -> str:
    """The one line that a run which cannot start prints; its folder, and the folders above it, are not made."""
    assert main(["train", "mae", "--preset", "smoke", "--out", str(out / "deep" / "run"), *fields]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1 and captured.err.startswith("coevolve: ")
    assert not (out / "deep").exists()
    return captured.err


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.usefixtures("nothing_loads")
def test_a_model_of_the_hub_is_asked_for_once(
    name: str, hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    hub.error, line = ANSWERS[name]
    assert f"model 'Org/Nope-3B' {line}" in said(tmp_path, capsys, "model=Org/Nope-3B", "world=data:gsm8k")
    assert hub.asked == [("Org/Nope-3B/resolve/main/config.json", 10)]


@pytest.mark.usefixtures("nothing_loads")
def test_offline_is_said_as_such(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub.error = errors.OfflineModeIsEnabled("Cannot reach it.")
    line = "is not in the cache, and HF_HUB_OFFLINE forbids asking the hub"
    assert line in said(tmp_path, capsys, "model=Org/Nope-3B")
    assert f"gsm8k {line}; a copy can stand in COEVOLVE_DATA/gsm8k" in said(tmp_path, capsys, "world=data:gsm8k")


def test_what_needs_no_hub_asks_none(hub: Hub, tmp_path: Path) -> None:
    base = tmp_path / "cache" / "models--Org--Nope-3B"
    (base / "refs").mkdir(parents=True), (base / "snapshots" / "abc").mkdir(parents=True)
    (base / "refs" / "main").write_text("abc")
    (base / "snapshots" / "abc" / "config.json").write_text("{}")
    preflight.model("tiny"), preflight.model(str(BACKBONES / "tiny")), preflight.model(CLOSED)
    assert hub.asked == []
    preflight.model("Org/Nope-3B")
    assert len(hub.asked) == 1, "a configuration without weights is no model"
    (base / "snapshots" / "abc" / "model.safetensors.index.json").write_text("{}")
    preflight.model("Org/Nope-3B")
    assert len(hub.asked) == 1


def test_an_adapters_base_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "Org/Base-3B"}))
    hub.error = refused(errors.GatedRepoError, 403)
    with pytest.raises(ValueError, match="^model 'Org/Base-3B' is gated"):
        preflight.model(str(tmp_path))


def test_a_busy_hub_is_left_to_the_download(hub: Hub) -> None:
    hub.error = refused(errors.HfHubHTTPError, 429)
    preflight.model("Org/Nope-3B")
    check("gsm8k")
    assert len(hub.asked) == 2


@pytest.mark.usefixtures("nothing_loads")
def test_all_data_sets_are_asked_for_before_one_is_read(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", str(mirror.sums(tmp_path / "mirror")))
    fields = "world=data:gsm8k,gpqa_main"
    hub.error = refused(errors.GatedRepoError, 401)
    page = "https://huggingface.co/datasets/Idavidrein/gpqa"
    assert f"gpqa_main is gated: accept its conditions on {page}, then set HF_TOKEN" in said(tmp_path, capsys, fields)
    hub.error = errors.HTTPError("nobody there")
    line = said(tmp_path, capsys, fields)
    assert "gpqa_main is not in the cache, and the hub cannot be reached (nobody there)" in line and "gated" not in line
    assert [url for url, _ in hub.asked] == ["datasets/Idavidrein/gpqa/resolve/main/README.md"] * 2
    (tmp_path / "datasets" / "Idavidrein___gpqa").mkdir(parents=True)
    check("gpqa_main")
    assert len(hub.asked) == 2, "a set that an earlier run has downloaded is there"


@pytest.mark.parametrize("kind", ["vllm", "unsloth", "unsloth+vllm"])
@pytest.mark.usefixtures("nothing_loads")
def test_an_engine_that_is_not_installed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    missing = kind.split("+")[-1]
    monkeypatch.setattr(preflight, "find_spec", lambda package: None if package == missing else package)
    line = f"engine '{kind}' needs the package {missing}, which is not installed"
    assert line in said(tmp_path, capsys, f"engine={kind}")
    preflight.engine("torch")


@pytest.mark.usefixtures("nothing_loads")
def test_a_server_that_nobody_keeps(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    line = said(tmp_path, capsys, f"judge_model={CLOSED}")
    assert f"model '{CLOSED}': no server answers at http://127.0.0.1:1/v1" in line


def test_a_folder_made_for_a_run_that_does_not_start_is_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def small(run: config.Run) -> None:
        assert run.out.is_dir()
        raise ValueError("model: the run wants about 60 GiB and this has 8")

    monkeypatch.setattr("coevolve.policies.memory.check", small)
    assert "the run wants about 60 GiB" in said(tmp_path, capsys)
    (tmp_path / "mine").mkdir()
    assert main(["train", "mae", "--preset", "smoke", "--out", str(tmp_path / "mine")]) == 2
    assert (tmp_path / "mine").is_dir(), "a folder that was there stays"


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
