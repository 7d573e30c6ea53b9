"""The command line: a mistake is code 2 and one line, before torch loads or anything is written."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from data_files import OWN, tables

from coevolve import __version__
from coevolve.cli import main
from coevolve.commands.arguments import fields_as_pairs
from coevolve.methods.mae.method import MAE
from coevolve.runs import record
from coevolve.training import config
from coevolve.types import Reply, Role, Turn
from tinyworld import backbone

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
MISTAKES = tables("mistakes")
# Runs several command lines in a fresh process; prints the codes and the heavy modules it loaded.
PROBE = """
import json, sys, tinyworld, coevolve.text.verify
from coevolve import __version__
from coevolve.cli import main
from coevolve.commands.arguments import fields_as_pairs
tinyworld.TinyWorld().zero_questions()
codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
heavy = "torch transformers pandas math_verify sympy codesandbox".split()
print(json.dumps([codes, sorted(sys.modules.keys() & heavy)]))
"""


@dataclass(frozen=True)
class Probe:
    """What a process with several mistaken command lines left."""

    codes: list[int]
    heavy_modules: list[str]
    lines: list[str]
    files: list[Path]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    folder = tmp_path_factory.mktemp("mistakes")
    command_lines = [["train", *line.split()] for line in MISTAKES["train"]]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(command_lines)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    codes, heavy_modules = json.loads(done.stdout)
    return Probe(codes, heavy_modules, done.stderr.splitlines(), list(folder.iterdir()))


class TestMistakes:
    def test_a_mistake_is_one_line_and_code_2(self, probe: Probe) -> None:
        expected = MISTAKES["train"].values()
        assert probe.codes == [2] * len(expected)
        for line, parts in zip(probe.lines, expected, strict=True):
            assert line.startswith("coevolve: ")
            for part in parts:
                assert part in line

    def test_a_mistake_leaves_nothing_and_loads_nothing_heavy(
        self, probe: Probe
    ) -> None:
        assert probe.files == []
        assert probe.heavy_modules == []

    @pytest.mark.parametrize("arguments", MISTAKES["grammar"])
    def test_wrong_grammar_shows_the_usage(
        self, arguments: str, capsys: pytest.CaptureFixture
    ) -> None:
        assert main(arguments.split()) == 2
        assert "Usage: coevolve" in capsys.readouterr().err


class TestTrain:
    """The command around a training loop that is replaced."""

    @pytest.fixture
    def out(self, tmp_path: Path) -> Path:
        return tmp_path / "run"

    @staticmethod
    def write_results(run: config.Run) -> None:
        """Write a run that has 1 of 8 answers correct before training and 3 of 8 after."""
        rows = []
        for stage, correct in (("before", 1), ("after", 3)):
            for item in range(8):
                row = {"strategy": "vanilla", "stage": stage, "item": item}
                rows.append({**row, "correct": int(item < correct)})
        record.Recorder(run.out).scores(rows)
        summary = {
            "warnings": ["warning: x"],
            "held_out": {"before": {"k": 1, "n": 8}, "after": {"k": 3, "n": 8}},
            "steps": 9,
            "seconds": 90.0,
            "resumed_at": 4,
        }
        (run.out / "summary.json").write_text(json.dumps(summary))

    @pytest.fixture
    def train(self, out, monkeypatch, capsys):
        """Return a function that trains by the command, and fails with an error if one is given."""

        def train_by_command(error: Exception | None = None):
            def loop(run: config.Run, fresh: bool) -> None:
                print(f"training {run.method.solves} {run.seed}")
                if error:
                    raise error
                self.write_results(run)

            monkeypatch.setattr("coevolve.training.loop.train", loop)
            code = main(["train", "mae", "solves=2", "--out", str(out), "seed=7"])
            return code, capsys.readouterr()

        return train_by_command

    def test_it_prints_the_differences_from_the_paper_before_training(
        self, train
    ) -> None:
        code, captured = train()
        lines = captured.out.splitlines()
        assert code == 0
        assert lines[0].endswith("; `coevolve fields mae` and the report list them")
        assert int(lines[0].split()[0]) > 1  # solves and those of the preset
        assert lines[1] == "training 2 7"
        assert captured.err == ""

    def test_it_sums_up_after_training(self, train, out) -> None:
        _, captured = train()
        # Wilson's limits of 1 of 8 and of 3 of 8; 25 +- 2.3646 * 46.291 / sqrt(8) for the gain.
        *lines, last = captured.out.splitlines()[2:]
        assert lines == [
            "warning: x",
            "test questions before: 1 of 8 correct (12.5%, 95 % 2.2% to 47.1%)",
            "test questions after: 3 of 8 correct (37.5%, 95 % 13.7% to 69.4%)",
            "gain: +25.0 points (95 % -13.7 to +63.7 over the questions, for this seed)",
            "steps 5 to 9 in 1.5 minutes",
        ]
        assert last == f"Results are in {out}. For a report, run: coevolve report {out}"

    def test_a_mistake_found_while_training_is_code_2(self, train) -> None:
        code, captured = train(ValueError("too large"))
        assert code == 2
        assert captured.err == "coevolve: too large\n"

    @pytest.mark.parametrize(
        "error",
        [
            ConnectionError("gone"),
            OSError(errno.ENOSPC, "No space left on device"),
        ],
        ids=["server", "disk"],
    )
    def test_a_fault_outside_the_run_names_the_command_that_resumes(
        self, error: OSError, train, out
    ) -> None:
        code, captured = train(error)
        assert code == 1
        resume = f"--out {out} resumes later from the last checkpoint"
        assert captured.err == f"coevolve: {error}; {resume}\n"

    @pytest.mark.parametrize(
        "error",
        [
            FileNotFoundError("no checkpoint in run/checkpoints is whole"),
            PermissionError(errno.EACCES, "Permission denied", "x"),
        ],
        ids=["damage", "permission"],
    )
    def test_a_fault_that_a_resumed_run_would_meet_again_is_code_2(
        self, error: OSError, train
    ) -> None:
        code, captured = train(error)
        assert code == 2
        assert captured.err == f"coevolve: {error}\n"

    def test_weights_that_are_not_finite_would_not_be_so_after_a_resume(
        self, train
    ) -> None:
        code, captured = train(FloatingPointError("nan"))
        assert code == 1
        assert captured.err == "coevolve: nan\n"


class TestAsk:
    @pytest.mark.parametrize(("arguments", "start"), MISTAKES["ask"].items())
    def test_a_mistake_is_one_line_and_no_model_loads(
        self, arguments: str, start: str, monkeypatch, capsys
    ) -> None:
        monkeypatch.setattr("coevolve.cli.load_policy", None)
        assert main(["ask", *arguments.split()]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"coevolve: {start}")

    @pytest.fixture
    def policy(self, monkeypatch) -> Mock:
        """Replace the model by one whose reply holds an escape character and was cut off."""
        policy = Mock()
        reply = Reply(Turn("solver", (), "shared"), "yes\x1b[2J", finished=False)
        policy.serve().answer.return_value = [reply]
        monkeypatch.setattr("coevolve.cli.load_policy", lambda model: policy)
        return policy

    @staticmethod
    def turn_of(policy: Mock) -> Turn:
        """Return the only turn that the policy was asked."""
        (turn,) = policy.serve().answer.call_args.args[0]
        return turn

    def test_the_reply_is_printed_with_escapes_and_a_note_if_cut_off(
        self, policy, capsys
    ) -> None:
        assert main(["ask", f"{OWN}/solver", "question=3*4"]) == 0
        captured = capsys.readouterr()
        assert captured.out == "yes\\x1b[2J\n"
        assert "\nThe reply was cut off" in captured.err

    def test_fields_are_asked_as_they_were_typed(self, policy) -> None:
        assert main(["ask", "sage/critic_plan", "question=x=1.0", "plan=true"]) == 0
        turn = self.turn_of(policy)
        assert "x=1.0" in turn.messages[0]["content"]
        assert "true" in turn.messages[0]["content"]

    def test_without_options_the_role_s_own_temperature_counts(self, policy) -> None:
        assert main(["ask", "sage/critic_plan", "question=x=1.0", "plan=true"]) == 0
        turn = self.turn_of(policy)
        assert turn.temperature == 0.1
        assert turn.key == (0,)
        assert policy.serve.call_args_list.count(call(1.0, 64)) == 1

    def test_options_set_temperature_limit_and_seed(self, policy) -> None:
        options = ["--temperature", "0", "--max-tokens", "7", "--seed", "5"]
        assert main(["ask", f"{OWN}/solver", "question=3*4", *options]) == 0
        turn = self.turn_of(policy)
        assert turn.temperature == 0.0
        assert turn.key == (5,)
        assert turn.max_tokens == 7

    @pytest.mark.parametrize(
        ("options", "limit"), [([], 5), (["--max-tokens", "7"], 7)]
    )
    def test_an_explicit_limit_replaces_that_of_the_role(
        self, options: list[str], limit: int, policy, monkeypatch
    ) -> None:
        role = Role("solver", "solve {question}", max_tokens=5)
        monkeypatch.setattr("coevolve.cli._find_role", lambda *names: (MAE(), role))
        assert main(["ask", f"{OWN}/solver", "question=3*4", *options]) == 0
        assert self.turn_of(policy).max_tokens == limit

    def test_a_model_in_a_folder_answers(self, capsys) -> None:
        options = ["--temperature", "0", "--model", str(backbone("tiny"))]
        assert main(["ask", "mae/solver", "question=3*4", *options]) == 0
        assert capsys.readouterr().out == "<answer>12</answer>\n"


class TestStart:
    """The command without a subcommand, and its help."""

    def test_alone_it_shows_its_help(self, capsys) -> None:
        assert main([]) == 0
        assert "Usage: coevolve" in capsys.readouterr().out

    def test_it_knows_its_version(self, capsys) -> None:
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"coevolve {__version__}\n"

    def test_the_help_cuts_no_sentence(self, capsys) -> None:
        assert main(["--help"]) == 0
        _, _, commands = capsys.readouterr().out.partition("Commands:\n")
        lines = commands.splitlines()
        assert len(lines) >= 10
        for line in lines:
            assert line.endswith(".") and not line.endswith("..."), line

    def test_help_and_fields_load_no_tensor_library(self) -> None:
        lines = [["--help"], ["fields", "mae"], ["runs", "."]]
        done = subprocess.run(
            [sys.executable, "-c", PROBE, json.dumps(lines)],
            env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        codes, heavy_modules = json.loads(done.stdout.splitlines()[-1])
        assert codes == [0, 0, 0], done.stderr
        assert heavy_modules == []


class TestFieldsAsOptions:
    TAKES_VALUE = {"--out": True, "--fresh": False}

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["mae", "--steps", "10"], ["mae", "steps=10"]),
            (["--steps=10", "mae"], ["mae", "steps=10"]),
            (["--batch-size", "4", "a=1"], ["a=1", "batch_size=4"]),
            (["--out", "--x", "--fresh"], ["--out", "--x", "--fresh"]),
            (["--out=x", "--", "--steps"], ["--out=x", "--", "--steps"]),
            (["--clip", "[-1, 2]"], ["clip=[-1, 2]"]),
            (["--kl-coef", "-1"], ["kl_coef=-1"]),
        ],
    )
    def test_unknown_options_become_pairs(
        self, arguments: list[str], expected: list[str]
    ) -> None:
        assert fields_as_pairs(arguments, self.TAKES_VALUE) == expected

    @pytest.mark.parametrize("arguments", [["--steps"], ["--steps", "--fresh"]])
    def test_an_unknown_option_needs_a_value(self, arguments: list[str]) -> None:
        with pytest.raises(ValueError, match="No such option.*: --steps$"):
            fields_as_pairs(arguments, self.TAKES_VALUE)

    def test_a_run_is_the_same_however_a_field_is_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trained = []
        monkeypatch.setattr(
            "coevolve.training.loop.train", lambda run, fresh: trained.append(run)
        )
        monkeypatch.setattr("coevolve.cli.last_lines", lambda out: [])
        out = ["--out", str(tmp_path)]
        assert main(["train", "mae", *out, "steps=7", "solves=2"]) == 0
        assert main(["train", "--steps", "7", "mae", *out, "--solves=2"]) == 0
        assert trained[0].describe() == trained[1].describe()
        assert trained[1].steps == 7


class TestRuns:
    """The table of the finished runs below a folder."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        self.write_run(tmp_path / "b", correct_before=1, scored_before=8, kl_coef=0.5)
        self.write_run(tmp_path / "a" / "deep", correct_before=0, scored_before=0)
        (tmp_path / "summary.json").touch()  # of something that is no run
        return tmp_path

    @staticmethod
    def write_run(
        out: Path, correct_before: int, scored_before: int, kl_coef: float = 0.0
    ) -> None:
        out.mkdir(parents=True)
        summary = {
            "method": "mae",
            "seed": 4,
            "steps": 20,
            "held_out": {
                "before": {"k": correct_before, "n": scored_before},
                "after": {"k": 3, "n": 8},
            },
            "seconds": 1.5,
        }
        settings = {"model": "tiny", "steps": 20, "method_fields": {"kl_coef": kl_coef}}
        (out / "config.json").write_text(json.dumps(settings))
        (out / "summary.json").write_text(json.dumps(summary))
        (out / "metrics.jsonl").write_text('{"reward/a": 0.1234}\n{"step": 2}\n')
        (out / "scores.csv").touch()

    def test_every_finished_run_is_a_row(self, folder: Path, capsys) -> None:
        assert main(["runs", str(folder), "--metric", "reward/a"]) == 0
        head, _, *rows = capsys.readouterr().out.splitlines()
        assert head.endswith("| gain | seconds | differs in | reward/a |")
        assert rows == [
            "| a/deep | mae | tiny | 4 | 20 | 0/0 (0.0%) | 3/8 (37.5%) | +37.5 | 1.5 "
            "| kl_coef=0.0 | 0.123 |",
            "| b | mae | tiny | 4 | 20 | 1/8 (12.5%) | 3/8 (37.5%) | +25.0 | 1.5 "
            "| kl_coef=0.5 | 0.123 |",
        ]

    def test_the_seconds_of_a_resumed_run_are_those_of_all_its_steps(
        self, folder: Path, capsys
    ) -> None:
        file = folder / "b/summary.json"
        summary = json.loads(file.read_text()) | {"resumed_at": 2}
        file.write_text(json.dumps(summary))
        timings = [
            {"step": 0, "evaluate": 1.0},
            {"step": 1, "play": 0.5, "learn": 0.25},
            {"step": 2, "play": 0.5},
            {"step": 3, "play": 9.0},  # among the 1.5 seconds of the last part
        ]
        lines = [json.dumps(timing) + "\n" for timing in timings]
        (folder / "b/timings.jsonl").write_text("".join(lines))
        assert main(["runs", str(folder)]) == 0
        *_, row = capsys.readouterr().out.splitlines()
        assert "| +25.0 | 3.75 |" in row

    def test_a_folder_that_does_not_exist_is_refused(
        self, tmp_path: Path, capsys
    ) -> None:
        missing = tmp_path / "nowhere"
        assert main(["runs", str(missing)]) == 2
        assert capsys.readouterr().err.endswith(
            f"there is no folder {missing}; name one that holds runs\n"
        )
