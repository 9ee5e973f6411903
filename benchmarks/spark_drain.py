"""Spark drains of the flights in two tasks beside one client that claims, decodes and acks the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import sluicegate
from benchmarks.flights import flights
from benchmarks.measure import median
from benchmarks.messages import BATCH
from benchmarks.report import Bar, Figures
from benchmarks.spark_session import TASKS, Bench
from sluicegate import Message, QueueConsumer, RedisStreamQueue
from sluicegate.spark import drain

__all__ = ["bars", "run"]

TITLE = "Draining the flights"
_NOTHING, _DECODED, _GROUP, _TABLE, _TYPED, _PROCESSES, _CLIENT = (
    "Spark, no-op handler",
    "Spark, every payload decoded",
    "Spark, a group of a stream, every payload decoded",
    "Spark, Arrow table of messages",
    "Spark, typed Arrow columns",
    "sluicegate.drain, two processes, every payload decoded",
    "single client, every payload decoded",
)
_SCHEMA = (
    "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int, "
    "arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, "
    "distance int, hour int, minute int, time_hour string"
)


def run(bench: Bench, *, rounds: int, limit: int | None) -> dict[str, Figures]:
    """Drain in every way in turn, `rounds` times after a first one, which starts Spark's Python workers."""
    payloads = flights(limit)
    seconds: dict[str, list[float]] = {name: [] for name in _WAYS}
    queue, stream = bench.queue("flights"), RedisStreamQueue("flights", url=bench.server.url)
    group = stream.group("drained")
    group.create("beginning")
    for number in range(rounds + 1):
        ways = list(_WAYS.items())
        for name, way in ways if number % 2 else ways[::-1]:
            (stream if name == _GROUP else queue).publish_many(payloads)
            start = time.monotonic()
            drained = way(bench, group if name == _GROUP else queue)
            seconds[name].append(time.monotonic() - start)
            assert drained == len(payloads), f"{name} drained {drained} of {len(payloads)}"
        bench.client.xtrim("sluicegate:{flights}:stream", maxlen=0)  # what is drained stays in a stream
    queue.close()
    stream.close()
    client, spark = seconds[_CLIENT][1:], seconds[_DECODED][1:]
    return {
        TITLE: {
            name: {
                "messages/s": len(payloads) / median(times[1:]),
                "x single client": median(one / ours for ours, one in zip(times[1:], client, strict=True)),
                "x Spark": median(one / ours for ours, one in zip(times[1:], spark, strict=True)),
                "rounds": rounds,
                "messages": len(payloads),
            }
            for name, times in seconds.items()
        }
    }


def bars(figures: dict[str, Figures]) -> list[Bar]:
    """Return what two tasks must gain over one client."""
    rows = figures[TITLE]
    how = (
        f"median of {rows[_CLIENT]['rounds']:.0f} rounds of {rows[_CLIENT]['messages']:,.0f} flights, "
        f"local[{TASKS}], workers started"
    )
    return [
        Bar("Spark drain, no-op / single client", "fast", rows[_NOTHING]["x single client"], 1.2, True, "x", how),
        Bar("Spark drain / single client", "fast", rows[_DECODED]["x single client"], 1, True, "x", how),
        Bar("Spark drain of a group / of a queue", "fast", rows[_GROUP]["x Spark"], 0.6, True, "x", how),
        Bar("drain in two processes / Spark drain", "fast", rows[_PROCESSES]["x Spark"], 0.8, True, "x", how),
    ]


def _nothing(bench: Bench, queue: QueueConsumer) -> int:
    return _drain(bench, queue, lambda batch: None)


def _decode(bench: Bench, queue: QueueConsumer) -> int:
    def decode(batch: list[Message]) -> None:
        for message in batch:
            message.json()

    return _drain(bench, queue, decode)


def decode(batch: list[Message]) -> None:
    """Decode every payload; worker processes import it."""
    for message in batch:
        message.json()


def _processes(bench: Bench, queue: QueueConsumer) -> int:
    return sluicegate.drain(queue, decode, workers=TASKS, batch_size=BATCH, progress=False).acked


def _table(bench: Bench, queue: QueueConsumer) -> int:
    return _drain(bench, queue, lambda batch: None, batch_format="arrow")


def _typed(bench: Bench, queue: QueueConsumer) -> int:
    return _drain(bench, queue, lambda batch: None, batch_format="arrow", schema=_SCHEMA)


def _drain(bench: Bench, queue: QueueConsumer, process: Callable[..., None], **options: Any) -> int:
    return drain(bench.spark, queue, process, partitions=TASKS, batch_size=BATCH, progress=False, **options).acked


def _one_client(bench: Bench, queue: QueueConsumer) -> int:
    drained = 0
    while True:
        with queue.claim(BATCH) as lease:
            if not lease:
                return drained
            for message in lease:
                message.json()
            drained += len(lease)


_WAYS: dict[str, Callable[[Bench, QueueConsumer], int]] = {
    _NOTHING: _nothing,
    _DECODED: _decode,
    _GROUP: _decode,
    _TABLE: _table,
    _TYPED: _typed,
    _PROCESSES: _processes,
    _CLIENT: _one_client,
}
