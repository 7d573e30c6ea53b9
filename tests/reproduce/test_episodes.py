"""Episode notebooks show their point: claims about their seed hold, and solutions run.

The solutions are those of the notebooks' exercises.
"""

import json
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks" / "episodes"
SOLUTION = re.compile(r"```python\n(.*?)```", re.DOTALL)
Names = dict[str, Any]  # the global names of a notebook
Facts = dict[str, Any]  # the facts of its episode


def run_notebook(name: str, folder: Path) -> Names:
    """Run a notebook with the solutions of its exercises as one script; return its names."""
    notebook = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text(encoding="utf-8"))
    code = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            code.append(text)
        else:
            code += SOLUTION.findall(text)
    script = folder / f"{name}.py"
    text = "\n".join(code).replace("../../results/scratch", str(folder))
    script.write_text(text, encoding="utf-8")
    return runpy.run_path(str(script))


def texts(replies: list[Any]) -> list[str]:
    """Return the texts of some replies."""
    return [reply.text for reply in replies]


def count_different(replies: list[Any]) -> int:
    """Count the different texts of some replies."""
    return len(set(texts(replies)))


def reward(played: Any, sample: int) -> float:
    """Return the reward of a sample of a played episode."""
    samples = played.outcome.samples
    return samples[sample].reward


def check_mae(names: Names, facts: Facts) -> None:
    assert facts["accepted"]
    nine_of_ten = (9 - 1) / 9
    assert facts["quality"] == nine_of_ten
    assert len(names["sampled"]) == 4
    assert count_different(names["greedy"]) == 1
    assert sum(names["truths"]) == 1
    underestimate = facts["true_difficulty"] - facts["difficulty"]
    assert underestimate > 0.2, "the Judge believed wrong attempts"
    assert facts["correct"] == 0
    assert facts["judged"] > 0.7
    episode = names["episode"]
    verdict = episode.replies[-1]
    assert names["judge_score"](verdict.text) > 0.7
    right = names["right"]
    pays = names["pays"]
    assert right != "green"
    assert pays["green"] == 1
    assert pays[right] < 1


def check_sage(names: Names, facts: Facts) -> None:
    assert facts["accepted"]
    assert facts["valid"]
    assert facts["gold_correct"] == 0
    assert count_different(names["tried"]) >= 3
    assert facts["difficulty"] == 1
    assert facts["true_difficulty"] < 0.5
    assert facts["plan_used"]
    assert facts["plan_correct"]
    assert facts["correct"]
    honest = names["honest"]
    episode = names["episode"]
    assert reward(honest, 0) < reward(episode, 0)
    pays = names["pays"]
    assert pays["99"] == 1, "2+3 is not 99"
    assert pays["5"] < reward(honest, 0)
    method = names["method"]
    best_reply = names["best_reply"]
    task = method.read_task(best_reply.text)
    assert not method.world.sound(*task)


def check_spice(names: Names, facts: Facts) -> None:
    assert 0 < facts["gold_correct"] < 1
    assert facts["fault/type"]
    assert facts["correct"] == 0.5
    assert count_different(names["answers"]) > 2
    for task in names["tasks"]:
        assert task["oracle"] or task["p"] == 0
    pays = names["pays"]
    assert pays["15"] > 0.9, "13*2 is not 15"
    assert pays["26"] < 0.2
    paid = names["paid"]
    assert paid == set(), "no Reasoner says 99"


def check_comas(names: Names, facts: Facts) -> None:
    assert facts["correct_first"] == 0
    assert names["score"] == 3
    assert facts["correct_last"] == 1
    assert facts["tn"]
    assert facts["normalised"] == 0.5
    by_lies = names["lies"]
    earn = names["evaluations_earn"]
    praise = earn(names["mine"])
    as_played = earn(names["episode"])
    assert praise < as_played < by_lies


def check_conl(names: Names, facts: Facts) -> None:
    assert facts["correct_before"] == facts["fixed"] == 1
    assert facts["harmed"] == 0
    scores_before = facts["scores_before"]
    assert scores_before[3] == max(scores_before), "the only correct solution leads"
    scores = names["scores"]
    moved = [before != after for before, after in scores.values[:, :2]]
    rose = [rise > 0 for rise in scores["rose by"]]
    assert rose == moved
    rewards = names["table"]["diagnostic"]
    is_rewarded = [reward > 0 for reward in rewards]
    criticises_1 = []
    for targets in names["criticised"]:
        criticises_1.append(1 in targets)
    assert is_rewarded == criticises_1, "agent 1 rose"
    earn = names["critic_earns"]
    as_played = earn(names["episode"])
    liar = names["liar"]
    assert as_played < earn(liar)
    outcome = liar.outcome.facts
    assert outcome["harmed"] == outcome["correct_before"]
    assert outcome["fixed"] == 0, "nobody is right at the end"


CHECKS = {
    "mae": check_mae,
    "sage": check_sage,
    "spice": check_spice,
    "comas": check_comas,
    "conl": check_conl,
}


ON_EVERY_PUSH = "conl"  # the others are thorough


def episodes() -> Iterator[Any]:
    """Yield each notebook's name and check as parameters of a test."""
    for name, check in CHECKS.items():
        marks = [] if name == ON_EVERY_PUSH else [pytest.mark.thorough]
        yield pytest.param(name, check, id=name, marks=marks)


@pytest.mark.parametrize(("name", "check"), [*episodes()])
def test_an_episode_shows_its_point(
    name: str, check: Callable[[Names, Facts], None], tmp_path: Path
) -> None:
    names = run_notebook(name, tmp_path)
    check(names, names["episode"].outcome.facts)
    assert list(tmp_path.glob("*/table.md"))
