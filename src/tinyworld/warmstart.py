"""The warm start of the tiny backbones: a random Qwen2 learns demonstrations of every role.

Loss on completion tokens only; tokens that decide something (scores, verdicts, rankings) count more.
One thread, fp32, a fixed number of steps: the same seed gives the same weights on the same kind of machine.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from tinyworld.demonstrations import INVENTORS, SOLVERS, demonstrate
from tinyworld.demonstrator import HABITS, TRUTH, Demonstrator

DECISIVE_AFTER, DECISIVE = ("<score>", "<judgment>"), (" > Agent ", " = Agent ", " right", " wrong")
DECISIVE_WEIGHT = 3.0
WARMUP = 50  # steps


@dataclass(frozen=True)
class Cycle:
    """One cycle of the warm start; each begins with a fresh optimiser."""

    steps: int
    peak: float  # learning rate
    decay: float  # share of the steps over which the learning rate falls
    truthful: float = 0.0  # share of the steps that show the truth and favour solvers, before the habits
    inventing: bool = False  # favour the roles that invent questions
    batch: int = 24
    shares: Mapping[str, float] = field(default_factory=dict)  # of roles in the mix, instead of those in ROLES

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, constant, then linear decay to 1 %."""
        left = (self.steps - step) / max(1, self.decay * self.steps)
        return self.peak * min(1.0, (step + 1) / WARMUP) * max(0.01, min(1.0, left))


def make_model(config: Qwen2Config, seed: int = 0) -> Qwen2ForCausalLM:
    """A random Qwen2, initialised the way that learnt fastest (0.7 / sqrt(fan-in))."""
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config).float()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            std = 0.05 if "embed" in name else 0.7 * parameter.shape[1] ** -0.5
            torch.nn.init.normal_(parameter, std=std)
    return model


def batches(tokenizer: PreTrainedTokenizerFast, cycle: Cycle, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield length-bucketed batches of demonstrations: ids_BT, right padded, and weights_BT (0 outside completions)."""
    rng = Demonstrator(f"warm start {seed}")
    rng.shares, favoured = cycle.shares, INVENTORS if cycle.inventing else ()
    vocabulary = tokenizer.get_vocab()
    after = torch.tensor([vocabulary[text] for text in DECISIVE_AFTER])
    spelled = [tokenizer(text, add_special_tokens=False).input_ids for text in DECISIVE]
    decisive = torch.tensor([ids[0] for ids in spelled if len(ids) == 1])

    def collate(pairs: list[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
        ids_BT = pad_sequence([torch.tensor(prompt + completion) for prompt, completion in pairs], batch_first=True)
        weights_BT = torch.where(torch.isin(ids_BT, decisive), DECISIVE_WEIGHT, 1.0)
        weights_BT[:, 1:][torch.isin(ids_BT[:, :-1], after)] = DECISIVE_WEIGHT
        for weights_T, (prompt, completion) in zip(weights_BT, pairs, strict=True):
            weights_T[: len(prompt)] = weights_T[len(prompt) + len(completion) :] = 0.0
        return ids_BT, weights_BT

    for made in itertools.count(step=32):
        early = made < int(cycle.truthful * cycle.steps)
        rng.skill, rng.favoured = (TRUTH, SOLVERS) if early else (HABITS, favoured)
        texts = [demonstrate(rng)[1:] for _ in range(cycle.batch * 32)]
        prompts = tokenizer([f"<bos><user>{prompt}<assistant>" for prompt, _ in texts]).input_ids
        completions = tokenizer([f"{completion}<end>" for _, completion in texts]).input_ids
        pairs = sorted(zip(prompts, completions, strict=True), key=lambda pair: len(pair[0]) + len(pair[1]))
        buckets = [pairs[i : i + cycle.batch] for i in range(0, len(pairs), cycle.batch)]
        rng.shuffle(buckets)
        yield from map(collate, buckets)


def loss_of(model: Qwen2ForCausalLM, ids_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Weighted mean cross-entropy of the completion tokens; the head is applied to those positions only."""
    keep_BT = weights_BT[:, 1:] > 0
    hidden_BTH = model.model(input_ids=ids_BT).last_hidden_state[:, :-1]
    losses_N = F.cross_entropy(model.lm_head(hidden_BTH[keep_BT]), ids_BT[:, 1:][keep_BT], reduction="none")
    weights_N = weights_BT[:, 1:][keep_BT]
    return (losses_N * weights_N).sum() / weights_N.sum()


def warm_start(
    model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, numbers_V: Tensor, cycle: Cycle, seed: int
) -> None:
    """Train a model in place with AdamW for one cycle; `numbers_V` is the model's number of each token."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=cycle.peak, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    stream, progress = batches(tokenizer, cycle, seed), tqdm(range(cycle.steps), mininterval=10)
    model.train()
    for step in progress:
        optimizer.param_groups[0]["lr"] = cycle.learning_rate(step)
        ids_BT, weights_BT = next(stream)
        loss = loss_of(model, numbers_V[ids_BT], weights_BT)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        progress.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    model.eval()
