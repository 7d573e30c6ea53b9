"""The warm start of the tiny backbones: a random Qwen2 learns demonstrations of every role.

The loss covers completion tokens; those that decide something (scores, verdicts, rankings) weigh
more. One thread, fp32 and a fixed number of steps: the same seed gives the same weights on the
same kind of machine.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm.auto import tqdm
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from tinyworld.demonstrations import INVENTORS, SOLVERS, demonstrate
from tinyworld.demonstrator import PERFECT_SKILL, SOLVER_SKILL, Demonstrator

DECISIVE_AFTER = ("<score>", "<judgment>")  # the token after one of these is decisive
# Decisive where they are one token.
DECISIVE = (
    " > Agent ",
    " = Agent ",
    " right",
    " wrong",
)
DECISIVE_WEIGHT = 3.0
WARMUP = 50  # steps
BUCKETS = 32  # batches that are sorted by length together


@dataclass(frozen=True)
class Cycle:
    """One cycle of the warm start; each begins with a fresh optimizer."""

    steps: int
    peak: float  # learning rate
    decay: float  # share of the steps over which the learning rate falls
    truthful: float = 0.0  # share of the steps, the first, without errors
    inventing: bool = False  # whether to favour the roles that invent questions
    batch: int = 24
    # Role -> weight, if not of ROLES.
    shares: Mapping[str, float] = field(default_factory=dict)

    def learning_rate(self, step: int) -> float:
        """Return the learning rate: linear warm-up, constant, then linear decay to 1 %."""
        remaining = (self.steps - step) / max(1, self.decay * self.steps)
        warmup_factor = min(1.0, (step + 1) / WARMUP)
        return self.peak * warmup_factor * max(0.01, min(1.0, remaining))


def make_model(config: Qwen2Config, seed: int = 0) -> Qwen2ForCausalLM:
    """Return a random Qwen2, with the initialisation that learnt fastest (0.7 / sqrt(fan-in))."""
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config).float()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            std = 0.05 if "embed" in name else 0.7 * parameter.shape[1] ** -0.5
            torch.nn.init.normal_(parameter, std=std)
    return model


@dataclass(frozen=True)
class TokenizedPair:
    """A demonstration as token ids."""

    prompt: list[int]
    completion: list[int]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.completion)


class Collator:
    """Makes padded batches of demonstrations with a weight per token."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        """Look up the tokens that are decisive in the tokenizer's vocabulary."""
        vocabulary = tokenizer.get_vocab()
        self.decisive_after = torch.tensor(
            [vocabulary[text] for text in DECISIVE_AFTER]
        )
        encoded = [
            tokenizer(text, add_special_tokens=False).input_ids for text in DECISIVE
        ]
        self.decisive = torch.tensor([ids[0] for ids in encoded if len(ids) == 1])

    def __call__(self, pairs: Sequence[TokenizedPair]) -> tuple[Tensor, Tensor]:
        """Return ids_BT, padded on the right, and weights_BT, 0 outside completions."""
        rows = [torch.tensor(pair.prompt + pair.completion) for pair in pairs]
        ids_BT = pad_sequence(rows, batch_first=True)
        weights_BT = torch.where(
            torch.isin(ids_BT, self.decisive), DECISIVE_WEIGHT, 1.0
        )
        follows_BT = torch.isin(ids_BT[:, :-1], self.decisive_after)
        weights_BT[:, 1:][follows_BT] = DECISIVE_WEIGHT
        for weights_T, pair in zip(weights_BT, pairs, strict=True):
            weights_T[: len(pair.prompt)] = 0.0
            weights_T[len(pair) :] = 0.0
        return ids_BT, weights_BT


def _draw_pairs(
    rng: Demonstrator, tokenizer: PreTrainedTokenizerFast, count: int
) -> list[TokenizedPair]:
    prompts = []
    completions = []
    for _ in range(count):
        _, prompt, completion = demonstrate(rng)
        prompts.append(f"<bos><user>{prompt}<assistant>")
        completions.append(f"{completion}<end>")
    prompt_ids = tokenizer(prompts).input_ids
    completion_ids = tokenizer(completions).input_ids
    return [TokenizedPair(*ids) for ids in zip(prompt_ids, completion_ids, strict=True)]


def batches(
    tokenizer: PreTrainedTokenizerFast, cycle: Cycle, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of about one length without end: ids_BT and weights_BT, see `Collator`."""
    rng = Demonstrator(f"warm start {seed}")
    rng.role_weights = cycle.shares
    collate = Collator(tokenizer)
    truthful_steps = int(cycle.truthful * cycle.steps)
    for first_step in itertools.count(step=BUCKETS):
        if first_step < truthful_steps:
            rng.skill = PERFECT_SKILL
            rng.favoured_roles = SOLVERS
        else:
            rng.skill = SOLVER_SKILL
            rng.favoured_roles = INVENTORS if cycle.inventing else ()
        pairs = _draw_pairs(rng, tokenizer, cycle.batch * BUCKETS)
        pairs.sort(key=len)
        buckets = [
            pairs[i : i + cycle.batch] for i in range(0, len(pairs), cycle.batch)
        ]
        rng.shuffle(buckets)
        for bucket in buckets:
            yield collate(bucket)


def loss_of(model: Qwen2ForCausalLM, ids_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Return the weighted mean cross-entropy of the completion tokens.

    The head is applied to their N positions only.
    """
    target_weights_BT = weights_BT[:, 1:]
    in_completion_BT = target_weights_BT > 0
    hidden_BTH = model.model(input_ids=ids_BT).last_hidden_state[:, :-1]
    logits_NV = model.lm_head(hidden_BTH[in_completion_BT])
    targets_N = ids_BT[:, 1:][in_completion_BT]
    losses_N = F.cross_entropy(logits_NV, targets_N, reduction="none")
    weights_N = target_weights_BT[in_completion_BT]
    return (losses_N * weights_N).sum() / weights_N.sum()


def warm_start(
    model: Qwen2ForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    numbers_V: Tensor,
    cycle: Cycle,
    seed: int,
) -> None:
    """Train a model in place with AdamW for one cycle.

    `numbers_V` is the model's number of each token of the tokenizer.
    """
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=cycle.peak,
        betas=(0.9, 0.95),
        weight_decay=0.01,
        fused=True,
    )
    stream = batches(tokenizer, cycle, seed)
    progress = tqdm(range(cycle.steps), mininterval=10)
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
