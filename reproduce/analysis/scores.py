"""Pages of test scores beside a paper's table: cells, averages, gains, bars and remarks.

A page has one part per backbone and inference strategy. Rows are methods or variants, trained once
per seed and scored on every test item. Loads no torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from coevolve.validation import user_path
from reproduce.analysis import budgets, figures, standins, tables

NO_GAINS = pd.DataFrame(columns=standins.GAIN_COLUMNS)


@dataclass(frozen=True)
class Spec:
    """What a page of scores shows; the fields are the parameters of the notebook."""

    preset: str  # which results to read
    results: str  # folder of all results
    runs: standins.Runs
    title: str
    table: str  # whose printed numbers stand beside the reproduced ones
    # Our backbone: the paper's model at its place in the table.
    backbones: Mapping[str, str]
    labels: Mapping[str, standins.Labels]  # backbone: run: label of its row
    rows: Mapping[str, str]  # label: the paper's name of the row, where they differ
    # A base that is not printed: the printed row in its place.
    unprinted: Mapping[str, str]
    # Inference strategy: the paper's name of it, if it has several.
    strategies: Mapping[str, str]
    inference: Mapping[
        str, str
    ]  # strategy of the first run alone: the label of its row
    averages: Sequence[str]  # averages that the table shows; if empty, all
    sizes: bool  # whether the table shows agents and training steps
    # File: base: rows, if empty all.
    comparisons: Mapping[str, Mapping[str, Sequence[str]]]
    facts: Sequence[str]  # metrics that only the oracle can compute
    # Printed average: its columns without a stand-in.
    unmatched: Mapping[str, Sequence[str]]
    behind: str  # the table whose cells the printed averages average; then only averages show
    from_cells: bool  # whether the paper's averages are means of these cells
    # The paper's name of a row: its name in the table behind.
    cells_of: Mapping[str, str]
    asked: str  # how questions are asked, for the note
    remark: str  # what the note says after the seeds

    @classmethod
    def of(cls, variables: Mapping[str, Any]) -> "Spec":
        """Take every field from the variable of that name, as in `Spec.of(globals())`."""
        return cls(**{field.name: variables[field.name] for field in fields(cls)})

    @property
    def paper(self) -> str:
        """The paper that the table is from."""
        return self.table.split("_")[0]

    @property
    def folder(self) -> Path:
        """The folder of the runs."""
        return user_path(self.results) / self.preset / "runs"

    @property
    def layout(self) -> standins.Layout:
        """The stand-ins and averages of the paper."""
        return standins.layout(self.paper)

    @property
    def shown_averages(self) -> list[str]:
        """The averages that the table shows."""
        return list(self.averages or self.layout.groups)

    @property
    def all_labels(self) -> dict[str, str]:
        """The label of each run, over all backbones."""
        labels: dict[str, str] = {}
        for of_backbone in self.labels.values():
            labels |= of_backbone
        return labels

    @property
    def first_label(self) -> str:
        """The label of the first row."""
        first, *_ = self.all_labels.values()
        return first


@dataclass(frozen=True)
class Part:
    """The scores of one backbone in one inference strategy."""

    backbone: str
    setup: str
    scores: pd.DataFrame  # a row per answer
    accuracy: pd.DataFrame  # of `tables.accuracy_table`
    printed: pd.DataFrame  # of `standins.printed`

    @property
    def cells(self) -> pd.DataFrame:
        """The accuracy table with the printed number in the column paper."""
        return self.accuracy.merge(self.printed, on=["method", "benchmark"], how="left")


@dataclass(frozen=True)
class Page:
    """Everything that a page of scores displays and saves."""

    spec: Spec
    answers: Mapping[
        str, pd.DataFrame
    ]  # by backbone, a row per answer with any strategy
    parts: Sequence[Part]
    gains: Mapping[str, pd.DataFrame]  # file: gains of all parts
    table: pd.DataFrame
    # Agents, steps and models by label; empty if sizes are not shown.
    teams: pd.DataFrame
    oracle: pd.DataFrame | None  # of `oracle_facts`, if the spec names any

    @property
    def cells(self) -> pd.DataFrame:
        """The accuracy of all parts, with the printed numbers."""
        return joined(self.spec, self.parts, [part.cells for part in self.parts])


def build(spec: Spec) -> Page:
    """Read the runs and compute the page's table and gains."""
    answers = {backbone: read_answers(spec, backbone) for backbone in spec.backbones}
    parts = []
    for backbone, setup in product(spec.backbones, spec.strategies):
        parts.append(read_part(spec, answers[backbone], backbone, setup))
    gains_by_file = {}
    for name, bases in spec.comparisons.items():
        gains_by_file[name] = [gains_of_part(spec, part, bases) for part in parts]
    teams = pd.DataFrame()
    if spec.sizes:
        teams = standins.teams(spec.folder, spec.runs, spec.all_labels)
        teams = teams.set_index("method")
    gains = {}
    for name, frames in gains_by_file.items():
        gains[name] = joined(spec, parts, frames)
    return Page(
        spec=spec,
        answers=answers,
        parts=parts,
        gains=gains,
        table=main_table(spec, parts, list(gains_by_file.values()), teams),
        teams=teams,
        oracle=oracle_facts(spec) if spec.facts else None,
    )


