"""The notebook about the loss runs from start to end and draws its pictures."""

from pathlib import Path

import papermill

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def test_notebook_runs_and_its_gradients_agree(tmp_path):
    done = papermill.execute_notebook(
        NOTEBOOKS / "kernels.ipynb",
        tmp_path / "out.ipynb",
        {"tokens": 96, "vocabulary": 300},
        cwd=NOTEBOOKS,
        progress_bar=False,
    )
    shown = [out.data for cell in done.cells for out in cell.get("outputs", []) if "data" in out]
    measured = (NOTEBOOKS.parent / "benchmarks" / "loss.json").exists()
    assert sum("image/png" in data for data in shown) == 2 + measured
    text = next(data["text/plain"] for data in shown if "largest error" in data.get("text/plain", ""))
    values = {
        line.rsplit(maxsplit=1)[0]: float(line.rsplit(maxsplit=1)[1])
        for line in text.splitlines()
        if ":" in line and "dtype" not in line
    }
    errors = [value for name, value in values.items() if "error" in name]
    assert len(errors) == 2 and max(errors) < 1e-12
