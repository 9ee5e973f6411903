"""Everything on Spark Connect, with a server whose Python workers get the package from the client, as a zip.

Only a streaming query runs from the package that is installed on the server: artifacts do not reach it.
One process for all of it: a client without a SparkContext, and the server that it starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.spark.shipping import bare_environment, installed_last, package_zip, spark_defaults
from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full, pytest.mark.timeout(400)]

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from sluicegate import RedisMessageQueue, RedisStreamQueue
from sluicegate.errors import DrainFailedError
from sluicegate.spark import SluicegateDataSource, dead_letters, drain, lease_batch, options, redrive_selected

url, package, folder, *checks = sys.argv[1:]
told = {}

def filled(name, count):
    queue = RedisMessageQueue(name, url=url)
    assert queue.publish_many({"n": n} for n in range(count)).accepted == count
    return queue

def left(queue):
    depth = queue.depth()
    return {"ready": depth.ready, "delayed": depth.delayed, "in_flight": depth.in_flight, "leases": depth.leases}

def process(batch, ctx):
    import sluicegate

    with open(folder + "/origins", "a") as origins:
        origins.write(sluicegate.__file__ + "\\n")
    if any(message.json()["n"] == 7 for message in batch):
        raise ValueError("seven")

def by_columns(rows, ctx):
    ctx.bury(rows["message_id"].filter([n == 3 for n in rows["n"].to_pylist()]))

def drained(spark):
    queue = filled("connect-drain", 200)
    try:
        drain(spark, queue, process)
    except DrainFailedError as failed:
        summary = failed.summary.to_dict()
    return {"acked": summary["acked"], "returned": summary["returned"], "partitions": len(summary["partitions"]),
            "in_flight": queue.depth().in_flight, "origins": open(folder + "/origins").read().split()}

def drained_into_columns(spark):
    queue = filled("connect-columns", 20)
    summary = drain(spark, queue, by_columns, batch_format="arrow", schema="n int")
    return {"acked": summary.acked, "buried": summary.buried, "left": left(queue)}

def browsed(spark):
    queue = filled("connect-browse", 30)
    rows = spark.read.format("sluicegate").options(**options(queue)).load()
    return {"columns": rows.columns, "rows": rows.count(), "again": rows.filter("sequence > 10").count(),
            "left": left(queue)}

def written(spark):
    queue = RedisMessageQueue("connect-write", url=url)
    rows = spark.range(0, 50, 1, 2).withColumnRenamed("id", "n")
    rows.write.format("sluicegate").mode("append").options(**options(queue)).save()
    return {"numbers": sorted(message.json()["n"] for message in queue.peek(100)), "left": left(queue)}

def streamed(spark):
    queue = filled("connect-stream", 40)
    rows = (spark.readStream.format("sluicegate").options(**options(queue)).option("consumer", "connect")
            .option("maxMessagesPerTrigger", "25").load())
    query = (rows.selectExpr("id", "cast(payload as string) as text").writeStream.format("parquet")
             .option("checkpointLocation", folder + "/checkpoint").option("path", folder + "/rows")
             .trigger(availableNow=True).start())
    assert query.awaitTermination(120)
    texts = [row.text for row in spark.read.parquet(folder + "/rows").collect()]
    return {"numbers": sorted(json.loads(text)["n"] for text in texts), "left": left(queue)}

def grouped(spark):
    stream = RedisStreamQueue("connect-events", url=url)
    billing, audit = stream.group("billing"), stream.group("audit")
    billing.create("beginning")
    audit.create("beginning")
    rows = spark.range(0, 40, 1, 2).withColumnRenamed("id", "n")
    rows.write.format("sluicegate").mode("append").options(**options(stream)).save()
    unread = spark.read.format("sluicegate").options(url=url, stream="connect-events", group="audit").load()
    return {"acked": drain(spark, billing, lambda batch: None).acked, "unread": unread.count(), "left": left(billing)}

def leased(spark):
    queue = filled("connect-lease", 20)
    with lease_batch(spark, queue, 15, run_id="connect", schema="n int") as batch:
        rows = batch.df
        found = {"dtype": rows.dtypes[0], "numbers": sorted(row.n for row in rows.collect()), "again": rows.count(),
                 "acked": batch.ack_where(rows.filter("n < 10")), "rest": batch.df.count()}
        batch.ack()
    return {**found, "left": left(queue)}

def redriven(spark):
    queue = filled("connect-dead", 4)
    with queue.claim(4) as lease:
        lease.bury(lease.messages[:3], error="odd")
        lease.bury(lease.messages[3:], error="even")
    letters = dead_letters(spark, queue)
    return {"dead": letters.count(), "redriven": redrive_selected(queue, letters.filter("error = 'odd'")).redriven,
            "left": left(queue)}

spark = SparkSession.builder.remote("local[2]").getOrCreate()
try:
    told["session"] = type(spark).__module__
    spark.addArtifacts(package, pyfile=True)
    spark.dataSource.register(SluicegateDataSource)
    for check in map(globals().__getitem__, checks):
        try:
            told[check.__name__] = check(spark)
        except Exception as error:
            told[check.__name__] = {"error": f"{type(error).__name__}: {error}"[-3000:]}
finally:
    spark.stop()
print(json.dumps(told))
"""
CHECKS = ("drained", "browsed", "drained_into_columns", "written", "streamed", "grouped", "leased", "redriven")
NOTHING = {"ready": 0, "delayed": 0, "in_flight": 0, "leases": 0}


