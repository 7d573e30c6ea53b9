"""The notebooks that no artefact needs run from start to end.

One is about the loss, two train real models, one evaluates, one has a judge with a dial, one
compares the arms of an ablation, and one is the introduction.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mirror
import pytest
import torch

from coevolve.engines.loading import load_policy
from reproduce.analysis import judge_sliders
from tools import lab

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Outputs:
    """What an executed notebook printed, and what it displayed, each as type -> content."""

    printed: str
    displayed: list[dict[str, str]]

    @property
    def images(self) -> int:
        """The number of images displayed."""
        return sum("image/png" in content for content in self.displayed)

    @property
    def texts(self) -> list[str]:
        """The text of everything displayed."""
        return [content.get("text/plain", "") for content in self.displayed]


def execute(name: str, folder: Path, **parameters: Any) -> Outputs:
    """Execute a notebook, and keep the executed one in a folder."""
    import papermill  # which takes seconds, so no module of tests imports it

    executed = papermill.execute_notebook(
        NOTEBOOKS / name,
        folder / "executed.ipynb",
        parameters,
        cwd=NOTEBOOKS,
        progress_bar=False,
    )
    printed = ""
    displayed = []
    for cell in executed.cells:
        for output in cell.get("outputs", ()):
            printed += output.get("text", "")
            displayed.append(output.get("data", {}))
    return Outputs(printed, displayed)


@pytest.mark.thorough
def test_the_gradients_of_the_loss_by_hand_agree(tmp_path: Path) -> None:
    outputs = execute("kernels.ipynb", tmp_path, tokens=96, vocabulary=300)
    assert outputs.images == 3
    comparison = next(text for text in outputs.texts if "largest error" in text)
    errors = []
    for line in comparison.splitlines():
        if "largest error" in line:
            errors.append(float(line.split()[-1]))
    assert len(errors) == 2
    assert max(errors) < 1e-12


@pytest.mark.thorough  # every push tests that its committed outputs are of its code
def test_the_first_notebook_trains_all_five_methods(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    outputs = execute("start_here.ipynb", tmp_path, share=0.01, items=1, out=str(runs))
    assert "Warning" not in outputs.printed
    assert outputs.images == 5
    assert len(list(runs.glob("*/summary.json"))) == 5


@pytest.mark.thorough
def test_the_real_models_notebook_trains_in_slices_and_compares_three_models(
    tmp_path: Path,
) -> None:
    outputs = execute(
        "real_model.ipynb",
        tmp_path,
        model="tiny",
        untouched="tiny-small",
        preset="smoke",
        steps=2,
        every=1,
        items=1,
        out=str(tmp_path / "run"),
    )
    assert "gain over the warmed model, points: " in outputs.printed
    assert outputs.images >= 2
    assert any("step 2" in text and "✓" in text for text in outputs.texts)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.skipif(lab.CHROMIUM is None, reason="Chromium is not installed")
def test_start_here_and_the_episodes_run_in_a_live_jupyterlab(tmp_path: Path) -> None:
    notebooks = [NOTEBOOKS / "start_here.ipynb", *NOTEBOOKS.glob("episodes/*.ipynb")]
    arguments = [str(tmp_path), *map(str, notebooks)]
    assert lab.main(arguments) == 0, "notebooks with a cell that failed"
    assert len(list(tmp_path.glob("*.png"))) == 6 * len(lab.LOOKS)


@pytest.mark.thorough
def test_an_ablation_compares_its_arms_with_the_first(tmp_path: Path) -> None:
    outputs = execute(
        "ablation.ipynb",
        tmp_path,
        arms={"mae": {}, "shuffled rewards": {"control": "shuffled"}},
        fields={"steps": 1, "eval_every": 1, "eval_items": 1},
        out=str(tmp_path),
    )
    assert len(list(tmp_path.glob("*/summary.json"))) == 4
    table = (tmp_path / "table.csv").read_text().splitlines()
    assert table[0] == "arm,gain,difference to mae"
    assert len(table) == 1 + 2
    assert outputs.images == 1


@pytest.mark.thorough
def test_eight_inference_strategies_are_evaluated(tmp_path: Path) -> None:
    outputs = execute("evaluate.ipynb", tmp_path, items=1, out=str(tmp_path))
    assert "Warning" not in outputs.printed
    table = (tmp_path / "table.csv").read_text()
    assert len(table.splitlines()) == 1 + 8


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["MAE", "TTRL"])
def test_a_judge_with_a_dial_is_trained_and_listened_to(
    method: str, tmp_path: Path
) -> None:
    outputs = execute(
        "judge_sliders.ipynb",
        tmp_path,
        method=method,
        accuracy=0.6,
        errors="question",
        sliders=False,
        preset="smoke",
        items=1,
        results=str(tmp_path),
        out=str(tmp_path / "run"),
    )
    assert "no curve yet: " in outputs.printed
    assert "gain, points: " in outputs.printed
    assert "(asked: 60 %)" in outputs.printed
    *_, judgements = outputs.texts
    assert "the oracle knows" in judgements
    assert len(judgements.splitlines()) >= 1 + judge_sliders.SHOWN


@pytest.mark.thorough
def test_a_judge_with_a_dial_has_sliders(tmp_path: Path) -> None:
    pytest.importorskip("ipywidgets")
    outputs = execute("judge_sliders.ipynb", tmp_path, results=str(tmp_path))
    *_, panel = outputs.texts
    assert panel.startswith("VBox(children=(SelectionSlider(")


SMALL_RUN = """{
    "steps": 2,
    "batch_size": 4,
    "eval_items": 2,
    "attempts": 1,
    "solves": 1,
    "learning_rate": 0.003
}"""


def train_on_a_laptop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **parameters: str
) -> Outputs:
    """Execute the notebook for GPUs with the smallest model, on a mirror of the data sets."""
    monkeypatch.setenv("COEVOLVE_DATA", str(mirror.sums(tmp_path / "mirror")))
    laptop = {
        "model": "tiny",
        "engine": "torch",
        "preset": "smoke",
        "world": "tiny",
        "lora": "[4, 8, 0.0]",
        "out": str(tmp_path / "run"),
    }
    outputs = execute("train_gpu.ipynb", tmp_path, **laptop | parameters)
    policy = load_policy(str(tmp_path / "run" / "merged"))
    assert policy.model.dtype == torch.float32, "loaded as float32"
    return outputs


@pytest.mark.thorough
def test_the_notebook_for_gpus_trains_on_a_laptop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = train_on_a_laptop(
        tmp_path,
        monkeypatch,
        method="mae",
        preset="quick",
        world="data:gsm8k",
        overrides=SMALL_RUN,
    )
    assert "s a step" in outputs.printed
    assert "trained tokens/s" in outputs.printed
    assert "takes none of our steps" not in outputs.printed
    assert (tmp_path / "run" / "policy" / "adapter_config.json").is_file()


RUNS_WITHOUT_STEPS = [
    {"method": "base", "overrides": '{"eval_items": 2}'},
    {
        "method": "sft",
        "lora": "[]",
        "overrides": '{"eval_items": 2, "sft_batch": 256}',
    },
]


@pytest.mark.thorough
@pytest.mark.parametrize("parameters", RUNS_WITHOUT_STEPS)
def test_the_notebook_for_gpus_runs_methods_that_take_none_of_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, str]
) -> None:
    outputs = train_on_a_laptop(tmp_path, monkeypatch, **parameters)
    assert "s a step" not in outputs.printed
    assert "trained tokens/s" not in outputs.printed
    assert "takes none of our steps" in outputs.printed
