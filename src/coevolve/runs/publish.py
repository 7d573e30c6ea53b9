"""Publishes an exported policy on the hub, with a model card made from its run's files."""

import json
from pathlib import Path
from typing import Any

from coevolve.runs import record
from coevolve.validation import user_path

CONFIG = "config.json"
CARD = "README.md"
SENTENCE = (
    "{bases}, trained by {method} with coevolve: {steps} steps of {batch_size} episodes, "
    "learning rate {learning_rate:g}, seed {seed}."
)
HOW_TO_LOG_IN = "set HF_TOKEN to a token that may write, or run: hf auth login"


def check(repository: str) -> None:
    """Raise ValueError in one line unless a repository can be named, and somebody is logged in."""
    from huggingface_hub import get_token

    if not is_hub_id(repository):
        raise ValueError(f"--push must be ORG/NAME, got {repository!r}")
    if get_token() is None:
        raise ValueError(f"--push {repository}: nobody is logged in; {HOW_TO_LOG_IN}")


def is_hub_id(name: str) -> bool:
    """Whether a name is ORG/NAME, as the hub writes it, and no folder."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return "/" in name and not user_path(name).exists()


def card(policy: str | Path, repository: str) -> str:
    """Return the model card of a policy: what it was trained on, how, and how it scored.

    A policy without a run's files gets a card that says so.
    """
    run = record.run_of(policy)
    if run is None:
        return f"# {repository}\n\nExported by coevolve from {policy}; its run is not known.\n"
    settings = json.loads((run / CONFIG).read_bytes())
    models = settings["model"]
    bases = [models] if isinstance(models, str) else models
    lines = ["---", "library_name: transformers", "tags: [coevolve, self-play]"]
    hub_bases = [base for base in bases if is_hub_id(base)]
    if hub_bases:
        lines.append(f"base_model: {json.dumps(hub_bases)}")
    lines += ["---", "", f"# {repository}", ""]
    base_names = ", ".join(bases)
    lines.append(SENTENCE.format(bases=base_names, **settings))
    lines.append("")
    lines += _accuracy(run)
    settings_as_json = json.dumps(settings, indent=1)
    lines += ["## Settings", "", "```json", settings_as_json, "```", ""]
    return "\n".join(lines)


def _accuracy(run: Path) -> list[str]:
    """Return a table of the accuracy on the test questions; nothing of an unfinished run."""
    file = run / "summary.json"
    if not file.is_file():
        return ["The run had not finished when this was exported.", ""]
    held_out: dict[str, Any] = json.loads(file.read_bytes())["held_out"]
    lines = ["| test questions | correct | of |", "|---|---|---|"]
    for stage, counts in held_out.items():
        lines.append(f"| {stage} training | {counts['k']} | {counts['n']} |")
    return [*lines, ""]


def push(folder: Path, policy: str | Path, repository: str) -> str:
    """Upload an exported folder with its card to a private repository; return its address.

    Raises ConnectionError in one line if the hub does not take it.
    """
    from huggingface_hub import HfApi

    (folder / CARD).write_text(card(policy, repository), encoding="utf-8")
    api = HfApi()
    try:
        address = api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder)
    except (OSError, ValueError) as error:  # the hub's errors are kinds of OSError
        reason = " ".join(str(error).split())[:300]
        raise ConnectionError(f"--push {repository}: {reason}") from error
    return str(address)
