"""GGUF through Unsloth for real: needs Unsloth, and a llama.cpp that UNSLOTH_LLAMA_CPP_PATH names (docs/gpu.md).

The embedded backbone has a tokenizer of its own, which no llama.cpp knows, so the test works on a copy of the converter
that has been told to split text for it as for Qwen2, whose rule it shares.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

LLAMA = Path(os.environ.get("UNSLOTH_LLAMA_CPP_PATH") or "/nowhere")
pytestmark = pytest.mark.skipif(not find_spec("unsloth"), reason="Unsloth is not installed: see make test-engines")


def export(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "coevolve", "export", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=os.environ | environment)


@pytest.fixture
def policy(tmp_path: Path) -> str:
    from coevolve import policies

    policies.load("tiny").save(tmp_path / "policy")
    return str(tmp_path / "policy")


def test_an_unknown_kind_is_refused_before_anything_is_written(policy: str, tmp_path: Path) -> None:
    done = export(policy, "--to", str(tmp_path / "out"), "--gguf", "q8")
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert (
        done.stderr.strip().splitlines()[-1].startswith("coevolve: --gguf must be one of not_quantized, fast_quantized")
    )


def taught(folder: Path, tmp_path: Path) -> Path:
    """A copy of llama.cpp's converter that knows this checkpoint's tokenizer."""
    llama = tmp_path / "llama.cpp"
    for name in ("conversion", "gguf-py"):
        shutil.copytree(LLAMA / name, llama / name)
    for name in ("src", "ggml", "common"):  # by which Unsloth tells a checkout
        (llama / name).mkdir()
    for name in ("convert_hf_to_gguf.py", "llama-quantize"):
        shutil.copy(LLAMA / name, llama / name)
    command = [
        sys.executable,
        str(llama / "convert_hf_to_gguf.py"),
        str(folder),
        "--outfile",
        str(tmp_path / "no.gguf"),
    ]
    unknown = re.search(r"chkhsh: *([0-9a-f]+)", subprocess.run(command, capture_output=True, text=True).stderr)
    source = llama / "conversion/base.py"
    anchor = "        if res is None:\n"
    text = source.read_text()
    assert unknown and anchor in text
    rule = f'        if chkhsh == "{unknown[1]}":\n            res = "qwen2"\n\n{anchor}'
    source.write_text(text.replace(anchor, rule, 1))
    return llama


@pytest.mark.skipif(not (LLAMA / "llama-quantize").is_file(), reason="UNSLOTH_LLAMA_CPP_PATH names no built llama.cpp")
@pytest.mark.parametrize("kind, error", [("bf16", 0.0), ("q4_0", 1.01 / 8)])  # of -8 .. 7 steps, 8 is short of one
def test_a_policy_becomes_a_file_with_its_own_weights(kind: str, error: float, policy: str, tmp_path: Path) -> None:
    from coevolve import policies

    llama, out = taught(Path(policy), tmp_path), tmp_path / "out"
    done = export(policy, "--to", str(out), "--gguf", kind, UNSLOTH_LLAMA_CPP_PATH=str(llama), UNSLOTH_OFFLINE="1")
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    (said,) = re.findall(r"^wrote (.*\.gguf): ", done.stdout, re.MULTILINE)
    assert Path(said).parent == out and not [*out.glob(".gguf-*")]
    sys.path.insert(0, str(llama / "gguf-py"))
    from gguf import GGUFReader
    from gguf.quants import dequantize

    found = {part.name: dequantize(part.data, part.tensor_type) for part in GGUFReader(said).tensors}
    down = policies.load(str(out)).model.model.layers[1].mlp.down_proj.weight.detach().cpu().numpy()
    blocks = down.reshape(-1, 32)  # each has a step of its own
    apart = abs(found["blk.1.ffn_down.weight"].reshape(blocks.shape) - blocks)
    assert (apart <= error * abs(blocks).max(1, keepdims=True)).all()
