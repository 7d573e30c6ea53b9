"""A user's own method: its files belong to the run, and its mistakes are shown with their place."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from core.conftest import by_hand

from coevolve import plugins
from coevolve.__main__ import main
from coevolve.methods.mae.method import MAE
from coevolve.methods.registry import get_method, import_file
from coevolve.rollout.errors import reply_lines
from coevolve.runs import record
from coevolve.training import config, diagnostics
from coevolve.types import Reply, RewardError, Turn

METHOD = '''
from coevolve.methods.base import Method
from coevolve.types import Outcome, Role


class Own(Method):
    """A solver that is rewarded for every reply."""

    def define_roles(self):
        self.solver = Role("solver", "solve<question>{question}</question>")

    def episode(self, rng):
        reply = yield self.solver(question="1+1")
        return Outcome([reply.earns(1.0)])

    def observe(self, outcome, world):
        return {"said": 1.0}
'''
SETTINGS = ("batch_size=2", "eval_every=0", "eval_items=1", "save_every=1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a method that imports nothing of the user's."""
    path = tmp_path / "own.py"
    path.write_text(METHOD)
    return path


def train(file: Path, *fields: str) -> int:
    """Train the method of a file in a process of its own state; return the exit code."""
    name = str(file.resolve()).replace(".", "_")
    plugins.sys.modules.pop(name, None)  # as in a new process
    out = file.with_name("run")
    command = ["train", f"{file}:Own", "--preset", "smoke", "--out", str(out)]
    return main([*command, *SETTINGS, *fields])


