"""Draw the picture at the head of README.md: `python -m tools.hero`.

Left, one episode of MAE as `coevolve play mae --seed 17` plays it. Right, the committed training
curves of all seeds. The pictures' text is that of `episode` and `curves`; a test compares both.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "hero"
FACTS = FOLDER / "hero.json"
CURVES = ROOT / "results" / "standard" / "mae_fig3_right" / "curve.csv"
SEED = 17
SMOOTH = 9  # steps, of the Judge's curve, which is measured in every step
SOLVER = "validation accuracy"
JUDGE = "judge agrees with oracle"
IN_PERCENT = {SOLVER: 1.0, JUDGE: 100.0}  # of the file's values: percent and a share


@dataclass(frozen=True)
class Line:
    """What a role did in the episode, and what it earned."""

    role: str
    says: str
    reward: float | None = None
    verdict: str = ""
    """What the oracle says, which no role sees."""


@dataclass(frozen=True)
class Colours:
    """The colours of one picture."""

    ground: str
    text: str
    quiet: str
    solver: str
    judge: str


LIGHT = Colours("#ffffff", "#1f2328", "#6e7781", "#0072b2", "#c04000")
DARK = Colours("#0d1117", "#e6edf3", "#8b949e", "#56b4e9", "#ff9d4d")


def episode() -> list[Line]:
    """Play the episode; return what was asked, what was answered and how that was judged."""
    from coevolve.engines.loading import load_policy
    from coevolve.methods.mae import MAE
    from coevolve.rollout.stepper import EpisodeStepper
    from coevolve.text.parse import tag
    from tinyworld import tasks

    engine = load_policy("tiny").serve(temperature=1.0, max_tokens=64)
    stepper = EpisodeStepper(MAE().observed(Random(SEED)), engine, key=(SEED, 0))
    for _ in stepper:
        pass
    assert stepper.outcome is not None  # it has ended
    proposer, solver, _ = stepper.outcome.samples
    question = solver.reply.turn.fields["question"]
    answer = tag(solver.reply.text, "answer")
    is_correct = tasks.is_correct(question, answer)
    right = tasks.read(question).answer
    # The judgement that the Solver's reward comes from.
    judgement = next(
        reply
        for reply in stepper.replies[stepper.replies.index(solver.reply) :]
        if reply.turn.role == "judge"
    )
    score = tag(judgement.text, "score")
    return [
        Line("Proposer", f"“{tag(proposer.reply.text, 'question')}”", _pay(proposer)),
        Line(
            "Solver",
            f"“{question}” → {answer}",
            _pay(solver),
            "✓ correct" if is_correct else f"✗ wrong, it is {right}",
        ),
        Line(
            "Judge",
            f"“{score} of 10”: this is the Solver's reward",
            verdict="" if is_correct else "✗ believes a wrong answer",
        ),
    ]


def _pay(sample: Any) -> float:
    return round(sample.reward, 2)


def curves() -> pd.DataFrame:
    """Return, per step, the mean over the seeds and the extremes in percent, of both roles."""
    frame = pd.read_csv(CURVES)
    parts = []
    for what, window in ((SOLVER, 1), (JUDGE, SMOOTH)):
        values = frame[frame["what"] == what].pivot(
            index="step", columns="seed", values="value"
        )
        percent = IN_PERCENT[what] * values
        smooth = percent.rolling(window, center=True, min_periods=1).mean()
        part = pd.DataFrame(
            {
                "mean": smooth.mean(axis=1),
                "low": smooth.min(axis=1),
                "high": smooth.max(axis=1),
            }
        )
        parts.append(part.assign(what=what).reset_index())
    return pd.concat(parts, ignore_index=True)


def draw(lines: list[Line], frame: pd.DataFrame, colours: Colours, path: Path) -> None:
    """Draw both halves into an SVG file."""
    from matplotlib import pyplot as plt

    style = {
        "font.family": "DejaVu Sans",
        "font.size": 11,
        "text.color": colours.text,
        "axes.labelcolor": colours.text,
        "axes.edgecolor": colours.quiet,
        "xtick.color": colours.text,
        "ytick.color": colours.text,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "svg.hashsalt": "coevolve",
    }
    with plt.rc_context(style):
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(10.4, 3.4), width_ratios=(1.15, 1.0)
        )
        figure.patch.set_facecolor(colours.ground)
        _draw_episode(left, lines, colours)
        _draw_curves(right, frame, colours)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None}, facecolor=colours.ground)
        plt.close(figure)


def _draw_episode(axes: Any, lines: list[Line], colours: Colours) -> None:
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_title("One episode: nobody looks up the answer", loc="left", weight="bold")
    for i, line in enumerate(lines):
        y = 0.84 - 0.30 * i
        axes.text(0, y, line.role, weight="bold")
        axes.text(0.22, y, line.says)
        if line.reward is not None:
            earned = f"earns {line.reward:.2f}"
            axes.text(0, y - 0.11, earned, color=colours.solver, weight="bold")
        axes.text(0.22, y - 0.11, line.verdict, color=colours.judge, weight="bold")


def _draw_curves(axes: Any, frame: pd.DataFrame, colours: Colours) -> None:
    axes.set_facecolor(colours.ground)
    axes.set_title(
        "Training: better answers, judged no better", loc="left", weight="bold"
    )
    for what, name, colour in (
        (JUDGE, "Judge", colours.judge),
        (SOLVER, "Solver", colours.solver),
    ):
        part = frame[frame["what"] == what]
        marker = "o" if what == SOLVER else ""  # few points
        axes.plot(part["step"], part["mean"], color=colour, marker=marker, ms=4, lw=2)
        axes.fill_between(
            part["step"], part["low"], part["high"], color=colour, alpha=0.2, lw=0
        )
        last = part.iloc[-1]
        label = f"{name}\n{part.iloc[0]['mean']:.0f} → {last['mean']:.0f} %"
        axes.annotate(
            label,
            (last["step"], last["mean"]),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=colour,
            weight="bold",
            annotation_clip=False,
        )
    axes.set_xlabel("training step")
    axes.set_ylabel("correct, by an exact oracle (%)")
    axes.margins(x=0)


def facts(lines: list[Line], frame: pd.DataFrame) -> dict[str, Any]:
    """Return what the pictures show, as plain numbers and texts."""
    rounded = frame.round({"mean": 2, "low": 2, "high": 2})
    return {
        "episode": [asdict(line) for line in lines],
        "curves": rounded.to_dict("records"),
    }


def main() -> None:
    """Draw the light and the dark picture, and write what they show."""
    lines = episode()
    frame = curves()
    FOLDER.mkdir(exist_ok=True)
    for name, colours in (("light", LIGHT), ("dark", DARK)):
        draw(lines, frame, colours, FOLDER / f"{name}.svg")
    text = json.dumps(facts(lines, frame), indent=1, ensure_ascii=False)
    FACTS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
