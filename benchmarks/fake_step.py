"""Learning steps of a real model's shape on a fake GPU: `python -m benchmarks.fake_step LIBRARY`.

Reads cases as JSON from stdin and writes one line of JSON for each: the memory in GiB before the
second step and at its peak, or the error. See `fake_gpu` for what is fake about it.
"""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO
from unittest import mock

from benchmarks import fake_gpu

GIB = 2**30
# Widths of real models; the depth is the case's.
SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-3B": {
        "hidden_size": 2048,
        "intermediate_size": 11_008,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "tie_word_embeddings": True,
    },
    "Qwen2.5-7B": {
        "hidden_size": 3584,
        "intermediate_size": 18_944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152_064,
        "tie_word_embeddings": False,
    },
}
CPU = "cpu"
# Yields an object that counts memory, see `fake_memory.Memory`.
Device = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Case:
    """One learning step."""

    shape: str = "Qwen2.5-3B"
    layers: int = 2
    lora: int = 64
    """Rank of the adapter; 0: all weights are trained."""
    library: str = "peft"
    """Of the adapter: "peft", or "unsloth" with its own code for GPUs, see `fake_unsloth`."""
    replies: int = 4
    """Of a micro-batch, all of one length."""
    group: int = 1
    """Replies to one prompt, which they share where the policy allows it."""
    prompt_tokens: int = 600
    reply_tokens: int = 350
    micro_batches: int = 1
    steps: int = 2
    """The last one is measured; from the second on, AdamW has its moments."""
    estimator: str = "task_relative"
    loss: str = "ppo"
    old_logprobs: str = "sampler"
    ratio_cap: float = 0.0
    kl_coef: float = 0.0
    kl_loss_coef: float = 0.0
    minibatches: int = 1
    mutant: str = ""
    """A fault to put in: "cpu" leaves the targets there, "float32" widens the states, and
    "reference" drops log-probabilities of the starting policy."""

    @property
    def micro_batch_tokens(self) -> int:
        """The tokens of a micro-batch; the last one of a reply predicts nothing."""
        return self.replies * (self.prompt_tokens + self.reply_tokens - 1)


def make_policy(case: Case) -> Any:
    """Return a policy of the case's shape on the fake GPU."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen2Config

    from coevolve.models.lora import attach
    from coevolve.models.names import find
    from coevolve.models.policy import Policy

    tokenizer = AutoTokenizer.from_pretrained(find("tiny"))
    sizes = SHAPES[case.shape]
    configuration = Qwen2Config(num_hidden_layers=case.layers, **sizes)
    dtype = torch.bfloat16 if case.lora else torch.float32
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(configuration, dtype=dtype)
    policy = Policy(model, tokenizer, probed=True)
    if case.lora:
        stay = mock.patch.object(torch.nn.Module, "to", lambda module, *_, **__: module)
        with torch.device("cuda"), stay:
            lora = (case.lora, 2 * case.lora, 0.0)
            policy = attach(policy, ["shared"], lora, "fake")["shared"]
    policy.checkpoint_activations()
    return policy


def make_samples(case: Case) -> list[Any]:
    """Return samples with prompts and replies of usual lengths."""
    from coevolve.types import Reply, Turn

    samples = []
    for number in range(case.replies * case.micro_batches):
        question = number // case.group
        turn = Turn("solver", ({"role": "user", "content": "x"},), key=(0, 1, number))
        reply = Reply(
            turn,
            "x" * case.reply_tokens,
            prompt_ids=(question, *range(5, 4 + case.prompt_tokens)),
            completion_ids=(number, *range(5, 4 + case.reply_tokens)),
            logprobs=(-1.0,) * case.reply_tokens,
            char_ends=tuple(range(1, case.reply_tokens + 1)),
        )
        samples.append(reply.earns(float(number % 3)))
    return samples


def fault(name: str) -> Any:
    """Return a context in which the learner has a fault."""
    from coevolve.models import packing, policy
    from coevolve.training import update

    if name == CPU:
        pack = policy.pack_prefix_tree

        def pack_on_cpu(*arguments: Any) -> Any:
            packed = pack(*arguments)
            targets_T = packed.targets_T.to(CPU)
            return packing.PackedExamples(
                packed.input_BS, packed.attention, packed.target_positions_T, targets_T
            )

        return mock.patch.object(policy, "pack_prefix_tree", pack_on_cpu)
    if name == "float32":
        plain = packing.MicroBatch.at_sampling_temperature

        def widened(micro_batch: Any) -> Any:
            hidden_TH, temperature = plain(micro_batch)
            return hidden_TH.float(), temperature

        return mock.patch.object(packing.MicroBatch, "at_sampling_temperature", widened)
    if name == "reference":
        make_batch = update.TokenBatch

        def make_short_batch(**fields: Any) -> Any:
            fields["reference_logprobs_T"] = fields["reference_logprobs_T"][:2]
            return make_batch(**fields)

        return mock.patch.object(update, "TokenBatch", make_short_batch)
    return nullcontext()


def speak(policy: Any) -> list[int]:
    """Read two prompts and add a token to each, as the sampler does; return the logits' shape."""
    import torch

    from coevolve.models.decoder import Decoder

    rows = 2
    prompt = 8
    decoder = Decoder(policy.plain_model)
    ids_NL = torch.ones(rows, prompt, dtype=torch.long, device=decoder.device)
    last_N = torch.full((rows,), prompt - 1, device=decoder.device)
    mask = torch.zeros(rows, 1, 1, prompt + 1, device=decoder.device)
    rotary = decoder.rotary(prompt + 1)
    cache = decoder.cache(rows, prompt + 1)
    with torch.no_grad():
        decoder.prefill(ids_NL, rotary, cache[..., :prompt, :], last_N)
        last_token = rotary[prompt].expand(rows, *rotary.shape[1:])
        hidden_NH = decoder.step(
            ids_NL[:, 0], last_token, cache, prompt, mask.to(cache.dtype)
        )
        return list(decoder.logits(hidden_NH).shape)


