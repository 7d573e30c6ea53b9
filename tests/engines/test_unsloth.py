"""Unsloth for real, on the tiny backbone: the same numbers as transformers with PEFT, and a run that learns.

Run by `make test-engines`; skipped where Unsloth is not installed. It patches transformers, hence a process of its own.
"""

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest
from widen import widen

from coevolve import policies, prompts
from coevolve.types import Reply, Turn

pytestmark = pytest.mark.skipif(not find_spec("unsloth"), reason="Unsloth is not installed: see make test-engines")
SCRIPT = """
import json, sys
from coevolve import policies, prompts
from coevolve.engines import connect
from coevolve.policies.team import Team
from coevolve.types import Turn
from dataclasses import replace
team = Team({"shared": "tiny"}, ("shared",), (4, 8, 0.0), unsloth=True)
turn = prompts.load("mae", "solver", "compact")(question="47*86=?")
turns = [replace(turn, key=(0, i)) for i in range(6)]
replies = connect(team, "unsloth", 1.0, 64).answer(turns)
team.optimize(3e-2, 0.0)
from coevolve.checks import Learning
from coevolve.learner import learn
metrics = learn(team.first, team.optimizers["shared"], [r.earns(float(i % 2)) for i, r in enumerate(replies)],
                Learning(entropy_coef=0.0), estimator="task_relative")
team.save(__import__("pathlib").Path(sys.argv[1]))
after = team.first.logprobs(replies[:1]).tolist()
print("RESULT" + json.dumps({"texts": [r.text for r in replies], "logprobs": [r.logprobs for r in replies],
      "metrics": metrics, "prompt": replies[0].prompt_ids, "ids": replies[0].ids, "after": after}))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unsloth") / "adapter"
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.split("RESULT")[1]), folder


def test_it_samples_what_the_plain_model_samples(said):
    turn = prompts.load("mae", "solver", "compact")(question="47*86=?")
    own = policies.load("tiny").generate([Turn(turn.role, turn.messages, key=(0, i)) for i in range(6)])
    assert said[0]["texts"] == [reply.text for reply in own]
    for theirs, reply in zip(said[0]["logprobs"], own, strict=True):
        assert theirs == pytest.approx(reply.logprobs, abs=1e-3)


def test_its_adapter_learns_and_plain_transformers_reads_it(said):
    result, folder = said
    assert result["metrics"]["grad_norm"] > 0 and result["metrics"]["logprob_gap"] < 1e-3
    policy = policies.load(str(folder))
    logprobs = policy.logprobs([Reply(Turn("solver", ()), "", result["prompt"], result["ids"])]).tolist()
    assert logprobs == pytest.approx(result["after"], abs=1e-3)
    assert logprobs != pytest.approx(result["logprobs"][0], abs=1e-3), "training moved them"


@pytest.mark.parametrize("engine", ["unsloth", "unsloth+vllm"])
def test_a_short_run_learns(engine, tmp_path):
    if engine.endswith("vllm") and not find_spec("vllm"):
        pytest.skip("vLLM is not installed")
    fields = "lora=[8,16,0.0] steps=12 batch_size=16 eval_items=12 eval_every=0 learning_rate=3e-3".split()
    fields += [f"engine={engine}", f"model={widen('tiny', tmp_path / 'wide')}"]
    command = [sys.executable, "-m", "coevolve", "train", "mae", "--preset", "quick", "--out", str(tmp_path / "run")]
    done = subprocess.run([*command, *fields], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    held_out = json.loads((tmp_path / "run" / "summary.json").read_text())["held_out"]
    assert held_out["after"]["k"] > held_out["before"]["k"]
