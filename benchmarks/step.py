"""Time a whole training step against TRL's GRPOTrainer, where our own time goes, and the sampler against transformers.

Both do equal work, alternating in one process: the embedded backbone, the same prompts, groups, reward, loss and
optimiser. Medians are printed and written to step.json. TRL's Triton kernel, which needs a GPU, gives way to torch.
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
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from unittest import mock

import torch
from datasets import Dataset
from torch import Tensor
from torch.optim import AdamW
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PrinterCallback, TrainerCallback

from coevolve.engines.loading import load_policy
from coevolve.methods.mae.method import MAE
from coevolve.models import sampler
from coevolve.models.policy import Policy
from coevolve.rollout.scheduler import play
from coevolve.text.parse import tag
from coevolve.training import update
from coevolve.training.settings import Learning
from coevolve.types import Episode, Outcome, Turn
from tinyworld import tasks

ROUNDS, ROWS, TOKENS = 15, (32, 128, 512), 32  # of the sampler
GROUP, LONGEST, RATE = 8, 48, 3e-4  # replies to a prompt, tokens of a reply at most, learning rate
CASES = ((16, False), (64, False), (16, True))  # prompts a step, and whether every reply goes on to LONGEST tokens
STEPS, WARM = 12, 2  # of each case; steps that come before and are not counted
SOLVER = MAE().solver
PHASES = (
    (Policy, "render", "tokenise"),
    (Policy, "reply", "tokenise"),
    (sampler, "_prefill", "prefill"),
    (sampler, "decode", "decode"),
    (tasks, "is_correct", "verify"),
    (Policy, "states", "forward and loss"),
    (update, "policy_loss", "forward and loss"),
    (Tensor, "backward", "backward"),
    (update, "clip_grad_norm_", "optimiser"),
    (AdamW, "step", "optimiser"),
)
REST = "bookkeeping"  # everything else
TRL = {  # the rest is TRL's default, as ours: AdamW, a clip at 0.2, a gradient of norm 1 at most
    "max_completion_length": LONGEST,
    "learning_rate": RATE,
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
    """Processor seconds of one call, which other jobs hardly stretch: all here has one thread and never waits."""
    start = time.process_time()
    function()
    return time.process_time() - start


def asked(count: int) -> list[str]:
    rng = random.Random(0)
    return [tasks.draw(rng, rng.choice(list(tasks.FAMILIES))).question for _ in range(count)]


def earned(question: str, text: str) -> float:
    return float(tasks.is_correct(question, tag(text, "answer")))


class Ours:
    """A policy that answers and learns, a step of so many questions after the other."""

    def __init__(self, questions: list[str], prompts: int, full: bool = False, group: int = GROUP, most: int = LONGEST):
        self.questions, self.prompts, self.group, self.most = questions, prompts, group, most
        self.policy = load_policy("tiny")
        self.policy.eos_token_ids = frozenset() if full else self.policy.eos_token_ids  # none: every reply goes on
        self.optimizer = AdamW(self.policy.parameters(), lr=RATE, weight_decay=0.0, fused=True)
        self.engine, self.lengths = self.policy.serve(1.0, most), []
        shape = {"length_norm": "constant", "max_tokens": most, "micro_tokens": 1024}  # of the presets
        self.settings = Learning(clip=(0.2, 0.2), entropy_coef=0.0, **shape)

    def episode(self, question: str) -> Episode:
        """A group of answers, each paid if it is right."""
        replies = yield [SOLVER(question=question)] * self.group
        return Outcome([reply.earns(earned(question, reply.text), group_id=reply.group_id) for reply in replies])

    def step(self, number: int) -> None:
        """Sample, reward and learn."""
        part = self.questions[number * self.prompts : (number + 1) * self.prompts]
        outcomes = play([self.episode(question) for question in part], self.engine, (0, number))
        samples = [sample for outcome in outcomes for sample in outcome.samples]
        update.update_policy(self.policy, self.optimizer, samples, self.settings, estimator="group_mean")
        self.lengths.append(statistics.fmean(len(sample.reply.completion_ids) for sample in samples))


class PlainHead:
    """TRL's fused output layer in plain torch: log-probabilities of the targets, and the entropies that TRL reports."""

    @staticmethod
    def apply(hidden_TH: Tensor, head_VH: Tensor, bias: None, targets_T: Tensor, heat: float, *_: object) -> tuple:
        logprobs_TV = (torch.nn.functional.linear(hidden_TH, head_VH, bias) / heat).log_softmax(-1)
        with torch.no_grad():
            entropy_T = -(logprobs_TV.exp() * logprobs_TV).sum(-1)
        return logprobs_TV.gather(-1, targets_T[:, None])[:, 0], entropy_T, None, None, None


