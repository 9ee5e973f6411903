"""Register the data source `format("sluicegate")` with Spark.

Spark loads this class by name in several processes and asks each for a part. Everything else is therefore imported
where it is needed, and nothing connects before it reads or writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["SluicegateDataSource"]


class SluicegateDataSource(DataSource):
    """Makes queues a source and a sink of Spark.

    `spark.read` browses and never changes a queue; `spark.readStream` consumes; `write` and `writeStream` publish.
    `docs/spark.md` lists the options.
    """

    def __init__(self, options: dict[str, str]) -> None:
        from sluicegate.spark._options import check_early

        super().__init__(options)
        check_early(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "sluicegate"

    def schema(self) -> StructType:
        """Return the columns of a message, with the columns that its state adds."""
        state = {name.lower(): text for name, text in self.options.items()}.get("state")
        if state is not None:
            from sluicegate.spark.browsing.reader import schema_of

            return schema_of(state)
        from sluicegate.spark.schemas import struct_of
        from sluicegate.tables.columns import Columns

        return struct_of(Columns.of(None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of `spark.read`, for one state of the queue or the leases of a manifest."""
        from sluicegate.spark._options import BrowseOptions

        options = BrowseOptions.parse(self.options)
        if options.manifest is not None:
            from sluicegate.spark.leasing.manifest import make_reader as make_manifest_reader

            return make_manifest_reader(options, schema)
        from sluicegate.spark.browsing.reader import make_reader

        return make_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Make the reader of a streaming query."""
        from sluicegate.spark._options import StreamOptions
        from sluicegate.spark.streaming.reader import make_reader

        return make_reader(StreamOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of `df.write`."""
        from sluicegate.spark._options import WriteOptions, refuse_path
        from sluicegate.spark.writing.writer import make_writer

        refuse_path(self.options)
        return make_writer(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Make the writer of one micro-batch of `df.writeStream`."""
        from sluicegate.spark._options import WriteOptions
        from sluicegate.spark.writing.writer import make_stream_writer

        return make_stream_writer(WriteOptions.parse(self.options), schema, overwrite)
