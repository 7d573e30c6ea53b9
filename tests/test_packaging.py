"""The environment files agree with each other, with the imports and with the shipped files."""

import ast
import calendar
import importlib.metadata as metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_shape import CODE, imported, packages

import coevolve
from reproduce.analysis.verdicts import GROUPS, MEANINGS
from reproduce.modules import import_statements
from tools import (
    control_numbers,
    hero,
    installed,
    judge_numbers,
    readme_numbers,
    reliability,
)
from tools.make_environment import pins, render

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/coevolve"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
DEPENDENCIES = PROJECT["dependencies"]
EXTRAS = PROJECT["optional-dependencies"]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
PINS = pins(CONSTRAINTS)
ENVIRONMENT = (ROOT / "environment.yml").read_text()
PAPERS = tomllib.loads((ROOT / "reproduce/papers.toml").read_text("utf-8"))
SHARED = [
    "torch",
    "transformers",
    "trl",
    "datasets",
    "peft",
    "accelerate",
    "pandas",
    "seaborn",
    "papermill",
]
OWN_NAMES = {path.name for path in (ROOT / "src").iterdir()}
OWN_NAMES |= {"reproduce", "tools", "benchmarks", ""}


def requirements(lines: Iterable[str]) -> dict[str, Requirement]:
    """Return requirements by the normalised name of the package."""
    by_name = {}
    for line in lines:
        requirement = Requirement(line)
        by_name[canonicalize_name(requirement.name)] = requirement
    return by_name


class TestConstraints:
    """constraints.txt, which pins what `pip install` takes."""

    @pytest.mark.parametrize("group", ["dependencies", "dev", "real"])
    def test_every_requirement_is_pinned_within_its_limits(self, group: str) -> None:
        lines = DEPENDENCIES if group == "dependencies" else EXTRAS[group]
        for name, requirement in requirements(lines).items():
            assert name in PINS, f"{name} has no line in constraints.txt"
            pin = PINS[name]
            is_allowed = requirement.specifier.contains(pin)
            assert is_allowed, f"constraints.txt pins {name}=={pin}, not {requirement}"

    def test_lines_are_plain_exact_pins_in_order(self) -> None:
        lines = []
        for line in CONSTRAINTS.splitlines():
            if not line.startswith("#"):
                lines.append(line)
        expected = [f"{name}=={version}" for name, version in sorted(PINS.items())]
        assert lines == expected
        assert "+" not in "".join(lines), "no version is local to an index"

    @pytest.mark.skipif(
        sys.version_info[:2] != (3, 11),
        reason="constraints.txt lists the packages for Python 3.11",
    )
    def test_every_package_that_gets_installed_is_pinned(self) -> None:
        pending = [Requirement(line) for line in DEPENDENCIES + EXTRAS["dev"]]
        visited = set()
        while pending:
            requirement = pending.pop()
            name = canonicalize_name(requirement.name)
            visit = (name, *requirement.extras)
            if visit in visited:
                continue
            visited.add(visit)
            # Only torch's CUDA build requires its platform's libraries, the CPU build does not.
            if name != "torch":
                pending += required_by(requirement)
        names = {name for name, *_ in visited}
        assert names <= PINS.keys()


def required_by(requirement: Requirement) -> Iterator[Requirement]:
    """Yield the requirements of an installed package with the extras of a requirement."""
    extras = requirement.extras or {""}
    for line in metadata.distribution(requirement.name).requires or []:
        required = Requirement(line)
        marker = required.marker
        if not marker or any(marker.evaluate({"extra": extra}) for extra in extras):
            yield required


class TestEnvironment:
    """environment.yml, which installs a GPU machine."""

    @pytest.fixture
    def pip_lines(self) -> list[str]:
        """The lines for pip, the last of which installs the project itself."""
        *_, pip = yaml.safe_load(ENVIRONMENT)["dependencies"]
        return pip["pip"]

    @pytest.fixture
    def gpu(self, pip_lines: list[str]) -> dict[str, Requirement]:
        """The requirements of a GPU machine."""
        return requirements(pip_lines[:-1])

    def test_the_file_is_generated_from_the_project(self) -> None:
        assert render(PROJECT, CONSTRAINTS) == ENVIRONMENT

    def test_the_project_is_installed_last(self, pip_lines: list[str]) -> None:
        assert pip_lines[-1] == "-e ."

    def test_cpu_and_gpu_machines_share_the_learners_packages(
        self, gpu: dict[str, Requirement]
    ) -> None:
        for name in SHARED:
            assert str(gpu[name].specifier) == f"=={PINS[name]}", name

    @pytest.mark.parametrize("name", ["unsloth", "unsloth-zoo", "vllm"])
    def test_packages_for_gpus_are_pinned_exactly(self, name: str) -> None:
        # Without an exact pin a resolver chooses a release that is a year old.
        specifier = requirements(EXTRAS["gpu"])[name].specifier
        assert str(specifier).startswith("==")

    def test_pins_for_gpus_are_within_the_projects_limits(
        self, gpu: dict[str, Requirement]
    ) -> None:
        allowed = requirements(DEPENDENCIES)
        assert allowed.keys() <= gpu.keys()
        for name, requirement in allowed.items():
            for pin in gpu[name].specifier:
                if pin.operator == "==":
                    assert requirement.specifier.contains(pin.version), name


