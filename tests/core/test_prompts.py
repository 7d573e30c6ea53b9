"""The papers' prompts: equal fields in every variant, and the elements of the papers' listings."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from core.conftest import Sums
from data_files import tables

from coevolve.methods.base import Method
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
EXPECTED = tables("prompts")
EXPECTED_BY_PREFIX = EXPECTED.pop("all")


@dataclass(frozen=True)
class Name:
    """The name of a prompt: a paper, or another folder of prompts, and a role."""

    paper: str
    role: str

    def __str__(self) -> str:
        return f"{self.paper}/{self.role}"

    def read(self, variant: str = "full") -> str:
        """Return the prompt without its comment lines."""
        return read(self.paper, self.role, variant)

    def comments(self) -> str:
        """Return the comment lines of the full prompt."""
        file = folder_of(self.paper) / f"{self.role}.full.txt"
        return file.read_text("utf-8").removesuffix(self.read())


NAMES = [Name(*name.split("/")) for name in EXPECTED]
COMPACT_NAMES = [name for name in NAMES if "compact" in EXPECTED[str(name)]]
NAMES_BY_FOLDER = [
    Name(folder, role)
    for folder in (*PAPERS, "azr", "strategies")
    for role in available(folder, "compact")
]


def placeholders(prompt: str) -> set[str]:
    return set(re.findall(r"\{([a-z_]+)\}", prompt))


@pytest.mark.parametrize("paper", PAPERS)
class TestFiles:
    def test_the_full_prompts_are_the_listed_ones(self, paper: str) -> None:
        listed = {name.role for name in NAMES if name.paper == paper}
        assert set(available(paper, "full")) == listed

    def test_the_compact_prompts_are_the_listed_ones(self, paper: str) -> None:
        listed = {name.role for name in COMPACT_NAMES if name.paper == paper}
        assert set(available(paper, "compact")) == listed

    def test_each_file_starts_with_a_comment_that_names_its_paper(
        self, paper: str
    ) -> None:
        for path in folder_of(paper).glob("*.*.txt"):
            first_line = path.read_text("utf-8").splitlines()[0]
            assert first_line.startswith(f"%% {PAPERS[paper]}"), path
            role, variant, _ = path.name.split(".")
            assert "%%" not in read(paper, role, variant)


class TestFullPrompts:
    @pytest.mark.parametrize("name", NAMES, ids=str)
    def test_its_comments_say_where_the_paper_prints_it(self, name: Name) -> None:
        assert EXPECTED[str(name)]["printed"] in name.comments()

    @pytest.mark.parametrize("name", NAMES, ids=str)
    def test_it_holds_the_papers_elements_in_order(self, name: Name) -> None:
        sequences = [EXPECTED[str(name)]["elements"]]
        for prefix, elements in EXPECTED_BY_PREFIX.items():
            if str(name).startswith(prefix):
                sequences.append(elements)
        for elements in sequences:
            in_order = ".*".join(re.escape(element) for element in elements)
            assert re.search(in_order, name.read(), re.DOTALL), elements

    @pytest.mark.parametrize("name", NAMES, ids=str)
    def test_it_states_the_papers_rules(self, name: Name) -> None:
        prompt = name.read()
        for rule in EXPECTED[str(name)].get("rules", []):
            assert re.search(rule, prompt), rule
        for forbidden in EXPECTED[str(name)].get("never", []):
            assert not re.search(forbidden, prompt), forbidden


class TestCompactPrompts:
    @pytest.mark.parametrize("name", COMPACT_NAMES, ids=str)
    def test_it_is_the_prompt_that_the_backbones_were_trained_on(
        self, name: Name
    ) -> None:
        assert name.read("compact") == EXPECTED[str(name)]["compact"]

    @pytest.mark.parametrize("name", COMPACT_NAMES, ids=str)
    def test_it_has_the_fields_of_the_full_one(self, name: Name) -> None:
        assert placeholders(name.read("compact")) == placeholders(name.read())


class TestPlainPrompts:
    def test_there_are_thirty_five(self) -> None:
        assert len(NAMES_BY_FOLDER) == 35

    @pytest.mark.parametrize("name", NAMES_BY_FOLDER, ids=str)
    def test_it_has_the_fields_of_the_compact_one(self, name: Name) -> None:
        assert placeholders(name.read("plain")) == placeholders(name.read("compact"))

    @pytest.mark.parametrize("name", NAMES_BY_FOLDER, ids=str)
    def test_its_first_line_has_one_to_three_sentences(self, name: Name) -> None:
        first_line, _, _ = name.read("plain").partition("\n")
        sentence_ends = re.findall(r"[.?:](?=\s|$)", first_line)
        assert 1 <= len(sentence_ends) <= 3, first_line


class TestEchoedFormats:
    """A model that repeats CoNL's output format says nothing by it."""

    @pytest.mark.parametrize("role", ["proposal", "revision"])
    def test_it_does_not_answer(self, role: str) -> None:
        prompt = read("conl", role)
        assert 'in the form "ANSWER: $ANSWER"' in prompt
        assert answer_line(prompt) is None

    @pytest.mark.parametrize("role", ["review", "verdict", "revision"])
    def test_it_neither_ranks_nor_criticises(self, role: str) -> None:
        _, _, output_format = read("conl", role).partition("OUTPUT FORMAT")
        assert output_format
        assert not parsing.ranking(output_format, "initial_ranking", 8)
        assert not parsing.ranking(output_format, "final_ranking", 8)
        assert parsing.critiques(output_format, 8) == []


