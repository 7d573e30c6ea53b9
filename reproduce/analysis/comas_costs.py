"""What training CoMAS costs as the number of agents grows, measured in runs and in a benchmark."""

import json
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from coevolve.runs import record
from reproduce.analysis import figures, standins

QUESTIONS = 2000  # of the paper's Table 3
NUMBERS_PER_WEIGHT = 4  # itself, its gradient and AdamW's two moments
X_LABEL = "number of agents, with twice as many rounds"
RELATIVE = {  # measured quantity: its name in the figure
    "interactions a question": "interactions",
    "tokens written": "tokens written",
    "tokens read": "tokens read",
    "trained weights and optimiser, MB": "memory: weights, optimiser",
    "peak of a process, MB": "memory: peak of the process",
    "seconds a step, alone": "seconds a step",
}
MEMORY = {
    "peak_rss_mb": "peak of the process",
    "trained_mb": "trained weights, optimiser",
}


def read_runs(folder: Path, runs: standins.Runs) -> pd.DataFrame:
    """Return the cost of each run's first seed, a row per number of agents."""
    rows = []
    for name, (seed, *_) in runs.items():
        rows.append(_cost_of(folder / f"{name}-s{seed}"))
    return pd.DataFrame(rows).sort_values("agents", ignore_index=True)


def _cost_of(home: Path) -> dict[str, Any]:
    metrics = record.read(home, "metrics").query("step > 0")
    seconds = record.read(home, "timings").query("step > 0")
    config = json.loads((home / "config.json").read_text(encoding="utf-8"))
    checkpoints = (home / "policy").rglob("*.safetensors")
    weight_bytes = sum(file.stat().st_size for file in checkpoints)
    step_seconds = seconds["play"] + seconds["learn"]
    return {
        "agents": config["method_fields"]["agents"],
        "interactions a question": metrics["interactions"].mean(),
        "tokens read": metrics["tokens_in"].mean(),
        "tokens written": metrics["tokens_out"].mean(),
        "trained weights and optimiser, MB": NUMBERS_PER_WEIGHT * weight_bytes / 1e6,
        "seconds a step": step_seconds.mean(),
    }


def benchmark_rows(benchmark: dict[str, Any]) -> pd.DataFrame:
    """Return the rows of benchmarks/agents.json: a process per number of agents and weights."""
    rows = pd.DataFrame(benchmark["rows"])
    return rows.assign(weights=rows["lora"].map({False: "full", True: "adapters"}))


def by_weights(rows: pd.DataFrame, agents: pd.Series) -> pd.DataFrame:
    """Return the benchmark's rows with a column per quantity and kind of weights.

    A number of agents that was not measured is empty.
    """
    return rows.pivot(index="agents", columns="weights").reindex(agents)


def with_processes(costs: pd.DataFrame, measured: pd.DataFrame) -> pd.DataFrame:
    """Add peak memory and seconds of a process of its own, from the benchmark."""
    columns = {
        "peak of a process, MB": measured["peak_rss_mb", "full"].to_numpy(),
        "seconds a step, alone": measured["step_s", "full"].to_numpy(),
    }
    return costs.assign(**columns)


def main_table(
    costs: pd.DataFrame, measured: pd.DataFrame, paper: pd.DataFrame
) -> pd.DataFrame:
    """Return the costs beside the paper's Table 3, a row per number of agents."""
    printed = paper.pivot(index="setup", columns="benchmark", values="printed")
    printed.index = [int(name.split()[0]) for name in printed.index]
    agents = costs["agents"]

    def of_paper(column: str) -> pd.Series:
        return agents.map(printed[column]).fillna("")

    def relative(column: str) -> pd.Series:
        return (costs[column] / costs[column][0]).round(2)

    def of_process(column: str, weights: str, digits: int) -> pd.Series:
        return measured[column, weights].round(digits).to_numpy()

    interactions = QUESTIONS * costs["interactions a question"]
    return pd.DataFrame(
        {
            "agents": agents,
            "interactions for 2,000 questions": [
                f"{n / 1000:.0f}k" for n in interactions
            ],
            "interactions, paper": of_paper("Interaction Sample"),
            "tokens written, relative to one agent": relative("tokens written"),
            "tokens, paper": of_paper("Generated Token"),
            "tokens read, relative": relative("tokens read"),
            "weights and optimiser, MB": costs[
                "trained weights and optimiser, MB"
            ].round(2),
            "adapters and optimiser, MB": of_process("trained_mb", "adapters", 2),
            "peak of a process, MB": costs["peak of a process, MB"].round(),
            "peak with adapters, MB": of_process("peak_rss_mb", "adapters", 0),
            "memory, paper": of_paper("Memory Consumption"),
            "seconds a step": costs["seconds a step, alone"].round(2),
            "seconds with adapters": of_process("step_s", "adapters", 2),
            "wall clock, paper": of_paper("Wall-clock Time"),
        }
    )


def draw(costs: pd.DataFrame, rows: pd.DataFrame) -> Figure:
    """Draw costs relative to one agent, and memory with full weights and with adapters."""
    by_agents = costs.set_index("agents")[list(RELATIVE)]
    relative = (by_agents / by_agents.iloc[0]).rename(columns=RELATIVE)
    relative["the paper: agents squared"] = relative.index.astype(float) ** 2
    fig, axes = figures.panels(2, height=4.4)
    figures.curve(
        relative.reset_index().melt("agents", var_name="what", value_name="relative"),
        "agents",
        "relative",
        hue="what",
        ax=axes[0],
        ylabel="relative to one agent",
        title="Cost against the number of agents",
        xlabel=X_LABEL,
    )
    figures.curve(
        _memory(rows),
        "agents",
        "MB",
        hue="what",
        ax=axes[1],
        title="Memory, full weights and adapters",
        xlabel=X_LABEL,
        ylabel="MB",
    )
    ticks = list(relative.index)
    for ax in axes:
        ax.set(yscale="log")
        ax.set(xscale="log", xticks=ticks, xticklabels=ticks)
        ax.minorticks_off()
        for text in list(ax.texts):  # placed on linear scales
            text.remove()
        figures.name_ends(ax)
    figures.letter(axes)
    return fig


def _memory(rows: pd.DataFrame) -> pd.DataFrame:
    memory = rows.melt(["agents", "weights"], list(MEMORY), "part", "MB")
    part = memory["part"].map(MEMORY)
    weights = memory["weights"].replace("full", "full weights")
    return memory.assign(what=part + ", " + weights)
