"""The drain as its user sees it, on real Spark and a real Redis."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pandas as pd
import pyarrow as pa
import pytest
import redis
from pyarrow import feather

from sluicegate import Message, RedisMessageQueue
from sluicegate.draining.drivers import driver_heartbeat
from sluicegate.errors import ConfigurationError, DrainFailedError, RedisUnavailableError
from sluicegate.spark import DrainContext, DrainProgress, DrainSummary, drain
from sluicegate.spark.draining.driver import _tasks
from tests.draining.helpers import (
    Killed,
    Numbers,
    Output,
    drain_here,
    failing_on,
    leave_leases_open,
    plan_for,
    what_was_done,
)
from tests.support import state
from tests.support.flavours import MakeQueue
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["leave_leases_open"]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]  # the first test starts the session


def check_all_acked_once(queue: RedisMessageQueue, client: redis.Redis, count: int) -> None:
    counters = state.counters(client, queue.name)
    assert (counters["published"], counters["acked"]) == (count, count)
    depth = queue.depth()
    assert (depth.ready, depth.delayed, depth.in_flight, depth.leases, depth.dead) == (0, 0, 0, 0, 0)


def test_a_drain_of_messages_acks_per_partition_and_leaves_no_lease(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(2000)

    summary = drain(spark, queue, output.writer(), partitions=3, batch_size=100)

    assert isinstance(summary, DrainSummary)
    assert (summary.queue, summary.claimed, summary.acked, summary.returned, summary.buried) == (
        "orders",
        2000,
        2000,
        0,
        0,
    )
    assert [(part.partition, part.ended) for part in summary.partitions] == [(0, "empty"), (1, "empty"), (2, "empty")]
    assert sum(part.chunks for part in summary.partitions) == len(output.lease_keys()) == 20
    assert output.numbers() == expected
    for part in summary.partitions:
        done = [n for call in output.calls() if call["partition"] == part.partition for n in call["numbers"]]
        assert (len(done), part.claimed) == (part.acked, part.acked)
    assert json.loads(json.dumps(summary.to_dict()))["acked"] == 2000
    check_all_acked_once(queue, client, 2000)


def test_a_handler_annotated_with_a_table_gets_tables(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path, client: redis.Redis
) -> None:
    expected = numbers(500)

    def process(batch: pa.Table, ctx: DrainContext) -> None:
        feather.write_feather(batch, tmp_path / f"{ctx.lease_key}.feather")

    summary = drain(spark, queue, process, partitions=2, batch_size=100)

    written = pa.concat_tables(feather.read_table(file) for file in tmp_path.glob("*.feather"))
    assert sorted(json.loads(payload)["n"] for payload in written.column("payload").to_pylist()) == expected
    assert (summary.acked, sum(part.chunks for part in summary.partitions)) == (500, 5)
    check_all_acked_once(queue, client, 500)


def test_without_a_number_there_are_as_many_partitions_as_spark_makes(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(10)

    summary = drain(spark, queue, lambda batch: None)

    assert [part.partition for part in summary.partitions] == [0, 1]  # of local[2]
    assert summary.acked == 10
    assert len(summary.run_id) == 32


def test_a_handler_that_fails_in_one_partition_gives_its_messages_back_and_the_others_stay_acked(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    expected = numbers(3000)
    has_failed = output.folder / "has_failed"

    def fail_in_partition_one(batch: list[int], ctx: DrainContext) -> None:
        if ctx.partition == 1:
            has_failed.touch()
            raise ConnectionError("the database is away")
        wait_until(has_failed.exists, "both partitions have a chunk", 60)

    with pytest.raises(DrainFailedError, match="1 of 2 partitions") as failed:
        drain(spark, queue, output.writer(fail_in_partition_one), partitions=2, batch_size=500, run_id="r")

    summary = failed.value.summary
    assert isinstance(summary, DrainSummary)
    assert [(part.acked, part.returned, part.ended) for part in summary.partitions] == [
        (2500, 0, "empty"),
        (0, 500, "failing"),
    ]
    assert {(failure.partition, failure.chunk, failure.error_type) for failure in summary.failures} == {
        (1, 0, "ConnectionError")
    }
    assert "away" not in str(failed.value)
    depth = queue.depth()
    assert (depth.delayed, depth.pending, depth.in_flight, depth.leases) == (500, 0, 0, 0)
    assert len(output.numbers()) == 2500
    back = [message.json()["n"] for message in queue.peek(500, state="delayed")]
    assert sorted(output.numbers() + back) == expected


def test_one_poisoned_message_among_a_thousand_is_found_and_all_others_are_acked(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    everything = numbers(1000)

    with pytest.raises(DrainFailedError) as failed:
        drain(spark, queue, output.writer(failing_on(417)), partitions=2)

    summary = failed.value.summary
    assert isinstance(summary, DrainSummary)
    assert (summary.acked, summary.returned, summary.failed) == (999, 1, 1)
    assert "failed on 1 of 1000 messages, in 1 of 2 partitions" in str(failed.value)
    assert summary.to_dict()["failed"] == 1
    (culprit,) = queue.peek(state="delayed")
    assert culprit.json() == {"n": 417}
    assert [failure.message_ids for failure in summary.failures] == [(culprit.id,)]
    assert output.numbers() == [n for n in everything if n != 417]


def test_a_rerun_under_the_same_id_works_on_nothing_and_tells_the_same(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(500)
    first = drain(spark, queue, output.writer(), partitions=2, batch_size=100, run_id="dag/task/2013-01-01")
    calls = output.calls()

    second = drain(spark, queue, output.writer(), partitions=2, batch_size=100, run_id="dag/task/2013-01-01")

    assert output.calls() == calls
    assert [what_was_done(part) for part in second.partitions] == [what_was_done(part) for part in first.partitions]
    assert (second.claimed, second.acked) == (500, 500)
    assert sum(part.replayed for part in second.partitions) == 5


def test_leases_of_a_dead_drain_run_out_and_the_next_drain_gets_them_in_order(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(600)
    for chunk in range(4):
        queue.claim(100, lease_id=f"dead/0/{chunk}", lease_seconds=0.05)
    wait_until(lambda: queue.depth().expired == 400, "the leases of the dead drain run out")
    assert queue.depth().ready == 600

    summary = drain(spark, queue, output.writer(), partitions=1, batch_size=100)

    assert [n for call in output.calls() for n in call["numbers"]] == expected
    assert summary.acked == 600
    check_all_acked_once(queue, client, 600)


# ------------------------------------------------------------------ faults that Spark's retries repair


def test_a_killed_worker_loses_nothing_and_its_retry_acks_nothing_twice(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(2000)
    killed = output.folder / "killed"

    def kill_once(batch: list[int], ctx: DrainContext) -> None:
        if ctx.chunk == 2 and not killed.exists():
            (output.folder / f"{ctx.lease_key}.json").write_text(json.dumps([*batch, "a torn file of a dead worker"]))
            killed.write_text(ctx.lease_key)
            os.kill(os.getpid(), signal.SIGKILL)

    summary = drain(spark, queue, output.writer(kill_once), partitions=2, batch_size=100, lease_seconds=600)

    assert output.numbers() == expected
    check_all_acked_once(queue, client, 2000)
    assert state.counters(client, "orders")["taken_over"] == 1
    attempts = [call for call in output.calls() if call["key"] == killed.read_text()]
    assert [call["attempt"] for call in attempts] == [0, 1]
    assert attempts[0]["numbers"] == attempts[1]["numbers"]
    assert (summary.claimed, summary.acked, sum(part.taken_over for part in summary.partitions)) == (2000, 2000, 1)
    assert sum(part.replayed for part in summary.partitions) == 2


def test_a_lease_that_was_lost_fails_the_task_and_spark_tries_again(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(300)
    spec = queue.spec().to_json()

    def lose_it_once(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0:
            from sluicegate import QueueSpec

            here = RedisMessageQueue.from_spec(QueueSpec.from_json(spec))
            for name in here.session.runner.gateway.client.zrange(here.key.leases, 0, -1):
                here.session.runner.gateway.client.zadd(here.key.leases, {name: 1})
            here.claim(1, lease_id="another").release()
            here.close()

    summary = drain(spark, queue, output.writer(lose_it_once), partitions=1, batch_size=400)

    assert summary.acked == 300
    check_all_acked_once(queue, client, 300)
    calls = output.calls()
    assert sorted(n for call in calls if call["attempt"] == 1 for n in call["numbers"]) == expected
    assert len({call["key"] for call in calls}) == len(calls)  # opened anew: no output is overwritten


# ------------------------------------------------------------------ how it ends, and what it reports


def speculating(spark: SparkSession, value: str) -> SparkSession:
    """Return a session with speculation on; local mode accepts the setting and ignores it."""
    session: SparkSession = spark.newSession()
    session.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    session.conf.set("spark.speculation", value)
    return session


def test_with_speculation_on_it_drains_as_without(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(1000)

    summary = drain(speculating(spark, "TRUE"), queue, output.writer(), partitions=2, batch_size=100)

    assert (summary.acked, summary.taken_over) == (1000, 0)
    assert output.numbers() == expected
    check_all_acked_once(queue, client, 1000)


def test_a_killed_worker_with_speculation_on_is_waited_for_and_then_taken_over(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    expected = numbers(100)
    session = speculating(spark, "true")

    def kill_once(batch: list[int], ctx: DrainContext) -> None:
        if ctx.attempt == 0 and ctx.chunk == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    summary = drain(session, queue, output.writer(kill_once), partitions=1, batch_size=40, lease_seconds=4)

    assert output.numbers() == expected
    check_all_acked_once(queue, client, 100)
    (part,) = summary.partitions
    assert (part.retries, part.taken_over, part.replayed, part.ended) == (1, 1, 1, "empty")


def test_a_limit_is_shared_out_and_a_second_call_does_no_more(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(1000)

    first = drain(spark, queue, output.writer(), partitions=3, batch_size=50, until=301, run_id="r")
    again = drain(spark, queue, output.writer(), partitions=3, batch_size=50, until=301, run_id="r")

    for summary in (first, again):
        assert [(part.claimed, part.ended) for part in summary.partitions] == [
            (101, "limit"),
            (100, "limit"),
            (100, "limit"),
        ]
    assert (len(output.numbers()), queue.depth().pending, queue.depth().leases) == (301, 699, 0)
    assert (first.bytes > 301 * 30, again.bytes) == (True, 0)


def test_a_drain_with_a_deadline_waits_for_messages_and_ends_on_time(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, client: redis.Redis
) -> None:
    numbers(50)
    late = threading.Timer(2.0, lambda: queue.publish_many({"n": n} for n in range(50, 80)))
    late.start()
    begun = time.monotonic()

    summary = drain(spark, queue, output.writer(), partitions=2, until="deadline", deadline_seconds=6)

    late.join()
    assert 6 <= time.monotonic() - begun < 60
    assert output.numbers() == list(range(80))
    assert {part.ended for part in summary.partitions} == {"deadline"}
    check_all_acked_once(queue, client, 80)


def test_frames_with_a_declared_schema_and_a_returned_column_of_verdicts(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(300)

    def process(frame: pd.DataFrame) -> pd.DataFrame:
        verdicts = frame["n"].map(lambda n: "bury" if n % 100 == 0 else None)
        return frame[["message_id"]].assign(verdict=verdicts, error="round")

    summary = drain(spark, queue, process, partitions=2, batch_size=100, batch_format="pandas", schema="n INT")

    assert (summary.acked, summary.buried, summary.failures) == (297, 3, [])
    letters = queue.peek(10, state="dead")
    assert sorted(letter.message.json()["n"] for letter in letters if letter.message) == [0, 100, 200]
    assert {letter.error for letter in letters} == {"round"}


def test_progress_is_told_while_a_drain_runs(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path
) -> None:
    numbers(300)
    seen: list[DrainProgress] = []

    def watch(look: DrainProgress) -> None:
        seen.append(look)
        (tmp_path / ("more was acked" if look.acked else "it was told")).touch()

    def process(batch: list[Message], ctx: DrainContext) -> None:
        if ctx.chunk == 0:
            wait_until((tmp_path / "it was told").exists, "told before anything is acked", 60)
        if ctx.chunk == 2:
            wait_until((tmp_path / "more was acked").exists, "told of what was acked", 60)

    drain(spark, queue, process, partitions=1, batch_size=50, run_id="r", progress=watch)

    assert len(seen) >= 2
    assert {(look.run_id, look.queue) for look in seen} == {("r", "orders")}
    assert [look.acked for look in seen] == sorted(look.acked for look in seen)
    assert all(look.acked + look.ready + look.in_flight <= 300 + 50 for look in seen)
    assert seen[-1].acked >= 50


# ------------------------------------------------------------------ refused before any job


class NoSpark:
    """Fails the test when anything of a session is used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"spark.{name} was used")


