"""The command line: a user's mistake is exit code 2 and one line, before torch loads and before anything is written."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock, call

import pytest
from data_files import OWN, tables

from coevolve.cli import main
from coevolve.methods.registry import METHODS, get_method
from coevolve.runs import record
from coevolve.training import config
from coevolve.types import Reply, Turn
from tinyworld import backbone

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
PROBE = """
import json, sys, tinyworld, coevolve.text.verify
from coevolve.cli import main
tinyworld.TinyWorld().zero_questions()
codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
heavy = "torch transformers pandas math_verify sympy codesandbox".split()
print(json.dumps([codes, sorted(sys.modules.keys() & heavy)]))
"""
MISTAKES = tables("mistakes")


def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"}
    wrong = json.dumps([["train", *arguments.split()] for arguments in MISTAKES["train"]])
    command = [sys.executable, "-c", PROBE, wrong]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout) == [[2] * len(MISTAKES["train"]), []], done.stderr
    for line, parts in zip(done.stderr.splitlines(), MISTAKES["train"].values(), strict=True):
        assert line.startswith("coevolve: ") and all(part in line for part in parts), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", MISTAKES["grammar"])
def test_wrong_grammar_shows_the_usage(arguments: str, capsys: pytest.CaptureFixture) -> None:
    assert main(arguments.split()) == 2
    assert "Usage: coevolve" in capsys.readouterr().err


AGAIN = "coevolve: {}; later --out {{}} goes on from the last checkpoint\n"
FULL, DENIED = OSError(errno.ENOSPC, "No space left on device"), PermissionError(errno.EACCES, "Permission denied", "x")
ENDS = [(None, 0, ""), (ValueError("too large"), 2, "coevolve: too large\n")]
ENDS += [(one, 1, AGAIN.format(one)) for one in (ConnectionError("gone"), FULL, DENIED)]
ENDS.append((FloatingPointError("nan"), 1, "coevolve: nan\n"))  # the same command would end there again


@pytest.mark.parametrize(("error", "code", "line"), ENDS)
def test_training_says_what_differs_then_trains_then_sums_up(error, code, line, tmp_path, monkeypatch, capsys):
    def train(run: config.Run) -> None:
        print(f"training {run.protocol.solves} {run.seed}")
        if error:
            raise error
        right = [("before", i, i < 1) for i in range(8)] + [("after", i, i < 3) for i in range(8)]
        rows = [{"setup": "vanilla", "stage": stage, "item": i, "correct": int(one)} for stage, i, one in right]
        record.Recorder(run.out).scores(rows)
        held_out = {"before": {"k": 1, "n": 8}, "after": {"k": 3, "n": 8}}
        numbers = {"held_out": held_out, "steps": 9, "seconds": 90.0, "resumed_at": 4}
        (run.out / "summary.json").write_text(json.dumps({"warnings": ["idle: x"], **numbers}))

    monkeypatch.setattr("coevolve.training.loop.train", train)
    assert main(["train", "mae", "solves=2", "--out", str(tmp_path / "run"), "seed=7"]) == code
    said = capsys.readouterr()
    lines = said.out.splitlines()
    start = lines.index("training 2 7")
    assert lines[0].endswith("; solves 1 -> 2") and start == 1 and said.err == line.format(tmp_path / "run")
    if code == 0:  # Wilson's limits of 1 of 8 and 3 of 8; 25 +- 2.3646 * 46.291 / sqrt(8) of the eight changes
        idle, before, after, gain, took, where = lines[start + 1 :]
        assert idle == "idle: x" and took == "steps 4 to 9 in 1.5 minutes"
        assert gain == "gain: +25.0 points (95 % -13.7 to +63.7 over the questions, for this seed)"
        assert before == "test questions before: 1 of 8 right (12.5%, 95 % 2.2% to 47.1%)"
        assert after == "test questions after: 3 of 8 right (37.5%, 95 % 13.7% to 69.4%)"
        assert where.startswith(f"all is in {tmp_path / 'run'}; python -m coevolve report {tmp_path / 'run'} ")


@pytest.mark.parametrize(("arguments", "told"), MISTAKES["ask"].items())
def test_what_cannot_be_asked_is_one_line_and_no_model_loads(arguments, told, monkeypatch, capsys):
    monkeypatch.setattr("coevolve.cli.load_policy", None)
    assert main(["ask", *arguments.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"coevolve: {told}")


def test_one_role_is_asked_one_question_as_it_was_typed(monkeypatch, capsys):
    policy = Mock()
    policy.serve().answer.return_value = [Reply(Turn("solver", (), "shared"), "yes\x1b[2J", finished=False)]
    monkeypatch.setattr("coevolve.cli.load_policy", lambda model: policy)
    assert main(["ask", "sage/critic_plan", "question=x=1.0", "plan=true"]) == 0
    said = capsys.readouterr()
    assert said.out == "yes\\x1b[2J\n" and "\nthe reply was cut off" in said.err
    assert main(["ask", f"{OWN}/solver", "question=3*4", *"--temperature 0 --max-tokens 7 --seed 5".split()]) == 0
    critic, solver = (turn for ((turn,),), _ in policy.serve().answer.call_args_list)
    assert "x=1.0" in critic.messages[0]["content"] and "true" in critic.messages[0]["content"]
    assert (critic.temperature, critic.key) == (0.1, (0,)), "the role's own temperature"
    assert (solver.temperature, solver.key) == (0.0, (5,))
    assert call(1.0, 64) in policy.serve.call_args_list and call(1.0, 7) in policy.serve.call_args_list


def test_a_model_in_a_folder_answers(capsys):
    assert main(["ask", "mae/solver", "question=3*4", "--temperature", "0", "--model", str(backbone("tiny"))]) == 0
    assert capsys.readouterr().out == "<answer>12</answer>\n"


def test_fields_lists_every_field_with_the_papers_value(capsys: pytest.CaptureFixture) -> None:
    assert main(["fields", "mae"]) == 0
    said = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()}
    assert set(said) == {"field", *config.field_defaults(config.Run), *config.field_defaults(get_method("mae"))}
    assert said["threshold"][:3] == ["0.7", "A", "question"] and said["batch_size"] == "128 32 Episodes per step.".split()
    quick, told = config.load_presets()["quick"], "Learning rate of AdamW, constant; sft and srlm decay it to 0.".split()
    assert said["solves"][:3] == ["1", str(quick["mae"]["solves"]), "How"]
    assert said["learning_rate"] == ["1e-06", str(quick["all"]["learning_rate"]), *told]
    assert said["prompt"][:2] == ["'full'", "'compact'"], "the paper's, not the default"
    assert main(["fields", OWN, "rounds=3"]) == 0
    assert "rounds               2                        3" in capsys.readouterr().out


def test_a_method_of_ones_own_documents_its_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(Path(OWN.partition(":")[0]).read_text())
    assert main(["fields", f"{file}:Debate"]) == 0
    assert " How often the solver speaks.\n" in capsys.readouterr().out


@pytest.mark.parametrize("method", METHODS)
def test_every_field_says_what_it_means(method: str) -> None:
    cls = get_method(method)
    help_texts = config.field_help(cls)
    fields = {**config.field_defaults(config.Run), **config.field_defaults(cls)}
    assert [name for name in fields if not help_texts.get(name)] == []


def test_the_help_of_a_field_is_its_docstring_and_a_subclass_may_replace_it() -> None:
    assert config.field_help(get_method("spice"))["estimator"] == "Equations 3 and 4: DrGRPO."
    azr = config.field_help(get_method("azr"))
    assert azr["estimator"] == "How rewards become advantages, see `advantages`.", "inherited"
    assert azr["paper"] == "The paper whose prompts are used: answers in tags (mae) or boxed (spice)."


def test_runs_are_a_table_of_every_summary_below_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for name, before in (("b", {"k": 1, "n": 8}), ("a/deep", {"k": 0, "n": 0})):
        (tmp_path / name).mkdir(parents=True)
        held_out = {"before": before, "after": {"k": 3, "n": 8}}
        summary = {"method": "mae", "seed": 4, "steps": 20, "held_out": held_out, "seconds": 1.5}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
        (tmp_path / name / "scores.csv").touch(), (tmp_path / "summary.json").touch()  # the last of something else
    assert main(["runs", str(tmp_path)]) == 0
    rows = ["| a/deep | mae | 4 | 20 | 0/0 (0.0%) | 3/8", "| b | mae | 4 | 20 | 1/8 (12.5%) | 3/8"]
    assert capsys.readouterr().out.splitlines()[2:] == [f"{row} (37.5%) | 1.5 |" for row in rows]
    assert main(["runs", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.endswith(f"there is no {tmp_path / 'nowhere'}\n")
