"""What a streaming query costs beside its work: a trigger that finds nothing, and a micro-batch of one message."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import redis

from benchmarks.measure import evalsha, median
from benchmarks.report import Bar, Figures
from benchmarks.spark_session import Bench
from sluicegate.core import scripts
from sluicegate.spark import options
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["bars", "run"]

TITLE = "Micro-batches, milliseconds"
_IDLE = "trigger that finds an empty queue"
_PHASES = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "triggerExecution")
_DEADLINE_SECONDS = 60.0
_WATCHED = 200


def run(bench: Bench, *, idle_seconds: float, batches: int) -> dict[str, Figures]:
    """Both, beside a source of Spark's own that makes its rows by itself.

    Args:
        bench: session and server.
        idle_seconds: how long to watch an idle query.
        batches: micro-batches of one message each, after one to warm up.
    """
    polling = "spark.sql.streaming.pollingDelay"
    before = bench.spark.conf.get(polling)
    bench.spark.conf.set(polling, "0ms")  # what Spark sleeps between triggers is no cost of the source
    queue = bench.queue("stream")
    reader = bench.spark.readStream.format("sluicegate").options(**options(queue))
    rows = reader.option("consumer", "bench").option("pollWaitSeconds", "0").load()
    try:
        query = _start(bench, rows, "ours")
        try:
            ours = _batches(query, batches, lambda: queue.publish(b"one"))
            idle = _idle(bench, idle_seconds)
        finally:
            query.stop()
    finally:
        bench.spark.conf.set(polling, before or "10ms")
    queue.close()
    rate = bench.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = _start(bench, rate, "rate")
    try:
        theirs = _batches(query, batches, lambda: None)
    finally:
        query.stop()
    return {TITLE: {_IDLE: idle, "micro-batch of one message": ours, "the same from Spark's rate source": theirs}}


def bars(figures: dict[str, Figures]) -> list[Bar]:
    """Return the bar of an idle query, which must cost almost nothing."""
    idle = figures[TITLE][_IDLE]
    how = f"{idle['triggers']:.0f} triggers, no wait for messages, {idle['Redis calls each']:.1f} Redis calls each"
    return [Bar("micro-batch overhead, empty queue", "fast", idle["triggerExecution"], 50, False, "ms", how)]


def _start(bench: Bench, rows: DataFrame, name: str) -> StreamingQuery:
    writer: Any = rows.writeStream.format("noop").option("checkpointLocation", str(bench.folder / f"checkpoint-{name}"))
    query: StreamingQuery = writer.start()
    return query


def _batches(query: StreamingQuery, count: int, feed: Callable[[], object]) -> dict[str, float]:
    """Return medians of Spark's own account of micro-batches with one row."""
    seen: dict[int, dict[str, int]] = {}

    def reported(number: int) -> bool:
        # PySpark's own reading of a progress fails where Spark leaves out a rate that it cannot compute.
        for each in cast(Any, query)._jsq.recentProgress():
            progress = json.loads(each.json())
            if progress["numInputRows"] == 1:
                seen[progress["batchId"]] = progress["durationMs"]
        return len(seen) >= number

    for number in range(1, count + 2):
        feed()
        wait_until(partial(reported, number), f"micro-batch {number}", _DEADLINE_SECONDS)
    later = list(seen.values())[1:]
    return {phase: median(durations.get(phase, 0) for durations in later) for phase in _PHASES}


def _idle(bench: Bench, seconds: float) -> dict[str, float]:
    """Return the time between two triggers, from the claims that reach Redis: Spark gives no account of idle ones."""
    each = _calls_each(bench.client)
    bench.client.config_resetstat()
    start = time.perf_counter()
    time.sleep(seconds)
    calls, _ = evalsha(bench.client)
    triggers = calls / each
    watched = 1e3 * (time.perf_counter() - start)
    return {"triggerExecution": watched / triggers, "triggers": triggers, "Redis calls each": each}


def _calls_each(client: redis.Redis) -> float:
    """Script calls of an idle trigger, of which one is a claim."""
    claim = scripts.load("claim").sha.decode()
    calls = claims = 0
    with client.monitor() as watching:
        for command in watching.listen():
            if command["client_type"] != "lua" and command["command"].upper().startswith("EVALSHA"):
                calls += 1
                claims += claim in command["command"]
            if calls >= _WATCHED and claims:
                break
    return calls / claims