@pytest.fixture(scope="module")
def providers() -> dict[str, list[str]]:
    """The packages that provide an importable name."""
    return dict(metadata.packages_distributions())


# What an example imports if it is there.
OPTIONAL = {"verifiers"}


def test_every_import_is_declared(providers: dict[str, list[str]]) -> None:
    declared_lines = list(DEPENDENCIES)
    for group in EXTRAS.values():
        declared_lines += group
    declared = requirements(declared_lines).keys()
    known = OWN_NAMES | OPTIONAL | set(sys.stdlib_module_names)
    for path in CODE:
        for name in packages(imported(path)) - known:
            distributions = providers.get(name, [name])
            candidates = {canonicalize_name(one) for one in distributions}
            assert candidates & declared, f"{path} imports {name}"


def test_version_and_licence_agree_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    bibtex = dict(re.findall(r"^  (\w+) += \{(.*)\},$", readme, re.MULTILINE))
    assert PROJECT["version"] == coevolve.__version__ == citation["version"]
    assert bibtex["version"] == PROJECT["version"]
    assert bibtex["url"] == citation["url"] == citation["repository-code"]
    assert PROJECT["license"] == citation["license"] == "Apache-2.0"
    licence = (ROOT / PROJECT["license-files"][0]).read_text()
    assert "Apache License" in licence
    assert "Copyright 2026 coevolve authors" in licence


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_date_is_that_of_its_preprint_everywhere(name: str) -> None:
    paper = PAPERS[name]
    year, month = re.findall(r"/(\d\d)(\d\d)\.\d+$", paper["paper"])[0]
    assert paper["year"].startswith(f"{calendar.month_name[int(month)]} 20{year}")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    (reference,) = [one for one in cited if one["url"] == paper["paper"]]
    assert (reference["year"], reference["month"]) == (int(f"20{year}"), int(month))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"\({paper['paper']}\) \| (\d+)", readme)
    assert row == f"20{year}"


class TestPackage:
    """The files of the built package."""

    def test_every_data_file_is_shipped(self) -> None:
        shipped: set[Path] = set()
        for pattern in PYPROJECT["tool"]["setuptools"]["package-data"]["coevolve"]:
            shipped.update(PACKAGE.glob(pattern))
        data = set()
        for path in PACKAGE.rglob("*"):
            is_ignored = fnmatch(path.name, ".*") or path.suffix == ".tmp"
            is_code = path.suffix in (".py", ".pyc")
            if path.is_file() and not is_code and not is_ignored:
                data.add(path)
        assert data <= shipped
        assert any(path.suffix == ".txt" for path in shipped)

    @pytest.mark.parametrize(
        "name",
        [
            "run_report.ipynb",
            "report_run.html.j2",
            "report.html.j2",
            "report.css",
            "papers.toml",
        ],
    )
    def test_what_the_command_report_needs_is_shipped(self, name: str) -> None:
        patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["reproduce"]
        shipped: set[Path] = set()
        for pattern in patterns:
            shipped.update((ROOT / "reproduce").glob(pattern))
        assert ROOT / "reproduce" / name in shipped

    def test_every_code_folder_is_a_package(self) -> None:
        for path in PACKAGE.rglob("*.py"):
            initializer = path.parent / "__init__.py"
            assert initializer.exists(), f"{path.parent} is not in the built package"


