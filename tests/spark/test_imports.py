"""Every module of the Spark room can be imported with either package that provides `pyspark`, without a JVM."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import sluicegate.spark

ROOT = Path(sluicegate.spark.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.rglob("*.py") if path.stem != "__init__"
)
# What lies below the room is imported once, before the forks: it takes a second, and a module a few milliseconds.
PROGRAM = """
import importlib, os, sys
import pyarrow, pyspark.sql, pyspark.sql.datasource, sluicegate
for name in sys.argv[1:]:
    assert not any(loaded.startswith("sluicegate.spark") for loaded in sys.modules)
    if os.fork() == 0:
        importlib.import_module("sluicegate.spark." + name)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


@pytest.mark.full
def test_each_module_imports_in_a_process_that_has_imported_no_other() -> None:
    assert {"datasource", "draining.driver", "streaming.reader"} <= set(MODULES)
    done = subprocess.run([sys.executable, "-c", PROGRAM, *MODULES], text=True, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_had() -> None:
    for name in sluicegate.spark.__all__:
        assert getattr(sluicegate.spark, name) is not None


def test_the_source_is_offered_by_its_shim() -> None:
    shim = importlib.import_module("pyspark_sluicegate")
    assert shim.DefaultSource is sluicegate.spark.SluicegateDataSource
