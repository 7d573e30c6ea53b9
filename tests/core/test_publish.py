"""An exported policy on the hub: its card, and the one line that says why it was not taken."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import huggingface_hub
import pytest

from coevolve.cli import main
from coevolve.runs import publish

SETTINGS = {
    "method": "mae",
    "model": "Qwen/Qwen2.5-3B-Instruct",
    "steps": 50,
    "batch_size": 32,
    "learning_rate": 1e-5,
    "seed": 3,
    "method_fields": {},
}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """The policy of a finished run, without weights."""
    run = tmp_path / "run"
    (run / "policy" / "left").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps(SETTINGS))
    (run / "metrics.jsonl").touch()
    counts = {"before": {"k": 10, "n": 40}, "after": {"k": 15, "n": 40}}
    (run / "summary.json").write_text(json.dumps({"held_out": counts}))
    return run / "policy"


@pytest.mark.parametrize("name", ["", "left", ".."])
def test_the_card_says_what_was_trained_and_how_it_scored(
    name: str, policy: Path
) -> None:
    text = publish.card(policy / name, "me/better")
    assert text.startswith("---\nlibrary_name: transformers\n")
    assert 'base_model: ["Qwen/Qwen2.5-3B-Instruct"]' in text
    assert "# me/better" in text
    assert "trained by mae with coevolve: 50 steps of 32 episodes" in text
    assert "learning rate 1e-05, seed 3" in text
    assert "| before training | 10 | 40 |" in text
    assert "| after training | 15 | 40 |" in text


def test_an_unfinished_run_has_no_scores(policy: Path) -> None:
    (policy.parent / "summary.json").unlink()
    assert "The run had not finished" in publish.card(policy, "me/better")


def test_a_policy_without_its_run_says_so(tmp_path: Path) -> None:
    assert "its run is not known" in publish.card(tmp_path / "x" / "y", "me/better")


def test_a_folder_is_uploaded_with_its_card(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Mock()
    api.create_repo.return_value = "https://hub/me/better"
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    exported = tmp_path / "exported"
    exported.mkdir()
    assert publish.push(exported, policy, "me/better") == "https://hub/me/better"
    api.create_repo.assert_called_once_with("me/better", private=True, exist_ok=True)
    api.upload_folder.assert_called_once_with(repo_id="me/better", folder_path=exported)
    assert (exported / "README.md").read_text() == publish.card(policy, "me/better")


def test_a_hub_that_refuses_is_one_line(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = Mock()
    api.create_repo.side_effect = OSError("403\nForbidden")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
    with pytest.raises(ConnectionError, match="^--push me/better: 403 Forbidden$"):
        publish.push(tmp_path, policy, "me/better")


REFUSED: list[tuple[str, Any, str]] = [
    ("better", "a token", "--push must be ORG/NAME, got 'better'"),
    ("me/better", None, "--push me/better: nobody is logged in; set HF_TOKEN"),
]


@pytest.mark.parametrize(("name", "token", "line"), REFUSED)
def test_a_push_that_cannot_work_is_refused_before_anything_loads(  # noqa: PLR0913
    name: str,
    token: str | None,
    line: str,
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: token)
    command = ["export", str(policy), "--to", str(tmp_path / "new"), "--push", name]
    assert main(command) == 2
    assert line in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
