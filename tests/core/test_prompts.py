"""All papers' prompts: the same fields in both forms, and every element of the paper's listings, in order."""

import re

import pytest
from core.conftest import Sums
from data_files import tables

from coevolve.methods.conl import parsing
from coevolve.methods.conl.method import PERSONAS
from coevolve.methods.registry import get_method
from coevolve.text.parse import answer_line
from coevolve.text.prompts import available, folder_of, read

PAPERS = {
    "mae": "MAE",
    "sage": "SAGE",
    "spice": "SPICE",
    "comas": "CoMAS",
    "conl": "CoNL",
}
PROMPTS = tables("prompts")
ALL = PROMPTS.pop("all")


def fields(prompt: str) -> set[str]:
    return set(re.findall(r"\{([a-z_]+)\}", prompt))


@pytest.mark.parametrize("paper", PAPERS)
def test_there_are_these_prompts_and_each_says_whose_it_is(paper: str) -> None:
    for form in ("compact", "full"):
        known = {
            name
            for name in PROMPTS
            if name.startswith(f"{paper}/") and form in {"full", *PROMPTS[name]}
        }
        assert {f"{paper}/{name}" for name in available(paper, form)} == known
    for path in folder_of(paper).glob("*.*.txt"):
        first, *rest = path.read_text("utf-8").splitlines()
        assert first.startswith(f"%% {PAPERS[paper]}") and "%%" not in read(
            paper, *path.name.split(".")[:2]
        )


@pytest.mark.parametrize("name", PROMPTS)
def test_full_prompts_hold_the_papers_elements_and_compact_ones_are_the_backbones(
    name: str,
) -> None:
    said, wanted = read(*name.split("/")), PROMPTS[name]
    comments = (
        (folder_of(name.split("/")[0]) / f"{name.split('/')[1]}.full.txt")
        .read_text("utf-8")
        .removesuffix(said)
    )
    assert wanted["printed"] in comments
    for elements in (
        wanted["elements"],
        *(more for prefix, more in ALL.items() if name.startswith(prefix)),
    ):
        assert re.search(".*".join(map(re.escape, elements)), said, re.DOTALL), elements
    assert [rule for rule in wanted.get("rules", []) if not re.search(rule, said)] == []
    assert [rule for rule in wanted.get("never", []) if re.search(rule, said)] == []
    if "compact" in wanted:
        assert read(*name.split("/"), "compact") == wanted["compact"] and fields(
            said
        ) == fields(wanted["compact"])


def test_plain_prompts_are_a_few_sentences_with_the_fields_of_the_compact_ones() -> (
    None
):
    papers = [*PAPERS, "azr", "strategies"]
    names = [(paper, role) for paper in papers for role in available(paper, "compact")]
    for name in names:
        plain = read(*name, "plain")
        assert len(names) == 35 and fields(plain) == fields(read(*name, "compact")), (
            name
        )
        assert 1 <= len(re.findall(r"[.?:](?=\s|$)", plain.partition("\n")[0])) <= 3, (
            plain
        )


def test_a_model_that_echoes_conls_formats_answers_nothing_votes_for_nobody_and_criticises_nobody() -> (
    None
):
    for name in ("proposal", "revision"):
        assert (
            'in the form "ANSWER: $ANSWER"' in read("conl", name)
            and answer_line(read("conl", name)) is None
        )
    for name in ("review", "verdict", "revision"):
        form = read("conl", name).partition("OUTPUT FORMAT")[2]
        assert not any(
            parsing.ranking(form, tag, 8)
            for tag in ("initial_ranking", "final_ranking")
        )
        assert form and parsing.critiques(form, 8) == []


def test_personas_ablations_and_starting_questions() -> None:
    personas = {
        path.name.removesuffix(".full.txt")
        for path in (folder_of("conl") / "personas").iterdir()
    }
    assert (
        personas == {*PERSONAS}
        and len({read("conl", f"personas/{name}") for name in personas}) == 8
    )
    for name in personas:
        assert len(
            re.findall(r"(?m)^- ", read("conl", f"personas/{name}"))
        ) == 5 and "{" not in read("conl", f"personas/{name}")
    every = [
        line for name in available("conl") for line in read("conl", name).splitlines()
    ]
    ablations = [
        path.name.split(".")[0]
        for path in (folder_of("conl") / "ablations").glob("*.full.txt")
    ]
    assert ablations
    for name in ablations:
        for pair in read("conl", f"ablations/{name}").split("\n\n"):
            old, new = pair.split("\n")
            assert (
                every.count(old) == 1
                and new not in every
                and fields(old) == fields(new)
            )
    questions = (
        (folder_of("mae") / "zero_questions.txt").read_text("utf-8").splitlines()[1:]
    )
    assert len(set(questions)) == len(questions) == 16 and all(
        len(question.split()) > 5 for question in questions
    )


@pytest.mark.parametrize("form", ["full", "plain", "compact"])
@pytest.mark.parametrize("paper", PAPERS)
def test_every_role_of_every_method_loads_and_the_solver_takes_one_field(
    paper: str, form: str, tmp_path
) -> None:
    method = get_method(paper)(prompt=form, world=Sums())
    assert len(method.roles) > 3 and len(method.answering.fields) == 1
    (tmp_path / f"solver.{form}.txt").write_text("%% mine\nMy own {question}", "utf-8")
    mine = get_method("mae")(prompt=form, world=Sums(), prompt_folder=str(tmp_path))
    assert mine.solver.prompt == "My own {question}"
    (tmp_path / f"solver.{form}.txt").write_text("My own", "utf-8")
    with pytest.raises(
        ValueError,
        match=rf"solver.{form}.txt must take the placeholders \['question'\], got \[\]",
    ):
        get_method("mae")(prompt=form, world=Sums(), prompt_folder=str(tmp_path))