def read_answers(spec: Spec, backbone: str) -> pd.DataFrame:
    """Read the scores of one backbone's runs.

    If the spec has rows that are ways of asking (`inference`), the first run's answers in these
    strategies become rows of their own in the strategy vanilla.
    """
    labels = spec.labels[backbone]
    frame = standins.scores(spec.folder, spec.runs, labels, spec.paper)
    if spec.inference:
        first_run, *_ = spec.runs
        is_first = frame["run"] == first_run
        is_row = is_first & frame["strategy"].isin(spec.inference)
        labels_by_setup = frame["strategy"].map(spec.inference)
        frame.loc[is_row, "method"] = labels_by_setup
        frame.loc[is_row, "strategy"] = "vanilla"
    return frame


def read_part(spec: Spec, answers: pd.DataFrame, backbone: str, setup: str) -> Part:
    """Return the scores of one backbone with one strategy, with the paper's numbers."""
    scores = answers[answers["strategy"] == setup].dropna(subset=["benchmark"])
    return Part(
        backbone=backbone,
        setup=setup,
        scores=scores,
        accuracy=tables.accuracy_table(scores, spec.layout.groups),
        printed=printed_numbers(spec, backbone, setup),
    )


def printed_numbers(spec: Spec, backbone: str, setup: str) -> pd.DataFrame:
    """Return the paper's numbers as rows of method, benchmark and paper."""
    if spec.behind and not spec.from_cells:
        # Such a table holds averages only, and SPICE's spells one differently.
        averages = tables.paper_numbers(spec.table)
        averages = averages.replace({"benchmark": {"Overall Avg": "Overall"}})
        averages = averages[["method", "benchmark", "value"]]
        return averages.rename(columns={"value": "paper"})
    labels = [*spec.labels[backbone].values(), *spec.inference.values()]
    names = {}
    for label in labels:
        if label not in spec.unprinted:
            names[spec.rows.get(label, label)] = label
    return standins.printed(
        spec.behind if spec.from_cells else spec.table,
        names,
        spec.paper,
        setup=spec.strategies[setup] or None,
        backbone=spec.backbones[backbone],
    )


def joined(
    spec: Spec, parts: Sequence[Part], frames: Sequence[pd.DataFrame]
) -> pd.DataFrame:
    """Concatenate a frame per part; columns say which part, where there are several."""
    labelled = []
    for part, frame in zip(parts, frames, strict=True):
        frame = frame.copy()
        if len(spec.strategies) > 1:
            frame.insert(0, "setup", spec.strategies[part.setup])
        if len(spec.backbones) > 1:
            frame.insert(0, "backbone", part.backbone)
        labelled.append(frame)
    return pd.concat(labelled, ignore_index=True)


def gains_of_part(
    spec: Spec, part: Part, bases: Mapping[str, Sequence[str]]
) -> pd.DataFrame:
    """Return the gains of one part over each base."""
    frames = []
    for base, methods in bases.items():
        frames.append(gains_over(spec, part, base, methods))
    return pd.concat(frames)