def against_trl(prompts: int, full: bool, steps: int = STEPS) -> dict[str, float]:
    """Median seconds of a whole step of both, which alternate, and how many tokens a reply had."""
    from trl import GRPOConfig, GRPOTrainer

    questions = asked(prompts * (steps + WARM))
    ours, lengths, took = Ours(questions, prompts, full), [], {"ours": [], "TRL": []}

    class Alternate(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            self.start = time.process_time()

        def on_step_end(self, _: object, state: object, *__: object, **___: object) -> None:
            took["TRL"].append(time.process_time() - self.start)
            took["ours"].append(seconds(lambda: ours.step(state.global_step - 1)))

    def reward(completions: list, question: list[str], completion_ids: list, **_: object) -> list[float]:
        lengths.append(statistics.fmean(map(len, completion_ids)))
        return [earned(q, said[0]["content"]) for q, said in zip(question, completions, strict=True)]

    prompt = [list(SOLVER(question=question).messages) for question in questions]
    given, shape = Dataset.from_dict({"prompt": prompt, "question": questions}), {"max_steps": steps + WARM}
    shape["generation_kwargs"] = {"min_new_tokens": LONGEST} if full else None
    theirs = load_policy("tiny")
    with tempfile.TemporaryDirectory() as out, mock.patch("trl.trainer.utils._ChunkedLogProbFunction", PlainHead):
        settings = GRPOConfig(output_dir=out, per_device_train_batch_size=prompts * GROUP, **TRL, **shape)
        trainer = GRPOTrainer(theirs.model, reward, settings, given, None, theirs.tokenizer, callbacks=[Alternate()])
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    medians = {name: statistics.median(values[WARM:]) for name, values in took.items()}
    tokens = {"our_tokens": statistics.fmean(ours.lengths[WARM:]), "trl_tokens": statistics.fmean(lengths[WARM:])}
    case = {"rows": prompts * GROUP, "full": full, "steps": steps}
    return case | medians | tokens | {"ratio": medians["TRL"] / medians["ours"]}


class Clock:
    """Seconds by phase, and the sizes of matrix products; what a phase does inside another counts for itself alone."""

    def __init__(self) -> None:
        self.spent, self.sizes, self.open = Counter(), Counter(), [[REST, 0.0]]

    def timed(self, phase: str, function: Callable) -> Callable:
        """The function, with its time noted."""

        def call(*args: object, **kwargs: object) -> object:
            self.open.append([phase, 0.0])
            values = []
            took = seconds(lambda: values.append(function(*args, **kwargs)))
            self.spent[phase] += took - self.open.pop()[1]
            self.open[-1][1] += took
            return values[0]

        return call


class Products(TorchDispatchMode):
    """Notes the size (batch, rows, inner, columns) of every matrix product for the phase that a clock is in."""

    def __init__(self, clock: Clock):
        super().__init__()
        self.clock = clock

    def __torch_dispatch__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        name = func._schema.name.removeprefix("aten::").rstrip("_")
        if name in ("mm", "bmm", "addmm", "baddbmm"):
            self.note(*(args[:2] if name in ("mm", "bmm") else args[1:3]))
        elif name.startswith("_scaled_dot_product"):  # its gradient wants four products, of which three are as wide
            backward = name.endswith("backward")
            q, k = args[backward : backward + 2]
            self.note(q, k.mT)
            self.note(q @ k.mT, k, 3 if backward else 1)
        return func(*args, **(kwargs or {}))

    def note(self, a: Tensor, b: Tensor, count: int = 1) -> None:
        self.clock.sizes[self.clock.open[-1][0], (a.shape[:-2].numel(), *a.shape[-2:], b.shape[-1])] += count


def alone(size: tuple[int, int, int, int]) -> float:
    """Median seconds of one matrix product and of nothing else."""
    batch, rows, inner, columns = size
    a, b, out = torch.randn(batch, rows, inner), torch.randn(batch, inner, columns), torch.empty(batch, rows, columns)
    product = (lambda: torch.bmm(a, b, out=out)) if batch > 1 else (lambda: torch.mm(a[0], b[0], out=out[0]))
    return statistics.median([seconds(product) for _ in range(6)][1:])


def phases(prompts: int, steps: int = STEPS) -> dict:
    """Milliseconds of our step by phase, each beside those that the matrix products in it take alone."""
    questions = asked(prompts * (steps + WARM))

    def run(watch: Callable[[Clock], AbstractContextManager]) -> tuple[Clock, float]:
        clock, ours = Clock(), Ours(questions, prompts)
        with ExitStack() as stack:
            for owner, name, phase in PHASES:
                stack.enter_context(mock.patch.object(owner, name, clock.timed(phase, getattr(owner, name))))
            for number in range(WARM):
                ours.step(number)
            clock.spent.clear()
            stack.enter_context(watch(clock))
            return clock, seconds(lambda: [ours.step(number) for number in range(WARM, WARM + steps)])

    clock, whole = run(lambda _: nullcontext())
    sizes = run(Products)[0].sizes
    clock.spent[REST] = whole - clock.spent.total()
    times, products = {size: alone(size) for _, size in sizes}, Counter()
    for (phase, size), count in sizes.items():
        products[phase] += count * times[size]
    names, scale = [*dict.fromkeys(phase for *_, phase in PHASES), REST], 1e3 / steps
    rows = [{"phase": name, "ms": scale * clock.spent[name], "floor": scale * products[name]} for name in names]
    operations = 2 * sum(count * math.prod(size) for (_, size), count in sizes.items()) / steps
    return {"rows": prompts * GROUP, "gflop": operations / 1e9, "phases": rows}


def sampling() -> list[dict[str, float]]:
    """Median tokens per second when every row runs to the end: ours, and transformers with its dynamic cache."""
    policy, rows, questions = load_policy("tiny"), [], asked(ROWS[-1])
    policy.eos_token_ids = frozenset()  # every row runs to the end
    for count in ROWS:
        messages = [SOLVER(question=question).messages for question in questions[:count]]
        turns = [Turn("solver", m, max_tokens=TOKENS, key=(i,)) for i, m in enumerate(messages)]
        batch = policy.tokenizer.pad({"input_ids": [policy.render(m) for m in messages]}, return_tensors="pt")

        def theirs(batch=batch) -> None:
            with torch.no_grad():
                policy.model.generate(**batch, do_sample=True, max_new_tokens=TOKENS, min_new_tokens=TOKENS)

        times: dict[str, list[float]] = {"ours": [], "transformers": []}
        for _ in range(ROUNDS):
            times["ours"].append(seconds(lambda turns=turns: policy.generate(turns)))
            times["transformers"].append(seconds(theirs))
        speed = {name: count * TOKENS / statistics.median(values) for name, values in times.items()}
        rows.append({"rows": count, **speed, "ratio": speed["ours"] / speed["transformers"]})
    return rows


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), *rows))


