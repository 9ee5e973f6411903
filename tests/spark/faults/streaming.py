"""Streaming queries of one consumer into the sink that forgives nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluicegate import RedisMessageQueue
from sluicegate.spark._options import options
from sluicegate.spark.datasource import SluicegateDataSource
from tests.spark.faults.points import Fault
from tests.spark.faults.sinks import Sink
from tests.spark.faults.sources import faulty_source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

QUERY_SECONDS = 240
_MORE_STARTS = 3
AtBatch = Callable[[int], object]


@dataclass
class Stream:
    """Starts queries of one consumer, on one checkpoint unless told otherwise."""

    spark: SparkSession
    queue: RedisMessageQueue
    sink: Sink
    folder: Path
    consumer: str = "etl"
    batches: dict[int, list[list[str]]] = field(default_factory=dict)  # per number: the ids, at each run of it

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def start(
        self,
        *,
        checkpoint: Path | None = None,
        fault: Fault | None = None,
        before: AtBatch | None = None,
        after: AtBatch | None = None,
        once: bool = True,
        **given: str,
    ) -> StreamingQuery:
        """Start a query that passes batch after batch to the sink; `before` and `after` are called with its number."""

        def write(frame: DataFrame, number: int) -> None:
            rows = [(row.id, json.loads(row.payload)["n"]) for row in frame.collect()]
            if before is not None:
                before(number)
            self.sink.add(rows)
            self.batches.setdefault(number, []).append(sorted(name for name, _ in rows))
            if after is not None:
                after(number)

        source = SluicegateDataSource if fault is None else faulty_source(fault)
        self.spark.dataSource.register(source)
        named = {"consumer": self.consumer, "pollWaitSeconds": "0.05", "maxMessagesPerTrigger": "20", **given}
        frame = self.spark.readStream.format(source.name()).options(**options(self.queue), **named).load()
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint or self.checkpoint))
        return (writer.trigger(availableNow=True) if once else writer).start()

    def run(self, **given: Any) -> Exception | None:
        """Run a query over the ready messages to its end, and return its error.

        One that never began is started again: Spark gives the process that plans ten seconds to begin, and a busy
        machine needs longer.
        """
        error = self._run(**given)
        for _ in range(_MORE_STARTS):
            if error is None or "Current State: INITIALIZING" not in str(error):
                break
            error = self._run(**given)
        return error

    def _run(self, **given: Any) -> Exception | None:
        query = self.start(**given)
        try:
            assert query.awaitTermination(QUERY_SECONDS), "the query does not end"
        except AssertionError:
            raise
        except Exception as error:
            return error
        finally:
            query.stop()
        return None


def newest_commit(checkpoint: Path) -> int:
    """Return the number of the last micro-batch that Spark has recorded as done."""
    return max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())


def remove_commit(checkpoint: Path, number: int) -> None:
    """Remove Spark's last record: the micro-batch is in the sink, and will run again."""
    for name in (str(number), f".{number}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
