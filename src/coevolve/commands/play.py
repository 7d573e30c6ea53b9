"""`coevolve play METHOD`: one episode in the terminal, with verdicts and what each reply earned."""

import textwrap
from collections.abc import Mapping
from random import Random
from typing import Any

from coevolve.commands import terminal
from coevolve.commands.arguments import (
    MethodName,
    Model,
    Pairs,
    Preset,
    Temperature,
    read_overrides,
    say_preset_section,
)
from coevolve.commands.episodes import FIELDS, TEMPERATURE, max_tokens
from coevolve.commands.verdicts import Verdict, verdict_on
from coevolve.engines.loading import load_policy
from coevolve.engines.router import EngineRouter
from coevolve.methods.base import Method
from coevolve.rollout.engine import Engine
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.runs import show
from coevolve.training import config, preflight
from coevolve.training.progress import show_elapsed
from coevolve.types import Reply, Sample

LABEL_WIDTH = 9  # columns of "reads", "says" and the like
MAX_PROMPT = 300  # characters of a prompt that are shown
COLOURS = {True: terminal.GOOD, False: terminal.BAD, None: terminal.QUIET}


def play(
    method: MethodName,
    pairs: Pairs = None,
    preset: Preset = "none",
    seed: int = 0,
    model: Model = "tiny",
    temperature: Temperature = None,
) -> None:
    """Play one episode: who reads and says what, and earns what.

    A tick or a cross is the oracle's verdict; no role sees it. The same seed plays the same
    episode. Without a preset, an episode of one of the five papers is that of results/play.html.
    """
    overrides: dict[str, Any] = {"model": model}
    if preset == "none":
        overrides |= {"max_tokens": max_tokens(method), "temperature": TEMPERATURE}
        overrides |= FIELDS.get(method, {})
    overrides |= read_overrides(method, pairs)
    run = config.build(method, preset, seed=seed, out=".", overrides=overrides)
    run.check_episodes()
    say_preset_section(method, preset)
    models, _ = config.assign_models(run.method, run.model)
    for name in dict.fromkeys(models.values()):
        preflight.check_model(name)
    with show_elapsed("loading and playing"):
        run.method.before_run()
        if temperature is None:
            temperature = run.temperature
        engine = engine_of(models, temperature, run.max_tokens)
        key = (seed, 0)
        stepper = EpisodeStepper(run.method.observed(Random(seed)), engine, key)
        for _ in stepper:
            pass
    terminal.show(
        terminal.styled(f"{method}, one episode", bold=True)
        + terminal.styled(
            f" (seed {seed}, {run.model}, temperature {temperature:g})", terminal.QUIET
        )
    )
    assert stepper.outcome is not None  # it has ended
    show_episode(run.method, stepper.replies, stepper.outcome.samples)


def engine_of(models: Mapping[str, str], temperature: float, max_tokens: int) -> Engine:
    """Return an engine for {policy: model}; policies with one model share it."""
    engine_by_model = {
        model: load_policy(model).serve(temperature, max_tokens)
        for model in dict.fromkeys(models.values())
    }
    return EngineRouter(
        {policy: engine_by_model[model] for policy, model in models.items()}
    )


def show_episode(method: Method, replies: list[Reply], samples: list[Sample]) -> None:
    """Print every reply with its prompt, its verdict and its reward, then the sums by role."""
    sample_of = {id(sample.reply): sample for sample in samples}
    right = 0
    judged = 0
    for number, reply in enumerate(replies, start=1):
        verdict = verdict_on(method, reply)
        if verdict is not None and verdict.is_correct is not None:
            judged += 1
            right += verdict.is_correct
        _show_reply(number, reply, verdict, sample_of.get(id(reply)))
    terminal.show()
    terminal.show(
        f"{len(replies)} replies, {len(samples)} of them with a reward; "
        f"{show.CORRECT} {right} of the {judged} that the oracle can judge"
    )


def _show_reply(
    number: int, reply: Reply, verdict: Verdict | None, sample: Sample | None
) -> None:
    terminal.show()
    speaker = show.speaker_of(reply.turn)
    terminal.show(terminal.styled(f"{number} {speaker}", terminal.NAME, bold=True))
    prompt = "\n".join(message["content"] for message in reply.turn.messages)
    shortened = textwrap.shorten(show.visible(prompt), MAX_PROMPT, placeholder=" ...")
    _show_part("reads", shortened, terminal.QUIET)
    cut = "" if reply.finished else " (cut off)"
    _show_part("says", (show.visible(reply.text) or show.NO_CHARACTER) + cut)
    if verdict is not None:
        text = f"{verdict.mark} {verdict.note}"
        _show_part("oracle", text, COLOURS[verdict.is_correct])
    if sample is not None:
        _show_part("earns", show.rewards(sample).removeprefix("reward "))


def _show_part(label: str, text: str, colour: str = "") -> None:
    first, *others = terminal.wrapped(text, LABEL_WIDTH)
    terminal.show(f"  {label:{LABEL_WIDTH - 2}}{terminal.styled(first, colour)}")
    for line in others:
        terminal.show(" " * LABEL_WIDTH + terminal.styled(line, colour))
