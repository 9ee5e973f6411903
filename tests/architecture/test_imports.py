"""Importing the queue stays cheap: parsing a DAG file must not load an orchestrator, Spark or a data frame library."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import sluicegate

HEAVY = (
    "airflow",
    "dagster",
    "fastapi",
    "matplotlib",
    "numpy",
    "pandas",
    "prometheus_client",
    "pyarrow",
    "pyspark",
    "typer",
)


def loaded_by(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after a statement."""
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.check_output([sys.executable, "-c", code], text=True).split())


@pytest.mark.parametrize(
    "statement",
    [
        "from sluicegate import RedisMessageQueue",
        "from sluicegate import RedisMessageQueue; RedisMessageQueue('orders', url='redis://localhost:1/0')",
    ],
    ids=["import", "constructor"],
)
def test_the_queue_loads_nothing_heavy(statement: str) -> None:
    loaded = loaded_by(statement)

    assert {"redis", "sluicegate"} <= loaded
    assert loaded.isdisjoint(HEAVY)


@pytest.mark.parametrize(
    "statement",
    [
        "import sluicegate",
        "from sluicegate import ConfigurationError, Depth, DrainSummary, LeaseHandle, Message, Verdict",
        "import sluicegate.core.publishing, sluicegate.errors, sluicegate.gates, sluicegate.options, sluicegate.spec",
    ],
    ids=["package", "values", "modules"],
)
def test_what_connects_to_nothing_does_not_load_redis_py(statement: str) -> None:
    assert loaded_by(statement).isdisjoint({*HEAVY, "redis"})


def test_every_public_name_is_that_of_its_module() -> None:
    (block,) = [node for node in ast.parse(Path(sluicegate.__file__).read_text()).body if isinstance(node, ast.If)][:1]
    imported = {
        alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }

    assert sorted(imported) == sluicegate.__all__
    assert set(sluicegate.__all__) <= set(dir(sluicegate))
    for name, module in imported.items():
        assert getattr(sluicegate, name) is getattr(importlib.import_module(str(module)), name)


def test_a_star_import_and_the_modules_of_public_names_work_in_a_fresh_interpreter() -> None:
    code = (
        "import sluicegate; sluicegate.errors.RedisUnavailableError; sluicegate.queue\nfrom sluicegate import *\ndrain"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("module", [sluicegate, sluicegate.errors], ids=lambda module: module.__name__)
def test_an_unknown_name_is_an_error_that_names_it(module: ModuleType) -> None:
    with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'RedisMesageQueue'"):
        module.RedisMesageQueue  # noqa: B018
