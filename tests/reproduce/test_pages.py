"""What smaller pages compute, on made-up records: mechanisms, costs, spreads, snapshots."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ledger_rows import ledger_row
from pytest import approx

from coevolve.runs.record import Recorder, write_json
from reproduce.analysis import (
    comas_costs,
    comas_rewards,
    crossplay,
    decoding_seeds,
    mechanisms,
    snapshots,
    verdicts,
)
from reproduce.analysis.evidence import RunFolders
from tinyworld import tasks
from tools import readme_numbers

LABELS = {"comas": "CoMAS"}


@pytest.fixture
def finished(tmp_path: Path) -> RunFolders:
    """Two seeds of one run, in which a filter acts often and a reward hardly ever."""
    for seed, share in enumerate((0.1, 0.2)):
        recorder = Recorder(tmp_path / f"mae-s{seed}")
        summary = {
            "steps": 9,
            "acted": {"filter": 0.9, "reward of judge": share},
        }
        write_json(recorder.out / "summary.json", summary)
        config = {"method": "mae", "model": "tiny"}
        write_json(recorder.out / "config.json", config)
    return RunFolders(tmp_path, {"mae": [0, 1]})


def test_a_mechanism_that_hardly_acts_is_idle(finished: RunFolders) -> None:
    table = mechanisms.acted_table(finished, ["mae"])
    assert table["mechanism"].tolist() == ["filter", "reward of judge"]
    assert table["share of"].tolist() == ["steps", "samples"]
    assert table["acted"].tolist() == approx([0.9, 0.15])
    assert table["verdict"].tolist() == ["acts", "idle"]


def test_the_readme_has_the_gain_over_shuffled_rewards(tmp_path: Path) -> None:
    rows = []
    for paper in readme_numbers.PAPERS:
        names = [paper.over_untrained, paper.over_baseline]
        names += [paper.same_over_untrained, paper.same_over_baseline]
        for name in names:
            if name:  # only CoNL's gains have a second setting
                rows.append(ledger_row(paper=paper.key, claim=name))
    rows[0] = ledger_row(paper="mae", claim=rows[0]["claim"], over_control=np.nan)
    standard = tmp_path / "results" / "standard"
    folder = standard / "claims"
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_csv(folder / "ledger.csv", index=False)
    records = readme_numbers.ROOT / "results" / "standard" / "records"
    shutil.copytree(records, standard / "records")
    table = readme_numbers.take(tmp_path)
    over_shuffled = table["over shuffled rewards"].tolist()
    assert over_shuffled == ["not run"] + ["+1.0 [-1.0, +3.0]"] * 4
    harm = table["shuffled rewards over the untrained model"]
    assert harm.str.fullmatch(r"[+-][\d.]+ \[[+-][\d.]+, [+-][\d.]+\]").all()


def test_the_readme_counts_verdicts_in_the_groups_of_the_report(tmp_path: Path) -> None:
    lines = [
        "paper,all its claims",
        'MAE,"2 found, 1 idle, 3 other size, 1 not run"',
        "SAGE,1 found",
    ]
    (tmp_path / "results").mkdir()
    (tmp_path / readme_numbers.SNAPSHOT).write_text("\n".join(lines))
    head, _, *rows = readme_numbers.verdict_counts(tmp_path).splitlines()
    columns = ["found", "no effect, or another size", "not decidable here"]
    assert [name for name in verdicts.GROUPS if name in columns] == columns
    assert head == f"| claims of | all | {' | '.join(columns)} |"  # none of zeros alone
    assert rows == [
        "| MAE | 7 | 2 | 3 | 2 |",
        "| SAGE | 1 | 1 | 0 | 0 |",
        "| **all five** | **8** | **3** | **3** | **2** |",
    ]


@pytest.fixture
def curves() -> pd.DataFrame:
    """One seed of 16 steps, in which true positives grow."""
    steps = pd.DataFrame({"step": range(17)})
    return steps.assign(
        method="CoMAS",
        seed=0,
        tp=steps["step"],
        fp=1,
        fn=2,
        tn=0,
        score_3=steps["step"] / 16,
        correct=0.5,
        normalised=0.25,
        validation=[0.25] + [np.nan] * 15 + [0.5],
    )


def test_precision_and_recall_pool_an_eighth_of_training(
    curves: pd.DataFrame,
) -> None:
    assert comas_rewards.window_of(curves) == 2
    values = comas_rewards.measures(curves)
    precision = values[values["measure"] == "Precision"]
    assert precision["step"].tolist() == [2, 4, 6, 8, 10, 12, 14, 16]
    first, *_ = precision["percent"]
    assert first == approx(100 * (1 + 2) / (1 + 2 + 2))
    recall = values[values["measure"] == "Recall"]
    *_, last = recall["percent"]
    assert last == approx(100 * (15 + 16) / (15 + 16 + 4))


def test_predictions_stand_beside_the_printed_ones(curves: pd.DataFrame) -> None:
    values = comas_rewards.measures(curves)
    printed = pd.DataFrame(
        {
            "metric": ["Accuracy"] * 2 + ["Precision"] * 2 + ["Recall"] * 2,
            "setup": ["step 0", "step 30"] * 3,
            "printed": ["10", "20"] * 3,
        }
    )
    accuracy = comas_rewards.prediction_table(values, printed).iloc[0]
    assert accuracy["first"] == 25
    assert accuracy["last"] == 50
    assert accuracy["paper, steps 0 to 30"] == "10 20"
    assert accuracy["paper change"] == 10
    assert accuracy["sign"] == "one seed"
    assert accuracy["95 % interval"] == "none"


def test_failure_modes_compare_the_first_and_last_quarter(
    curves: pd.DataFrame,
) -> None:
    both = pd.concat([curves, curves.assign(seed=1)])
    table = comas_rewards.failure_modes(both, {"comas_no_scoring": "CoMAS"})
    assert table["favourable verdicts"].tolist() == approx([2.5 / 16, 14.5 / 16])
    assert table["paper's direction"].tolist() == ["", "as printed"]


def test_the_last_discussion_says_which_solutions_are_correct(
    tmp_path: Path,
) -> None:
    question = tasks.items("test", 1, ("add",))[0].question
    answer = tasks.read(question).answer
    samples = []
    for role, text in (
        ("solution", f"\\boxed{{{answer}}}"),
        ("evaluation", "fine"),
    ):
        sample = {"role": role, "policy": "a", "text": text, "reward": 1.0}
        samples.append(sample)
    episode = {"step": 3, "facts": {"question": question}, "samples": samples}
    Recorder(tmp_path / "comas-s0").rows("episodes", [episode])
    discussions = comas_rewards.last_discussions(tmp_path, {"comas": [0]}, LABELS)
    table = discussions["CoMAS"]
    assert table["turn"].tolist() == ["solution", "evaluation"]
    assert table["correct"].tolist() == [True, None]


def write_cost_run(folder: Path, agents: int) -> None:
    recorder = Recorder(folder)
    (recorder.out / "config.json").write_text(
        json.dumps({"method_fields": {"agents": agents}})
    )
    metrics = {
        "interactions": 3.0 * agents,
        "tokens_in": 20.0,
        "tokens_out": 10.0 * agents,
    }
    recorder.rows("metrics", [{"step": 0}, {"step": 1, **metrics}])
    recorder.rows("timings", [{"step": 1, "play": 1.0, "learn": 0.5}])
    weights = recorder.out / "policy" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes(b"0" * 1000)


@pytest.fixture
def costs(tmp_path: Path) -> pd.DataFrame:
    write_cost_run(tmp_path / "two-s0", agents=2)
    write_cost_run(tmp_path / "one-s0", agents=1)
    return comas_costs.read_runs(tmp_path, {"two": [0], "one": [0]})


def test_costs_are_sorted_by_the_number_of_agents(costs: pd.DataFrame) -> None:
    assert costs["agents"].tolist() == [1, 2]
    assert costs["interactions a question"].tolist() == [3, 6]
    assert costs["seconds a step"].tolist() == [1.5, 1.5]
    weights = costs["trained weights and optimiser, MB"]
    assert weights.tolist() == approx([4 * 1000 / 1e6] * 2)


def test_costs_stand_beside_the_printed_ones(costs: pd.DataFrame) -> None:
    rows = []
    for lora in (False, True):
        row = {
            "agents": 1,
            "lora": lora,
            "peak_rss_mb": 500.4,
            "step_s": 1.234,
            "trained_mb": 0.5,
        }
        rows.append(row)
    measured = comas_costs.benchmark_rows({"rows": rows})
    wide = comas_costs.by_weights(measured, costs["agents"])
    complete = comas_costs.with_processes(costs, wide)
    columns = [
        "Interaction Sample",
        "Generated Token",
        "Memory Consumption",
        "Wall-clock Time",
    ]
    paper = pd.DataFrame({"setup": "1 agent", "benchmark": columns, "printed": "48k"})
    table = comas_costs.main_table(complete, wide, paper)
    one, two = table.to_dict("records")
    assert one["interactions for 2,000 questions"] == "6k"
    assert one["interactions, paper"] == "48k"
    assert two["interactions, paper"] == "", "the paper prints no such row"
    assert one["seconds a step"] == 1.23
    assert np.isnan(two["seconds a step"]), "not measured"
    assert two["tokens written, relative to one agent"] == 2


@pytest.fixture
def decoded() -> pd.DataFrame:
    """Two training seeds, asked twice; accuracies of 0 and 100, and twice 50 percent."""
    correct = {(0, 0): [0, 0], (0, 1): [1, 1], (1, 0): [0, 1], (1, 1): [1, 0]}
    frames = []
    for (seed, decoding), values in correct.items():
        frame = pd.DataFrame({"correct": values, "seed": seed, "decoding": decoding})
        frames.append(frame.assign(method="CoMAS", benchmark="GSM8K"))
    return pd.concat(frames)


def test_the_spread_over_decoding_seeds_is_averaged_over_training(
    decoded: pd.DataFrame,
) -> None:
    spread = decoding_seeds.spread(decoded).loc[("CoMAS", "GSM8K")]
    assert spread["mean"] == 50
    assert spread["std"] == approx((np.std([0, 100], ddof=1) + 0) / 2)


def test_spreads_stand_beside_the_printed_ones(decoded: pd.DataFrame) -> None:
    paper = pd.DataFrame(
        {
            "method": ["CoMAS"],
            "benchmark": ["GSM8K"],
            "printed": ["60.1"],
            "value": [60.1],
            "std": [0.5],
        }
    )
    spread = decoding_seeds.spread(decoded)
    table = decoding_seeds.main_table(spread, paper, ["GSM8K"], ["CoMAS"])
    assert table["CoMAS"].tolist() == ["50.0 ± 35.4 / 60.1 ± 0.50"]
    averages = decoding_seeds.printed_averages(paper, ["CoMAS"])
    assert averages["paper"].tolist() == [60.1]


@pytest.fixture
def rates() -> pd.DataFrame:
    """Two seeds on two documents: later Reasoners are better, later Challengers harder."""
    rows = []
    for seed in (0, 1):
        for challenger in (0, 5, 9):
            for reasoner in (0, 5, 9):
                for document in (0, 1):
                    row = {
                        "seed": seed,
                        "challenger": challenger,
                        "reasoner": reasoner,
                        "document": document,
                        "pass_rate": (10 + reasoner - challenger + seed) / 20,
                    }
                    rows.append(row)
    return pd.DataFrame(rows)


def test_the_untrained_model_and_all_snapshots_of_a_run_play(tmp_path: Path) -> None:
    for step in (10, 5):
        (tmp_path / "snapshots" / str(step)).mkdir(parents=True)
    players = crossplay.players(tmp_path, "tiny")
    assert list(players) == [0, 5, 10]
    assert players[0] == "tiny"
    assert players[10] == str(tmp_path / "snapshots/10")


def test_every_pair_has_a_rate_with_limits(rates: pd.DataFrame) -> None:
    attempts = pd.DataFrame({"challenger": [0, 5, 9], "gold_correct": [1.0, 0.5, 0.0]})
    table = snapshots.pair_table(rates, attempts)
    pair = table.set_index(["challenger", "reasoner"]).loc[(5, 9)]
    assert pair["pass_rate"] == approx(100 * 14.5 / 20)
    assert pair["seeds"] == 2
    assert pair["documents"] == 4
    assert pair["low"] < pair["pass_rate"] < pair["high"]
    assert pair["gold_correct"] == 50


def test_the_last_snapshot_of_a_role_is_compared_with_its_first(
    rates: pd.DataFrame,
) -> None:
    table = snapshots.change_table(rates, {"challenger": -20.0, "reasoner": -30.0})
    challenger, reasoner = table.to_dict("records")
    assert challenger["from step"] == 5
    assert challenger["to step"] == 9
    assert challenger["change, points"].startswith("-20.0 [")
    assert challenger["verdict"] == "as printed"
    assert reasoner["change, points"].startswith("+20.0 [")
    assert reasoner["verdict"] == "against print"


def test_an_answer_is_lured_if_it_shows_the_taught_mistake() -> None:
    items = tasks.items("test", 20, ("add",))
    item = next(item for item in items if item.misconception != item.answer)
    assert snapshots.lured(item.question, f"\\boxed{{{item.misconception}}}") == 1.0
    assert snapshots.lured(item.question, f"\\boxed{{{item.answer}}}") == 0.0
    assert snapshots.lured("no question", "\\boxed{1}") == 0.0


def test_changed_answers_come_first() -> None:
    answers = {
        "a": ["1", "1"],
        "b": ["1", "2"],
    }
    frames = []
    for question, by_step in answers.items():
        frame = pd.DataFrame({"reasoner": [5, 9], "answer": by_step})
        frames.append(frame.assign(question=question, gold="1"))
    table = snapshots.usual_answers(pd.concat(frames), count=2)
    assert table["question"].tolist() == ["b", "a"]
    assert table["step 9"].tolist() == ["2", "1"]


def test_the_most_frequent_question_stands_for_a_snapshot() -> None:
    attempts = pd.DataFrame({"question": ["x", "y", "y"]})
    attempts = attempts.assign(document=0, challenger=5, gold="1", level=1.0)
    attempts["gold correct"] = 1.0
    table = snapshots.usual_questions(attempts, ["the text"])
    assert table["most frequent question"].tolist() == ["y"]
    assert table["document"].tolist() == ["the text"]
    assert table["step"].tolist() == [5]
