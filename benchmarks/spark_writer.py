"""Writing a DataFrame to a queue: beside one plain client that publishes the same payloads, in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.measure import median
from benchmarks.messages import KEY_FIELD, PAYLOAD_BYTES, orders
from benchmarks.report import Bar, Figures
from benchmarks.spark_session import TASKS, Bench
from sluicegate import RedisMessageQueue
from sluicegate.spark import options
from sluicegate.spark.datasource import SluicegateDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["bars", "run"]

TITLE = "Writing a DataFrame to a queue"
_PLAIN_KEYED, _PLAIN = "publish_many, keys", "publish_many, no keys"
_SCHEMA = "order_id string, customer string, amount double, lines array<long>, paid boolean, coupon string, note string"
_LEAST = 0.6


def run(bench: Bench, *, count: int, rounds: int) -> dict[str, Figures]:
    """Messages per second from start to end of each, jobs included; medians, after a round to warm up."""
    bench.spark.dataSource.register(SluicegateDataSource)
    rows = orders(count)
    frame = bench.spark.createDataFrame(rows, _SCHEMA).repartition(TASKS).cache()
    assert frame.count() == count
    keyed = {"get_deduplication_key": KEY_FIELD}
    ways: dict[str, tuple[Callable[[RedisMessageQueue], None], dict[str, Any]]] = {
        _PLAIN: (lambda queue: _publish(queue, rows), {}),
        _PLAIN_KEYED: (lambda queue: _publish(queue, rows), keyed),
        "direct, a key column": (lambda queue: _write(queue, frame), keyed),
        "direct, automatic keys": (lambda queue: _write(queue, frame), {}),
        "staged, no keys": (lambda queue: _write(queue, frame, writeMode="staged"), {}),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, (publish, more) in ways.items():
            bench.client.flushall()
            queue = bench.queue("written", **more)
            start = time.monotonic()
            publish(queue)
            if number:
                seconds[way].append(time.monotonic() - start)
            ready = queue.depth().ready
            queue.close()
            assert ready == count, f"{way}: {ready} of {count}"
    frame.unpersist()
    return {
        TITLE: {way: {"seconds": median(times), "messages/s": count / median(times)} for way, times in seconds.items()}
    }


def bars(figures: dict[str, Figures]) -> list[Bar]:
    """Both kinds of keys, each held against the plain client that does the same deduplication or none at all."""
    rates = {way: row["messages/s"] for way, row in figures[TITLE].items()}
    return [
        Bar(
            f"DataFrame writer, {way} / {plain}, {PAYLOAD_BYTES} B",
            "fast",
            rates[way] / rates[plain],
            _LEAST,
            True,
            "x",
            f"{rates[way]:,.0f}/s and {rates[plain]:,.0f}/s, local[{TASKS}], job included",
        )
        for way, plain in (("direct, a key column", _PLAIN_KEYED), ("direct, automatic keys", _PLAIN))
    ]


def _publish(queue: RedisMessageQueue, rows: list[Any]) -> None:
    report = queue.publish_many(rows)
    assert report.accepted == len(rows), report


def _write(queue: RedisMessageQueue, frame: DataFrame, **more: str) -> None:
    frame.write.format("sluicegate").mode("append").options(**options(queue), **more).save()