@pytest.fixture(scope="module")
def reported(server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the client found."""
    folder = tmp_path_factory.mktemp("connect")
    package = package_zip(folder)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url, str(package), str(folder), *CHECKS],
        env=installed_last(bare_environment(spark_defaults(folder)), package),
        cwd=folder,
        text=True,
        capture_output=True,
        timeout=380,
        check=False,
    )
    assert (done.returncode, bool(done.stdout)) == (0, True), done.stderr[-5000:]
    answers: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    assert answers["session"] == "pyspark.sql.connect.session"
    return answers


def test_a_drain_does_the_same_and_its_workers_run_from_the_zip(reported: dict[str, Any]) -> None:
    answer = reported["drained"]
    origins = answer.pop("origins", [])
    assert answer == {"acked": 199, "returned": 1, "partitions": 2, "in_flight": 0}
    assert origins
    assert all("sluicegate.zip/sluicegate" in origin for origin in origins)


def test_a_drain_into_columns_that_are_declared_as_ddl(reported: dict[str, Any]) -> None:
    assert reported["drained_into_columns"] == {"acked": 19, "buried": 1, "left": NOTHING}


def test_a_browse_reads_and_changes_nothing(reported: dict[str, Any]) -> None:
    answer = reported["browsed"]
    assert answer.get("columns", answer)[:2] == ["id", "payload"]
    assert (answer["rows"], answer["again"], answer["left"]) == (30, 20, {**NOTHING, "ready": 30})


def test_a_write_publishes(reported: dict[str, Any]) -> None:
    assert reported["written"] == {"numbers": list(range(50)), "left": {**NOTHING, "ready": 50}}


def test_a_stream_hands_over_everything_and_acks_it(reported: dict[str, Any]) -> None:
    assert reported["streamed"] == {"numbers": list(range(40)), "left": NOTHING}


def test_a_stream_is_written_and_one_group_of_it_drained_while_the_other_reads(reported: dict[str, Any]) -> None:
    assert reported["grouped"] == {"acked": 40, "unread": 40, "left": NOTHING}


def test_a_leased_batch_reads_the_same_rows_twice_and_is_acked(reported: dict[str, Any]) -> None:
    assert reported["leased"] == {
        "dtype": ["n", "int"],
        "numbers": list(range(15)),
        "again": 15,
        "acked": 10,
        "rest": 5,
        "left": {**NOTHING, "ready": 5},
    }


def test_dead_letters_are_chosen_with_a_filter(reported: dict[str, Any]) -> None:
    assert reported["redriven"] == {"dead": 4, "redriven": 3, "left": {**NOTHING, "ready": 3}}
