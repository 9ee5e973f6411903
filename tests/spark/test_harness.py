"""The harness calls a source as Spark does: the calls of a recording source in both are the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest

from tests.spark.harness import (
    ADMISSION,
    INSTALLED,
    Attempt,
    Checkpoint,
    Killed,
    Load,
    Point,
    Query,
    Save,
    StreamSave,
    TaskFailed,
    Trigger,
)
from tests.spark.recording import Kind, Trace, recording_source
from tests.support.axes import quick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS: tuple[Kind, ...] = get_args(Kind) if INSTALLED == ADMISSION else ("zero arguments",)
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
                assert query.awaitTermination(100)
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
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trigger", quick(["available now", "default"], "available now"))
@pytest.mark.parametrize("kind", quick(KINDS, KINDS[0]))
def test_a_streaming_query_is_called_as_by_spark(
    kind: Kind, trigger: Trigger, spark: SparkSession, tmp_path: Path
) -> None:
    real, played = Real(tmp_path / "real", kind, spark), Played(tmp_path / "played", kind)

    # New; the last batch once more, as its commit is missing; a restart that finds something new.
    for count, undo in ((5, False), (5, True), (6, False)):
        for stage in (real, played):
            stage.holds(count)
            if undo:
                stage.undo_last_commit()
        (real_calls, real_sink), (played_calls, played_sink) = real.run(trigger), played.run(trigger)

        if real_calls[-1] == "stop":  # a process that ends before it is killed is reported
            real_calls.pop()
        assert played_calls == real_calls
        assert played_sink == real_sink


@live
def test_a_load_and_a_save_are_called_as_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    real, played = Real(tmp_path / "real", "zero arguments", spark), Played(tmp_path / "played", "zero arguments")
    for stage in (real, played):
        stage.holds(3)
    rows = spark.read.format("recording").options(**real.options()).load()
    load = Load(played.source, played.options())

    assert (rows.count(), rows.count()) == (load.collect().num_rows, load.collect().num_rows) == (3, 3)
    assert played.trace.take() == real.trace.take()

    tables = [pa.table({"n": [0, 1]}), pa.table({"n": [2, 3]})]
    spark.range(0, 4, 1, 2).write.format("recording").mode("append").options(**real.options()).save()
    Save(played.source, played.options(), tables).run()
    assert played.trace.take() == real.trace.take()

    broken = spark.range(0, 4, 1, 2).write.format("recording").mode("append").options(**real.options(broken="commit"))
    with pytest.raises(Exception, match="commit"):
        broken.save()
    with pytest.raises(ValueError, match="commit"):
        Save(played.source, played.options(broken="commit"), tables).run()
    calls = played.trace.take()
    assert calls == real.trace.take()
    assert calls[-1].startswith("abort [[0, 1], [2, 3]]")


def test_a_task_is_tried_again_until_it_works_or_three_have_failed(tmp_path: Path) -> None:
    played = Played(tmp_path / "played", "zero arguments")
    tables = [pa.table({"n": [0, 1]}), pa.table({"n": [2, 3]})]

    Save(played.source, played.options(), tables, {0: [Attempt(lost=True)], 1: [Attempt(batches=1)]}).run()
    assert played.trace.take()[2:] == ["write [0, 1]", "write [0, 1]", "write [2, 3]", "commit [[0, 1], [2, 3]] 1"]

    with pytest.raises(TaskFailed):
        Save(played.source, played.options(), tables, {1: [Attempt(batches=0)] * 3}).run()
    assert played.trace.take()[2:] == ["write [0, 1]", "abort [[0, 1]] 0"]


@pytest.mark.parametrize(
    ("point", "offsets", "commits", "sunk", "replayed"),
    [
        ("latest", 0, 0, 0, False),
        ("offsets", 1, 0, 0, True),
        ("partitions", 1, 0, 0, True),
        ("read", 1, 0, 0, True),
        ("sink", 1, 0, 1, True),
        ("commits", 1, 1, 1, False),
    ],
)
def test_a_killed_query_leaves_what_spark_would_have_written_and_goes_on_from_there(
    point: Point, offsets: int, commits: int, sunk: int, replayed: bool, tmp_path: Path
) -> None:
    played = Played(tmp_path / "played", KINDS[0])
    played.holds(1)
    deaths: list[object] = []

    with pytest.raises(Killed, match=point):
        played.query(kill_after=point, on_death=deaths.append).run()

    calls = played.trace.take()
    assert (len(played.checkpoint.offsets), len(played.checkpoint.commits)) == (offsets, commits)
    assert sum(line.startswith("commit") for line in played.sunk.take()) == sunk
    assert len(deaths) == 1
    assert "stop" not in calls
    assert played.query().run() == ([] if point == "commits" else [0])
    plans = [line for line in played.trace.take() if line.startswith(("partitions", "latestOffset"))]
    assert plans[0].startswith("partitions") == (replayed or (KINDS[0] == "zero arguments" and offsets > 0))