class TestPages:
    """The README, and tables of pages that are generated from measurements."""

    @pytest.mark.parametrize("name", readme_numbers.BLOCKS)
    def test_a_table_is_that_of_the_measurements(self, name: str) -> None:
        page, make_table = readme_numbers.BLOCKS[name]
        text = (ROOT / page).read_text(encoding="utf-8")
        beginning = f"<!-- {name}: tools/readme_numbers.py -->"
        block = text.split(beginning)[1].split(f"<!-- end of {name} -->")[0]
        assert block.strip() == make_table()

    def test_a_gain_of_two_settings_stands_beside_that_of_one(self) -> None:
        ledger = pd.DataFrame(
            {
                "effect": [18.59, 2.94, np.nan],
                "low": [9.8, -6.3, np.nan],
                "high": [27.4, 12.1, np.nan],
                "paper_effect": [4.85, np.nan, np.nan],
                "verdict": ["found", "undecided", "not run"],
            },
            index=["mixed", "same", "missing"],
        )
        literal = "+18.6 [+9.8, +27.4], printed +4.8: found"
        assert readme_numbers.gains(ledger, "mixed", "") == literal
        both = readme_numbers.gains(ledger, "mixed", "same")
        same = "+2.9 [-6.3, +12.1]: undecided"
        assert both == f"{literal}; in the same conversation {same}"
        unknown = readme_numbers.gains(ledger, "mixed", "missing")
        assert unknown == f"{literal}; in the same conversation not run"

    def test_the_judges_quality_is_read_from_its_artefact(self, tmp_path: Path) -> None:
        assert "not made yet" in judge_numbers.judge(tmp_path)
        folder = tmp_path / "results" / "standard" / "judge_quality"
        folder.mkdir(parents=True)
        crossing = [
            "method,errors,accuracy,low,high",
            "MAE,random,0.612,at once,0.700",
        ]
        (folder / "crossing.csv").write_text("\n".join(crossing))
        curve = [
            'method,errors,asked,measured,over control,"over control, low","over control, high"',
            "MAE,its own judge,,0.7,3.25,1,5.5",
        ]
        for asked in judge_numbers.SHOWN_OF_DIAL:
            curve.append(f"MAE,random,{asked},{asked},{10 * asked},2,4")
        (folder / "curve.csv").write_text("\n".join(curve))
        kinds = [
            'method,errors,difference,"difference, low","difference, high"',
            "MAE,question,-2,-3,-1",
        ]
        (folder / "against_random.csv").write_text("\n".join(kinds))
        *_, dialled, _, _, _, kind, _, _, _, own = judge_numbers.judge(
            tmp_path
        ).splitlines()
        gains = "+5.0 [+2.0, +4.0] | +6.0 [+2.0, +4.0] | +8.0 [+2.0, +4.0] | +10.0 [+2.0, +4.0]"
        assert dialled == f"| MAE | random | 0.612 [at once, 0.700] | {gains} |"
        assert kind == "| MAE | question | -2.0 [-3.0, -1.0] |"
        assert own == "| MAE | 0.700 | +3.2 [+1.0, +5.5] |"

    def test_the_controls_are_read_from_their_artefact(self, tmp_path: Path) -> None:
        folder = tmp_path / "results" / "standard" / "controls"
        folder.mkdir(parents=True)
        lines = [
            "method,arm,gain,gain_low,gain_high,over,over_low,over_high,p_holm,"
            "equal,equal_low,equal_high,budget",
            "MAE,untrained,,,,4,3,5,,,,,",
            "MAE,random,1,0,2,3,2,4,0.01,,,,",
            "MAE,format,1,0,2,3,2,4,0.2,,,,",
            "MAE,shuffled,1,0,2,3,2,4,0.3,,,,",
            "MAE,oracle,1,0,2,3,2,4,,-1,-2,0,1200",
            f"MAE,{control_numbers.OWN},4,3,5,,,,,,,,",
        ]
        (folder / "arms.csv").write_text("\n".join(lines))
        text = control_numbers.controls(tmp_path)
        rows = [line for line in text.splitlines() if line.startswith("| MAE")]
        gain = " | +1.0 [+0.0, +2.0]"
        over = " | +3.0 [+2.0, +4.0]"
        assert rows == [
            f"| MAE{4 * gain} | +4.0 [+3.0, +5.0] |",
            f"| MAE{4 * over} |",
            "| MAE | oracle | 1,200 | -1.0 [-2.0, +0.0] |",
        ]
        assert "Of the 3 comparisons with a floor, 1 are significant" in text
        assert "(MAE over random)" in text

    @pytest.fixture
    def readme(self) -> str:
        return (ROOT / "README.md").read_text(encoding="utf-8")

    def test_the_readme_stays_short(self, readme: str) -> None:
        prose = [line for line in readme.splitlines() if not line.startswith("|")]
        assert len(" ".join(prose).split()) <= 600

    def test_the_example_of_a_claim_is_that_of_the_snapshot(self, readme: str) -> None:
        example = r"prints (\S+) points; here it is (\S+),\s.* from (\S+) to (\S+), so.*\*(.+)\*"
        printed, effect, low, high, verdict = re.findall(example, readme)[0]
        said = f"{effect} [{low}, {high}], printed {printed}: {verdict}"
        snapshot = pd.read_csv(ROOT / readme_numbers.SNAPSHOT, index_col="paper")
        assert snapshot.loc["MAE", "over the untrained model"] == said

    def test_no_line_of_code_is_cut_off_on_a_page(self, readme: str) -> None:
        blocks = re.findall(r"```.*?```", readme, flags=re.DOTALL)
        assert len(blocks) > 2
        for block in blocks:
            assert max(map(len, block.splitlines())) <= 88

    def test_no_paragraph_of_the_readme_is_long(self, readme: str) -> None:
        prose = re.sub(r"```.*?```", "", readme, flags=re.DOTALL)
        blocks = ("|", "<!--")
        paragraphs = [
            text for text in prose.split("\n\n") if not text.startswith(blocks)
        ]
        assert max(len(text.split()) for text in paragraphs) <= 60

    def test_the_picture_of_the_readme_shows_todays_episode_and_curves(self) -> None:
        facts = hero.facts(hero.episode(), hero.curves())
        assert json.loads(hero.FACTS.read_text(encoding="utf-8")) == facts

    def test_every_verdict_has_a_column_in_the_tally(self) -> None:
        grouped = [name for names in GROUPS.values() for name in names]
        assert sorted(grouped) == sorted(MEANINGS)

    @pytest.mark.parametrize(
        ("earned", "cell"),
        [(0.0, "0 in 1 of 1 pairs"), (0.5, "0 in 0 of 1 pairs; math: a lie 0.5")],
    )
    def test_rewarded_attacks_are_listed_if_there_are_any(
        self, earned: float, cell: str
    ) -> None:
        control = {"attack": "the gold answer"}
        attack = {"attack": "a lie", "math": {"earned": earned}}
        assert reliability.rewarded_attacks({"rows": [control, attack]}) == cell

    def test_links_of_the_readme_lead_to_files(self, readme: str) -> None:
        targets = re.findall(r"\]\(([^)#]+)\)", readme)
        files = [target for target in targets if "://" not in target]
        assert len(files) > 20
        for file in files:
            assert (ROOT / file).exists(), file