def table(result: dict) -> str:
    """Whole steps, phases and the sampler as Markdown."""
    steps, sampled = [], []
    for row in result["trl"]:
        replies = f"all of {LONGEST}" if row["full"] else f"{row['our_tokens']:.1f} and {row['trl_tokens']:.1f}"
        times = [f"{1e3 * row[name]:.0f}" for name in ("ours", "TRL")]
        steps.append((row["rows"], replies, *times, f"{row['ratio']:.2f}"))
    columns = [[*(row["phase"] for row in result["phases"][0]["phases"]), "all"]]
    for part in result["phases"]:
        pairs = [(row["ms"], row["floor"]) for row in part["phases"]]
        pairs.append(tuple(map(sum, zip(*pairs, strict=True))))
        columns.append([f"{ms:.1f} ({100 * ms / pairs[-1][0]:.0f} %)" for ms, _ in pairs])
        columns.append([f"{floor:.1f}" for _, floor in pairs])
    for row in result["sampling"]:
        sampled.append((row["rows"], f"{row['ours']:,.0f}", f"{row['transformers']:,.0f}", f"{row['ratio']:.2f}"))
    heads = [f"{part['rows']} rows, {name}" for part in result["phases"] for name in ("ms a step", "products alone")]
    tables = [
        markdown(("rows", "tokens a reply, ours and TRL's", "ours, ms a step", "TRL", "TRL over ours"), steps),
        markdown(("phase", *heads), zip(*columns, strict=True)),
        markdown(("rows", "ours, tokens/s", "transformers", "ratio"), sampled),
    ]
    return "\n\n".join(tables)


def main() -> None:
    """Measure, print Markdown, write JSON beside this file."""
    torch.set_num_threads(1)
    result = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "trl": [against_trl(*case) for case in CASES],
        "phases": [phases(prompts) for prompts, full in CASES if not full],
        "sampling": sampling(),
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    print(table(result), "", "TRL's median over ours, the smaller of those of 128 and 512 rows:", sep="\n")
    print(f"ratio {min(row['ratio'] for row in result['trl'] if not row['full']):.2f}")


if __name__ == "__main__":
    main()
