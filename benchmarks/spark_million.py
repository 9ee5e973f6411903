"""A million messages of 200 bytes: published under deduplication keys, drained into Parquet files and acked."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import median
from benchmarks.messages import KEY_FIELD, PAYLOAD_BYTES, orders
from benchmarks.report import Bar, Figures
from benchmarks.spark_session import TASKS, Bench
from sluicegate import RedisMessageQueue
from sluicegate.spark import DrainContext, drain

__all__ = ["bars", "first", "run"]

TITLE = "A million messages, from publish to Parquet"
_FIRST = "The same, as the first job of a session"
_GOAL_SECONDS = 7
_LEASE = 10_000
_BLOCK = 100_000  # orders are made in blocks, outside of the measured time
_SCHEMA = "order_id string, customer string, amount double, lines array<long>, paid boolean, coupon string, note string"


def run(bench: Bench, *, count: int, rounds: int) -> dict[str, Figures]:
    """Publish with one client, drain in two tasks, `rounds` times; payloads as bytes, and as typed columns."""
    found: Figures = {}
    for name, options in (("payload column", {}), ("typed columns", {"schema": _SCHEMA})):
        samples = [_once(bench, count, options) for _ in range(rounds)]
        found[name] = {column: median(sample[column] for sample in samples) for column in samples[0]}
    return {TITLE: found}


def first(bench: Bench, *, count: int) -> dict[str, Figures]:
    """Do it once in a session that has run nothing: Python workers start, and Java compiles what runs often."""
    return {_FIRST: {"payload column": _once(bench, count, {})}}


def bars(figures: dict[str, Figures]) -> list[Bar]:
    """Return the bars for both kinds of file."""
    return [
        Bar(
            f"publish, drain to Parquet, ack: {row['messages']:,.0f} x {PAYLOAD_BYTES} B, {name}",
            "fast",
            row["seconds"],
            _GOAL_SECONDS,
            False,
            "s",
            f"publish {row['publish s']:.1f} s, drain {row['drain s']:.1f} s, local[{TASKS}], session started",
        )
        for name, row in figures[TITLE].items()
    ]


def _once(bench: Bench, count: int, options: dict[str, str]) -> dict[str, float]:
    folder = bench.folder / "million"
    folder.mkdir()
    bench.client.flushall()

    def write(batch: pa.Table, ctx: DrainContext) -> None:
        pq.write_table(batch, ctx.output_file(folder, ".parquet"))

    queue = bench.queue("million", get_deduplication_key=KEY_FIELD)
    publishing = _publish(queue, count)
    start = time.monotonic()
    summary = drain(bench.spark, queue, write, partitions=TASKS, batch_size=_LEASE, progress=False, **options)
    draining = time.monotonic() - start
    depth = queue.depth()
    queue.close()
    assert (summary.acked, depth.ready, depth.in_flight) == (count, 0, 0), summary.to_dict()
    size = _check(folder, count)
    shutil.rmtree(folder)
    return {
        "messages": count,
        "publish s": publishing,
        "drain s": draining,
        "seconds": publishing + draining,
        "published/s": count / publishing,
        "drained/s": count / draining,
        "Parquet MB": size / 1e6,
    }


def _publish(queue: RedisMessageQueue, count: int) -> float:
    """Seconds of publishing that many different orders."""
    seconds = 0.0
    for first in range(0, count, _BLOCK):
        block = orders(min(_BLOCK, count - first), first)
        start = time.monotonic()
        report = queue.publish_many(block)
        seconds += time.monotonic() - start
        assert report.accepted == len(block)
    return seconds


def _check(folder: Path, count: int) -> int:
    """Bytes of the files, which hold every message once."""
    files = list(folder.glob("[!.]*.parquet"))
    ids: set[str] = set()
    rows = 0
    for file in files:
        names = pq.read_schema(file).names
        column = pq.read_table(file, columns=["message_id" if "message_id" in names else "id"]).column(0)
        rows += len(column)
        ids.update(column.to_pylist())
    assert rows == len(ids) == count, f"{rows} rows, {len(ids)} ids, {count} messages"
    return sum(file.stat().st_size for file in files)
