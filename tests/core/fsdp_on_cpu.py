"""Run `python -m coevolve` with accelerate's FSDP2 on CPUs, which accelerate itself refuses.

accelerate shards models on accelerators alone. Its FSDP2 code and torch's `fully_shard` work on
CPUs as well, so this script only sets the state that accelerate would set beside a GPU.
"""

import runpy
import sys
from typing import Any

from accelerate.state import AcceleratorState, DistributedType, PartialState

original_init = AcceleratorState.__init__


def init_with_fsdp(self: AcceleratorState, *args: Any, **options: Any) -> None:
    """Initialise the state, then say that the models are to be sharded."""
    original_init(self, *args, **options)
    if self.distributed_type == DistributedType.MULTI_CPU:
        self.distributed_type = DistributedType.FSDP
        self.fsdp_plugin = options["fsdp_plugin"]
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP


if __name__ == "__main__":
    AcceleratorState.__init__ = init_with_fsdp  # type: ignore[method-assign]
    sys.argv[0] = "coevolve"
    runpy.run_module("coevolve", run_name="__main__")
