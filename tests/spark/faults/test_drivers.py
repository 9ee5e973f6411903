"""A driver that is killed between its sink and its acks, with everything it started; then the work is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from sluicegate import RedisMessageQueue
from sluicegate.spark import drain, lease_batch
from tests.spark.faults.processes import DriverProcess
from tests.spark.faults.sinks import Sink, Truth, check_acked_once, check_nothing_lost, publish
from tests.spark.faults.streaming import Stream
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # the first test starts the session

DRIVER_SECONDS = 300.0
COUNT = 60
PROGRAM = """
import json, os, sys, threading, uuid
from pathlib import Path
from pyspark.sql import SparkSession
from sluicegate import QueueSpec, RedisMessageQueue
from sluicegate.spark import SluicegateDataSource, drain, lease_batch, options
from tests.support.waiting import wait_until

drained, leased, streamed = (RedisMessageQueue.from_spec(QueueSpec.from_json(spec)) for spec in sys.argv[1:4])
folder = Path(sys.argv[4])

def add(sink, rows):
    file = folder / sink / f"{uuid.uuid4().hex}.new"
    file.write_text(json.dumps(rows))
    file.rename(file.with_suffix(".json"))

def rows_of(frame):
    return [(row.id, json.loads(row.payload)["n"]) for row in frame.collect()]

def written(what, told):
    (folder / f"{what}.new").write_text(json.dumps(told))
    (folder / f"{what}.new").rename(folder / what)
    threading.Event().wait()

def process(batch, ctx):
    add("drained", [(message.id, message.json()["n"]) for message in batch])
    if ctx.chunk == 1:
        written("drain", ctx.lease_key)

def write(frame, number):
    rows = rows_of(frame)
    add("streamed", rows)
    if number == 1:
        written("stream", sorted(name for name, _ in rows))

conf = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}
spark = SparkSession.builder.master("local[3]").config(map=conf).getOrCreate()
spark.dataSource.register(SluicegateDataSource)
given = {"consumer": "etl", "pollWaitSeconds": "0.05", "maxMessagesPerTrigger": "20"}
frame = spark.readStream.format("sluicegate").options(**options(streamed), **given).load()
writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(folder / "checkpoint"))

def in_background(what, work):
    # One after the other, so that none starts while another takes the machine.
    def run():
        try:
            work()
        finally:
            os._exit(1)  # it must stand when the driver is killed

    threading.Thread(target=run, daemon=True).start()
    wait_until((folder / what).exists, f"the {what} has written", 300)

in_background("stream", lambda: writer.trigger(availableNow=True).start().awaitTermination())
in_background("drain", lambda: drain(spark, drained, process, partitions=1, batch_size=20, lease_seconds=600,
                                     run_id="nightly", progress=False))
with lease_batch(spark, leased, 1000, run_id="nightly", lease_seconds=600) as batch:
    add("leased", rows_of(batch.df))
    written("batch", batch.lease_key)
"""
QUEUES = ("drained", "leased", "streamed")


@pytest.fixture
def sinks(tmp_path: Path) -> dict[str, Sink]:
    made = {name: Sink(tmp_path / name) for name in QUEUES}
    for sink in made.values():
        sink.folder.mkdir()
    return made


@pytest.fixture
def queues(server: RedisServer, make_queue: MakeQueue) -> dict[str, RedisMessageQueue]:
    return {name: make_queue(name, url=server.url, enable_completed_queue=True) for name in QUEUES}


@pytest.fixture
def truths(queues: dict[str, RedisMessageQueue], sinks: dict[str, Sink], tmp_path: Path) -> dict[str, Truth]:
    """Return what was published, after a driver has written much of it into the sinks and was killed."""
    published = {name: publish(queue, COUNT) for name, queue in queues.items()}
    specs = [queue.spec().to_json() for queue in queues.values()]
    driver = DriverProcess(PROGRAM, *specs, str(tmp_path), folder=tmp_path)

    def all_written() -> bool:
        driver.check_alive()
        return all((tmp_path / name).exists() for name in ("drain", "batch", "stream"))

    try:
        wait_until(all_written, "drain, batch and stream have written what they are to ack", DRIVER_SECONDS)
    finally:
        driver.kill()
    return published


@pytest.mark.full
def test_what_a_killed_driver_had_in_hand_is_done_again_under_the_same_names_and_nothing_else(
    spark: SparkSession,
    queues: dict[str, RedisMessageQueue],
    sinks: dict[str, Sink],
    truths: dict[str, Truth],
    client: redis.Redis,
    tmp_path: Path,
) -> None:
    reported = {name: json.loads((tmp_path / name).read_text()) for name in ("drain", "batch", "stream")}

    # the drain: one chunk was acked, one was claimed
    summary = drain(
        spark,
        queues["drained"],
        sinks["drained"].writer(lambda batch, ctx: (tmp_path / f"key-{ctx.lease_key}").touch()),
        partitions=1,
        batch_size=20,
        lease_seconds=600,
        run_id="nightly",
    )
    keys = {path.name.removeprefix("key-") for path in tmp_path.glob("key-*")}
    assert reported["drain"] in keys, "the lease is the same, so that a sink by lease key overwrites"
    assert (summary.acked, sum(sinks["drained"].duplicates().values())) == (COUNT, 20)

    # the leased batch: all of it was claimed
    with lease_batch(spark, queues["leased"], 1000, run_id="nightly") as batch:
        assert batch.lease_key == reported["batch"]
        sinks["leased"].add((row.id, json.loads(row.payload)["n"]) for row in batch.df.collect())
        batch.ack()
    assert sorted(sinks["leased"].duplicates().elements()) == sorted(truths["leased"])

    # the stream: its second micro-batch was in the sink and not in the commit log
    stream = Stream(spark, queues["streamed"], sinks["streamed"], tmp_path)
    assert stream.run() is None
    assert stream.batches[1] == [reported["stream"]]
    assert sorted(sinks["streamed"].duplicates().elements()) == reported["stream"]

    for name, queue in queues.items():
        check_nothing_lost(sinks[name], truths[name])
        check_acked_once(queue, client, truths[name])
