"""One side of a comparison: a process that measures the rows it is asked for, with the `sluicegate` on its path.

It is run against commits of all ages, so it uses no more than what all of them have. A line on stdin names a row, a
line of JSON answers.

Usage: python -m benchmarks.compare_rows URL SCALE
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio

from benchmarks.measure import counters
from benchmarks.messages import BATCH, KEY_FIELD, QUEUE, Order, orders

__all__ = ["FLAVOURS", "ROWS", "Row", "main"]


@dataclass(frozen=True, slots=True)
class Row:
    """What is measured.

    Attributes:
        work: a name in both flavours below.
        count: messages or calls of one measurement.
        waiting: messages published before.
        keyed: whether by a queue with deduplication keys.
        collects: whether Python's collector runs meanwhile, as in a program that leaves it alone.
    """

    work: str
    count: int
    waiting: int = 0
    keyed: bool = False
    collects: bool = False


_MANY, _SINGLES, _CALLS = 10 * BATCH, 300, 400
_LEASE = 10 * BATCH  # of a drain into files
FLAVOURS = ("sync", "asyncio")
ROWS = {
    "publish_many, keys": Row("publish_many", _MANY, keyed=True),
    "publish_many, no keys": Row("publish_many", _MANY),
    "claim and ack, batches": Row("claim_many", _MANY, waiting=_MANY),
    "claim, decode and ack, batches": Row("decode", _MANY, waiting=_MANY),
    "claim, Arrow table and ack, leases of 10,000": Row("arrow", 3 * _LEASE, 3 * _LEASE, keyed=True, collects=True),
    "claim, decode and ack, leases of 10,000": Row("decode_large", 3 * _LEASE, 3 * _LEASE, keyed=True, collects=True),
    "publish": Row("publish", _SINGLES, keyed=True),
    "claim and ack": Row("claim", _SINGLES, waiting=_SINGLES),
    "process_message": Row("process", _SINGLES, waiting=_SINGLES),
    "loop over single messages": Row("consume", _SINGLES, waiting=_SINGLES),
    "extend": Row("extend", _CALLS, waiting=BATCH),
    "depth": Row("depth", _CALLS, waiting=BATCH),
}


def main(url: str, scale: float) -> None:
    """Answer until stdin ends."""
    import sluicegate
    import sluicegate.asyncio

    client, asking = redis.Redis.from_url(url), redis.Redis.from_url(url)
    own = redis.asyncio.Redis.from_url(url)
    keys: dict[bool, dict[str, Any]] = {True: {"get_deduplication_key": KEY_FIELD}, False: {}}
    queues: dict[str, Any] = {
        "sync": {keyed: sluicegate.RedisMessageQueue(QUEUE, client=client, **keys[keyed]) for keyed in keys},
        "asyncio": {keyed: sluicegate.asyncio.RedisMessageQueue(QUEUE, client=own, **keys[keyed]) for keyed in keys},
    }
    print(json.dumps(sluicegate.__file__), flush=True)
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            flavour, name = line.strip().split(": ")
            row = ROWS[name]
            count = max(1, int(row.count * scale)) if row.count < BATCH else max(BATCH, int(row.count * scale))
            waiting = count if row.waiting == row.count else row.waiting
            asking.flushall()
            if waiting:
                queues["sync"][False].publish_many(orders(waiting))
            queue, messages = queues[flavour][row.keyed], orders(count)
            if flavour == "sync":
                found = _measure_sync(asking, queue, row, messages)
            else:
                found = runner.run(_measure_asyncio(asking, queue, row, messages))
            print(json.dumps(found | {"count": count}), flush=True)
        runner.run(own.aclose())


@contextmanager
def _measured(asking: redis.Redis, *, collects: bool) -> Iterator[dict[str, float]]:
    """Seconds of the block: by the clock, and of processor time of this process and of the server."""
    found: dict[str, float] = {}
    server = counters(asking).cpu
    gc.collect()
    if not collects:
        gc.disable()
    cpu, start = time.process_time(), time.perf_counter()
    yield found
    found["wall"], found["client CPU"] = time.perf_counter() - start, time.process_time() - cpu
    gc.enable()
    found["Redis CPU"] = counters(asking).cpu - server


def _measure_sync(asking: redis.Redis, queue: Any, row: Row, messages: list[Order]) -> dict[str, float]:
    lease = queue.claim(BATCH) if row.work == "extend" else None
    queue.depth()  # connected
    with _measured(asking, collects=row.collects) as found:
        _SYNC[row.work](lease or queue, messages)
    if lease:
        lease.ack()
    return found


async def _measure_asyncio(asking: redis.Redis, queue: Any, row: Row, messages: list[Order]) -> dict[str, float]:
    lease = await queue.claim(BATCH) if row.work == "extend" else None
    await queue.depth()
    with _measured(asking, collects=row.collects) as found:
        await _ASYNCIO[row.work](lease or queue, messages)
    if lease:
        await lease.ack()
    return found


def _publish_many(queue: Any, messages: list[Order]) -> None:
    assert queue.publish_many(messages).accepted == len(messages)


def _publish(queue: Any, messages: list[Order]) -> None:
    for message in messages:
        queue.publish(message)


def _claims(limit: int, decode: bool = False) -> Callable[[Any, list[Order]], None]:
    def work(queue: Any, messages: list[Order]) -> None:
        left = len(messages)
        while left > 0:
            with queue.claim(limit) as lease:
                if decode:
                    for message in lease:
                        message.json()
                left -= len(lease)

    return work


def _arrow(queue: Any, messages: list[Order]) -> None:
    left = len(messages)
    while left > 0:
        with queue.claim(_LEASE) as lease:
            assert _table_rows(lease) == len(lease)
            left -= len(lease)


def _table_rows(lease: Any) -> int:
    """Make a table as a drain does, and return the number of its rows."""
    try:
        from sluicegate.tables.arrow import to_table
    except ImportError:  # commits that knew tables in the Spark adapter only
        from sluicegate.spark.tables.arrow import to_table  # type: ignore[import-not-found, no-redef]

    rows: int = to_table(lease.leased if hasattr(lease, "leased") else lease.messages).num_rows
    return rows


def _process(queue: Any, messages: list[Order]) -> None:
    for _ in messages:
        with queue.process_message() as payload:
            assert payload is not None


def _consume(queue: Any, messages: list[Order]) -> None:
    """Loop as this version can: the versions before `consume` had blocks only."""
    if hasattr(queue, "consume"):
        assert len(list(queue.consume(len(messages)))) == len(messages)
    else:
        _process(queue, messages)


def _times(name: str) -> Callable[[Any, list[Order]], None]:
    def work(subject: Any, messages: list[Order]) -> None:
        for _ in messages:
            getattr(subject, name)()

    return work


async def _publish_many_asyncio(queue: Any, messages: list[Order]) -> None:
    assert (await queue.publish_many(messages)).accepted == len(messages)


async def _publish_asyncio(queue: Any, messages: list[Order]) -> None:
    for message in messages:
        await queue.publish(message)


def _claims_asyncio(limit: int, decode: bool = False) -> Callable[[Any, list[Order]], Awaitable[None]]:
    async def work(queue: Any, messages: list[Order]) -> None:
        left = len(messages)
        while left > 0:
            async with await queue.claim(limit) as lease:
                if decode:
                    for message in lease:
                        message.json()
                left -= len(lease)

    return work


async def _arrow_asyncio(queue: Any, messages: list[Order]) -> None:
    left = len(messages)
    while left > 0:
        async with await queue.claim(_LEASE) as lease:
            assert _table_rows(lease) == len(lease)
            left -= len(lease)


async def _process_asyncio(queue: Any, messages: list[Order]) -> None:
    for _ in messages:
        async with queue.process_message() as payload:
            assert payload is not None


async def _consume_asyncio(queue: Any, messages: list[Order]) -> None:
    if hasattr(queue, "consume"):
        assert len([message async for message in queue.consume(len(messages))]) == len(messages)
    else:
        await _process_asyncio(queue, messages)


def _times_asyncio(name: str) -> Callable[[Any, list[Order]], Awaitable[None]]:
    async def work(subject: Any, messages: list[Order]) -> None:
        for _ in messages:
            await getattr(subject, name)()

    return work


_SYNC: dict[str, Callable[[Any, list[Order]], None]] = {
    "publish_many": _publish_many, "publish": _publish, "claim_many": _claims(BATCH), "claim": _claims(1),
    "decode": _claims(BATCH, decode=True), "process": _process, "extend": _times("extend"), "depth": _times("depth"),
    "arrow": _arrow, "decode_large": _claims(_LEASE, decode=True), "consume": _consume,
}  # fmt: skip
_ASYNCIO: dict[str, Callable[[Any, list[Order]], Awaitable[None]]] = {
    "publish_many": _publish_many_asyncio, "publish": _publish_asyncio, "claim_many": _claims_asyncio(BATCH),
    "claim": _claims_asyncio(1), "decode": _claims_asyncio(BATCH, decode=True), "process": _process_asyncio,
    "extend": _times_asyncio("extend"), "depth": _times_asyncio("depth"), "consume": _consume_asyncio,
    "arrow": _arrow_asyncio, "decode_large": _claims_asyncio(_LEASE, decode=True),
}  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
