"""The package loads a module when one of its names is first used, and also where Dagster is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys
import warnings

import pytest

import dagster_sluicegate

pytestmark = pytest.mark.dagster

# A finder that comes first and knows no Dagster, as in an environment without it.
WITHOUT_DAGSTER = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dagster", "dagster_shared"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def run(code: str) -> str:
    """Run a program in an interpreter of its own, where a warning is an error, and return its output."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("name", dagster_sluicegate.__all__)
def test_every_public_name_loads(name: str) -> None:
    value = getattr(dagster_sluicegate, name)
    module = getattr(value, "__module__", dagster_sluicegate.__name__)
    assert name in importlib.import_module(module).__all__
    assert name in dir(dagster_sluicegate)


def test_a_name_that_it_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'dagster_sluicegate' has no attribute 'build_que_drain_asset'"):
        _ = dagster_sluicegate.build_que_drain_asset


def test_the_import_loads_no_dagster_redis_or_spark_before_a_name_is_used() -> None:
    code = "import sys, dagster_sluicegate; print([m for m in ('dagster', 'redis', 'pyspark') if m in sys.modules])"
    assert run(code) == "[]\n"


def test_no_name_of_it_loads_spark_or_pandas() -> None:
    code = (
        "import sys, dagster_sluicegate as d\n"
        "for name in d.__all__: getattr(d, name)\n"
        "print([m for m in ('pyspark', 'pyarrow', 'pandas', 'dagster_pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_it_can_be_imported_where_dagster_is_missing() -> None:
    assert run(f"{WITHOUT_DAGSTER}\nimport dagster_sluicegate\nprint(dagster_sluicegate.__version__)") == (
        f"{dagster_sluicegate.__version__}\n"
    )


def test_dagster_knows_the_library_by_its_own_version() -> None:
    from dagster_shared.libraries import DagsterLibraryRegistry

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        importlib.reload(dagster_sluicegate)
    assert DagsterLibraryRegistry.get()["dagster-sluicegate"] == dagster_sluicegate.__version__
