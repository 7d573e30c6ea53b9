"""Time of a whole training step beside TRL's GRPOTrainer, by phase, and of the sampler.

Both trainers do equal work, alternating in one process: the embedded backbone, the same prompts,
groups, reward, loss and optimiser. The sampler is compared with transformers. Medians are printed
and written to step.json. TRL's Triton kernel, which needs a GPU, is replaced by plain torch.
"""

import json
import math
import platform
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from datasets import Dataset
from torch import Tensor
from torch.optim import AdamW
from transformers import PrinterCallback, TrainerCallback

from benchmarks.clock import REST, Clock, Products, Size
from coevolve.engines.loading import load_policy
from coevolve.methods.mae.method import MAE
from coevolve.models import sampler
from coevolve.models.policy import Policy
from coevolve.rollout.scheduler import play
from coevolve.text.parse import tag
from coevolve.training import update
from coevolve.training.settings import OptimizationConfig
from coevolve.types import Episode, Outcome, Turn
from tinyworld import tasks

SAMPLER_ROUNDS = 15
SAMPLER_ROWS = (32, 128, 512)
SAMPLER_TOKENS = 32
GROUP = 8  # replies to a prompt
LONGEST = 48  # tokens of a reply at most
LEARNING_RATE = 3e-4
STEPS = 12  # of each case
WARM_UP_STEPS = 2  # taken before and not counted
SOLVER = MAE().solver


@dataclass(frozen=True)
class Case:
    """Prompts of a step, and whether every reply has LONGEST tokens."""

    prompts: int
    full: bool


CASES = (Case(16, full=False), Case(64, full=False), Case(16, full=True))


@dataclass(frozen=True)
class Timed:
    """A function whose time counts for a phase of the step."""

    owner: object
    name: str
    phase: str


TIMED = (
    Timed(Policy, "render", "tokenise"),
    Timed(Policy, "reply", "tokenise"),
    Timed(sampler, "_prefill", "prefill"),
    Timed(sampler, "decode", "decode"),
    Timed(tasks, "is_correct", "verify"),
    Timed(Policy, "hidden_states", "forward and loss"),
    Timed(update, "policy_loss", "forward and loss"),
    Timed(Tensor, "backward", "backward"),
    Timed(update, "clip_grad_norm_", "optimiser"),
    Timed(AdamW, "step", "optimiser"),
)
PHASES = [*dict.fromkeys(timed.phase for timed in TIMED), REST]
# TRL's other defaults equal ours: AdamW, a clip at 0.2, a gradient of norm 1 at most.
TRL = {
    "max_completion_length": LONGEST,
    "learning_rate": LEARNING_RATE,
    "lr_scheduler_type": "constant",
    "loss_type": "dr_grpo",
    "scale_rewards": "none",
    "shuffle_dataset": False,
    "bf16": False,
    "use_cpu": True,
    "gradient_checkpointing": False,
    "disable_tqdm": True,
}


def seconds(function: Callable[[], object]) -> float:
    """Return the processor seconds of one call.

    Other jobs hardly change them: everything measured has one thread and never waits.
    """
    start = time.process_time()
    function()
    return time.process_time() - start


def draw_questions(count: int) -> list[str]:
    """Return random questions of the tiny world, always the same."""
    rng = random.Random(0)
    families = list(tasks.FAMILIES)
    return [tasks.draw(rng, rng.choice(families)).question for _ in range(count)]


def reward(question: str, text: str) -> float:
    """Return 1 if the tagged answer is correct, else 0."""
    return float(tasks.is_correct(question, tag(text, "answer")))


