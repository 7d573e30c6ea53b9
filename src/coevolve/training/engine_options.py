"""What the engines of a run can do: checked from the configuration, without loading vLLM."""

from collections.abc import Sequence
from typing import Any, Protocol

from coevolve.engines.limits import VLLM_OPTIONS, VLLM_RANKS
from coevolve.validation import check_choice


class EngineChoice(Protocol):
    """The fields of a run that decide whether its engine can serve it."""

    engine: Any
    lora: Any
    quantize: Any
    vllm: Any
    vllm_server: str


def check_engine(run: EngineChoice, loaded: Sequence[str]) -> None:
    """Raise ValueError in one line if the run asks its engine for what it cannot do.

    `loaded` are the names of the policies that the run loads, those on servers left out.
    """
    samples_by_vllm = run.engine.endswith("vllm")
    largest_rank = VLLM_RANKS[-1]
    serves_adapters = samples_by_vllm and not run.vllm_server  # which gets them merged
    if run.lora and serves_adapters and run.lora[0] > largest_rank:
        raise ValueError(
            f"lora must have a rank of at most {largest_rank} with vLLM, got {run.lora[0]}"
        )
    _check_vllm(run, samples_by_vllm)
    _check_vllm_server(run, samples_by_vllm, loaded)
    _check_quantize(run, samples_by_vllm)


def _check_vllm(run: EngineChoice, samples_by_vllm: bool) -> None:
    """Refuse arguments of vLLM that do not exist here, or that no engine of this run reads."""
    for name in run.vllm:
        check_choice("vllm", name, VLLM_OPTIONS)
    if run.vllm and not samples_by_vllm:
        raise ValueError(
            f"vllm must be empty with engine {run.engine!r}, got {run.vllm}"
        )
    if run.vllm.get("tensor_parallel_size", 1) > 1 and not run.lora:
        # Other processes hold parts of the model, which weights cannot be passed to in memory.
        raise ValueError(
            "vllm: tensor_parallel_size must be 1 unless lora is set, "
            f"got {run.vllm['tensor_parallel_size']}"
        )


def _check_vllm_server(
    run: EngineChoice, samples_by_vllm: bool, loaded: Sequence[str]
) -> None:
    """Refuse a server that this run would not ask, or that would sample for several policies."""
    if not run.vllm_server:
        return
    if not samples_by_vllm:
        raise ValueError(
            f"vllm_server must be empty with engine {run.engine!r}, got {run.vllm_server!r}"
        )
    if run.vllm:
        raise ValueError(
            "vllm must be empty with vllm_server, whose own command sets its arguments, "
            f"got {run.vllm}"
        )
    if len(loaded) > 1:
        raise ValueError(
            "vllm_server must be empty unless the run loads one policy, "
            f"got {', '.join(loaded)}"
        )


def _check_quantize(run: EngineChoice, samples_by_vllm: bool) -> None:
    """Refuse weights of 4 bits that would be trained, or that vLLM would have to read."""
    if not run.quantize:
        return
    if not run.lora:
        raise ValueError(
            f"quantize must be '' unless lora is set, got {run.quantize!r}"
        )
    if samples_by_vllm:
        raise ValueError(
            f"quantize must be '' with engine {run.engine!r}, which samples from the 16-bit "
            f"weights; engine=unsloth or torch takes {run.quantize!r}"
        )
