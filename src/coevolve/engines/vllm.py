"""vLLM in this process: one request per turn, with the learner's weights after every update.

Adapters of one base share a batch; a fully trained policy passes its weights in memory.
"""

import gc
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState

from coevolve.engines.limits import VLLM_RANKS, VLLM_SHARE
from coevolve.models.lora import AdapterPolicy
from coevolve.models.policy import Policy
from coevolve.models.sampler import Completion, noise
from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn

if TYPE_CHECKING:
    from coevolve.models.policy_set import PolicySet

# Bytes of an engine's key-value cache on a CPU, where vLLM would otherwise take nearly all memory.
# vLLM prefers VLLM_CPU_KVCACHE_SPACE if that variable is set.
CPU_CACHE_BYTES = 2 * 2**30


@dataclass(frozen=True)
class PendingRequest:
    """A turn that vLLM has not answered yet, as it was sent."""

    turn: Turn
    prompt_ids: list[int]
    temperature: float


def serve(team: "PolicySet", temperature: float, max_tokens: int) -> dict[str, Engine]:
    """Start vLLM for the policies that are in this process; return {policy: engine}.

    Adapters of one base, and frozen policies of that base, share an engine.
    """
    has_adapters = any(
        isinstance(policy, AdapterPolicy) for policy in team.policies.values()
    )
    groups: dict[object, dict[str, Policy]] = {}
    for name, policy in team.policies.items():
        if isinstance(policy, Policy):
            base = policy.source if has_adapters else name
            groups.setdefault(base, {})[name] = policy
    engines: dict[str, Engine] = {}
    for group in groups.values():
        engine = VLLM(group, temperature, max_tokens, engines=len(groups))
        engines |= dict.fromkeys(group, engine)
    return engines


