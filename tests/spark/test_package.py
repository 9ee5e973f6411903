"""Importing `sluicegate.spark` costs nothing, and says what is missing."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sluicegate.spark
from sluicegate.spark import DrainContext


def run(statement: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", statement], text=True, capture_output=True, check=False)


def test_importing_the_package_and_its_drain_loads_no_spark() -> None:
    done = run(
        "import sys\nfrom sluicegate.spark import DrainSummary, drain\n"
        "print(callable(drain), *{'pyspark', 'pyarrow', 'pandas', 'numpy'} & sys.modules.keys())"
    )

    assert (done.stdout.strip(), done.stderr) == ("True", "")


@pytest.mark.parametrize("package", ["pyspark", "pyarrow"])
def test_a_missing_extra_is_named_with_what_to_install(package: str) -> None:
    done = run(f"import sys\nsys.modules['{package}'] = None\nfrom sluicegate.spark import DrainContext, drain")

    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: sluicegate.spark.drain needs " + package)
    assert "sluicegate[spark]" in last


def test_drain_is_the_function_whatever_was_imported_before() -> None:
    done = run("import sluicegate.spark.draining.driver\nfrom sluicegate.spark import drain\nprint(drain.__name__)")

    assert done.stdout.strip() == "drain"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="sink"):
        _ = sluicegate.spark.sink


def test_users_can_make_a_context_for_their_own_tests() -> None:
    context = DrainContext(lease_key="k", lease_id="run/0/0", opening="1-1", partition=0, chunk=0, run_id="run")

    assert (context.lost, context.attempt) == (False, 0)
