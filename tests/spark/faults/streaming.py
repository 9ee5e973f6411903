"""Streaming queries of one consumer into the sink that forgives nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from sluicegate import RedisMessageQueue
from sluicegate.spark._options import StreamOptions, options
from sluicegate.spark._stream import StreamReader
from sluicegate.spark.datasource import SluicegateDataSource
from tests.spark.faults.points import Fault
from tests.spark.faults.sinks import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

# Executors cannot import the tests: what is defined here travels by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

QUERY_SECONDS = 120
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
        """A query that hands batch after batch to the sink; `before` and `after` are called with its number."""

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
        """A query over what is ready, to its end; returns what it failed with."""
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


def faulty_source(fault: Fault) -> type[SluicegateDataSource]:
    """The data source, with a fault in the process that plans, or in the workers that read."""

    class FaultyReader(StreamReader):
        def read(self, partition: Any) -> Any:
            fault.install()
            return super().read(partition)

    class FaultySource(SluicegateDataSource):
        @classmethod
        def name(cls) -> str:
            return "sluicegate_faulty"

        def streamReader(self, schema: Any) -> Any:
            fault.install()
            return FaultyReader(StreamOptions.parse(self.options), schema)

    return FaultySource
