"""A warm start from a file of demonstrations, and what such a file must hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coevolve.cli import main
from coevolve.methods.registry import get_method
from coevolve.runs import record

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NIM = f"{EXAMPLES / 'nim.py'}:Nim"
SMALL = ["--preset", "smoke", "batch_size=4", "eval_items=1", "eval_every=0"]


class TestWarmStart:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        """Return the file of demonstrations that the example writes."""
        path = tmp_path / "nim.jsonl"
        subprocess.run(
            [sys.executable, str(EXAMPLES / "nim.py"), str(path)], check=True
        )
        return path

    def test_a_model_learns_a_form_and_plays_with_it(
        self, file: Path, tmp_path: Path
    ) -> None:
        warm = str(tmp_path / "warm")
        options = ["--demonstrations", str(file), "--out", warm, "eval_items=1"]
        assert main(["warm", "tiny", *options, "epochs=2"]) == 0
        illegal = {}
        for model in (warm, "tiny"):
            out = tmp_path / f"nim_{len(illegal)}"
            fields = [*SMALL, "steps=1", "--model", model]
            assert main(["train", NIM, "--out", str(out), *fields]) == 0
            illegal[model] = record.read(out)["illegal"].iloc[-1]
        assert illegal[warm] < illegal["tiny"]

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "is empty"),
            ("{", "line 1 must be"),
            ('{"prompt": "a", "completion": "b"}\n{"prompt": "a"}', "line 2 must be"),
            ('{"prompt": [], "completion": "b"}', "line 1 must be .* both filled"),
            ('{"prompt": "a", "completion": ""}', "line 1 must be .* both filled"),
        ],
    )
    def test_a_file_of_another_form_is_refused_before_a_model_loads(
        self, content: str, message: str, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.jsonl"
        path.write_text(content)
        method = get_method("coevolve.methods.baselines.warm_start:WarmStart")
        with pytest.raises(ValueError, match=message):
            method(demonstrations=str(path)).before_run()

    def test_messages_may_be_given_too(self, tmp_path: Path) -> None:
        messages = [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
        ]
        path = tmp_path / "x.jsonl"
        path.write_text(json.dumps({"prompt": messages, "completion": "c"}))
        method = get_method("coevolve.methods.baselines.warm_start:WarmStart")
        (example,) = method(demonstrations=str(path)).examples()
        assert example["prompt"] == messages
        assert example["completion"] == [{"role": "assistant", "content": "c"}]
