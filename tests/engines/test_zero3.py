"""DeepSpeed's ZeRO-3 on two CPU processes makes the update of one, and goes on from its checkpoint.

Run by `make test-engines`; skipped where DeepSpeed is not installed.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest
from core.small_runs import train_small
from core.trl_runs import assert_same_update, fields_of, train_in_two_processes

pytestmark = pytest.mark.skipif(
    find_spec("deepspeed") is None, reason="see make test-engines"
)
# What accelerate sets for docs/accelerate/zero3.yaml.
ZERO3 = {
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3",
    "ACCELERATE_DEEPSPEED_ZERO3_INIT": "false",
    "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL": "true",
    "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE": "none",
    "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "none",
    "DS_ACCELERATOR": "cpu",
}


# A rate of its own in each step: DeepSpeed takes the step inside the last backward pass.
FIELDS = {
    **fields_of("mae"),
    "trainer": "trl",
    "steps": 2,
    "warmup_steps": 2,
}


def train_sharded(out: Path, steps: int) -> None:
    fields = FIELDS | {"steps": steps}
    train_in_two_processes(out, fields, ZERO3)
    saved = out / "checkpoints" / f"checkpoint-{steps}" / f"global_step{steps}"
    shards = sorted(path.name for path in saved.glob("zero_pp_rank_*_model_states.pt"))
    assert shards == [
        "zero_pp_rank_0_mp_rank_00_model_states.pt",
        "zero_pp_rank_1_mp_rank_00_model_states.pt",
    ]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("one_process") / "run"
    return train_small(out, **FIELDS, save_every=20)


def test_two_processes_make_the_update_of_one(
    one_process: Path, tmp_path: Path
) -> None:
    train_sharded(tmp_path / "sharded", steps=2)
    assert_same_update(one_process, tmp_path / "sharded")


def test_a_run_goes_on_from_its_checkpoint(one_process: Path, tmp_path: Path) -> None:
    train_sharded(tmp_path / "sharded", steps=1)
    train_sharded(tmp_path / "sharded", steps=2)
    assert_same_update(one_process, tmp_path / "sharded")
