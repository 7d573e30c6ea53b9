"""A paper's published tests and seeds as a world: what never meets, what is counted, and that protocols run on it."""

import inspect
from dataclasses import replace
from pathlib import Path
from random import Random

import mirror
import pytest

from coevolve.driver import Batched, play
from coevolve.held_out import score, tally
from coevolve.papers.comas.method import CoMAS
from coevolve.papers.conl.method import CoNL
from coevolve.papers.mae.method import MAE
from coevolve.papers.sage.method import SAGE
from coevolve.types import Reply, Role
from coevolve.worlds import World
from published import data
from published.rows import Item, normal
from published.world import METHODS, DataWorld, world
from tinyworld.oracle import DOMAINS, TinyWorld


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mirror.write(tmp_path_factory.mktemp("mirror"))


@pytest.fixture(autouse=True)
def local(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", str(folder))


def texts(items: list[Item]) -> set[str]:
    return {normal(item.question) for item in items}


def test_it_answers_everything_that_a_protocol_may_ask() -> None:
    asked = [name for name in vars(World) if not name.startswith("_")]
    assert len(asked) >= 10
    for name in asked:
        ours, theirs, tiny = (inspect.signature(getattr(cls, name)) for cls in (DataWorld, World, TinyWorld))
        assert [*ours.parameters] == [*theirs.parameters] == [*tiny.parameters], name
    assert DataWorld.grading == "math"


@pytest.mark.parametrize("paper", data.papers())
def test_seeds_validation_and_test_never_share_a_question(paper: str) -> None:
    made = DataWorld(paper)
    test, validation = made.items("test", 10_000), made.items("validation", 10_000)
    seeds = [item for _, item in made.seed_rows()]
    assert test
    for one, other in ((test, validation), (test, seeds), (validation, seeds)):
        assert not texts(one) & texts(other)
        marks = [{mark for item in its for mark in item.marks} for its in (one, other)]
        assert not marks[0] & marks[1]
    assert len(texts(seeds)) == len(seeds)
    assert all(made.held_out(item.question) for item in [*test, *validation])
    assert not any(made.held_out(item.question) for item in seeds if item.benchmark not in made.its.forced)


def test_forced_overlaps_leave_the_test_and_are_counted() -> None:
    made = DataWorld("mae")
    rows = {row["benchmark"]: row for row in made.composition()}
    assert rows["gpqa_main"] == {
        "benchmark": "gpqa_main",
        "licence": "CC-BY-4.0",
        "seeds wanted": 69,
        "seeds": 60,
        "test": 0,
        "overlap": 60,
    }
    # HumanEval's two questions are seeds, and HumanEval+ asks the same two in other words: the number gives them away
    assert rows["humaneval"]["seeds"] == 2
    assert (rows["humaneval_plus"]["test"], rows["humaneval_plus"]["overlap"]) == (0, 2)
    assert (rows["gsm8k"]["seeds wanted"], rows["gsm8k"]["seeds"], rows["gsm8k"]["overlap"]) == (77, 77, 0)


def test_a_train_row_that_is_a_test_question_elsewhere_is_no_seed() -> None:
    assert "11" in {item.id for item in data.items("mbpp", "train")}  # MBPP+ asks number 11
    assert "11" not in {item.id for key, item in DataWorld("mae").seed_rows() if key == "mbpp"}


def test_seed_sets_have_each_papers_composition() -> None:
    counts = {key: 0 for key in data.papers()["sage"].seeds}
    for key, _ in DataWorld("sage").seed_rows():
        counts[key] += 1
    assert counts == {"math": 156, "gsm8k": 148, "humaneval": 2, "mbpp": 109}  # HumanEval: all that the mirror has
    assert {domain for domain, _ in DataWorld("comas").training()} == {*DOMAINS}
    comas = [item for _, item in DataWorld("comas").seed_rows()]
    levels = {item.meta.get("level") for item in comas if item.benchmark == "math"}
    assert levels == {"Level 4", "Level 5"}
    assert {i.meta["gpt_difficulty"] for i in comas if i.benchmark == "kodcode"} == {"medium", "hard"}
    assert {i.meta["category"] for i in comas if i.benchmark == "webinstruct_verified"} == {"Physics"}
    conl = [item.meta["difficulty"] for _, item in DataWorld("conl").seed_rows()]
    assert min(conl) == 6 and max(conl) == 9


def test_the_same_world_draws_the_same_items() -> None:
    assert DataWorld("mae").seeds() == DataWorld("mae").seeds()
    assert DataWorld("mae").items("test", 3) == DataWorld("mae").items("test", 3)
    assert DataWorld("mae").seeds()[70:] != DataWorld("sage").seeds()[70:]


def test_items_are_capped_by_the_caller_and_by_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    made = DataWorld("mae", ("gsm8k", "math"))
    assert [item.benchmark for item in made.items("test", 2)] == ["gsm8k"] * 2 + ["math"] * 2
    assert {item.meta["split"] for item in made.items("validation", 3)} == {"validation"}
    paper = data.papers()["mae"]
    monkeypatch.setitem(data.papers(), "mae", data.Paper({**paper.tests, "gsm8k": 3}, paper.seeds))
    assert len(DataWorld("mae", ("gsm8k",)).items("test", 100)) == 3
    with pytest.raises(ValueError, match="^split must be one of validation, test, got 'train'$"):
        made.items("train")


def test_spice_answers_aime_32_times_at_its_temperature() -> None:
    found = DataWorld("spice", ("aime24", "gsm8k")).items("test", 5)
    assert [item.benchmark for item in found] == ["gsm8k"] * 5 + ["aime24"] * 32
    seen = []

    def generate(turns: list) -> list[Reply]:
        seen.extend(turn.temperature for turn in turns)
        return [Reply(turn, "<answer>25</answer>") for turn in turns]

    rows = score(Batched(generate), Role("solver", "{question}"), found)
    assert seen == [0.0] * 5 + [0.6] * 32
    assert tally(rows[5:]) == {"k": 32, "n": 32}
    score(Batched(generate), Role("solver", "{question}"), found[-1:], temperature=1.0)
    assert seen[-1] == 1.0  # who says a temperature gets it
    assert {item.meta["temperature"] for item in DataWorld("comas", ("gsm8k",)).items("test")} == {0.7}


def test_verdicts_on_published_questions_and_silence_on_invented_ones() -> None:
    made = DataWorld("mae", ("gsm8k", "mbpp", "mbpp_plus"))
    item = data.items("gsm8k")[0]
    assert made.right(item.question, "1000") is True
    assert made.right(item.question, "1001") is False
    assert made.right(item.question, None) is False
    assert made.right("What is 2+2?", "4") is None
    assert made.valid(item.question) is made.level(item.question) is made.sound("q", "math", "1") is None
    assert made.fits("q", "plan") is None
    assert made.held_out(item.question.upper() + " ") is True
    assert made.held_out("What is 2+2?") is False
    seed = made.seeds()[0]
    assert made.held_out(seed) is False and made.right(seed, "no") is False


def test_the_stem_of_a_choice_is_held_out_too() -> None:
    assert DataWorld("mae", ("arc_c",)).held_out("why is it DARK?")


def test_no_answer_leaves_with_the_seeds() -> None:
    made = DataWorld("mae", ("gsm8k",))
    for item, question in zip((item for _, item in made.seed_rows()), made.seeds(), strict=True):
        assert question == item.question and "####" not in question


def test_zero_gives_the_sixteen_questions_that_ship() -> None:
    assert len(set(DataWorld("mae").zero())) == 16
    assert not any(question.startswith("%%") for question in DataWorld("mae").zero())


def test_sages_tasks_carry_their_verifiers() -> None:
    kinds = {kind for _, kind, _ in DataWorld("sage").tasks()}
    assert kinds == {"math", "code"}
    made = DataWorld("sage", ("mbpp", "humaneval"))
    from coevolve.verify import valid, verify

    for question, kind, tests in made.tasks()[:2] + made.tasks()[-2:]:
        assert kind == "code" and valid("code", tests)
        assert verify("code", made.program(question, f"```python\n{mirror.DOUBLE}```"), tests).correct is True
        assert verify("code", made.program(question, "def double(n):\n    return n + 1000"), tests).correct is False


@pytest.mark.parametrize("form", ["```python\n{}```", "<answer>{}</answer>", "<answer>\n```python\n{}```\n</answer>"])
def test_sages_programs_may_use_what_the_question_defines(form: str) -> None:
    made = DataWorld("sage", ("humaneval",))
    task = question, _, _ = made.tasks()[0]
    reply = form.format("def double(n):\n    return TWO * n\n")
    assert "TWO = 2" in question and SAGE(world=made, prompt="full")._verify(task, Reply(None, reply)) == 1.0
    (item,) = [item for _, item in made.seed_rows() if item.question == question]
    solver = SAGE(world=made, prompt="full").solver
    (row,) = score(Batched(lambda turns: [Reply(turn, reply) for turn in turns]), solver, [item], read=SAGE.read)
    assert row["correct"] == 1, "and the test reads replies as training does"


def test_conl_may_train_on_the_test_itself_and_says_so_by_name() -> None:
    made = DataWorld("conl", ("deepmath", "aime24"))
    train, test = made.problems("train", ()), made.problems("test", ("add",))
    assert not {*train} & {*test}
    assert {normal(text) for text in test} == texts(made.items("test", 10_000))


def test_worlds_by_name() -> None:
    assert isinstance(world("tiny"), TinyWorld)
    assert world("data", "maporl") == DataWorld("comas")
    assert world("data:gsm8k,math", "mae") == DataWorld("mae", ("gsm8k", "math"))
    for name, message in (
        ("dataset", "^world must be one of tiny, data, data:KEY,KEY, got 'dataset'$"),
        ("data:gsm", r"^world must be data:KEY,KEY with .*, got 'gsm'; did you mean 'gsm8k'\?$"),
        ("tiny:gsm8k", "^world must be one of"),
        ("data:", "^world must be one of"),
        ("data:gsm8k,,math", "^world must be one of"),
        ("data:aime24", "^world: mae starts from questions of a train split, and aime24 has none$"),
    ):
        with pytest.raises(ValueError, match=message):
            world(name, "mae")
    assert world("data:aime24", "base", "spice").its.tests == {"aime24": 0}
    assert {*METHODS.values()} == {*data.papers()}
    with pytest.raises(ValueError, match=r"^paper must be one of mae, .*, got 'azr'$"):
        DataWorld("azr")


def test_naming_a_world_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COEVOLVE_DATA", "/nowhere")
    made = world("data", "mae")
    with pytest.raises(ValueError, match="^COEVOLVE_DATA"):
        made.seeds()


@pytest.mark.parametrize("protocol", [MAE, SAGE, CoMAS, CoNL], ids=lambda cls: cls.__name__)
def test_protocols_play_on_published_data(protocol: type) -> None:
    name = protocol.__name__.lower()
    only = {"mae": ("gsm8k", "math"), "sage": ("gsm8k", "mbpp"), "comas": ("math",), "conl": ("deepmath",)}[name]
    made = protocol(prompt="full", world=DataWorld(name, only))
    seen: list[str] = []

    def generate(turns: list) -> list[Reply]:
        seen.extend(turn.messages[0]["content"] for turn in turns)
        said = (
            "<question>What is 7 times 8?</question><type>math</type><answer>56</answer><score>9</score>"
            "<revised_solution>ANSWER: 56</revised_solution> \\boxed{56}"
        )
        return [Reply(turn, said) for turn in turns]

    (outcome,) = play([made.episode(Random(1))], Batched(generate))
    assert outcome.samples
    assert any(question in text for question in made.world.seeds() for text in seen)


def test_benchmarks_that_a_paper_does_not_use_are_trained_on_and_tested() -> None:
    assert DataWorld("comas", ("csqa", "bbeh")).its.seeds == {"csqa": 0}
    assert [*DataWorld("spice", ("csqa", "aime24", "gsm8k")).its.tests] == ["gsm8k", "aime24", "csqa"]
    made = DataWorld("comas", ("gsm8k",))  # the paper tests it only
    assert (made.its.tests, made.its.seeds, made.domains) == ({"gsm8k": 500}, {"gsm8k": 0}, ("gsm8k",))
    validation = {item.question for item in made.items("validation", 1000)}
    assert (
        validation
        and {question for _, question in made.training()}
        == {item.question for item in data.items("gsm8k", "train")} - validation
    )
    made = DataWorld("sage", ("mbpp",))  # the paper starts from it only
    assert (made.its.tests, made.its.seeds) == ({"mbpp": 0}, {"mbpp": 109})


def test_a_world_with_nothing_left_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="^world: no test item of humaneval is left beside the seeds$"):
        DataWorld("mae", ("humaneval",)).items("test")  # both questions of the mirror are seeds
    comas = data.papers()["comas"]
    monkeypatch.setitem(data.papers(), "comas", replace(comas, where={"math": {"level": ["Level 9"]}}))
    with pytest.raises(ValueError, match="^world: no row of math is left to start from"):
        DataWorld("comas", ("math", "gsm8k")).items("test")