class TestFiles:
    def test_a_run_goes_on_with_the_same_code(self, file: Path, capsys: Any) -> None:
        assert train(file, "steps=1") == 0
        file.write_text(
            METHOD.replace("A solver", "# more\n    A solver") + "\n# end\n"
        )
        assert train(file, "steps=2") == 0
        assert list(record.read(file.with_name("run"))["step"]) == [0, 1, 2]

    def test_a_run_does_not_go_on_with_other_code(
        self, file: Path, capsys: Any
    ) -> None:
        assert train(file, "steps=1") == 0
        file.write_text(METHOD.replace("1.0)", "-1.0)"))
        assert train(file, "steps=2") == 2
        assert (
            "changed since step 1: own.py; start again with --fresh"
            in capsys.readouterr().err
        )

    def test_it_starts_again_with_other_code_if_told_to(self, file: Path) -> None:
        assert train(file, "steps=2") == 0
        (file.with_name("run") / "notes.md").write_text("mine")
        file.write_text(METHOD.replace("1.0)", "7.0)"))
        assert train(file, "steps=1", "--fresh") == 0
        rows = record.read(file.with_name("run"))
        assert list(rows["step"]) == [0, 1]
        assert rows["reward/solver"].iloc[-1] == 7.0
        assert (file.with_name("run") / "notes.md").read_text() == "mine"

    def test_a_run_that_cannot_start_removes_nothing(self, file: Path) -> None:
        assert train(file, "steps=1") == 0
        assert train(file, "steps=1", "model=no/such/model", "--fresh") == 2
        assert list(record.read(file.with_name("run"))["step"]) == [0, 1]

    def test_a_folder_of_something_else_is_refused(
        self, file: Path, capsys: Any
    ) -> None:
        folder = file.with_name("run")
        folder.mkdir()
        (folder / "config.json").write_text('{"model_type": "qwen2"}')
        assert train(file, "steps=1", "--fresh") == 2
        assert "config.json of something else" in capsys.readouterr().err
        assert (folder / "config.json").is_file()

    def test_files_that_it_imports_count_and_packages_do_not(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "duel"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "rules.py").write_text("import json\nimport numpy\nLIMIT = 3\n")
        imports = "from duel.rules import LIMIT\n"
        (tmp_path / "own.py").write_text(imports + METHOD)
        monkeypatch.syspath_prepend(tmp_path)
        module = import_file(tmp_path / "own.py")
        hashes = plugins.hashes_of_sources(module.Own)
        names = {Path(name).name for name in hashes}
        assert names >= {"own.py", "rules.py"}
        assert names <= {"own.py", "rules.py", "__init__.py"}
        (package / "rules.py").write_text("import json\nimport numpy\nLIMIT = 4\n")
        changed = plugins.hashes_of_sources(module.Own)
        different = [name for name in hashes if changed[name] != hashes[name]]
        assert [Path(name).name for name in different] == ["rules.py"]

    def test_a_package_that_fails_as_it_is_imported_has_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "needs_a_gpu"
        package.mkdir()
        (package / "__init__.py").write_text("assert False, 'no GPU'\n")
        (package / "kernels.py").write_text("")
        late = "def fast():\n    import needs_a_gpu.kernels\n"
        (tmp_path / "own.py").write_text(METHOD + late)
        monkeypatch.syspath_prepend(tmp_path)
        module = import_file(tmp_path / "own.py")
        assert [Path(name).name for name in plugins.hashes_of_sources(module.Own)] == [
            "own.py"
        ]

    def test_files_of_one_name_are_told_apart(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        for number, package in enumerate(("duel_rules", "duel_talk")):
            (file.parent / package).mkdir()
            (file.parent / package / "__init__.py").write_text(f"N = {number}\n")
        file.write_text("import duel_rules\nimport duel_talk\n" + METHOD)
        monkeypatch.syspath_prepend(file.parent)
        assert train(file, "steps=1") == 0
        assert train(file, "steps=2") == 0
        (file.parent / "duel_talk" / "__init__.py").write_text("N = 3\n")
        assert train(file, "steps=3") == 2
        assert "changed since step 2: __init__.py;" in capsys.readouterr().err

    @pytest.mark.parametrize("folder", ["site-packages", "dist-packages"])
    def test_a_package_that_is_installed_elsewhere_is_no_file_of_a_user(
        self, folder: str, tmp_path: Path
    ) -> None:
        installed = tmp_path / "lib" / "python3" / folder / "pydantic" / "main.py"
        installed.parent.mkdir(parents=True)
        own = tmp_path / "lib" / "own.py"
        for path in (installed, own):
            path.write_text("")
        assert not plugins.is_users_file(str(installed))
        assert plugins.is_users_file(str(own))

    def test_a_paper_s_method_has_no_files_of_a_user(self) -> None:
        assert plugins.hashes_of_sources(MAE) == {}


BROKEN = {
    "an exception in episode": (
        "return Outcome([reply.earns(1.0)])",
        "return Outcome([reply.earns(1 / 0)])",
        ["own.py, line 14, in episode", "ZeroDivisionError", "reply 1, solver: 'solve"],
    ),
    "an exception in observe": (
        'return {"said": 1.0}',
        'return {"said": int("x")}',
        ["own.py, line 17, in observe", "ValueError: invalid literal"],
    ),
    "an OSError": (
        'return {"said": 1.0}',
        'open("nowhere")',
        ["own.py, line 17, in observe", "FileNotFoundError"],
    ),
    "no outcome": (
        "return Outcome([reply.earns(1.0)])",
        "pass",
        ["episode 0 returned None: return an Outcome", "reply 1, solver"],
    ),
    "no generator": (
        'reply = yield self.solver(question="1+1")\n        return Outcome([reply',
        "reply = None\n        return Outcome([] and [reply",
        ["episode of Own returned Outcome", "must be a generator"],
    ),
    "no turn": (
        "yield self.solver(",
        "yield dict(",
        ["episode 0 yielded {'question': '1+1'}: yield a Turn"],
    ),
    "no sample": (
        "Outcome([reply.earns(1.0)])",
        "Outcome([reply])",
        ["episode 0 has the sample Reply(", "reply.earns(reward)"],
    ),
    "a reply that is rewarded twice": (
        "[reply.earns(1.0)]",
        "[reply.earns(1.0), reply.earns(0.5)]",
        ["rewards a reply of role 'solver' twice"],
    ),
    "a reward that is no number": (
        "reply.earns(1.0)",
        "reply.earns(None)",
        [
            "own.py, line 14, in episode",
            "finite number per reply, 'solver' earned None",
        ],
    ),
    "a generator instead of its result": (
        "return Outcome([reply.earns(1.0)])",
        "return (number for number in [1]).trace",
        ["own.py, line 14", "has no attribute 'trace'; did you forget `yield from`?"],
    ),
    "a pool that is not declared": (
        "Outcome([reply.earns(1.0)])",
        'Outcome([reply.earns(1.0)], {"seen": [1]})',
        ["a pool 'seen' that the method does not declare in `pools`, which has none"],
    ),
    "no facts": (
        'return {"said": 1.0}',
        "return None",
        ["observe of Own returned None: return a dict of facts"],
    ),
    "a fact with a name of the run": (
        '{"said": 1.0}',
        '{"validation": 1.0, "generated": 2}',
        ["observe of Own returns validation, generated, which the run records"],
    ),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_a_mistake_is_told_with_its_place(
    mistake: str, file: Path, capsys: pytest.CaptureFixture
) -> None:
    right, wrong, message = BROKEN[mistake]
    assert right in METHOD
    file.write_text(METHOD.replace(right, wrong))
    assert train(file, "steps=1") == 2
    error = capsys.readouterr().err
    for part in message:
        assert part in error
    assert "Traceback" not in error


def test_a_reward_hook_that_returns_nothing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    hook = "    def proposer_reward(self, proposal, assessment):\n        pass\n"
    file.write_text(f"from coevolve.methods.mae import MAE\n\nclass Mine(MAE):\n{hook}")
    method = get_method(f"{file}:Mine")()
    place = (
        rf"proposer_reward of Mine must return .*\({re.escape(str(file))}, line 4\)$"
    )
    with pytest.raises(RewardError, match=f"'proposer' earned None: {place}"):
        by_hand(method, ["no question"])


@pytest.mark.parametrize(
    ("attribute", "hint"),
    [
        ("bonus = 0.5", "not a field of Own: annotate it .*, `bonus: float = 0.5`$"),
        ('bonus: ClassVar[str] = "a"', "^field must be one of .*, got 'bonus'"),
        ("bonus = property(id)", "^field must be one of .*, got 'bonus'"),
    ],
)
def test_an_attribute_without_annotation_is_no_field_and_the_error_says_so(
    attribute: str, hint: str, file: Path
) -> None:
    source = METHOD.replace(
        "    def define_roles", f"    {attribute}\n\n    def define_roles"
    )
    file.write_text(f"from typing import ClassVar\n{source}")
    with pytest.raises(ValueError, match=hint):
        get_method(f"{file}:Own")(bonus=1)
    with pytest.raises(ValueError, match=hint):
        config.build(f"{file}:Own", "smoke", out="run", overrides={"bonus": 1})


def test_a_long_prompt_is_shown_by_its_end_and_a_long_reply_by_its_start() -> None:
    question = ({"role": "user", "content": "The rules. " * 20 + "What is 1+1?"},)
    reply = Reply(Turn("solver", question), "I think. " * 20 + "2")
    (line,) = reply_lines([reply])
    prompt, text = line.split(" -> ")
    assert prompt.endswith("What is 1+1?'")
    assert text.startswith("'I think.")
    assert len(line) < 160


ROLES = "def define_roles(self):\n"
BROKEN_AT_START = {
    "an expression": ("from coevolve.types", 'X = 1 + "a"\n', 3, "TypeError"),
    "the syntax": ("from coevolve.types", "def f(:\n", 3, "SyntaxError"),
    "an unknown name": ("from coevolve.types", "print(unknown)\n", 3, "NameError"),
    "an import": ("from coevolve.types", "import nowhere\n", 3, "ModuleNotFoundError"),
    "a missing file": ("from coevolve.types", "open('no')\n", 3, "FileNotFoundError"),
    "define_roles": ("        self.solver", "        1 + 'a'\n", 10, "TypeError"),
}
COMMANDS = ("train --out {out}", "plan", "play", "fields", "ask", "evaluate")


def command_line(command: str, method: str, out: Path) -> list[str]:
    """Return the arguments that name a method for a command."""
    if command == "evaluate":
        return ["evaluate", "tiny", "--method", method]
    if command == "ask":
        return ["ask", f"{method}/solver", "question=1"]
    first, *others = command.format(out=out).split()
    return [first, method, *others]


@pytest.mark.parametrize("mistake", BROKEN_AT_START)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistake_before_the_run_is_one_line_with_its_place(
    command: str, mistake: str, file: Path, capsys: pytest.CaptureFixture
) -> None:
    place, line, number, error = BROKEN_AT_START[mistake]
    file.write_text(METHOD.replace(place, line + place, 1))
    arguments = command_line(command, f"{file}:Own", file.with_name("run"))
    assert main(arguments) == 2
    printed = capsys.readouterr().err.splitlines()[-1]
    assert printed.startswith(f"coevolve: {file}, line {number}: {error}: ")


def test_a_file_without_a_class_is_read_for_one_or_its_error_told(
    file: Path, capsys: pytest.CaptureFixture
) -> None:
    assert main(["fields", str(file)]) == 2
    assert "own.py:Own, got" in capsys.readouterr().err
    file.write_text("def f(:\n")
    assert main(["fields", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"coevolve: {file}, line 1: SyntaxError: ")


def test_what_a_method_itself_refuses_stays_as_it_says(
    file: Path, capsys: pytest.CaptureFixture
) -> None:
    refusal = 'raise ValueError("rounds must be even")\n        self.solver'
    file.write_text(METHOD.replace("self.solver", refusal, 1))
    assert main(["fields", f"{file}:Own"]) == 2
    assert capsys.readouterr().err == "coevolve: rounds must be even\n"


def test_scalars_of_numpy_are_numbers(file: Path) -> None:
    import_numpy = "import numpy as np\n"
    scalar = (
        '{"said": np.float32(0.5), "count": np.int64(3), "is_true": np.bool_(True)}'
    )
    file.write_text(import_numpy + METHOD.replace('{"said": 1.0}', scalar))
    assert train(file, "steps=1") == 0
    row = record.read(file.with_name("run")).iloc[-1]
    assert (row["said"], row["count"], row["is_true"]) == (0.5, 3, 1)
    assert np.isfinite(row["said"])


def mine(folder: Path) -> str:
    """Write a subclass of MAE; return how a command names it."""
    file = folder / "mine.py"
    file.write_text(
        "from coevolve.methods.mae.method import MAE\n\n\nclass Mine(MAE):\n"
        '    """MAE with another name."""\n'
    )
    return f"{file}:Mine"


class TestPresets:
    def test_a_subclass_takes_the_values_of_its_paper(self, tmp_path: Path) -> None:
        name = mine(tmp_path)
        own = config.build(name, "standard", out=tmp_path / "run")
        paper = config.build("mae", "standard", out=tmp_path / "run")
        assert own.steps == paper.steps
        assert own.method.describe() == paper.method.describe()

    @pytest.mark.parametrize("command", ["plan", "fields"])
    def test_a_line_says_once_whose_values_a_subclass_takes(
        self, command: str, tmp_path: Path, capsys: pytest.CaptureFixture
    ) -> None:
        name = mine(tmp_path)
        assert main([command, name, "--preset", "standard"]) == 0
        line = f"{name} takes the values of mae"
        assert capsys.readouterr().err.count(line) == 1

    def test_another_method_takes_none(
        self, file: Path, capsys: pytest.CaptureFixture
    ) -> None:
        assert main(["fields", f"{file}:Own", "--preset", "standard"]) == 0
        assert capsys.readouterr().err == ""


class TestClasses:
    """Classes that cannot be methods, or that learn nothing."""

    @pytest.mark.parametrize("name", ["__init__", "__post_init__", "model_post_init"])
    def test_a_constructor_is_refused_with_what_to_write_instead(
        self, name: str, file: Path, capsys: pytest.CaptureFixture
    ) -> None:
        file.write_text(METHOD.replace("def define_roles(self)", f"def {name}(self)"))
        assert main(["fields", f"{file}:Own"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"Own must not define {name}: make roles" in line
        assert "define_roles(self)" in line

    def test_a_method_without_a_solver_is_refused_before_a_model_loads(
        self, file: Path
    ) -> None:
        file.write_text(METHOD.replace("self.solver", "self.player"))
        with pytest.raises(ValueError, match="^Own must have a role `solver`"):
            config.build(f"{file}:Own", "smoke", out=file.with_name("run"))

    def test_a_method_without_episodes_is_refused_before_a_model_loads(
        self, file: Path
    ) -> None:
        file.write_text(METHOD.replace("def episode", "def epsiode"))
        with pytest.raises(ValueError, match=r"must define episode\(self, rng\)"):
            config.build(f"{file}:Own", "smoke", out=file.with_name("run"))

    def test_roles_in_lists_and_dicts_are_known(self, file: Path) -> None:
        roles = 'self.players = [Role("a", "x"), Role("b", "y")]\n        '
        roles += 'self.judges = {"strict": Role("c", "z")}\n        self.solver'
        file.write_text(METHOD.replace("self.solver", roles, 1))
        method = get_method(f"{file}:Own")()
        names = ["players_0", "players_1", "judges_strict", "solver"]
        assert list(method.roles) == names
        assert [method.roles[name].name for name in names[:3]] == ["a", "b", "c"]

    def test_steps_without_any_reward_are_told(self) -> None:
        rows = [{"step": 0}, {"step": 1, "generated": 5}]
        (line,) = diagnostics.warnings({}, rows, "solver")
        assert line.startswith("warning: no reply earned a reward")
        rows[1]["used/solver"] = 0.5
        assert diagnostics.warnings({}, rows, "solver") == []
