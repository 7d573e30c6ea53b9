"""Run `python -m coevolve` with FSDP2 or DeepSpeed on CPUs, which accelerate itself refuses.

accelerate shards models on accelerators alone. Its own code, torch's `fully_shard` and DeepSpeed
work on CPUs as well, so this script only sets the state that accelerate would set beside a GPU.
"""

import runpy
import sys
from typing import Any

from accelerate.state import AcceleratorState, DistributedType, PartialState

original_init = AcceleratorState.__init__


def init_with_shards(self: AcceleratorState, *args: Any, **options: Any) -> None:
    """Initialise the state, then say that the models are to be sharded."""
    original_init(self, *args, **options)
    if self.distributed_type != DistributedType.MULTI_CPU:
        return
    deepspeed = options.get("deepspeed_plugin")
    if deepspeed:
        deepspeed.set_mixed_precision(self._mixed_precision)
        deepspeed.select(_from_accelerator_state=True)
        self.deepspeed_plugins = deepspeed
        kind = DistributedType.DEEPSPEED
    else:
        self.fsdp_plugin = options["fsdp_plugin"]
        kind = DistributedType.FSDP
    self.distributed_type = kind
    PartialState._shared_state["distributed_type"] = kind


if __name__ == "__main__":
    AcceleratorState.__init__ = init_with_shards  # type: ignore[method-assign]
    sys.argv[0] = "coevolve"
    runpy.run_module("coevolve", run_name="__main__")