@pytest.mark.full  # it waits for Spark's idle time
@pytest.mark.slow
def test_a_worker_between_chunks_is_not_ended_as_an_idle_one(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(12)

    def slow(batch: list[Message]) -> None:
        time.sleep(1)  # the work itself: in all longer than the timeout

    spark.conf.set("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", "8")
    spark.conf.set("spark.sql.execution.pyspark.udf.killOnIdleTimeout", "true")
    try:
        summary = drain(spark, queue, slow, partitions=1, batch_size=1)
    finally:
        spark.conf.unset("spark.sql.execution.pyspark.udf.idleTimeoutSeconds")
        spark.conf.unset("spark.sql.execution.pyspark.udf.killOnIdleTimeout")

    assert (summary.acked, summary.retries, summary.taken_over) == (12, 0, 0)
    assert summary.seconds > 12


def test_a_call_that_takes_an_earlier_ones_empty_answer_says_what_it_left(
    spark: SparkSession,
    queue: RedisMessageQueue,
    numbers: Numbers,
    client: redis.Redis,
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers(5)
    first = drain(spark, queue, lambda batch: None, partitions=2, run_id="daily", progress=False)
    quiet = drain(spark, queue, lambda batch: None, partitions=2, run_id="daily", progress=False)
    assert (first.skipped_ready, quiet.skipped_ready, caplog.messages) == (0, 0, [])
    numbers(7)

    second = drain(spark, queue, lambda batch: None, partitions=2, run_id="daily", progress=False)

    assert (second.acked, second.skipped_ready, second.to_dict()["skipped_ready"]) == (5, 7, 7)
    assert [part.remembered_empty for part in second.partitions] == [True, True]
    (warning,) = caplog.messages
    assert "drain 'daily' of queue 'orders' left 7 ready messages" in warning
    assert "Give each scheduled run a run_id of its own" in warning
    other = drain(spark, queue, lambda batch: None, partitions=2, progress=False)
    assert (other.acked, other.skipped_ready) == (7, 0)


def test_a_call_that_is_told_to_forget_an_empty_answer_drains_what_has_arrived_since(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    options: dict[str, Any] = {"partitions": 2, "run_id": "daily", "remember_empty": False, "progress": False}
    numbers(5)
    drain(spark, queue, lambda batch: None, **options)
    numbers(7)

    second = drain(spark, queue, lambda batch: None, **options)

    assert (second.acked, second.skipped_ready) == (12, 0)
    assert queue.stats().acked == 12


def test_partitions_that_find_nothing_share_a_task_and_its_connection(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis
) -> None:
    numbers(10)
    before = client.info("stats")["total_connections_received"]

    summary = drain(spark, queue, lambda batch: None, partitions=200, progress=False)

    assert [part.partition for part in summary.partitions] == list(range(200))
    assert (summary.acked, {part.ended for part in summary.partitions}) == (10, {"empty"})
    assert client.info("stats")["total_connections_received"] - before < 20


def test_a_retry_of_many_partitions_takes_over_what_each_had_open(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, leave_leases_open: None
) -> None:
    numbers(20)

    def killed(batch: list[Message]) -> None:
        raise Killed

    for partition in (7, 150):
        with pytest.raises(Killed):
            drain_here(queue, killed, partition=partition, run_id="r", batch_size=10)

    summary = drain(spark, queue, output.writer(), partitions=200, run_id="r", batch_size=10, progress=False)

    taken_over = [part.partition for part in summary.partitions if part.taken_over]
    assert (taken_over, summary.acked, output.numbers()) == ([7, 150], 20, list(range(20)))


@pytest.mark.parametrize(
    ("options", "depth", "tasks"),
    [
        ({"partitions": 8}, {}, 8),
        ({"partitions": 200}, {}, 4),
        ({"partitions": 200}, {"ready": 9001}, 10),
        ({"partitions": 200}, {"ready": 9001, "leases": 50}, 60),
        ({"partitions": 200}, {"ready": 10**9}, 200),
        ({"partitions": 200, "limit": 2000}, {"ready": 10**9}, 200),
        ({"partitions": 200, "limit": 2000}, {"ready": 50}, 5),
        ({"partitions": 200, "waits": True}, {}, 200),
    ],
)
def test_there_are_no_more_tasks_than_chunks_and_cores(
    queue: RedisMessageQueue, options: dict[str, Any], depth: dict[str, int], tasks: int
) -> None:
    plan = plan_for(lambda batch: None, **options)

    assert _tasks(plan, replace(queue.depth(), **depth), lambda: 4) == tasks


def test_an_unreachable_redis_is_found_by_the_driver_before_any_job(make_queue: MakeQueue) -> None:
    with pytest.raises(RedisUnavailableError, match=r"127\.0\.0\.1:1"):
        drain(NoSpark(), make_queue(url="redis://127.0.0.1:1/0"), lambda batch: None)  # type: ignore[arg-type]


def test_a_queue_that_cannot_travel_is_refused_before_spark_is_touched(
    client: redis.Redis, make_queue: MakeQueue
) -> None:
    with pytest.raises(ConfigurationError, match="made from a client"):
        drain(NoSpark(), make_queue(client=client), lambda batch: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="password_env") as refused:
        drain(NoSpark(), make_queue(url="redis://:hunter2@localhost:1/0"), lambda batch: None)  # type: ignore[arg-type]
    assert "hunter2" not in str(refused.value)


def test_a_queue_that_delivers_at_most_once_is_refused(server: RedisServer, make_queue: MakeQueue) -> None:
    queue = make_queue(url=server.url, visibility_timeout_seconds=None, max_delivery_count=None)

    with pytest.raises(ConfigurationError, match="at most once"):
        drain(NoSpark(), queue, lambda batch: None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partitions": 0}, "partitions must be an int from 1"),
        ({"partitions": True}, "partitions"),
        ({"batch_size": 10_001}, "batch_size must be an int from 1 to 10000"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"lease_seconds": 0}, "lease_seconds must be a number above 0"),
        ({"lease_seconds": float("inf")}, "lease_seconds"),
        ({"lease_seconds": 1e300}, "a year at most"),
        ({"lease_seconds": "60"}, "lease_seconds"),
        ({"run_id": " "}, "run_id"),
        ({"run_id": 7}, "run_id"),
        ({"run_id": "\ud800"}, "run_id must be text that UTF-8 can carry"),
        ({"until": numpy.array([1, 2])}, "until"),
        ({"progress": "bar"}, "progress must be None, True, False or a function"),
        ({"progress": 1}, "progress"),
        ({"schema": 5}, "schema"),
        ({"batch_format": "polars"}, "batch_format"),
    ],
)
def test_an_argument_that_cannot_work_is_refused_before_spark_is_touched(
    server: RedisServer, make_queue: MakeQueue, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        drain(NoSpark(), make_queue(url=server.url), lambda batch: None, **options)  # type: ignore[arg-type]


def test_something_else_than_a_queue_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="not a str"):
        drain(NoSpark(), "orders", lambda batch: None)  # type: ignore[arg-type]


def test_failures_are_returned_to_a_caller_that_asks_for_them(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output
) -> None:
    numbers(30)

    summary = drain(spark, queue, output.writer(failing_on(4)), partitions=2, batch_size=10, on_failures="return")

    assert (summary.acked, summary.failed, summary.returned) == (29, 1, 1)
    assert [failure.error_type for failure in summary.failures] == ["ValueError"]
    assert queue.depth().delayed == 1


def test_a_driver_beside_a_live_one_of_the_same_run_reports_it(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    numbers(20)
    with driver_heartbeat(queue, "daily", 60):
        summary = drain(spark, queue, output.writer(), partitions=2, run_id="daily")
    again = drain(spark, queue, output.writer(), partitions=2, run_id="daily")

    assert (summary.acked, again.acked) == (20, 20)
    assert summary.other_driver is not None
    assert summary.other_driver.startswith(socket.gethostname())
    assert again.other_driver is None
    assert len([message for message in caplog.messages if "another driver works under this run id" in message]) == 1
