"""A small random model, completions that it samples, and batches of samples to learn from."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.optim import Optimizer
from transformers import PreTrainedModel, Qwen2ForCausalLM

from coevolve import losses
from coevolve.losses.reference import at_least_float32
from coevolve.models.decoder import Decoder
from coevolve.models.policy import Policy
from coevolve.models.sampler import Completion, Request, decode, sample
from coevolve.text import prompts as prompt_files
from coevolve.training import update
from coevolve.training.settings import OptimizationConfig
from coevolve.types import Reply, Sample, Turn

END = 3
SOLVER = prompt_files.load_role("mae", "solver", "compact")


def qwen(
    tied: bool = True,
    kv: int = 1,
    scale: float = 0.2,
    vocabulary: int = 320,
    kind: type[PreTrainedModel] = Qwen2ForCausalLM,
    **other: object,
) -> PreTrainedModel:
    """Make a model of this `kind` with two layers, `kv` heads of keys and values, random weights.

    `scale` is the standard deviation of the weights; `other` are further fields of its config.
    """
    torch.manual_seed(0)
    config = kind.config_class(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=kv,
        vocab_size=vocabulary,
        bos_token_id=1,
        eos_token_id=END,
        pad_token_id=0,
        tie_word_embeddings=tied,
        initializer_range=scale,
        max_position_embeddings=128,
        **other,
    )
    model = kind(config).eval()
    # Biases of 0 and norms of 1 would hide that a decoder forgets them.
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "q_norm.weight", "k_norm.weight")):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def ragged(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Return prompts of 1 to 24 random tokens."""
    rng = random.Random(seed)
    prompts = []
    for _ in range(count):
        length = rng.randint(1, 24)
        prompts.append(tuple(rng.randrange(5, 300) for _ in range(length)))
    return prompts


def one_each(values: object, count: int) -> list:
    """Return a list unchanged, and `count` times any other value."""
    return values if isinstance(values, list) else [values] * count


def draw(
    model: PreTrainedModel,
    prompts: Sequence[Sequence[int]],
    keys: Sequence | None = None,
    temperatures: float | list[float] = 1.0,
    limits: int | list[int] = 16,
    eos_token_ids: Sequence[int] = (END,),
) -> list[Completion]:
    """Sample one completion per prompt; a single temperature or limit holds for all."""
    count = len(prompts)
    rows = zip(
        prompts,
        range(count) if keys is None else keys,
        one_each(temperatures, count),
        one_each(limits, count),
        strict=True,
    )
    requests = []
    for prompt, key, temperature, limit in rows:
        requests.append(Request(tuple(prompt), key, temperature, limit))
    complete_batch = partial(decode, Decoder(model), eos_token_ids)
    return sample(requests, complete_batch)


def teacher_forced(
    model: PreTrainedModel,
    prompt: Sequence[int],
    ids: Sequence[int],
    temperature: float = 1.0,
) -> Tensor:
    """Return the log-probabilities (T,) of `ids` after `prompt`, by one pass of the model."""
    with torch.no_grad():
        logits_SV = model(torch.tensor([[*prompt, *ids]])).logits[0]
    logits_TV = logits_SV[len(prompt) - 1 : -1].float() / temperature
    targets_T1 = torch.tensor(ids)[:, None]
    return logits_TV.log_softmax(-1).gather(-1, targets_T1)[:, 0]


class Letters:
    """The part of a tokenizer that training needs."""

    eos_token_id = END


def policy_of(**changes: object) -> Policy:
    """Make a policy of the small model; `changes` are arguments of `qwen`."""
    return Policy(qwen(**changes), Letters())


def batch_of(
    policy: Policy,
    count: int = 24,
    heats: Sequence[float] = (1.0,),
    reward: Callable[[int, list[int]], float] = lambda row, ids: row * 0.618 % 1,
) -> list[Sample]:
    """Draw samples of two roles in turn, at these temperatures in turn (0: greedy).

    `reward` rates a sample by its number and token ids.
    """
    prompts = ragged(count)
    temperatures = [heats[row % len(heats)] for row in range(count)]
    completions = draw(policy.model, prompts, temperatures=temperatures, limits=12)
    samples = []
    for row, completion in enumerate(completions):
        reply = Reply(
            turn=Turn(("solver", "judge")[row % 2], ()),
            text="",
            prompt_ids=prompts[row],
            completion_ids=tuple(completion.token_ids),
            logprobs=tuple(completion.logprobs),
            temperature=temperatures[row] or 1.0,
        )
        samples.append(reply.earns(reward(row, completion.token_ids)))
    return samples


class Keep(torch.optim.SGD):
    """An optimiser that changes nothing; `seen` holds the gradients of its last step."""

    def step(self):
        self.seen = []
        for group in self.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                self.seen.append(None if gradient is None else gradient.clone())


def learn(
    policy: Policy,
    optimizer: Optimizer,
    samples: Sequence[Sample],
    estimator: str = "task_relative",
    *,
    reference: Policy | None = None,
    kl_coef: float = 0.0,
    baseline: object = None,
    **settings: object,
) -> dict[str, float]:
    """Update a policy, without an entropy bonus unless the settings name one."""
    settings.setdefault("entropy_coef", 0.0)
    return update.update_policy(
        policy,
        optimizer,
        samples,
        OptimizationConfig(**settings),
        estimator=estimator,
        reference=reference,
        kl_coef=kl_coef,
        baseline=baseline,
    )


def policy_loss(
    hidden_TH: Tensor,
    head_VH: Tensor,
    targets_T: Tensor,
    advantages_T: Tensor,
    old_logprobs_T: Tensor | None = None,
    *,
    weights_T: Tensor | None = None,
    temperature: float = 1.0,
    chunk: int | None = None,
    path: str | None = None,
    **objective: object,
) -> losses.PolicyLoss:
    """Compute the loss of packed tokens; without weights, the mean over them.

    `objective` are fields of a LossConfig.
    """
    if weights_T is None:
        weights_T = torch.full_like(
            advantages_T,
            1 / max(len(hidden_TH), 1),
            dtype=at_least_float32(hidden_TH.dtype),
        )
    tokens = losses.TokenBatch(
        targets_T=targets_T,
        advantages_T=advantages_T,
        weights_T=weights_T,
        old_logprobs_T=old_logprobs_T,
        temperature=temperature,
        config=losses.LossConfig(**objective),
    )
    return losses.policy_loss(hidden_TH, head_VH, tokens, chunk, path)


def gradient(
    samples: Sequence[Sample], **settings: object
) -> tuple[list[Tensor | None], dict[str, float]]:
    """Return each parameter's gradient by `learn`, in double precision, and the metrics.

    The gradient is not clipped unless the settings say how.
    """
    policy = policy_of()
    policy.model.double()
    optimizer = Keep(policy.parameters(), lr=1.0)
    settings.setdefault("grad_clip", 1e9)
    metrics = learn(policy, optimizer, samples, **settings)
    return optimizer.seen, metrics


def weights_of(policy: Policy) -> Tensor:
    """Return a copy of all weights, as one vector."""
    parts = [parameter.detach().flatten() for parameter in policy.parameters()]
    return torch.cat(parts)


def ask(
    policy: str = "shared", key: int = 0, question: str = "3+4*2=?", **limits: object
) -> Turn:
    """Make a turn that the embedded backbones understand."""
    turn = SOLVER(question=question, policy=policy)
    return replace(turn, key=(0, 0, key), **limits)