class Ours:
    """A policy that answers and learns, one step of `prompts` questions after the other."""

    def __init__(
        self,
        questions: list[str],
        prompts: int,
        full: bool = False,
        group: int = GROUP,
        max_tokens: int = LONGEST,
    ):
        self.questions = questions
        self.prompts = prompts
        self.group = group
        self.max_tokens = max_tokens
        self.policy = load_policy("tiny")
        if full:
            self.policy.eos_token_ids = frozenset()  # no token ends a reply
        self.optimizer = AdamW(
            self.policy.parameters(), lr=LEARNING_RATE, weight_decay=0.0, fused=True
        )
        self.engine = self.policy.serve(1.0, max_tokens)
        self.lengths: list[float] = []  # mean tokens of a reply, by step
        self.settings = OptimizationConfig(
            clip=(0.2, 0.2),
            entropy_coef=0.0,
            loss_aggregation="constant",
            max_tokens=max_tokens,
            max_tokens_per_micro_batch=1024,  # as in the presets
        )

    def episode(self, question: str) -> Episode:
        """Answer a question by a group of replies; each earns 1 if it is correct."""
        replies = yield [SOLVER(question=question)] * self.group
        samples = []
        for reply in replies:
            samples.append(
                reply.earns(reward(question, reply.text), group_id=reply.group_id)
            )
        return Outcome(samples)

    def step(self, number: int) -> None:
        """Sample, reward and learn."""
        first = number * self.prompts
        questions = self.questions[first : first + self.prompts]
        episodes = [self.episode(question) for question in questions]
        outcomes = play(episodes, self.engine, (0, number))
        samples = [sample for outcome in outcomes for sample in outcome.samples]
        update.update_policy(
            self.policy, self.optimizer, samples, self.settings, estimator="group_mean"
        )
        self.lengths.append(
            statistics.fmean(len(sample.reply.completion_ids) for sample in samples)
        )


class PlainHead:
    """TRL's fused output layer in plain torch: target log-probabilities and entropies."""

    @staticmethod
    def apply(
        hidden_TH: Tensor,
        head_VH: Tensor,
        bias: None,
        targets_T: Tensor,
        temperature: float,
        *_: object,
    ) -> tuple:
        """Return log-probabilities and entropies of shape (T,), and three unused values."""
        logits_TV = torch.nn.functional.linear(hidden_TH, head_VH, bias) / temperature
        logprobs_TV = logits_TV.log_softmax(-1)
        with torch.no_grad():
            entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        logprobs_T = logprobs_TV.gather(-1, targets_T[:, None])[:, 0]
        return logprobs_T, entropy_T, None, None, None


class Alternate(TrainerCallback):
    """Times TRL's steps, and takes and times one of ours after each of them."""

    def __init__(self, ours: Ours):
        self.ours = ours
        self.start = 0.0
        self.seconds: dict[str, list[float]] = {"ours": [], "TRL": []}

    def on_step_begin(self, *_: object, **__: object) -> None:
        """Note when TRL's step begins."""
        self.start = time.process_time()

    def on_step_end(self, _: object, state: object, *__: object, **___: object) -> None:
        """Note the seconds of TRL's step, then take ours."""
        self.seconds["TRL"].append(time.process_time() - self.start)
        self.seconds["ours"].append(
            seconds(lambda: self.ours.step(state.global_step - 1))
        )


