"""vLLM in this process: one request per turn, with the learner's weights after every update.

Adapters of one base share a batch; a fully trained policy passes its weights in memory.
"""

import gc
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState

from coevolve.engines.limits import VLLM_RANKS, VLLM_SHARE, share_beside_learner
from coevolve.models import environment
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
# vLLM takes the longest context for which its cache has room, instead of refusing to start.
LONGEST_THAT_FITS = -1
GIB = 2**30


@dataclass(frozen=True)
class PendingRequest:
    """A turn that vLLM has not answered yet, as it was sent."""

    turn: Turn
    prompt_ids: list[int]
    temperature: float


def serve(
    team: "PolicySet",
    temperature: float,
    max_tokens: int,
    options: Mapping[str, Any] | None = None,
    later_gib: float = 0.0,
) -> dict[str, Engine]:
    """Start vLLM for the policies that are in this process; return {policy: engine}.

    Adapters of one base, and frozen policies of that base, share an engine. `options` are arguments
    of vLLM that replace those that coevolve chooses, see `limits.VLLM_OPTIONS`. `later_gib` is what
    the learner will keep on the GPU between steps and has not allocated yet.
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
        engine = VLLM(
            group,
            temperature,
            max_tokens,
            engines=len(groups),
            options=options,
            later_gib=later_gib,
        )
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
        options: Mapping[str, Any] | None = None,
        later_gib: float = 0.0,
    ):
        """Start vLLM on the policies' common base, as one of `engines` that share the GPU.

        A single engine leaves `later_gib` to the learner, see `limits.share_beside_learner`. Raises
        ValueError if that leaves too little.
        """
        environment.prepare("vllm")
        from vllm import LLM

        self.policies = dict(policies)
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.on_gpu = torch.cuda.is_available()
        # VLLM's sleep mode serves one engine a process.
        self.sleeps = self.on_gpu and engines == 1
        self.is_asleep = False
        self.is_outdated = (
            False  # whether the policies may have learnt since `load_weights`
        )
        _free_memory()  # memory left over from an earlier run would count as in use
        base = next(iter(policies.values()))
        settings = {
            "model": str(base.source),
            "dtype": "bfloat16" if self.on_gpu else "float32",
            "seed": 0,
            "enable_prefix_caching": True,
            "logprobs_mode": "processed_logprobs",
            "enforce_eager": not self.on_gpu,
            "enable_sleep_mode": self.sleeps,
            "disable_log_stats": True,
        }
        settings |= self._memory_settings(engines, options or {}, later_gib)
        settings |= self._process_settings()
        settings |= self._adapter_settings()
        settings |= options or {}
        self.llm = LLM(**settings)
        # Prompt and completion together; vLLM may have shortened it to what its cache holds.
        room: int = self.llm.llm_engine.model_config.max_model_len
        self.context = min(room, base.context)
        self.tickets = count(1)
        self.versions = count(1)
        self.pending: dict[str, PendingRequest] = {}
        self.loras: dict[str, Any] = {}
        self.folder = tempfile.TemporaryDirectory(prefix="coevolve-lora-")
        self.load_weights()

    def _memory_settings(
        self, engines: int, options: Mapping[str, Any], later_gib: float
    ) -> dict[str, Any]:
        if not self.on_gpu:
            return {"kv_cache_memory_bytes": CPU_CACHE_BYTES}
        share = VLLM_SHARE / engines
        if self.sleeps and "gpu_memory_utilization" not in options:
            free_bytes, total_bytes = torch.cuda.mem_get_info()
            share = share_beside_learner(free_bytes / GIB, total_bytes / GIB, later_gib)
        return {
            "gpu_memory_utilization": share,
            "max_model_len": LONGEST_THAT_FITS,
        }

    def _process_settings(self) -> dict[str, Any]:
        """Return the settings of a run with several processes.

        Each has an engine on its own GPU (LOCAL_RANK), in the process group of the run.
        """
        if PartialState(cpu=not self.on_gpu).num_processes == 1:
            return {}
        return {"distributed_executor_backend": "external_launcher"}

    def _adapters(self) -> list[AdapterPolicy]:
        policies = self.policies.values()
        return [policy for policy in policies if isinstance(policy, AdapterPolicy)]

    def _adapter_settings(self) -> dict[str, Any]:
        adapters = self._adapters()
        if not adapters:
            return {}
        rank = 0
        for policy in adapters:
            for config in policy.model.peft_config.values():
                rank = max(rank, config.r)
        room = next(allowed for allowed in VLLM_RANKS if allowed >= rank)
        return {"enable_lora": True, "max_loras": len(adapters), "max_lora_rank": room}

    def submit(self, turn: Turn) -> str:
        """Add a request; its noise depends only on the turn's key.

        An engine that an error has left asleep or outdated loads the current weights first. Raises
        ValueError if the prompt leaves no room in the context.
        """
        from vllm import SamplingParams

        if self.is_outdated:
            self.load_weights()
        policy = self.policies[turn.policy]
        ticket = str(next(self.tickets))
        prompt_ids = policy.render(turn.messages)
        if len(prompt_ids) >= self.context:
            raise ValueError(
                f"role {turn.role!r}: a prompt of {len(prompt_ids)} tokens fills the engine's "
                f"context of {self.context}"
            )
        temperature, limit = turn.sampling(self.temperature, self.max_tokens)
        limit = min(limit, self.context - len(prompt_ids))
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
        """Free the GPU for the learner; on a CPU this only drops requests that nobody awaits."""
        self._drop_pending()
        self.is_outdated = True
        if self.sleeps and not self.is_asleep:
            self.llm.sleep(level=1)
            self.is_asleep = True

    def load_weights(self) -> None:
        """Load the policies' current weights and drop the cache of the old ones.

        Raises RuntimeError if vLLM keeps that cache.
        """
        self.is_outdated = True  # until all is loaded: an error may come between
        self._drop_pending()
        self._wake()
        for name, policy in self.policies.items():
            if isinstance(policy, AdapterPolicy):
                self._load_adapter(name, policy)
            elif len(self.policies) == 1:  # a frozen base of adapters never changes
                self._load_model(policy)
        if self.llm.reset_prefix_cache() is False:
            raise RuntimeError(
                "vLLM kept the keys and values of the old weights, because requests are still "
                "running; start the run again, it resumes from its last checkpoint"
            )
        self.is_outdated = False

    def _drop_pending(self) -> None:
        """Give up requests that an error or Ctrl-C has left behind."""
        if self.pending:
            self.llm.llm_engine.abort_request(list(self.pending))
            self.pending.clear()

    def _load_adapter(self, name: str, policy: AdapterPolicy) -> None:
        """Replace the served version of an adapter."""
        from vllm.lora.request import LoRARequest

        folder = f"{self.folder.name}/{name}"
        version = next(self.versions)
        policy.save_for_engine(folder, torch.bfloat16 if self.on_gpu else torch.float32)
        if name in self.loras:
            self.llm.llm_engine.remove_lora(self.loras[name].lora_int_id)
        self.loras[name] = LoRARequest(f"{name}-{version}", version, folder)

    def _load_model(self, policy: Policy) -> None:
        weights = list(policy.served_weights())
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
        executor = client.engine_core.model_executor
        # Whatever still holds tensors of the sleep pool when the pool is released ends the process.
        executor.collective_rpc(_drop_adapters)
        del client
        self.llm = None
        _free_memory()
        executor.shutdown()
        del executor
        self.folder.cleanup()
        _free_memory()

    def _wake(self) -> None:
        if self.is_asleep:
            self.llm.wake_up()
            self.is_asleep = False


def _free_memory() -> None:
    """Return unreferenced memory to the GPU; without a GPU this only collects garbage."""
    gc.collect()
    torch.cuda.empty_cache()


def _drop_adapters(worker: Any) -> None:
    """Let go of the adapters of a worker, which refer to its model."""
    if hasattr(worker.model_runner, "lora_manager"):
        worker.model_runner.lora_manager = None


def _repack_head(model: torch.nn.Module) -> None:
    """Repack the output weights: on a CPU a head tied to the embedding is not reloaded with it."""
    head = getattr(model, "lm_head", None)
    if head is not None and not torch.cuda.is_available():
        head.quant_method.process_weights_after_loading(head)
