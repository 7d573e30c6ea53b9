"""Recorded episodes: which ones a page shows, and whether their answers are correct."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

from coevolve.runs.record import write_json
from coevolve.text import parse
from tinyworld import tasks

Episode = dict[str, Any]
QUESTION = re.compile(r"<(question|problem|query)>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True)
class Mark:
    """The oracle's word on an answer."""

    is_correct: bool
    right_answer: str


def mark(prompt: str, reply: str) -> Mark | None:
    """Return whether a reply answers its prompt's last question correctly.

    None if the reply has no answer, or the oracle of the tiny world cannot read the question.
    """
    questions = QUESTION.findall(prompt)
    answer = answer_in(reply)
    if not questions or answer is None:
        return None
    _, question = questions[-1]
    task = tasks.read(question)
    if task is None:
        return None
    return Mark(tasks.is_correct(question, answer), task.answer)


def answer_in(reply: str) -> str | None:
    """Return a reply's answer in the form of any paper: in tags, boxed, or CoNL's last line."""
    revised = parse.tag(reply, "revised_solution")
    return (
        parse.tag(reply, "answer")
        or parse.boxed(reply)
        or parse.answer_line(revised or reply)
    )


def everything_read(row: Mapping[str, Any]) -> str:
    """Return the prompt of a recorded reply, below the earlier messages if it is in a dialogue."""
    earlier = [message["content"] for message in row.get("before", ())]
    return "\n".join([*earlier, row["prompt"]])


def of_run(run: str, recorded: Path, kept: Path) -> list[Episode]:
    """Return the episodes of a run that its page shows, see `best_and_worst`; [] without any.

    `recorded` is the run's episodes.jsonl. What is chosen of it goes to the file `kept`, from
    which it comes where the run is missing, as in a clone. Each episode names its `run`.
    """
    if recorded.is_file():
        write_json(kept, best_and_worst(read(run, recorded)))
    if not kept.is_file():
        return []
    episodes: list[Episode] = json.loads(kept.read_text(encoding="utf-8"))
    return episodes


def read(run: str, recorded: Path) -> list[Episode]:
    """Return the recorded episodes of a run; the last line counts only if it is complete."""
    episodes = []
    for line in recorded.read_bytes().splitlines(keepends=True):
        if line.endswith(b"\n"):  # a kill cuts the last line
            episodes.append({"run": run, **json.loads(line)})
    return episodes


def best_and_worst(episodes: list[Episode]) -> list[Episode]:
    """Return the episodes with the highest and the lowest reward of the first and last steps.

    Each comes with its `mean_reward`, and with a `rank`: "best paid", "worst paid", or "only
    recorded" of a step with a single episode.
    """
    if not episodes:
        return []
    first_step = episodes[0]["step"]
    last_step = episodes[-1]["step"]
    chosen = []
    for step in sorted({first_step, last_step}):
        of_step = []
        for episode in episodes:
            if episode["step"] == step:
                reward = mean_reward(episode["samples"])
                of_step.append({**episode, "mean_reward": reward})
        of_step.sort(key=itemgetter("mean_reward"), reverse=True)
        if len(of_step) == 1:
            chosen.append({**of_step[0], "rank": "only recorded"})
        else:
            chosen.append({**of_step[0], "rank": "best paid"})
            chosen.append({**of_step[-1], "rank": "worst paid"})
    return chosen


def mean_reward(samples: list[dict[str, Any]]) -> float:
    """Return the mean reward of completions, or of their segments where these have rewards.

    0.0 if there is none.
    """
    rewards: list[float] = []
    for sample in samples:
        reward = sample["reward"]
        parts = reward.values() if isinstance(reward, dict) else [reward]
        rewards += [part for part in parts if part is not None]
    return fmean(rewards) if rewards else 0.0
