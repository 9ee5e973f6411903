"""The data source with a fault in the processes that Spark starts for it."""

from __future__ import annotations

import sys
from typing import Any

from pyspark import cloudpickle

from sluicegate.spark._options import StreamOptions
from sluicegate.spark.datasource import SluicegateDataSource
from sluicegate.spark.streaming.reader import StreamReader
from sluicegate.spark.writing.writer import BatchWriter, StreamWriter
from tests.spark.faults.points import Fault

# Executors cannot import the tests, so this module is pickled by value.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def faulty_source(fault: Fault) -> type[SluicegateDataSource]:
    """Return a data source of another name, with a fault: where a stream is planned, in any task, or in a commit."""

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

        def writer(self, schema: Any, overwrite: bool) -> Any:
            made = super().writer(schema, overwrite)
            made.__class__ = FaultyWriter
            return made

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            made = super().streamWriter(schema, overwrite)
            made.__class__ = FaultyStreamWriter
            return made

    class FaultyWriter(BatchWriter):
        def write(self, iterator: Any) -> Any:
            fault.install()
            return super().write(iterator)

        def commit(self, messages: Any) -> None:
            fault.install()
            super().commit(messages)

    class FaultyStreamWriter(StreamWriter):
        def write(self, iterator: Any) -> Any:
            fault.install()
            return super().write(iterator)

        def commit(self, messages: Any, batchId: int) -> None:
            fault.install()
            super().commit(messages, batchId)

    return FaultySource
