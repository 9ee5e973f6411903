"""A local Spark session for tests, and the end of the JVM behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.jvm import SHORT_LIVED
from tests.support import waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["end_gateway", "local_session"]

_JVM_SECONDS = 60.0


@contextmanager
def local_session(warehouse: Path) -> Iterator[SparkSession]:
    """Yield a local session with two tasks at a time; a job fails when a task has failed three times."""
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    cloudpickle.register_pickle_by_value(waiting)  # handlers use it, and executors cannot import the tests
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2,3]")
            .appName("sluicegate-tests")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.extraJavaOptions", SHORT_LIVED)
            .config("spark.sql.warehouse.dir", str(warehouse))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


def end_gateway() -> None:
    """End the JVM and the connections to it; both outlive every session.

    The interpreter would close them at its end and log that, after the loggers' streams were closed.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # this shows the JVM that its driver has ended
    gateway.proc.wait(timeout=_JVM_SECONDS)
