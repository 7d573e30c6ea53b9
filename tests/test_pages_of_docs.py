"""Pages of the documentation hold: paper-to-code is current, and the pages' code runs."""

import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path
from random import Random

import pandas as pd
import pytest

from coevolve.commands.arguments import read_overrides
from coevolve.methods.registry import get_method
from coevolve.rollout.stepper import EpisodeStepper
from coevolve.training import config, memory, plan
from coevolve.types import Reply, Role
from coevolve.worlds import World, resolve
from tinyworld import tasks
from tools import paper_to_code

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def code(page: str, language: str = "python") -> list[str]:
    """Return a page's code blocks in a language."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class TestPaperToCode:
    def test_it_is_current(self) -> None:
        text = paper_to_code.PAGE.read_text(encoding="utf-8")
        assert text == paper_to_code.page(), "run: python -m tools.paper_to_code"

    @pytest.mark.parametrize("paper", paper_to_code.PAPERS)
    def test_every_paper_has_places_and_a_link(self, paper: str) -> None:
        rows = list(paper_to_code.rows_of(paper))
        assert len(rows) >= 10
        for link in re.findall(r"\]\(\.\./([^)#]+)", "\n".join(rows)):
            assert (ROOT / link).exists(), link

    @pytest.mark.parametrize(
        ("text", "places"),
        [
            ("The sum (section 4.1, Algorithm 1 line 15).", 3),
            ("Equations 3 and 4: DrGRPO.", 1),
            ("See Table 2 and Appendix G.", 2),
            ("Nothing of a paper.", 0),
        ],
    )
    def test_it_finds_places(self, text: str, places: int) -> None:
        found = paper_to_code.Definition("f", 1, text)
        assert len(found.places) == places

    def test_an_equation_does_not_end_a_summary(self) -> None:
        found = paper_to_code.Definition(
            "f", 1, "Return r(s) of Eq. 7. It is in [0, 1]."
        )
        assert found.summary == "Return r(s) of Eq. 7"

    def test_ranges_of_lines_are_read_line_by_line(self) -> None:
        parts = paper_to_code.parts_of(
            ["lines 4 to 6 and 9", "Eqs. 7 and 8", "Table 3"]
        )
        lines = {("line", number) for number in "4569"}
        assert parts == lines | {("equation", "7"), ("equation", "8")}

    def test_a_name_in_no_cell_leads_to_the_cell_that_marks_its_lines(self) -> None:
        cells = paper_to_code.notebook_cells("mae")
        assert paper_to_code.cell_with("MAE.may_enter_pool", cells) is None
        cell = paper_to_code.cell_at(["lines 12 to 14"], cells, "mae")
        assert cell is not None
        assert cell.source.startswith('algorithm.show("mae", 4,')
        assert cell.link.endswith("mae.ipynb#The-pool%2C-and-the-Solver%27s-answer")


def commands_by_card() -> dict[str, str]:
    """Return the table of docs/gpu.md in which a visitor finds the command for a card."""
    page = (DOCS / "gpu.md").read_text(encoding="utf-8")
    table = page.partition("| you have | you type |")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| ([^|`]+) \| `([^`]+)`", table, re.MULTILINE))


COMMANDS = commands_by_card()


class TestCommandsForGPUs:
    def test_the_first_screen_names_four_machines(self) -> None:
        assert len(COMMANDS) == 4

    @pytest.mark.parametrize("have", COMMANDS)
    def test_the_command_fits_the_smallest_card_of_its_row(
        self, have: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = re.search(r"\d+(?=[^|]*GB)", have)
        size = found[0] if found else "80"  # GB of an H100
        (card,) = [card for card in plan.CARDS if card.name.startswith(f"{size} GB")]
        launcher, arguments = re.split(r"coevolve train ", COMMANDS[have])
        if "fsdp2" in launcher:
            monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
            monkeypatch.setenv("WORLD_SIZE", "8")
        method, *words = shlex.split(arguments)
        options = dict(zip(words[::2], words[1::2], strict=False))
        pairs = [word for word in words if "=" in word]
        assert set(words) == {
            "--preset",
            options["--preset"],
            "--out",
            options["--out"],
            *pairs,
        }
        overrides = read_overrides(method, pairs)
        run = config.build(
            method, options["--preset"], out=tmp_path, overrides=overrides
        )
        assert memory.estimate(run, plan.known_config).needed < card.gib


class TestSubclassing:
    @pytest.fixture
    def gentle(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.chdir(tmp_path)
        (source,) = code("subclassing.md")
        Path("gentle.py").write_text(source, encoding="utf-8")
        return "./gentle.py:Gentle"

    def test_its_file_is_a_method_with_the_values_of_mae(self, gentle: str) -> None:
        run = config.build(gentle, "quick", out="run")
        assert run.steps == config.build("mae", "quick", out="run").steps
        turn = run.method.solver(question="3*4")
        reply = Reply(turn, "<answer>12</answer>", completion_ids=(1,) * 10)
        assert run.method.solver_reward(reply, 1.0) == pytest.approx(1 - 0.1)

    def test_every_hook_of_its_table_exists(self) -> None:
        text = (DOCS / "subclassing.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| `(coevolve\.methods\.\w+:\w+)` \|(.*)$", text, re.M)
        assert len(rows) == 5
        for name, cells in rows:
            method = get_method(name)()
            hooks = re.findall(r"`(\w+)`", cells)
            assert len(hooks) >= 4
            for hook in hooks:
                assert hasattr(method, hook), f"{name} {hook}"


class TestGames:
    def test_a_dialogue_grows_by_its_function(self) -> None:
        names: dict = {}
        source, _ = code("games.md")
        exec(source, names)
        turn = Role("a", "x")()
        following = names["answered"](turn, Reply(turn, "y"), "z")
        contents = [message["content"] for message in following.messages]
        assert contents == ["x", "y", "z"]

    def test_a_game_is_played_by_hand(self, monkeypatch, capsys) -> None:
        monkeypatch.chdir(ROOT)
        _, source = code("games.md")
        exec(source, {})
        assert "'winning_move'" in capsys.readouterr().out


def solutions() -> str:
    """Return the page with the solutions of the lesson."""
    return (DOCS / "lesson-solutions.md").read_text(encoding="utf-8")


class TestLesson:
    def test_its_claims_are_in_the_registry(self) -> None:
        text = (DOCS / "lesson.md").read_text(encoding="utf-8")
        names = re.findall(r"index\.html#claim-(\w+)", text)
        claims = tomllib.loads((ROOT / "reproduce/claims.toml").read_text("utf-8"))
        assert len(names) == 4
        assert set(names) <= set(claims["claims"])

    def test_the_best_paid_mistakes_are_those_that_students_see(self) -> None:
        section = solutions().partition("## A.")[2].partition("## B.")[0]
        rows = re.findall(
            r"^\| `(.*)` \| `(.*)` \| `(.*)` \| `(.*)` \|$", section, re.M
        )
        assert len(rows) == 3
        notebook = (ROOT / "notebooks/start_here.ipynb").read_text(encoding="utf-8")
        for question, said, judged, right in rows:
            answer = f"<answer>{said}</answer>"
            assert f"{question} | {answer} | {judged} | 1.00 | " in notebook
            assert tasks.read(question).answer == right != said

    def test_its_cheats_earn_what_it_says(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        names: dict = {}
        for source in code("lesson-solutions.md"):
            exec(source, names)
        printed = "".join(code("lesson-solutions.md", "text"))
        assert capsys.readouterr().out == printed

    def test_its_worked_claim_is_that_of_the_ledger(self) -> None:
        ledger = pd.read_csv(ROOT / "results/standard/claims/ledger.csv")
        row = ledger.set_index("claim").loc["mae_half_over_base"]
        control = f"[{row['over_control_low']:+.2f}, {row['over_control_high']:+.2f}]"
        cells = (
            f"{row['effect']:+.2f}",
            f"{row['low']:+.2f} to {row['high']:+.2f}",
            f"{row['paper_effect']:+.2f}",
            f"{row['p_corrected']:.3f}",
            f"{row['over_control']:+.2f} {control}",
            row["verdict"],
        )
        assert f"| {' | '.join(cells)} |" in solutions()


class TestOwnWorld:
    def test_its_file_of_questions_is_a_world(self, tmp_path: Path) -> None:
        (lines,) = code("own-world.md", "json")
        file = tmp_path / "questions.jsonl"
        file.write_text(lines, encoding="utf-8")
        world = resolve(f"file:{file}")
        assert world.seed_questions() == ["What is 12 * 12?"]
        (item,) = world.items("test")
        assert world.grade([(item, "169"), (item, "144")]) == [True, False]

    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
        (source,) = code("own-world.md")
        (tmp_path / "squares.py").write_text(source, encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        yield resolve("squares:Squares")
        sys.modules.pop("squares", None)

    def test_its_oracle_knows_its_questions(self, world: World) -> None:
        items = world.items("test")
        assert len(items) == 20
        assert world.grade([(items[0], "6400"), (items[0], "1"), (items[0], None)]) == [
            True,
            False,
            False,
        ]
        assert world.held_out(items[0].question)
        assert not world.held_out(world.seed_questions()[0])
        assert world.is_correct("what?", "1") is None

    @pytest.mark.parametrize("method", ["mae", "comas", "conl"])
    def test_methods_play_in_it(self, method: str, world: World) -> None:
        player = get_method(method)(world=world)
        stepper = EpisodeStepper(player.observed(Random(0)), engine=None)
        while stepper.pending_turns:
            stepper.answer(["<answer>1</answer>"] * len(stepper.pending_turns))
        assert stepper.outcome is not None