def gains_over(
    spec: Spec, part: Part, base: str, methods: Sequence[str]
) -> pd.DataFrame:
    """Return the gains of some methods over a base, or of all methods if none is given.

    A base that the paper does not print is compared by the printed row in its place.
    """
    scores = part.scores
    if methods:
        is_compared = scores["method"].isin([base, *methods])
        scores = scores[is_compared]
    printed_base = spec.unprinted.get(base, base)
    printed = part.printed.replace({"method": {printed_base: base}})
    gains = standins.gains(scores, base, printed, spec.paper)
    return gains[gains["benchmark"].isin(spec.shown_averages)]


def main_table(
    spec: Spec,
    parts: Sequence[Part],
    gains: Sequence[Sequence[pd.DataFrame]],
    teams: pd.DataFrame,
) -> pd.DataFrame:
    """Return the main table: a line per stand-in, average and gain, two columns per method.

    `gains` has a list of frames per comparison, with one frame per part.
    """
    frames = []
    for number, part in enumerate(parts):
        accuracy = part.accuracy
        if spec.behind:
            accuracy = accuracy[accuracy["kind"] == "average"]
        gains_of_part = [frames_by_part[number] for frames_by_part in gains]
        own_gains = pd.concat(gains_of_part) if gains else NO_GAINS
        frames.append(standins.beside(accuracy, part.printed, own_gains, spec.paper))
    table = joined(spec, parts, frames)
    hidden = set(spec.layout.groups) - set(spec.shown_averages)
    table = table[~table["questions"].isin(hidden)]
    numbers = table.columns.difference(["backbone", "setup", "questions"])
    table = table.dropna(how="all", subset=numbers)
    if spec.sizes:
        table = pd.concat([_size_lines(teams, table.columns), table])
    return table.reset_index(drop=True)


def _size_lines(teams: pd.DataFrame, columns: pd.Index) -> pd.DataFrame:
    lines = []
    for quantity in ("agents", "steps"):
        values = teams[quantity].astype(str)
        lines.append({"setup": "", "questions": quantity, **values})
    return pd.DataFrame(lines).reindex(columns=columns)


def draw_bars(page: Page) -> Figure:
    """Draw the last average of every row as a dot, a panel per part.

    If the table shows sizes, a row names its agents and training steps.
    """
    spec = page.spec
    average = spec.shown_averages[-1]
    rows = max(part.accuracy["method"].nunique() for part in page.parts)
    has_strategies = len(spec.strategies) > 1
    row_height = 0.55 if spec.sizes else 0.4
    fig, axes = figures.panels(len(page.parts), height=1.2 + row_height * rows)
    for ax, part in zip(axes, page.parts, strict=True):
        bars = part.cells[part.cells["benchmark"] == average]
        if spec.sizes:
            bars = bars.assign(method=_sized_names(page.teams, bars["method"]))
        title = f"{part.backbone}, for {spec.backbones[part.backbone]}"
        if has_strategies:
            title = spec.strategies[part.setup]
        figures.dots(bars, ax=ax, title=title, xlabel=f"{average}, %")
    figures.letter(axes)
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=2)
    return fig


def _sized_names(teams: pd.DataFrame, methods: Sequence[str]) -> list[str]:
    return [
        f"{row.Index}\nagents {row.agents}, steps {row.steps}"
        for row in teams.loc[methods].itertuples()
    ]


def oracle_facts(spec: Spec) -> pd.DataFrame:
    """Return means of `facts` over the first and the last fifth of training, a row per method."""
    curves = standins.curves(spec.folder, spec.runs, spec.all_labels)
    steps = curves["step"]
    fifth = steps.max() / 5
    spans = {
        "first fifth": curves[steps.between(1, max(1, fifth))],
        "last fifth": curves[steps > 4 * fifth],
    }
    recorded = [name for name in spec.facts if name in curves]
    means = {}
    for span, part in spans.items():
        by_method = part.groupby("method", sort=False)
        for name in recorded:
            means[f"{name}, {span}"] = by_method[name].mean()
    return pd.DataFrame(means)


def remarks(page: Page) -> list[str]:
    """Say which rows have equal training and team size, and where mixed teams start.

    Empty unless the table shows sizes.
    """
    if not page.spec.sizes:
        return []
    gains_over_printed = [
        f"Gains over {base}: the paper's are over {printed_row}."
        for base, printed_row in page.spec.unprinted.items()
    ]
    return [
        *_equal_sizes(page.teams),
        *gains_over_printed,
        *_team_starts(page),
    ]


