"""The lock and the container for GPU machines name what pyproject.toml asks for."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.lock_gpu import PYTHONS, merge

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
LOCK = (ROOT / "constraints-gpu.txt").read_text(encoding="utf-8").splitlines()


def locked(python: str) -> dict[str, str]:
    """Return {package: version} of the lock for a version of Python."""
    versions = {}
    for line in LOCK:
        if line.startswith("#"):
            continue
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or marker.evaluate({"python_version": python}):
            (pin,) = requirement.specifier
            name = canonicalize_name(requirement.name)
            assert name not in versions
            versions[name] = pin.version
    return versions


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_holds_what_the_project_asks_for(python: str) -> None:
    versions = locked(python)
    asked = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["gpu"]
    for text in asked:
        requirement = Requirement(text)
        version = versions[canonicalize_name(requirement.name)]
        assert version in requirement.specifier, text


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_is_for_one_major_version_of_cuda(python: str) -> None:
    versions = locked(python)
    majors = {}
    for name in ("cuda-python", "cuda-bindings", "cuda-toolkit"):
        majors[name] = versions[name].partition(".")[0]
    assert set(majors.values()) == {"13"}


def test_packages_that_differ_by_python_get_a_marker_each() -> None:
    locks = {"3.11": ["a==1", "b==1"], "3.12": ["a==1", "b==2"]}
    assert merge(locks) == [
        "a==1",
        'b==1 ; python_version == "3.11"',
        'b==2 ; python_version == "3.12"',
    ]


def test_the_container_has_the_same_vllm() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    match = re.search(r"^FROM vllm/vllm-openai:v(\S+)$", dockerfile, re.MULTILINE)
    assert match is not None
    assert match[1] == locked("3.12")["vllm"]
    assert "Never built by us" in dockerfile
