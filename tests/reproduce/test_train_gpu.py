"""The notebook for real models, on the embedded backbone: it estimates, trains, answers and exports."""

from pathlib import Path

import mirror
import nbformat
import papermill
import pytest
import torch

from coevolve import policies

ROOT = Path(__file__).resolve().parents[2]


def execute(folder: Path, **parameters: str) -> str:
    """Run the notebook on the embedded backbone and return what it printed; the run lies in `folder`/run."""
    papermill.execute_notebook(
        ROOT / "notebooks/train_gpu.ipynb",
        folder / "done.ipynb",
        cwd=ROOT / "notebooks",
        progress_bar=False,
        parameters={
            "model": "tiny",
            "engine": "torch",
            "lora": "[4, 8, 0.0]",
            "out": str(folder / "run"),
            **parameters,
        },
    )
    return "".join(
        output.get("text", "")
        for cell in nbformat.read(folder / "done.ipynb", 4).cells
        for output in cell.get("outputs", ())
    )


@pytest.mark.timeout(600)
def test_the_notebook_runs_on_a_laptop(tmp_path, monkeypatch):
    monkeypatch.setenv("COEVOLVE_DATA", str(mirror.sums(tmp_path / "mirror")))
    overrides = '{"steps": 2, "batch_size": 4, "eval_items": 2, "attempts": 1, "solves": 1, "learning_rate": 0.003}'
    text = execute(tmp_path, preset="quick", world="data:gsm8k", overrides=overrides)
    assert "s a step" in text and "trained tokens/s" in text
    assert policies.load(str(tmp_path / "run" / "merged")).model.dtype == torch.float32, "loaded as float32"
    assert (tmp_path / "run" / "policy" / "adapter_config.json").is_file()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("protocol", "lora", "overrides"),
    [
        ("base", "[4, 8, 0.0]", '{"steps": 50, "eval_items": 2}'),
        ("sft", "[]", '{"eval_items": 2, "sft_batch": 256}'),
    ],
)
def test_the_notebook_runs_baselines_that_take_no_steps_of_ours(protocol, lora, overrides, tmp_path):
    text = execute(tmp_path, protocol=protocol, preset="smoke", world="tiny", lora=lora, overrides=overrides)
    assert f"{protocol} takes none of our steps" in text and "s a step" not in text
    assert policies.load(str(tmp_path / "run" / "merged")).vocabulary > 0
