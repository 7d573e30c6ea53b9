"""The notebooks that no artefact needs run from start to end: one about the loss, one for real models, one that asks."""

from pathlib import Path

import mirror
import papermill
import pytest
import torch

from coevolve.engines.loading import load_policy
from tools import lab

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

pytestmark = pytest.mark.timeout(600)


def outputs(name: str, folder: Path, **parameters: object) -> tuple[str, list[dict]]:
    """Run a notebook; return what it printed, and what it displayed by type."""
    path = folder / "done.ipynb"
    done = papermill.execute_notebook(NOTEBOOKS / name, path, parameters, cwd=NOTEBOOKS, progress_bar=False)
    found = [output for cell in done.cells for output in cell.get("outputs", ())]
    return "".join(output.get("text", "") for output in found), [output.get("data", {}) for output in found]


def test_the_gradients_of_the_loss_by_hand_agree(tmp_path: Path) -> None:
    _, shown = outputs("kernels.ipynb", tmp_path, tokens=96, vocabulary=300)
    assert sum("image/png" in data for data in shown) == 3
    text = next(data["text/plain"] for data in shown if "largest error" in data.get("text/plain", ""))
    errors = [float(line.split()[-1]) for line in text.splitlines() if "largest error" in line]
    assert len(errors) == 2 and max(errors) < 1e-12


def test_the_first_notebook_trains_all_five_methods(tmp_path: Path) -> None:
    text, shown = outputs("start_here.ipynb", tmp_path, share=0.01, items=1, out=str(tmp_path / "runs"))
    assert "Warning" not in text and sum("image/png" in data for data in shown) == 3
    assert len([*tmp_path.glob("runs/*/summary.json")]) == 5


def test_the_real_models_notebook_trains_in_slices_and_compares_three_models(tmp_path: Path) -> None:
    small = {"model": "tiny", "untouched": "tiny-small", "preset": "smoke", "steps": 2, "every": 1, "items": 1}
    text, shown = outputs("real_model.ipynb", tmp_path, **small, out=str(tmp_path / "run"))
    assert "gain over the warmed model, points: " in text and sum("image/png" in data for data in shown) >= 2
    assert any("step 2" in text and "✓" in text for text in (data.get("text/plain", "") for data in shown))


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.skipif(lab.CHROMIUM is None, reason="Chromium is not installed")
def test_start_here_and_the_episodes_run_in_a_live_jupyterlab(tmp_path: Path) -> None:
    names = map(str, [NOTEBOOKS / "start_here.ipynb", *NOTEBOOKS.glob("episodes/*.ipynb")])
    assert lab.main([str(tmp_path), *names]) == 0, "notebooks with a cell that failed"
    assert len([*tmp_path.glob("*.png")]) == 6 * len(lab.LOOKS)


def test_eight_set_ups_are_asked(tmp_path: Path) -> None:
    text, _ = outputs("evaluate.ipynb", tmp_path, items=1, out=str(tmp_path))
    assert "Warning" not in text
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 8


TRAINED = '{"steps": 2, "batch_size": 4, "eval_items": 2, "attempts": 1, "solves": 1, "learning_rate": 0.003}'


RUNS = [
    ({"protocol": "mae", "preset": "quick", "world": "data:gsm8k", "overrides": TRAINED}, True),
    ({"protocol": "base", "overrides": '{"eval_items": 2}'}, False),
    ({"protocol": "sft", "lora": "[]", "overrides": '{"eval_items": 2, "sft_batch": 256}'}, False),
]


@pytest.mark.parametrize(("parameters", "takes_steps"), RUNS)
def test_the_notebook_for_real_models_runs_on_a_laptop(tmp_path, monkeypatch, parameters, takes_steps) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", str(mirror.sums(tmp_path / "mirror")))
    run = tmp_path / "run"
    given = {"model": "tiny", "engine": "torch", "preset": "smoke", "world": "tiny", "lora": "[4, 8, 0.0]"}
    text, _ = outputs("train_gpu.ipynb", tmp_path, out=str(run), **given | parameters)
    assert ("s a step" in text) == ("trained tokens/s" in text) == takes_steps
    assert ("takes none of our steps" in text) != takes_steps
    assert load_policy(str(run / "merged")).model.dtype == torch.float32, "loaded as float32"
    assert (run / "policy" / "adapter_config.json").is_file() or not takes_steps