def tracked_files() -> list[str]:
    """Return the tracked Python files except test data, or nothing outside a clone."""
    command = ["git", "ls-files", "*.py", ":!tests/data"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return process.stdout.split()


TRACKED = tracked_files()


def imported_names(path: Path) -> Iterator[str]:
    """Yield dotted names that a file imports and that may be modules."""
    for node, _ in import_statements(path.read_text(encoding="utf-8")):
        prefix = ""
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            prefix = f"{node.module or ''}."
        for alias in node.names:
            yield prefix + alias.name


@pytest.mark.skipif(not TRACKED, reason="not a clone")
def test_whatever_a_tracked_file_imports_is_tracked() -> None:
    bases = {ROOT / "src", ROOT}
    for name in TRACKED:
        if name.startswith("tests/"):
            bases.add((ROOT / name).parent)
    for name in TRACKED:
        for imported_name in filter(None, imported_names(ROOT / name)):
            for base in bases:
                path = base / imported_name.replace(".", "/")
                for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
                    if file.is_file():
                        assert str(file.relative_to(ROOT)) in TRACKED, name


class TestInstalled:
    """hashes.txt, which identifies installed packages by their content."""

    def test_versions_are_the_pinned_ones(self) -> None:
        for name, (version, _) in installed.known().items():
            assert version.split("+")[0] == PINS[name]

    def test_every_requirement_has_a_hash(self) -> None:
        required = requirements(DEPENDENCIES + EXTRAS["dev"])
        assert required.keys() <= installed.known().keys()

    @pytest.fixture
    def package(self, tmp_path: Path) -> metadata.PathDistribution:
        """An installed package of one module."""
        folder = tmp_path / "aaa-1.dist-info"
        folder.mkdir()
        record = ["aaa.py,,", "aaa-1.dist-info/INSTALLER,,", "../../../bin/aaa,,", ""]
        (folder / "RECORD").write_text("\n".join(record))
        (tmp_path / "aaa.py").write_text("x = 1")
        return metadata.PathDistribution(folder)

    def test_the_installer_does_not_change_a_packages_hash(
        self, package: metadata.PathDistribution, tmp_path: Path
    ) -> None:
        content = installed.content(package)
        (tmp_path / "aaa-1.dist-info/INSTALLER").write_text("pip")
        assert installed.content(package) == content

    def test_code_changes_a_packages_hash(
        self, package: metadata.PathDistribution, tmp_path: Path
    ) -> None:
        content = installed.content(package)
        (tmp_path / "aaa.py").write_text("x = 2")
        assert installed.content(package) != content
