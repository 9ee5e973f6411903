"""A data source and sink that writes down how it is called, for comparing the harness with Spark itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pyspark.sql.datasource import DataSource

__all__ = ["Kind", "Trace", "recording_source"]

Kind = Literal["available now", "admission", "zero arguments"]


class Trace:
    """The calls that a recording source has written to a file.

    Parallel tasks come in any order, so neighbouring `read` and `write` lines are sorted; a poll that finds nothing
    new may repeat any number of times, so it counts once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> list[str]:
        """Return the lines written since the last call."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.path.unlink(missing_ok=True)
        taken: list[str] = []
        tasks: list[str] = []
        for line in [*lines, ""]:
            if line.startswith(("read ", "write ")):
                tasks.append(line)
                continue
            taken += [*sorted(tasks), line]
            tasks = []
        return _without_repeats(taken[:-1])


def _without_repeats(lines: list[str]) -> list[str]:
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        for length in (1, 2):
            last = kept[-length:]
            if last[0].startswith("latestOffset") and kept[-2 * length : -length] == last:
                del kept[-length:]
    return kept


def recording_source(kind: Kind = "available now") -> type[DataSource]:
    """Return the class, which is made in a function so that it is pickled by value.

    Options: `trace`, a file; `counter`, a file that holds how many rows there are; `broken`, a method that raises.
    As a stream it has rows 0, 1, 2 … in micro-batches of two, one partition per row.
    """
    from pyspark.sql import datasource as api
    from pyspark.sql.types import LongType, StructField, StructType

    try:
        from pyspark.sql.streaming.datasource import ReadMaxRows, SupportsTriggerAvailableNow
    except ImportError:  # PySpark 4.0 and 4.1
        ReadMaxRows, SupportsTriggerAvailableNow = None, object

    class Recorder:
        def __init__(self, options: dict[str, str]) -> None:
            self.options = options

        def note(self, what: str, *values: object) -> None:
            import json as text  # by value, this class has no module of its own

            with open(self.options["trace"], "a") as trace:
                trace.write(" ".join([what, *map(text.dumps, values)]) + "\n")
            if self.options.get("broken") == what:
                raise ValueError(what)

        def count(self) -> int:
            with open(self.options["counter"]) as counter:
                return int(counter.read())

    class BatchReader(Recorder, api.DataSourceReader):
        def partitions(self) -> list[Any]:
            self.note("partitions")
            return [api.InputPartition(n) for n in range(self.count())]

        def read(self, partition: Any) -> Any:
            self.note("read", partition.value)
            yield (partition.value,)

    class Reader(Recorder, api.DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            self.note("initialOffset")
            return {"n": 0}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
            self.note("partitions", start, end)
            return [api.InputPartition(n) for n in range(start["n"], end["n"])]

        def read(self, partition: Any) -> Any:
            self.note("read", partition.value)
            yield (partition.value,)

        def commit(self, end: dict[str, int]) -> None:
            self.note("commit", end)

        def stop(self) -> None:
            self.note("stop")

    class ZeroArguments(Reader):
        def latestOffset(self) -> dict[str, int]:
            self.note("latestOffset")
            return {"n": self.count()}

    class Admission(Reader):
        def getDefaultReadLimit(self) -> Any:
            self.note("getDefaultReadLimit")
            return ReadMaxRows(2)

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
            self.note("latestOffset", start, type(limit).__name__)
            return {"n": min(self.count(), start["n"] + getattr(limit, "max_rows", 1000))}

        def reportLatestOffset(self) -> dict[str, int]:
            self.note("reportLatestOffset")
            return {"n": self.count()}

    class AvailableNow(Admission, SupportsTriggerAvailableNow):
        def prepareForTriggerAvailableNow(self) -> None:
            self.note("prepareForTriggerAvailableNow")

    class Message(api.WriterCommitMessage):
        def __init__(self, rows: list[int]) -> None:
            self.rows = rows

    class Writer(Recorder, api.DataSourceArrowWriter):
        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self.commits = 0

        def write(self, iterator: Any) -> Message:
            rows = [row for batch in iterator for row in batch.column(0).to_pylist()]
            self.note("write", rows)
            return Message(rows)

        def commit(self, messages: list[Any], *batch: int) -> None:
            self.commits += 1
            self.note("commit", sorted(message.rows for message in messages), *batch, self.commits)

        def abort(self, messages: list[Any], *batch: int) -> None:
            self.note("abort", sorted(message.rows for message in messages if message), *batch, self.commits)

    class StreamWriter(Writer, api.DataSourceStreamWriter):
        pass

    reader_class = {"available now": AvailableNow, "admission": Admission, "zero arguments": ZeroArguments}[kind]

    class Source(Recorder, api.DataSource):
        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            self.note("init")

        @classmethod
        def name(cls) -> str:
            return "recording"

        def schema(self) -> StructType:
            self.note("schema")
            return StructType([StructField("n", LongType())])

        def reader(self, schema: StructType) -> BatchReader:
            self.note("reader")
            return BatchReader(self.options)

        def streamReader(self, schema: StructType) -> Reader:
            self.note("streamReader")
            return reader_class(self.options)

        def writer(self, schema: StructType, overwrite: bool) -> Writer:
            self.note("writer", overwrite)
            return Writer(self.options)

        def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
            self.note("streamWriter", overwrite)
            return StreamWriter(self.options)

    return Source
