"""An extra exists when its room does, and installs what that room imports."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.project import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# The packages that need the extra, each with all of its modules; "!" is before modules that also need another extra.
ROOMS = {
    "airflow": "airflow_provider_sluicegate !airflow_provider_sluicegate.parquet !airflow_provider_sluicegate.plugins "
    "!airflow_provider_sluicegate.operators.spark_submit !airflow_provider_sluicegate.operators.spark",
    "dagster": "dagster_sluicegate",
    "spark": "sluicegate.spark pyspark_sluicegate",
    "spark-connect": "sluicegate.spark pyspark_sluicegate",
    "embedded": "sluicegate.embedded sluicegate.testing",
    "fast": "hiredis orjson",
    "cli": "sluicegate.cli",
    "web": "sluicegate.web",
    "metrics": "sluicegate.metrics",
    "tracing": "sluicegate.tracing",
    "demo": "example_dags.demo.chart example_dags.demo.screen",
}
# Those that import within a second. `make test` imports the others in an environment that has everything.
QUICK = ("cli", "fast", "metrics", "tracing", "web")
# Every module of the named packages is imported while every other installed distribution seems to be missing.
PROGRAM = """
import importlib, pkgutil, sys

class OnlyThese:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}: no requirement brings it", name=name)

sys.meta_path.insert(0, OnlyThese())
without = tuple(name[1:] for name in ROOM.split() if name.startswith("!"))
for name in ROOM.split():
    if name.startswith("!"):
        continue
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
        if not found.name.startswith(without or ("!",)) and not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""


def closure(asked: list[str]) -> set[str]:
    """Return the distributions that requirements bring, with what those require, by their normalized names."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(line) for line in asked]
    while waiting:
        one = waiting.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in found:
            continue
        found.add(key)
        try:
            lines = requires(one.name) or ()
        except PackageNotFoundError:  # for another machine or Python than this one
            continue
        for line in lines:
            other = Requirement(line)
            environments = [{"extra": extra} for extra in (one.extras or {""})]
            if other.marker is None or any(other.marker.evaluate(each) for each in environments):
                waiting.append(other)
    return {name for name, _ in found}


def test_every_extra_has_a_room() -> None:
    assert PROJECT["optional-dependencies"].keys() == ROOMS.keys() | {"all"}


@pytest.mark.parametrize(
    "extra",
    [pytest.param(extra, marks=() if extra in QUICK else pytest.mark.full) for extra in ROOMS],
)
def test_the_room_of_an_extra_imports_with_nothing_but_what_it_installs(extra: str) -> None:
    lines = PROJECT["optional-dependencies"][extra]
    if extra == "spark-connect":  # its import package comes with pyspark here
        lines = [line.replace("pyspark-client", "pyspark[connect]") for line in lines]
    if extra == "demo":  # draws what the others run
        lines = [line for name in ("demo", "airflow", "spark") for line in PROJECT["optional-dependencies"][name]]
    brought = closure([*PROJECT["dependencies"], *lines]) | {"sluicegate"}
    if extra == "embedded":  # a plugin of pytest, whose fixtures only users of pytest load
        brought |= closure(["pytest"])
    hidden = {
        package
        for package, distributions in packages_distributions().items()
        if not brought & {canonicalize_name(name) for name in distributions}
    }
    assert {"redis", "tenacity", "sluicegate"}.isdisjoint(hidden)
    assert "mypy" in hidden

    program = f"HIDDEN = {sorted(hidden)!r}\nROOM = {ROOMS[extra]!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr[-2000:]) == (0, "")


def test_the_base_alone_publishes_and_claims() -> None:
    hidden = {
        package
        for package, distributions in packages_distributions().items()
        if not closure(PROJECT["dependencies"]) & {canonicalize_name(name) for name in distributions}
    } - {"sluicegate"}
    program = f"HIDDEN = {sorted(hidden)!r}\nROOM = 'sluicegate.asyncio sluicegate.worker sluicegate.jobs'\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