class TestPersonas:
    def test_each_has_a_prompt_and_no_two_are_equal(self) -> None:
        folder = folder_of("conl") / "personas"
        files = {path.name.removesuffix(".full.txt") for path in folder.iterdir()}
        assert files == {*PERSONAS}
        prompts = {read("conl", f"personas/{name}") for name in files}
        assert len(prompts) == 8

    @pytest.mark.parametrize("persona", PERSONAS)
    def test_each_has_five_traits_and_no_field(self, persona: str) -> None:
        prompt = read("conl", f"personas/{persona}")
        traits = [line for line in prompt.splitlines() if line.startswith("- ")]
        assert len(traits) == 5
        assert "{" not in prompt


def ablations() -> list[str]:
    """Return the names of CoNL's ablations of prompts."""
    folder = folder_of("conl") / "ablations"
    return sorted(path.name.split(".")[0] for path in folder.glob("*.full.txt"))


class TestAblations:
    def test_there_are_some(self) -> None:
        assert ablations()

    @pytest.mark.parametrize("ablation", ablations())
    def test_each_replaces_lines_that_occur_once_and_keeps_their_fields(
        self, ablation: str
    ) -> None:
        prompt_lines = []
        for role in available("conl"):
            prompt_lines += read("conl", role).splitlines()
        for replacement in read("conl", f"ablations/{ablation}").split("\n\n"):
            old, new = replacement.split("\n")
            assert prompt_lines.count(old) == 1
            assert new not in prompt_lines
            assert placeholders(old) == placeholders(new)


def test_mae_starts_from_sixteen_distinct_questions() -> None:
    file = folder_of("mae") / "zero_questions.txt"
    _, *questions = file.read_text("utf-8").splitlines()
    assert len(questions) == 16
    assert len(set(questions)) == 16
    for question in questions:
        assert len(question.split()) > 5, question


@pytest.mark.parametrize("variant", ["full", "plain", "compact"])
class TestMethods:
    @pytest.mark.parametrize("paper", PAPERS)
    def test_every_role_loads_and_the_solver_takes_one_field(
        self, paper: str, variant: str
    ) -> None:
        method = get_method(paper)(prompt=variant, world=Sums())
        assert len(method.roles) > 3
        assert len(method.answering.fields) == 1

    def mae(self, variant: str, folder: Path, solver_prompt: str) -> Method:
        """MAE with a user's folder, which holds a prompt of the solver."""
        file = folder / f"solver.{variant}.txt"
        file.write_text(solver_prompt, "utf-8")
        return get_method("mae")(
            prompt=variant, world=Sums(), prompt_folder=str(folder)
        )

    def test_a_users_prompt_replaces_the_shipped_one(
        self, variant: str, tmp_path: Path
    ) -> None:
        method = self.mae(variant, tmp_path, "%% mine\nMy own {question}")
        assert method.solver.prompt == "My own {question}"

    def test_a_users_prompt_without_the_placeholders_is_refused(
        self, variant: str, tmp_path: Path
    ) -> None:
        message = (
            rf"solver.{variant}.txt must take the placeholders \['question'\], got \[\]"
        )
        with pytest.raises(ValueError, match=message):
            self.mae(variant, tmp_path, "My own")
