"""A plugin of vLLM: weights come by a file, for machines without the GPUs that NCCL needs.

Everything else of an update stays vLLM's own. The file's path is in the variable WEIGHTS_FILE.
"""

import os
import time
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLWeightTransferEngine

NAME = "file"


class FileEngine(NCCLWeightTransferEngine):
    """Takes weights from a file, which it removes."""

    def init_transfer_engine(self, init_info: Any) -> None:
        """Join no group."""

    def receive_weights(self, update_info: Any) -> None:
        """Wait for the file; load the weights that were announced."""
        path = Path(os.environ["WEIGHTS_FILE"])
        while not path.exists():
            time.sleep(0.01)
        weights = load_file(path)
        path.unlink()
        received = [(name, weights[name]) for name in update_info.names]
        assert len(received) == len(weights)
        self.model.load_weights(received)

    def finish_weight_update(self) -> None:
        """Pack the output weights again: a CPU would keep those of an older tied head."""
        super().finish_weight_update()
        head = self.model.lm_head
        head.quant_method.process_weights_after_loading(head)


def register() -> None:
    """Tell vLLM of the engine; it calls this in every process."""
    if NAME not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(NAME, FileEngine)
