"""Every module of the Spark room can be imported with either package that provides `pyspark`, without a JVM."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import sluicegate.spark

MODULES = sorted(path.stem for path in Path(sluicegate.spark.__file__).parent.glob("*.py") if path.stem != "__init__")
PROGRAM = """
import importlib, os, sys
for name in sys.argv[1:]:
    if os.fork() == 0:
        importlib.import_module("sluicegate.spark." + name)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def test_each_module_imports_in_a_process_that_has_imported_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *MODULES], text=True, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr


def test_every_public_name_can_be_had() -> None:
    for name in sluicegate.spark.__all__:
        assert getattr(sluicegate.spark, name) is not None


def test_the_source_is_offered_by_its_shim() -> None:
    shim = importlib.import_module("pyspark_sluicegate")
    assert shim.DefaultSource is sluicegate.spark.SluicegateDataSource
