"""The harness calls a source as Spark does: the calls of a recording source in both are the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest

from tests.spark.harness import Attempt, Checkpoint, Killed, Load, Query, Save, StreamSave, TaskFailed, Trigger
from tests.spark.recording import Kind, Trace, recording_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = get_args(Kind)
live = pytest.mark.spark


class Stage:
    """One recording source with its files: what it reads from, and the traces of its source and its sink side."""

    def __init__(self, folder: Path, kind: Kind = "available now") -> None:
        folder.mkdir()
        self.source = recording_source(kind)
        self.counter, self.trace, self.sunk = folder / "counter", Trace(folder / "trace"), Trace(folder / "sunk")
        self.folder = folder
        self.holds(0)

    def holds(self, count: int) -> None:
        self.counter.write_text(str(count))

    def options(self, trace: Trace | None = None, **more: str) -> dict[str, str]:
        return {"trace": str((trace or self.trace).path), "counter": str(self.counter), **more}


class Real(Stage):
    """Runs queries with Spark."""

    def __init__(self, folder: Path, kind: Kind, spark: SparkSession) -> None:
        super().__init__(folder, kind)
        self.spark = spark
        spark.dataSource.register(self.source)

    def run(self, trigger: Trigger) -> tuple[list[str], list[str]]:
        rows = self.spark.readStream.format("recording").options(**self.options()).load()
        writer = rows.writeStream.format("recording").options(**self.options(self.sunk))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        if trigger != "default":
            writer = writer.trigger(availableNow=True) if trigger == "available now" else writer.trigger(once=True)
        query = writer.start()
        try:
            if trigger == "default":
                query.processAllAvailable()
            else:
                query.awaitTermination(60)
        finally:
            query.stop()
        return self.trace.take(), self.sunk.take()

    def undo_last_commit(self) -> None:
        commits = self.folder / "checkpoint" / "commits"
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        last.unlink()
        (commits / f".{last.name}.crc").unlink()


class Played(Stage):
    """Runs queries with the harness."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        super().__init__(folder, kind)
        self.checkpoint = Checkpoint()

    def query(self, trigger: Trigger = "default", **more: Any) -> Query:
        sink = StreamSave(self.source, self.options(self.sunk))
        return Query(self.source, self.options(), self.checkpoint, sink.run, trigger=trigger, **more)

    def run(self, trigger: Trigger) -> tuple[list[str], list[str]]:
        self.query(trigger).run()
        return self.trace.take(), self.sunk.take()

    def undo_last_commit(self) -> None:
        self.checkpoint.commits.remove(max(self.checkpoint.commits))


@live
@pytest.mark.parametrize("trigger", ["available now", "default"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_streaming_query_is_called_as_by_spark(
    kind: Kind, trigger: Trigger, spark: SparkSession, tmp_path: Path
) -> None:
    real, played = Real(tmp_path / "real", kind, spark), Played(tmp_path / "played", kind)

    for count, undo in (
        (5, False),
        (5, True),
        (6, False),
    ):  # new; the last batch once more; a restart with something new
        for stage in (real, played):
            stage.holds(count)
            if undo:
                stage.undo_last_commit()
        (real_calls, real_sink), (played_calls, played_sink) = real.run(trigger), played.run(trigger)

        assert played_calls == real_calls
        assert played_sink == real_sink