def measure(
    case: Case,
    device: Device = fake_gpu.device,
    make_policy: Callable[[Case], Any] = make_policy,
) -> dict[str, Any]:
    """Take the steps on a device; return the memory around the last one."""
    import torch

    from coevolve.training.settings import OptimizationConfig
    from coevolve.training.update import update_policy
    from coevolve.training.value_baselines import make_baselines

    settings = OptimizationConfig(
        loss=case.loss,
        old_logprobs=case.old_logprobs,
        ratio_cap=case.ratio_cap,
        kl_loss_coef=case.kl_loss_coef,
        minibatches=case.minibatches,
        max_tokens=case.reply_tokens,
        max_tokens_per_micro_batch=case.micro_batch_tokens,
    )
    with device() as memory, fault(case.mutant):
        policy = make_policy(case)
        loaded = memory.now
        parameters = list(policy.parameters())
        optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
        has_reference = case.kl_coef or case.kl_loss_coef
        reference = policy.reference() if has_reference else None
        baselines = make_baselines(case.estimator, {"shared": policy})
        samples = make_samples(case)
        for _ in range(case.steps):
            memory.reset_peak()
            before = memory.now
            update_policy(
                policy,
                optimizer,
                samples,
                settings,
                estimator=case.estimator,
                reference=reference,
                kl_coef=case.kl_coef,
                baseline=baselines.get("shared"),
            )
        peak = memory.peak
        logits_shape = speak(policy)
        trained = sum(parameter.numel() for parameter in parameters)
        return {
            "tokens": case.micro_batch_tokens,
            "parameters": policy.plain_model.num_parameters(),
            "trained": trained,
            "loaded_gib": loaded / GIB,
            "before_gib": before / GIB,
            "peak_gib": peak / GIB,
            "logits": logits_shape,
            "devices": sorted({str(parameter.device) for parameter in parameters}),
            **memory.counts(),
        }


def answer(measure_case: Callable[[Case], dict[str, Any]], out: TextIO) -> None:
    """Measure the cases of stdin; write a line of JSON for each."""
    for fields in json.loads(sys.stdin.read()):
        case = Case(**fields)
        try:
            result = measure_case(case)
        except (RuntimeError, ValueError, TypeError) as error:
            text = " ".join(str(error).split())
            result = {"error": f"{type(error).__name__}: {text[:500]}"}
        print(json.dumps(asdict(case) | result), file=out, flush=True)


def main() -> None:
    """Measure the cases of stdin."""
    fake_gpu.load(Path(sys.argv[1]))
    answer(measure, sys.stdout)


if __name__ == "__main__":
    main()
