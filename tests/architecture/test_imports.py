"""Importing the queue stays cheap: parsing a DAG file must not load an orchestrator, Spark or a data frame library."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