def _equal_sizes(teams: pd.DataFrame) -> Iterator[str]:
    is_comas = teams["method_name"] == "comas"
    is_trained = teams["steps"] > 0
    trained = teams[is_comas & is_trained]
    groups = trained.groupby(["agents", "steps"], sort=False).groups
    kinds = []
    for (agents, steps), names in groups.items():
        rows = " and ".join(names)
        kinds.append(f"{rows}: agents {agents}, steps {steps}")
    yield f"Rows trained by CoMAS: {'; '.join(kinds)}."
    if trained["steps"].nunique() > 1:
        yield (
            "The paper trains all of them for one epoch; "
            "only those of equal steps and agents compare."
        )


def _team_starts(page: Page) -> Iterator[str]:
    """Compare each agent of an untrained team with the first row, on the agent's own items."""
    first = page.spec.first_label
    *_, answers = page.answers.values()
    vanilla = answers[answers["strategy"] == "vanilla"]
    greedy = vanilla.groupby(["method", "item"])["correct"].mean()
    teams = page.teams
    is_untrained_team = (teams["steps"] == 0) & (teams["agents"] > 1)
    for name, team in teams[is_untrained_team].iterrows():
        for agent, model in enumerate(team["models"]):
            of_team = greedy[name]
            answered_by = of_team.index % team["agents"]
            correct = of_team[answered_by == agent]
            base = greedy[first][correct.index]
            percent = 100 * correct.mean()
            base_percent = 100 * base.mean()
            yield (
                f"{name}, agent {agent + 1} ({model}): "
                f"{percent:.1f} % of its {len(correct)} items; "
                f"{first}: {base_percent:.1f} % of these."
            )


def standin_table(layout: standins.Layout) -> pd.DataFrame:
    """Return a row per stand-in, with its families and the paper's columns."""
    rows = []
    for name, families in layout.families.items():
        row = {
            "stand-in": name,
            "families": ", ".join(families),
            "the paper's columns": ", ".join(layout.columns[name]),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def note(page: Page) -> str:
    """Return the note below the table."""
    spec = page.spec
    numbers = "means of its printed cells" if spec.from_cells else "its printed numbers"
    without = spec.layout.without
    missing = f" No stand-in for {', '.join(without)}." if without else ""
    text = (
        f"Ours: percent of the test questions, {spec.asked}. In brackets the 95 % interval: "
        "Wilson's over the questions for a single run, otherwise over backbones (over seeds, if "
        "all start from one) and questions. "
        "A gain's interval holds the seed noise of both rows; its verdict is "
        "about the paper's sign, uncorrected for the number of gains, "
        "and a trained row with one seed gets none. Columns of the paper: "
        f"{numbers}, of which nothing here is comparable in size{spec.remark}."
        f"{missing} {' '.join(remarks(page))}"
    )
    trained_on = budgets.note(spec.folder, spec.runs, _row_names(spec))
    return f"{text.strip()} {trained_on}".strip()


def _row_names(spec: Spec) -> dict[str, str]:
    """Return the label of each run, with its backbone where there are several."""
    names = {}
    for backbone, labels in spec.labels.items():
        suffix = f" ({backbone})" if len(spec.backbones) > 1 else ""
        for run, label in labels.items():
            names[run] = label + suffix
    return names


def caption(spec: Spec) -> str:
    """Return the caption of the table."""
    pairs = [f"{ours} for {theirs}" for ours, theirs in spec.backbones.items()]
    models = ", ".join(pairs)
    seeds = standins.seeds(spec.folder, spec.runs, _row_names(spec))
    place = f"tiny world, backbone {models}, preset {spec.preset}"
    return f"{spec.title} ({place}; {seeds})"


def save(page: Page, out: Path) -> None:
    """Write the table, the bars, and CSV files of cells, gains and oracle facts to `out`."""
    tables.save_table(
        page.table,
        out,
        caption=caption(page.spec),
        note=note(page),
    )
    for name, frame in page.gains.items():
        frame.to_csv(out / f"{name}.csv", index=False)
    page.cells.to_csv(out / "cells.csv", index=False)
    if page.oracle is not None:
        page.oracle.to_csv(out / "oracle.csv")
