"""A small random Qwen2 (or another), what it samples, and batches of samples: shared by the tests of policies and learning."""

import random
from dataclasses import replace
from functools import partial

import torch
from transformers import Qwen2ForCausalLM

from coevolve import losses
from coevolve.models.decoder import Decoder
from coevolve.models.policy import Policy
from coevolve.models.sampler import Request, decode, sample
from coevolve.text import prompts
from coevolve.training import update
from coevolve.training.settings import Learning
from coevolve.types import Reply, Turn

END = 3
SOLVER = prompts.load_role("mae", "solver", "compact")


def qwen(tied=True, kv=1, scale=0.2, vocabulary=320, kind=Qwen2ForCausalLM, **other):
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    tokens = {
        "vocab_size": vocabulary,
        "bos_token_id": 1,
        "eos_token_id": END,
        "pad_token_id": 0,
    }
    more = {
        "num_key_value_heads": kv,
        "tie_word_embeddings": tied,
        "initializer_range": scale,
    }
    model = kind(
        kind.config_class(
            **sizes, **tokens, **more, max_position_embeddings=128, **other
        )
    ).eval()
    for (
        name,
        parameter,
    ) in (
        model.named_parameters()
    ):  # zero biases and plain norms would hide forgotten ones
        if name.endswith(("bias", "q_norm.weight", "k_norm.weight")):
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def ragged(count, seed=0):
    """Prompts of 1 to 24 tokens."""
    rng = random.Random(seed)
    return [
        tuple(rng.randrange(5, 300) for _ in range(rng.randint(1, 24)))
        for _ in range(count)
    ]


def draw(model, prompts, keys=None, temperatures=1.0, limits=16, eos_token_ids=(END,)):
    """Sample one completion per prompt; a single temperature or limit holds for all."""
    count = len(prompts)
    keys = range(count) if keys is None else keys
    heats = temperatures if isinstance(temperatures, list) else [temperatures] * count
    limits = limits if isinstance(limits, list) else [limits] * count
    rows = zip(prompts, keys, heats, limits, strict=True)
    asked = [
        Request(tuple(prompt), key, heat, limit) for prompt, key, heat, limit in rows
    ]
    return sample(asked, partial(decode, Decoder(model), eos_token_ids))


def teacher_forced(model, prompt, ids, temperature=1.0):
    """Log-probabilities of `ids` after `prompt`, by one forward pass of transformers."""
    with torch.no_grad():
        logits = (
            model(torch.tensor([[*prompt, *ids]]))
            .logits[0, len(prompt) - 1 : -1]
            .float()
            / temperature
        )
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None])[:, 0]


class Letters:
    """As much of a tokenizer as training needs."""

    eos_token_id = END


def policy_of(**changes):
    return Policy(qwen(**changes), Letters())


def batch_of(policy, count=24, heats=(1.0,), reward=lambda row, ids: row * 0.618 % 1):
    """Samples of two roles in turn, drawn at these temperatures in turn (0: greedy)."""
    prompts = ragged(count)
    chosen = [heats[row % len(heats)] for row in range(count)]
    done = draw(policy.model, prompts, temperatures=chosen, limits=12)
    samples = []
    for row, (prompt, completion) in enumerate(zip(prompts, done, strict=True)):
        turn = Turn(("solver", "judge")[row % 2], ())
        ids, logprobs = tuple(completion.token_ids), tuple(completion.logprobs)
        reply = Reply(turn, "", prompt, ids, logprobs, temperature=chosen[row] or 1.0)
        samples.append(reply.earns(reward(row, completion.token_ids)))
    return samples


class Keep(torch.optim.SGD):
    """An optimiser that keeps the gradients it was given and changes nothing."""

    def step(self):
        self.seen = [
            None if p.grad is None else p.grad.clone()
            for g in self.param_groups
            for p in g["params"]
        ]


def learn(policy, optimizer, samples, estimator="task_relative", **asked):
    """Take a step of the learner, without an entropy bonus unless it is asked for."""
    known = {
        name: asked.pop(name)
        for name in ("reference", "kl_coef", "baseline")
        if name in asked
    }
    settings = Learning(**{"entropy_coef": 0.0, **asked})
    return update.update_policy(
        policy, optimizer, samples, settings, estimator=estimator, **known
    )


def policy_loss(
    hidden,
    head,
    targets,
    advantages,
    old=None,
    weights_T=None,
    chunk=None,
    path=None,
    **judged,
):
    """The loss of packed tokens; without weights, the mean over them."""
    if weights_T is None:
        dtype = torch.promote_types(hidden.dtype, torch.float32)
        weights_T = torch.full_like(advantages, 1 / max(len(hidden), 1), dtype=dtype)
    temperature = judged.pop("temperature", 1.0)
    config = losses.LossConfig(**judged)
    tokens = losses.TokenBatch(targets, advantages, weights_T, old, temperature, config)
    return losses.policy_loss(hidden, head, tokens, chunk, path)


def gradient(samples, **settings):
    """The gradient that `learn` makes of samples in double precision, and the step's metrics."""
    policy = policy_of()
    policy.model.double()
    optimizer = Keep(policy.parameters(), lr=1.0)
    metrics = learn(policy, optimizer, samples, **{"grad_clip": 1e9, **settings})
    return optimizer.seen, metrics


def weights_of(policy):
    return torch.cat([part.detach().flatten().clone() for part in policy.parameters()])


def ask(policy="shared", key=0, question="3+4*2=?", **limits):
    """A turn that the embedded backbones understand."""
    return replace(SOLVER(question=question, policy=policy), key=(0, 0, key), **limits)
