"""A Spark drain of the flights in two tasks beside one client that drains the same, both decoding every payload.

Usage: python -m tests.benchmarks.spark_drain ROUNDS LIMIT OUTPUT     LIMIT: flights, 0 for all
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate import Message, RedisMessageQueue
from sluicegate.spark import drain
from tests.benchmarks.flights import flights
from tests.benchmarks.measure import median
from tests.benchmarks.messages import BATCH
from tests.benchmarks.report import Bar
from tests.conformance.servers import RedisServer, programs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["main"]

_TASKS = 2


def main(rounds: int, limit: int | None) -> dict[str, Any]:
    """Drain in both ways in turn, `rounds` times after a first one, which starts Spark's Python workers."""
    payloads = flights(limit)
    server = RedisServer(programs()[0]).start()
    spark = _session(server.folder)
    try:
        queue = RedisMessageQueue("flights", url=server.url)
        seconds: dict[str, list[float]] = {"Spark": [], "single client": []}
        for number in range(rounds + 1):
            ways = [("Spark", partial(_with_spark, spark, queue)), ("single client", partial(_with_one_client, queue))]
            for name, way in ways if number % 2 else ways[::-1]:
                queue.publish_many(payloads)
                start = time.monotonic()
                drained = way()
                seconds[name].append(time.monotonic() - start)
                assert drained == len(payloads), f"{name} drained {drained} of {len(payloads)}"
        queue.close()
    finally:
        spark.stop()
        server.remove()
    return _result(len(payloads), seconds)


def _result(count: int, seconds: dict[str, list[float]]) -> dict[str, Any]:
    first, later = seconds["Spark"][0], {name: values[1:] for name, values in seconds.items()}
    ratio = median(single / spark for spark, single in zip(later["Spark"], later["single client"], strict=True))
    how = f"median of {len(later['Spark'])} rounds of {count:,} flights, local[{_TASKS}], workers started"
    figures = {name: {"messages/s": count / median(values)} for name, values in later.items()}
    figures["Spark, first drain of a session"] = {"messages/s": count / first}
    return {
        "bars": [Bar("Spark drain / single client", "fast", ratio, 1, True, "x", how).to_dict()],
        "figures": figures,
    }


def _with_spark(spark: SparkSession, queue: RedisMessageQueue) -> int:
    def decode(batch: list[Message]) -> None:
        for message in batch:
            message.json()

    return drain(spark, queue, decode, partitions=_TASKS, batch_size=BATCH).acked


def _with_one_client(queue: RedisMessageQueue) -> int:
    drained = 0
    while True:
        with queue.claim(BATCH) as lease:
            if not lease:
                return drained
            for message in lease:
                message.json()
            drained += len(lease)


def _session(folder: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    session = (
        SparkSession.builder.master(f"local[{_TASKS}]")
        .appName("sluicegate-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


if __name__ == "__main__":
    how_many, most, output = sys.argv[1:]
    Path(output).write_text(json.dumps(main(int(how_many), int(most) or None)))
