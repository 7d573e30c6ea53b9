"""vLLM in this process: one request per turn, replies as they finish, the learner's weights after every update.

Adapters of one base are mixed in one batch; a fully trained policy hands its weights over in memory.
"""

import gc
import os
import tempfile
from collections.abc import Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from accelerate import PartialState

from coevolve.engines.limits import VLLM_RANKS, VLLM_SHARE
from coevolve.models.lora import AdapterPolicy
from coevolve.models.policy import Policy
from coevolve.models.sampler import noise
from coevolve.rollout.engine import Engine, Ticket
from coevolve.types import Reply, Turn

if TYPE_CHECKING:
    from coevolve.models.policy_set import PolicySet

CPU_CACHE = 2 * 2**30  # bytes that an engine on a CPU keeps of prompts and replies; vLLM would take nearly all memory


def serve(team: "PolicySet", temperature: float, max_tokens: int) -> dict[str, Engine]:
    """Start vLLM for a team's policies in this process and return {policy: engine}.

    Adapters of one base, and frozen policies of that base, share an engine.
    """
    adapted = any(isinstance(policy, AdapterPolicy) for policy in team.policies.values())
    groups: dict[object, dict[str, Policy]] = {}
    for name, policy in team.policies.items():
        if isinstance(policy, Policy):
            groups.setdefault(policy.source if adapted else name, {})[name] = policy
    engines: dict[str, Engine] = {}
    for group in groups.values():
        engines |= dict.fromkeys(group, VLLM(group, temperature, max_tokens, engines=len(groups)))
    return engines


class VLLM(Engine):
    """Answers for the policies of one base model."""

    def __init__(self, policies: Mapping[str, Policy], temperature: float, max_tokens: int, engines: int = 1):
        """Start vLLM on the policies' common base, one of `engines` that share the GPU."""
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # weights are handed over in memory
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
        from vllm import LLM

        self.policies, self.temperature, self.max_tokens = dict(policies), temperature, max_tokens
        on_gpu = torch.cuda.is_available()
        self.sleeps = on_gpu and engines == 1  # vLLM's sleep mode serves one engine a process
        settings: dict[str, Any] = {"enable_prefix_caching": True, "logprobs_mode": "processed_logprobs", "seed": 0}
        # On a CPU vLLM itself lets VLLM_CPU_KVCACHE_SPACE, where it is set, come before our number.
        settings |= {"gpu_memory_utilization": VLLM_SHARE / engines} if on_gpu else {"kv_cache_memory_bytes": CPU_CACHE}
        _free()  # what an earlier run left counts as taken
        if PartialState(cpu=not on_gpu).num_processes > 1:  # each rank an engine of its own on its own GPU (LOCAL_RANK), in the run's process group
            settings["distributed_executor_backend"] = "external_launcher"
        adapters = [policy for policy in policies.values() if isinstance(policy, AdapterPolicy)]
        if adapters:
            rank = max(config.r for policy in adapters for config in policy.model.peft_config.values())
            room = next(allowed for allowed in VLLM_RANKS if allowed >= rank)
            settings |= {"enable_lora": True, "max_loras": len(adapters), "max_lora_rank": room}
        settings |= {"enforce_eager": not on_gpu, "enable_sleep_mode": self.sleeps, "disable_log_stats": True}
        source, dtype = str(next(iter(policies.values())).source), "bfloat16" if on_gpu else "float32"
        self.llm = LLM(model=source, dtype=dtype, **settings)
        self.tickets, self.versions = count(1), count(1)
        self.waiting: dict[str, tuple[Turn, list[int], float]] = {}
        self.loras: dict[str, Any] = {}
        self.folder = tempfile.TemporaryDirectory(prefix="coevolve-lora-")
        self.load_weights()

    def submit(self, turn: Turn) -> str:
        """Add a request whose noise hangs on the turn's key alone."""
        from vllm import SamplingParams

        policy, ticket = self.policies[turn.policy], str(next(self.tickets))
        prompt = policy.render(turn.messages)
        heat, limit = turn.sampling(self.temperature, self.max_tokens)
        asked: dict[str, Any] = {"temperature": heat, "max_tokens": limit, "stop_token_ids": sorted(policy.end_ids)}
        params = SamplingParams(**asked, seed=int(noise([turn.key], 1)[0, 0] * 2**31), logprobs=0, detokenize=False)
        self.waiting[ticket] = turn, prompt, heat
        lora = self.loras.get(turn.policy)
        self.llm.llm_engine.add_request(ticket, {"prompt_token_ids": prompt}, params, lora_request=lora)
        return ticket

    def poll(self) -> list[tuple[Ticket, Reply]]:
        """Step until at least one request is finished."""
        done: list[tuple[Ticket, Reply]] = []
        while self.waiting and not done:
            for output in self.llm.llm_engine.step():
                if output.finished:
                    turn, prompt, heat = self.waiting.pop(output.request_id)
                    ids, known = list(output.outputs[0].token_ids), output.outputs[0].logprobs
                    said = ids, [row[token].logprob for token, row in zip(ids, known, strict=True)]
                    done.append((output.request_id, self.policies[turn.policy].reply(turn, prompt, said, heat)))
        return done

    def sleep(self) -> None:
        """Free the GPU for the learner (nothing to do on a CPU)."""
        if self.sleeps:
            self.llm.sleep(level=1)

    def load_weights(self) -> None:
        """Serve the weights as they are now; what was cached under older ones is dropped."""
        self._wake()
        for name, policy in self.policies.items():
            if isinstance(policy, AdapterPolicy):
                from vllm.lora.request import LoRARequest

                folder, version = f"{self.folder.name}/{name}", next(self.versions)
                policy.save(folder)
                if name in self.loras:
                    self.llm.llm_engine.remove_lora(self.loras[name].lora_int_id)
                self.loras[name] = LoRARequest(f"{name}-{version}", version, folder)
            elif len(self.policies) == 1:  # a frozen base of adapters never changes
                weights = [(key, part.detach()) for key, part in policy.model.named_parameters()]
                self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights)})
                self.llm.apply_model(_repack_head)
        self.llm.reset_prefix_cache()

    def close(self) -> None:
        """End vLLM and free its memory; nothing can be asked afterwards."""
        self._wake()  # memory that sleeps cannot be freed
        client = self.llm.llm_engine.engine_core
        client._finalizer.detach()  # vLLM's whole shutdown ends the process group too: the run's, or other engines'
        client.engine_core.model_executor.shutdown()
        self.llm, client = None, None
        self.folder.cleanup()
        _free()

    def _wake(self) -> None:
        if self.sleeps and self.llm.llm_engine.is_sleeping():
            self.llm.wake_up()


def _free() -> None:
    """Give the GPU what nothing refers to any more."""
    gc.collect()
    torch.cuda.empty_cache()  # nothing happens without a GPU


def _repack_head(model: torch.nn.Module) -> None:
    """Pack the output weights anew: on a CPU a head tied to the embedding keeps its old copy over a reload."""
    head = getattr(model, "lm_head", None)
    if head is not None and not torch.cuda.is_available():
        head.quant_method.process_weights_after_loading(head)
