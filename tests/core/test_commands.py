"""The commands play, evaluate and compare, without a model: scripted replies and written runs."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coevolve.cli import main
from coevolve.commands import terminal
from coevolve.commands.verdicts import verdict_on
from coevolve.methods.registry import get_method
from coevolve.rollout.engine import BatchedEngine
from coevolve.runs import record
from coevolve.types import Reply, Turn
from tinyworld import TinyWorld

CODE_OF_A_COLOUR = "\x1b["
TERSE = """
from coevolve.methods.mae.method import MAE
from coevolve.types import Role


class Terse(MAE):
    def define_roles(self):
        super().define_roles()
        self.solver = Role("solver", "solve {question}", max_tokens=5)
"""


def spoken(turn: Turn) -> Reply:
    """Answer as a model that proposes 3*4, always says 12, and judges all as good."""
    prompt = turn.messages[-1]["content"]
    text = "<answer>12</answer>"
    if prompt.startswith("propose"):
        text = "<question>3*4</question>"
    elif prompt.startswith("judge"):
        text = "<score>10</score>"
    return Reply(turn, text, completion_ids=(1, 2))


class Speaker:
    """A model that answers by `spoken`; it notes what it was served with, and its turns."""

    served: list[tuple[float, int]] = []
    turns: list[Turn] = []

    def serve(self, temperature: float, max_tokens: int) -> BatchedEngine:
        self.served.append((temperature, max_tokens))
        return BatchedEngine(self.generate)

    def generate(self, turns: list[Turn]) -> list[Reply]:
        self.turns.extend(turns)
        return list(map(spoken, turns))


@pytest.fixture(autouse=True)
def speaker(monkeypatch: pytest.MonkeyPatch) -> Speaker:
    Speaker.served = []
    Speaker.turns = []
    for command in ("play", "evaluate"):
        monkeypatch.setattr(
            f"coevolve.commands.{command}.load_policy", lambda *names: Speaker()
        )
    return Speaker()


class TestPlay:
    PLAY = ["play", "mae", "attempts=2", "--solves", "1"]

    def test_every_reply_has_its_prompt_verdict_and_reward(self, capsys) -> None:
        assert main([*self.PLAY, "setting=no"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "mae, one episode (seed 0, tiny, temperature 1)"
        start = lines.index("1 proposer")
        assert lines[start + 1 : start + 5] == [
            "  reads  propose",
            "  says   <question>3*4</question>",
            "  oracle ✓ level 1, right answer 12",
            "  earns  +0.667",  # quality 1, difficulty 0, format 1
        ]
        assert "  oracle ✓ right" in lines

    def test_a_wrong_answer_stands_beside_the_right_one(self, capsys) -> None:
        assert main([*self.PLAY, "--seed", "2"]) == 0
        output = capsys.readouterr().out
        assert "  oracle ✗ wrong, right is " in output
        assert output.splitlines()[-1].startswith("9 replies, 3 of them with a reward")

    def test_the_same_seed_plays_the_same_episode(self, capsys) -> None:
        outputs = []
        for seed in ("5", "5", "6"):
            assert main([*self.PLAY, "--seed", seed]) == 0
            outputs.append(capsys.readouterr().out)
        assert outputs[0] == outputs[1] != outputs[2]

    def test_options_set_model_and_temperature(self, speaker, capsys) -> None:
        options = ["--model", "tiny-large", "--temperature", "0.5", "max_tokens=9"]
        assert main([*self.PLAY, *options]) == 0
        assert speaker.served == [(0.5, 9)]
        assert "(seed 0, tiny-large, temperature 0.5)" in capsys.readouterr().out

    @pytest.mark.parametrize("method", ["sage", "comas", "conl", "spice"])
    def test_every_paper_plays(self, method: str, capsys) -> None:
        assert main(["play", method, "--preset", "smoke"]) == 0
        assert " replies, " in capsys.readouterr().out

    @pytest.mark.parametrize("method", ["base", "sft"])
    @pytest.mark.parametrize("command", ["play", "plan"])
    def test_a_method_without_episodes_is_one_line(
        self, command: str, method: str, capsys
    ) -> None:
        assert main([command, method, "--preset", "none"]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith(f"coevolve: {method} plays no episodes")

    def test_an_unknown_model_is_one_line(self, capsys) -> None:
        assert main([*self.PLAY, "--model", "nope"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("coevolve: model must be one of ")


class TestColours:
    """Codes of colours reach terminals alone, and none if NO_COLOR is set."""

    @pytest.fixture
    def output(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        """Replace the function that prints; keep what it was asked to do about colours."""
        seen = SimpleNamespace(colours=[])
        monkeypatch.setattr(
            terminal.typer, "echo", lambda text, err, color: seen.colours.append(color)
        )
        return seen

    def test_text_in_a_file_has_no_codes(self, capsys) -> None:
        text = terminal.styled("good", terminal.GOOD)
        assert CODE_OF_A_COLOUR in text
        terminal.show(text)
        assert capsys.readouterr().out == "good\n"

    def test_the_stream_decides_without_no_color(self, output, monkeypatch) -> None:
        monkeypatch.delenv("NO_COLOR", raising=False)
        terminal.show("x")
        monkeypatch.setenv("NO_COLOR", "")  # empty is as good as unset
        terminal.show("x")
        assert output.colours == [None, None]

    def test_no_color_forbids_codes(self, output, monkeypatch) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        terminal.show("x")
        assert output.colours == [False]


class TestVerdicts:
    def on(self, role: str, text: str, method: str = "mae", **fields: str):
        player = get_method(method)()
        reply = Reply(player.roles[role](**fields), text)
        return verdict_on(player, reply)

    def test_an_answer_is_right_or_wrong(self) -> None:
        right = self.on("solver", "<answer>12</answer>", question="3*4")
        wrong = self.on("solver", "<answer>11</answer>", question="3*4")
        assert (right.mark, right.note) == ("✓", "right")
        assert (wrong.mark, wrong.note) == ("✗", "wrong, right is 12")

    def test_nobody_can_judge_an_answer_to_no_question(self) -> None:
        verdict = self.on("solver", "<answer>12</answer>", question="what?")
        assert verdict.is_correct is None

    def test_a_question_is_well_formed_or_not(self) -> None:
        good = self.on("proposer", "<question>3*4</question>")
        bad = self.on("proposer", "<question>3*</question>")
        assert good.note == "level 1, right answer 12"
        assert bad.is_correct is False

    @pytest.mark.parametrize("text", ["", "12", "<answer></answer>"])
    def test_an_unreadable_reply_has_none(self, text: str) -> None:
        assert self.on("solver", text, question="3*4") is None

    def test_judges_have_none(self) -> None:
        text = "\\boxed{12}"
        fields = {"problem": "3*4", "solution": "x", "evaluation": "y"}
        assert self.on("scoring", text, "comas", **fields) is None

    def test_no_method_asks_for_right_answers(self) -> None:
        methods = Path(__file__).parents[2] / "src/coevolve/methods"
        files = list(methods.rglob("*.py"))
        assert len(files) > 20
        for file in files:
            assert "right_answer" not in file.read_text(encoding="utf-8"), file

    def test_right_answers_are_right(self) -> None:
        world = TinyWorld()
        for question in world.seed_questions()[:50]:
            answer = world.right_answer(question)
            assert world.is_correct(question, answer), question
        assert world.right_answer("what?") is None


class TestEvaluate:
    def test_it_counts_right_answers_by_family(self, capsys, tmp_path: Path) -> None:
        file = tmp_path / "answers.csv"
        assert main(["evaluate", "tiny", "--items", "3", "--to", str(file)]) == 0
        *families, total, wrote = capsys.readouterr().out.splitlines()
        right = sum(int(line.split()[1]) for line in families)
        questions = sum(int(line.split()[3]) for line in families)
        assert questions == len(TinyWorld().items("test", 3))
        assert total.startswith(f"{right} of {questions} correct (")
        assert wrote == f"wrote {file}"
        assert len(file.read_text().splitlines()) == questions + 1

    def test_a_run_gives_method_and_prompts(self, tmp_path: Path, capsys) -> None:
        policy = tmp_path / "policy"
        policy.mkdir()
        (policy / "config.json").write_text("{}")
        settings = {"method": "comas", "method_fields": {"prompt": "compact"}}
        (tmp_path / "config.json").write_text(json.dumps(settings))
        assert main(["evaluate", str(tmp_path), "--items", "1"]) == 0
        (total,) = capsys.readouterr().out.splitlines()[-1:]
        assert total.startswith("0 of ")  # CoMAS reads boxes, and the replies have none

    @pytest.mark.parametrize(
        ("options", "limit"), [([], 5), (["--max-tokens", "200"], 200)]
    )
    def test_an_explicit_limit_replaces_that_of_the_solver(
        self, options: list[str], limit: int, speaker, tmp_path: Path
    ) -> None:
        file = tmp_path / "own.py"
        file.write_text(TERSE)
        method = ["--method", f"{file}:Terse"]
        assert main(["evaluate", "tiny", "--items", "1", *method, *options]) == 0
        assert {turn.max_tokens for turn in speaker.turns} == {limit}

    def test_a_split_without_questions_is_refused_before_a_model_loads(
        self, speaker, monkeypatch, capsys
    ) -> None:
        items = TinyWorld.items

        def only_test(world: TinyWorld, split: str, *numbers: int) -> list[object]:
            return items(world, split, *numbers) if split == "test" else []

        monkeypatch.setattr(TinyWorld, "items", only_test)
        assert main(["evaluate", "tiny", "--split", "validation"]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert "--split" in error
        assert error.endswith("has questions in: test")
        assert speaker.served == []

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            (["--setup", "vote"], "--strategy must be one of vanilla, "),
            (["--world", "nowhere"], "world must be one of tiny, "),
            (["--split", "train"], "--split must be one of validation, test"),
            (["--to", "no/such/x.csv"], "--to must be a file in an existing folder"),
            (["--method", "mea"], "method must be one of mae, "),
        ],
    )
    def test_a_mistake_is_one_line(self, options, line, capsys) -> None:
        assert main(["evaluate", "tiny", *options]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith(f"coevolve: {line}")


class TestCompare:
    @staticmethod
    def write_run(out: Path, right_after: int, steps: int, **settings: Any) -> Path:
        """Write a run with 4 of 20 questions right before training, and further settings."""
        rows = []
        for stage, right in (("before", 4), ("after", right_after)):
            for item in range(20):
                row = {"strategy": "vanilla", "stage": stage, "item": item}
                is_right = int(item < right)
                rows.append({**row, "question": str(item), "correct": is_right})
        record.Recorder(out).scores(rows)
        settings |= {"method": "mae", "steps": steps, "method_fields": {}}
        (out / "config.json").write_text(json.dumps(settings))
        (out / "metrics.jsonl").write_text(f'{{"step": {steps}, "loss": 0.5}}\n')
        return out

    def test_gains_and_settings_stand_side_by_side(
        self, tmp_path: Path, capsys
    ) -> None:
        first = self.write_run(tmp_path / "a", right_after=5, steps=3)
        second = self.write_run(tmp_path / "b", right_after=16, steps=9)
        assert main(["compare", str(first), str(second), "--metrics"]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["before", "20.0", "%", "20.0", "%"] in lines
        assert ["after", "25.0", "%", "80.0", "%"] in lines
        assert ["steps", "3", "9"] in lines
        assert ["loss", "0.5", "0.5"] in lines
        (conclusion,) = [line for line in lines if line[:3] == ["Gain", "of", "the"]]
        assert " ".join(conclusion).startswith(
            "Gain of the second minus that of the first: +55.0 ["
        )
        assert " ".join(conclusion).endswith("excludes 0.")

    def test_a_long_setting_ends_with_an_ellipsis(self, tmp_path: Path, capsys) -> None:
        models = ["a" * 40, "b" * 28]
        runs = []
        for model in models:
            out = tmp_path / model[0]
            runs.append(str(self.write_run(out, 5, 3, model=model)))
        assert main(["compare", *runs]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["model", "a" * 25 + "...", "b" * 28] in lines

    def test_changed_code_is_named_by_its_file(self, tmp_path: Path, capsys) -> None:
        runs = []
        for code in ("1f", "2e"):
            sources = {f"{tmp_path}/{code}/duel.py": code, f"{code}/same.py": "0"}
            out = tmp_path / code
            runs.append(str(self.write_run(out, 5, 3, method_sources=sources)))
        assert main(["compare", *runs]) == 0
        _, _, settings = capsys.readouterr().out.partition("Settings that differ")
        _, *rows = settings.strip().splitlines()
        assert [row.split() for row in rows] == [["code", "of", "duel.py", "1f", "2e"]]

    def test_a_folder_without_a_run_is_refused(self, tmp_path: Path, capsys) -> None:
        run = self.write_run(tmp_path / "a", right_after=5, steps=3)
        assert main(["compare", str(run), str(tmp_path)]) == 2
        assert "it has no config.json of one" in capsys.readouterr().err