class VLLM(Engine):
    """The engine of the policies of one base model."""

    def __init__(
        self,
        policies: Mapping[str, Policy],
        temperature: float,
        max_tokens: int,
        engines: int = 1,
    ):
        """Start vLLM on the policies' common base, as one of `engines` that share the GPU."""
        # Weights can be passed in memory only within this process.
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM

        self.policies = dict(policies)
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.on_gpu = torch.cuda.is_available()
        # VLLM's sleep mode serves one engine a process.
        self.sleeps = self.on_gpu and engines == 1
        _free_memory()  # memory left over from an earlier run would count as in use
        base = next(iter(policies.values()))
        self.llm = LLM(
            model=str(base.source),
            dtype="bfloat16" if self.on_gpu else "float32",
            seed=0,
            enable_prefix_caching=True,
            logprobs_mode="processed_logprobs",
            enforce_eager=not self.on_gpu,
            enable_sleep_mode=self.sleeps,
            disable_log_stats=True,
            **self._memory_settings(engines),
            **self._process_settings(),
            **self._adapter_settings(),
        )
        self.tickets = count(1)
        self.versions = count(1)
        self.pending: dict[str, PendingRequest] = {}
        self.loras: dict[str, Any] = {}
        self.folder = tempfile.TemporaryDirectory(prefix="coevolve-lora-")
        self.load_weights()

    def _memory_settings(self, engines: int) -> dict[str, Any]:
        if self.on_gpu:
            return {"gpu_memory_utilization": VLLM_SHARE / engines}
        return {"kv_cache_memory_bytes": CPU_CACHE_BYTES}

    def _process_settings(self) -> dict[str, Any]:
        """Return the settings of a run with several processes.

        Each has an engine on its own GPU (LOCAL_RANK), in the process group of the run.
        """
        if PartialState(cpu=not self.on_gpu).num_processes == 1:
            return {}
        return {"distributed_executor_backend": "external_launcher"}

    def _adapter_settings(self) -> dict[str, Any]:
        adapters = [
            policy
            for policy in self.policies.values()
            if isinstance(policy, AdapterPolicy)
        ]
        if not adapters:
            return {}
        rank = 0
        for policy in adapters:
            for config in policy.model.peft_config.values():
                rank = max(rank, config.r)
        room = next(allowed for allowed in VLLM_RANKS if allowed >= rank)
        return {"enable_lora": True, "max_loras": len(adapters), "max_lora_rank": room}

    def submit(self, turn: Turn) -> str:
        """Add a request; its noise depends only on the turn's key."""
        from vllm import SamplingParams

        policy = self.policies[turn.policy]
        ticket = str(next(self.tickets))
        prompt_ids = policy.render(turn.messages)
        temperature, limit = turn.sampling(self.temperature, self.max_tokens)
        params = SamplingParams(
            temperature=temperature,
            max_tokens=limit,
            stop_token_ids=sorted(policy.eos_token_ids),
            seed=int(noise([turn.key], 1)[0, 0] * 2**31),
            logprobs=0,
            detokenize=False,
        )
        self.pending[ticket] = PendingRequest(turn, prompt_ids, temperature)
        self.llm.llm_engine.add_request(
            ticket,
            {"prompt_token_ids": prompt_ids},
            params,
            lora_request=self.loras.get(turn.policy),
        )
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Step until at least one request is finished."""
        finished: list[tuple[Ticket, Reply]] = []
        while self.pending and not finished:
            for output in self.llm.llm_engine.step():
                if output.finished:
                    request = self.pending.pop(output.request_id)
                    reply = self._reply(request, output.outputs[0])
                    finished.append((output.request_id, reply))
        return finished

    def _reply(self, request: PendingRequest, output: Any) -> Reply:
        """Return the reply to a request that vLLM has completed."""
        token_ids = list(output.token_ids)
        logprobs = []
        for token, logprob_of_token in zip(token_ids, output.logprobs, strict=True):
            logprobs.append(logprob_of_token[token].logprob)
        policy = self.policies[request.turn.policy]
        completion = Completion(token_ids, logprobs)
        return policy.reply(
            request.turn, request.prompt_ids, completion, request.temperature
        )

    def sleep(self) -> None:
        """Free the GPU for the learner; on a CPU this does nothing."""
        if self.sleeps:
            self.llm.sleep(level=1)

    def load_weights(self) -> None:
        """Load the policies' current weights and drop the cache of the old ones."""
        self._wake()
        for name, policy in self.policies.items():
            if isinstance(policy, AdapterPolicy):
                self._load_adapter(name, policy)
            elif len(self.policies) == 1:  # a frozen base of adapters never changes
                self._load_model(policy)
        self.llm.reset_prefix_cache()

    def _load_adapter(self, name: str, policy: AdapterPolicy) -> None:
        """Replace the served version of an adapter."""
        from vllm.lora.request import LoRARequest

        folder = f"{self.folder.name}/{name}"
        version = next(self.versions)
        policy.save(folder)
        if name in self.loras:
            self.llm.llm_engine.remove_lora(self.loras[name].lora_int_id)
        self.loras[name] = LoRARequest(f"{name}-{version}", version, folder)

    def _load_model(self, policy: Policy) -> None:
        weights = [
            (name, part.detach()) for name, part in policy.model.named_parameters()
        ]
        self.llm.collective_rpc(
            "reload_weights", kwargs={"weights_iterator": iter(weights)}
        )
        self.llm.apply_model(_repack_head)

    def close(self) -> None:
        """End vLLM and free its memory; the engine is unusable afterwards."""
        self._wake()  # the memory of a sleeping engine cannot be freed
        client = self.llm.llm_engine.engine_core
        # vLLM's full shutdown would also end the process group, which the run and others use.
        client._finalizer.detach()
        client.engine_core.model_executor.shutdown()
        del client
        self.llm = None
        self.folder.cleanup()
        _free_memory()

    def _wake(self) -> None:
        if self.sleeps and self.llm.llm_engine.is_sleeping():
            self.llm.wake_up()


def _free_memory() -> None:
    """Return unreferenced memory to the GPU; without a GPU this only collects garbage."""
    gc.collect()
    torch.cuda.empty_cache()


def _repack_head(model: torch.nn.Module) -> None:
    """Repack the output weights: on a CPU a head tied to the embedding is not reloaded with it."""
    head = getattr(model, "lm_head", None)
    if head is not None and not torch.cuda.is_available():
        head.quant_method.process_weights_after_loading(head)
