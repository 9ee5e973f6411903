"""One Spark session and one Redis, which all parts of the Spark figures share."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import redis

from sluicegate import RedisMessageQueue
from tests.support.servers import RedisServer, programs

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

__all__ = ["TASKS", "Bench", "bench"]

TASKS = 2


@dataclass(frozen=True, slots=True)
class Bench:
    """What a part of the Spark figures works with.

    Attributes:
        spark: a session with two tasks at a time, its Python workers started.
        server: a Redis of its own, on a unix socket, without persistence.
        client: connected to it.
        folder: for output.
    """

    spark: SparkSession
    server: RedisServer
    client: redis.Redis
    folder: Path

    def queue(self, name: str, **options: Any) -> RedisMessageQueue:
        """Return a queue that executors can make from its spec."""
        return RedisMessageQueue(name, url=self.server.url, **options)


@contextmanager
def bench() -> Iterator[Bench]:
    """Start both, and end them."""
    server = RedisServer(programs()[0]).start()
    spark = _session(server.folder)
    try:
        with server.client() as client:
            yield Bench(spark, server, client, server.folder)
    finally:
        spark.stop()
        server.remove()


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    session = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("sluicegate-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        # Triggers that find nothing are reported at once, and not every ten seconds.
        .config("spark.sql.streaming.noDataProgressEventInterval", "0")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
