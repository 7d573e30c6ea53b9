"""A paper's published tests and seeds as a world: what never meets, what is counted, and that methods play on it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest
from core.conftest import Scripted

from coevolve.evaluation.scoring import score, tally
from coevolve.methods.mae.method import MAE
from coevolve.methods.sage.method import SAGE
from coevolve.types import Reply
from published import data
from published.rows import Item, normal
from published.world import DataWorld, named

pytestmark = pytest.mark.usefixtures("local")


def texts(items: Iterable[Item]) -> set[str]:
    return {normal(item.question) for item in items}


@pytest.mark.parametrize("paper", data.PAPERS)
def test_seeds_validation_and_test_never_share_a_question(paper: str) -> None:
    made = DataWorld(paper)
    test, validation = made.items("test", 10_000), made.items("validation", 10_000)
    seeds = [item for _, item in made.seed_rows()]
    assert test and len(texts(seeds)) == len(seeds)
    for one, other in ((test, validation), (test, seeds), (validation, seeds)):
        marks = [{mark for item in found for mark in item.marks} for found in (one, other)]
        assert not marks[0] & marks[1] and not texts(one) & texts(other)
    assert {item.split for item in test} == {"test"} and {item.split for item in validation} <= {"validation"}
    assert all(made.held_out(item.question) for item in [*test, *validation])
    assert not any(made.held_out(item.question) for item in seeds if item.family not in made.lists.forced)
    again = DataWorld(paper)
    assert (again.seed_questions(), again.items("test", 3)) == (made.seed_questions(), made.items("test", 3))


def test_forced_overlaps_leave_the_test_and_are_counted() -> None:
    made = DataWorld("mae")
    table = {row["benchmark"]: row for row in made.composition()}
    whole = {"licence": "CC-BY-4.0", "seeds wanted": 69, "seeds": 60, "test": 0, "overlap": 60}
    assert table["gpqa_main"] == {"benchmark": "gpqa_main", **whole}
    # HumanEval's two questions are seeds, and HumanEval+ asks the same two in other words: the number gives them away
    assert table["humaneval"]["seeds"] == 2
    assert (table["humaneval_plus"]["test"], table["humaneval_plus"]["overlap"]) == (0, 2)
    assert (table["gsm8k"]["seeds wanted"], table["gsm8k"]["seeds"], table["gsm8k"]["overlap"]) == (77, 77, 0)
    # MBPP+ asks number 11, so MBPP's number 11 is no seed
    assert "11" in {item.id for item in data.items("mbpp", "train")}
    assert "11" not in {item.id for key, item in made.seed_rows() if key == "mbpp"}


def test_seed_sets_have_each_papers_composition() -> None:
    counts = Counter(key for key, _ in DataWorld("sage").seed_rows())
    assert counts == {"math": 156, "gsm8k": 148, "humaneval": 2, "mbpp": 109}  # HumanEval: all that the mirror has
    made = DataWorld("comas")
    assert {domain for domain, _ in made.training_questions()} == {"MATH", "KodCode", "WebInstruct"}
    about = {"math": "level", "kodcode": "gpt_difficulty", "webinstruct_verified": "category"}
    found = {key: {item.meta[name] for one, item in made.seed_rows() if one == key} for key, name in about.items()}
    assert found["math"] == {"Level 4", "Level 5"}
    assert (found["kodcode"], found["webinstruct_verified"]) == ({"medium", "hard"}, {"Physics"})
    conl = [item.meta["difficulty"] for _, item in DataWorld("conl").seed_rows()]
    assert min(conl) == 6 and max(conl) == 9


def test_items_are_capped_by_the_caller_and_by_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    made = DataWorld("mae", ("gsm8k", "math"))
    assert [item.family for item in made.items("test", 2)] == ["gsm8k"] * 2 + ["math"] * 2
    paper = data.PAPERS["mae"]
    monkeypatch.setitem(data.PAPERS, "mae", data.Paper({**paper.tests, "gsm8k": 3}, paper.seeds))
    assert len(DataWorld("mae", ("gsm8k",)).items("test", 100)) == 3
    with pytest.raises(ValueError, match="^split must be one of validation, test, got 'train'$"):
        made.items("train")


def test_spice_answers_aime_32_times_at_its_temperature() -> None:
    made = DataWorld("spice", ("aime24", "gsm8k"))
    found = made.items("test", 5)
    assert [item.family for item in found] == ["gsm8k"] * 5 + ["aime24"] * 32
    engine = Scripted(lambda turn: "<answer>25</answer>")
    rows = score(engine, MAE(world=made), found)
    assert tally(rows[5:]) == {"k": 32, "n": 32}
    score(engine, MAE(world=made), found[-1:], temperature=1.0)  # who says a temperature gets it
    assert [turn.temperature for turn in engine.asked] == [0.0] * 5 + [0.6] * 32 + [1.0]
    assert {item.temperature for item in DataWorld("comas", ("gsm8k",)).items("test")} == {0.7}


def test_verdicts_on_published_questions_and_silence_on_invented_ones() -> None:
    made = DataWorld("mae", ("gsm8k", "mbpp", "arc_c", "truthfulqa"))
    item = data.items("gsm8k")[0]
    assert [made.is_correct(item.question, answer) for answer in ("1000", "1001", None)] == [True, False, False]
    judged = data.items("truthfulqa")[0]
    assert made.grade([(item, "1001"), (judged, "No."), (item, "1000"), (judged, None)]) == [False, None, True, False]
    assert made.is_correct("What is 2+2?", "4") is made.valid(item.question) is made.level(item.question) is None
    assert made.sound("q", "math", "1") is made.fits("q", "plan") is None
    assert made.held_out(item.question.upper() + " ") and made.held_out("why is it DARK?"), "a stem without options"
    assert not made.held_out("What is 2+2?") and not made.held_out(made.seed_questions()[0])
    assert all("####" not in question for question in made.seed_questions()) and made.is_correct(made.seed_questions()[0], "no") is False
    assert len(set(made.zero_questions())) == 16 and not any(question.startswith("%%") for question in made.zero_questions())


@pytest.mark.parametrize("form", ["```python\n{}```", "<answer>{}</answer>", "<answer>\n```python\n{}```\n</answer>"])
def test_sages_programs_may_use_what_the_question_defines(form: str) -> None:
    made = DataWorld("sage", ("humaneval",))
    task = question, _, _ = made.verifiable_tasks()[0]
    reply = form.format("def double(n):\n    return TWO * n\n")
    assert {kind for _, kind, _ in DataWorld("sage").verifiable_tasks()} == {"math", "code"}
    assert "TWO = 2" in question and SAGE(world=made, prompt="full").verify(task, Reply(None, reply)) == 1.0
    (item,) = [item for _, item in made.seed_rows() if item.question == question]
    (row,) = score(Scripted([reply]), SAGE(world=made, prompt="full"), [item])
    assert row["correct"] == 1, "and the test reads replies as training does"


def test_conl_may_train_on_the_test_itself_and_says_so_by_name() -> None:
    made = DataWorld("conl", ("deepmath", "aime24"))
    train, test = made.questions("train", ()), made.questions("test", ("add",))
    assert not {*train} & {*test}
    assert {normal(text) for text in test} == texts(made.items("test", 10_000))


def test_worlds_by_name_load_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", "/nowhere")
    assert named("data", "comas") == DataWorld("comas") and named("data", "comas").name == "data"
    assert named("data:gsm8k, math", "mae") == DataWorld("mae", ("gsm8k", "math"))
    assert named("data:gsm8k,math", "mae").name == "data:gsm8k,math"
    assert named("data:aime24", "spice", seeds=False).lists.tests == {"aime24": 0}
    with pytest.raises(ValueError, match="^KEY of world=data:KEY,KEY must be one of .*, got ''$"):
        named("data:gsm8k,,math", "mae")
    for ask in (DataWorld("mae").seed_questions, DataWorld("mae").check):
        with pytest.raises(ValueError, match="^COEVOLVE_DATA"):
            ask()


def test_benchmarks_that_a_paper_does_not_use_are_trained_on_and_tested() -> None:
    assert DataWorld("comas", ("csqa", "bbeh")).lists.seeds == {"csqa": 0}
    assert [*DataWorld("spice", ("csqa", "aime24", "gsm8k")).lists.tests] == ["gsm8k", "aime24", "csqa"]
    made = DataWorld("comas", ("gsm8k",))  # the paper tests it only
    assert (made.lists.tests, made.lists.seeds) == ({"gsm8k": 500}, {"gsm8k": 0})
    validation = {item.question for item in made.items("validation", 1000)}
    everything = {item.question for item in data.items("gsm8k", "train")}
    assert validation and {question for _, question in made.training_questions()} == everything - validation
    made = DataWorld("sage", ("mbpp",))  # the paper starts from it only
    assert (made.lists.tests, made.lists.seeds) == ({"mbpp": 0}, {"mbpp": 109})


def test_a_world_with_nothing_left_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="^world: no test item of humaneval is left beside the seeds$"):
        DataWorld("mae", ("humaneval",)).items("test")  # both questions of the mirror are seeds
    comas = data.PAPERS["comas"]
    monkeypatch.setitem(data.PAPERS, "comas", replace(comas, where={"math": {"level": "Level 9"}}))
    with pytest.raises(ValueError, match="^world: no row of math is left to start from"):
        DataWorld("comas", ("math", "gsm8k")).items("test")