def against_trl(prompts: int, full: bool, steps: int = STEPS) -> dict[str, float]:
    """Return median seconds of alternating whole steps of both, and tokens of a reply."""
    from trl import GRPOConfig, GRPOTrainer

    questions = draw_questions(prompts * (steps + WARM_UP_STEPS))
    ours = Ours(questions, prompts, full)
    alternate = Alternate(ours)
    trl_lengths: list[float] = []

    def rewards(
        completions: list, question: list[str], completion_ids: list, **_: object
    ) -> list[float]:
        trl_lengths.append(statistics.fmean(map(len, completion_ids)))
        pairs = zip(question, completions, strict=True)
        return [reward(q, completion[0]["content"]) for q, completion in pairs]

    prompt = [list(SOLVER(question=question).messages) for question in questions]
    dataset = Dataset.from_dict({"prompt": prompt, "question": questions})
    policy = load_policy("tiny")
    plain_head = mock.patch("trl.trainer.utils._ChunkedLogProbFunction", PlainHead)
    with tempfile.TemporaryDirectory() as out, plain_head:
        settings = GRPOConfig(
            output_dir=out,
            per_device_train_batch_size=prompts * GROUP,
            max_steps=steps + WARM_UP_STEPS,
            generation_kwargs={"min_new_tokens": LONGEST} if full else None,
            **TRL,
        )
        trainer = GRPOTrainer(
            policy.model,
            rewards,
            settings,
            dataset,
            None,
            policy.tokenizer,
            callbacks=[alternate],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    medians = {}
    for name, values in alternate.seconds.items():
        medians[name] = statistics.median(values[WARM_UP_STEPS:])
    return {
        "rows": prompts * GROUP,
        "full": full,
        "steps": steps,
        **medians,
        "our_tokens": statistics.fmean(ours.lengths[WARM_UP_STEPS:]),
        "trl_tokens": statistics.fmean(trl_lengths[WARM_UP_STEPS:]),
        "ratio": medians["TRL"] / medians["ours"],
    }


def seconds_of_product(size: Size) -> float:
    """Return the median seconds of one matrix product by itself."""
    batch, rows, inner, columns = size
    a = torch.randn(batch, rows, inner)
    b = torch.randn(batch, inner, columns)
    out = torch.empty(batch, rows, columns)

    def product() -> None:
        if batch > 1:
            torch.bmm(a, b, out=out)
        else:
            torch.mm(a[0], b[0], out=out[0])

    times = [seconds(product) for _ in range(6)]
    return statistics.median(times[1:])


def run_steps(prompts: int, steps: int, count_products: bool) -> tuple[Clock, float]:
    """Take steps under a clock; return it and the seconds of all steps after the warm-up."""
    clock = Clock()
    ours = Ours(draw_questions(prompts * (steps + WARM_UP_STEPS)), prompts)
    with ExitStack() as stack:
        for timed in TIMED:
            function = clock.timed(timed.phase, getattr(timed.owner, timed.name))
            stack.enter_context(mock.patch.object(timed.owner, timed.name, function))
        for number in range(WARM_UP_STEPS):
            ours.step(number)
        clock.seconds.clear()
        if count_products:
            stack.enter_context(Products(clock))
        start = time.process_time()
        for number in range(WARM_UP_STEPS, WARM_UP_STEPS + steps):
            ours.step(number)
        return clock, time.process_time() - start


def phases(prompts: int, steps: int = STEPS) -> dict:
    """Return milliseconds of our step by phase, and those of its matrix products alone."""
    clock, total_seconds = run_steps(prompts, steps, count_products=False)
    counting_clock, _ = run_steps(prompts, steps, count_products=True)
    clock.seconds[REST] = total_seconds - clock.seconds.total()
    times: dict[Size, float] = {}
    product_seconds: Counter[str] = Counter()
    operations = 0
    for (phase, size), count in counting_clock.products.items():
        if size not in times:
            times[size] = seconds_of_product(size)
        product_seconds[phase] += count * times[size]
        operations += 2 * count * math.prod(size)
    to_ms = 1e3 / steps
    rows = []
    for name in PHASES:
        row = {
            "phase": name,
            "ms": to_ms * clock.seconds[name],
            "floor": to_ms * product_seconds[name],
        }
        rows.append(row)
    return {"rows": prompts * GROUP, "gflop": operations / steps / 1e9, "phases": rows}


def sampling() -> list[dict[str, float]]:
    """Return median tokens per second of full-length replies: ours and transformers.

    transformers uses its dynamic cache.
    """
    policy = load_policy("tiny")
    policy.eos_token_ids = frozenset()  # no token ends a reply
    questions = draw_questions(SAMPLER_ROWS[-1])
    rows = []
    for count in SAMPLER_ROWS:
        messages = [
            SOLVER(question=question).messages for question in questions[:count]
        ]
        turns = []
        for i, message in enumerate(messages):
            turns.append(Turn("solver", message, max_tokens=SAMPLER_TOKENS, key=(i,)))
        prompts = {"input_ids": [policy.render(message) for message in messages]}
        batch = policy.tokenizer.pad(prompts, return_tensors="pt")
        limits = {"max_new_tokens": SAMPLER_TOKENS, "min_new_tokens": SAMPLER_TOKENS}
        times: dict[str, list[float]] = {"ours": [], "transformers": []}
        for _ in range(SAMPLER_ROUNDS):
            start = time.process_time()
            policy.generate(turns)
            times["ours"].append(time.process_time() - start)
            start = time.process_time()
            with torch.no_grad():
                policy.model.generate(**batch, do_sample=True, **limits)
            times["transformers"].append(time.process_time() - start)
        speeds = {}
        for name, values in times.items():
            speeds[name] = count * SAMPLER_TOKENS / statistics.median(values)
        ratio = speeds["ours"] / speeds["transformers"]
        rows.append({"rows": count, **speeds, "ratio": ratio})
    return rows


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def table_of_steps(rows: list[dict]) -> str:
    """Return whole steps beside TRL's as Markdown."""
    lines = []
    for row in rows:
        tokens = f"{row['our_tokens']:.1f} and {row['trl_tokens']:.1f}"
        if row["full"]:
            tokens = f"all of {LONGEST}"
        cells = [
            row["rows"],
            tokens,
            f"{1e3 * row['ours']:.0f}",
            f"{1e3 * row['TRL']:.0f}",
            f"{row['ratio']:.2f}",
        ]
        lines.append(cells)
    head = (
        "rows",
        "tokens a reply, ours and TRL's",
        "ours, ms a step",
        "TRL",
        "TRL over ours",
    )
    return markdown(head, lines)


def table_of_phases(parts: list[dict]) -> str:
    """Return the phases of our steps as Markdown."""
    heads = ["phase"]
    columns = [[*(row["phase"] for row in parts[0]["phases"]), "all"]]
    for part in parts:
        heads.append(f"{part['rows']} rows, ms a step")
        heads.append(f"{part['rows']} rows, products alone")
        times = [row["ms"] for row in part["phases"]]
        floors = [row["floor"] for row in part["phases"]]
        total = sum(times)
        columns.append(
            [f"{ms:.1f} ({100 * ms / total:.0f} %)" for ms in (*times, total)]
        )
        columns.append([f"{ms:.1f}" for ms in (*floors, sum(floors))])
    return markdown(heads, zip(*columns, strict=True))


def table_of_sampling(rows: list[dict]) -> str:
    """Return the speeds of the samplers as Markdown."""
    lines = []
    for row in rows:
        cells = [
            row["rows"],
            f"{row['ours']:,.0f}",
            f"{row['transformers']:,.0f}",
            f"{row['ratio']:.2f}",
        ]
        lines.append(cells)
    return markdown(("rows", "ours, tokens/s", "transformers", "ratio"), lines)


def table(result: dict) -> str:
    """Return whole steps, phases and the sampler as Markdown."""
    tables = [
        table_of_steps(result["trl"]),
        table_of_phases(result["phases"]),
        table_of_sampling(result["sampling"]),
    ]
    return "\n\n".join(tables)


def main() -> None:
    """Measure, print Markdown, write JSON beside this file."""
    torch.set_num_threads(1)
    result = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "trl": [against_trl(case.prompts, case.full) for case in CASES],
        "phases": [phases(case.prompts) for case in CASES if not case.full],
        "sampling": sampling(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    ratios = [row["ratio"] for row in result["trl"] if not row["full"]]
    print(table(result), end="\n\n")
    print("TRL's median over ours, the smaller of those of 128 and 512 rows:")
    print(f"ratio {min(ratios):.2f}")


if __name__ == "__main__":
    main()
