"""All tests of Spark share one session and one Redis server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.draining.fixtures import numbers, output, queue, server
from tests.spark.jvm import SHORT_LIVED
from tests.support import waiting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["numbers", "output", "queue", "server"]

_JVM_SECONDS = 60.0


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
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
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()
        _end_gateway()


def _end_gateway() -> None:
    """End the JVM and the connections to it; both outlive every session.

    The interpreter would close them at its end and log that, after the loggers' streams were closed.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    gateway.proc.stdin.close()  # this shows the JVM that its driver has ended
    gateway.proc.wait(timeout=_JVM_SECONDS)
