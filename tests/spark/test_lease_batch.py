"""Leased batches in Spark: any number of reads see the same rows, and only verdicts change the queue."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import redis
from pyspark.errors import PySparkException

from sluicegate import RedisMessageQueue
from sluicegate._lease_base import LeaseState
from sluicegate.core.ledger import LeaseCounts
from sluicegate.errors import AlreadySettledError, ConfigurationError, LeaseLostError
from sluicegate.spark import LeasedBatch, lease_batch
from tests.draining.helpers import Numbers
from tests.support.flavours import MakeQueue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.support.servers import RedisServer

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
NO_SESSION = cast("Any", None)


def numbers_in(df: DataFrame) -> list[int]:
    return sorted(row.n for row in df.select("n").collect())


@pytest.mark.full  # a retried task stands for it in the quick lane
def test_actions_and_joins_read_the_same_rows_until_they_are_acked(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    wanted = numbers(12_000)
    with lease_batch(spark, queue, 11_500, schema="n bigint") as batch:
        assert (bool(batch), batch.count, len(batch), batch.state) == (True, 11_500, 11_500, LeaseState.OPEN)
        assert batch.df is batch.df
        assert numbers_in(batch.df) == wanted[:11_500]
        other = batch.df.selectExpr("message_id as other")
        assert batch.df.join(other, batch.df.message_id == other.other).count() == 11_500
        assert batch.df.columns[:2] == ["n", "message_id"]
        assert (queue.depth().in_flight, queue.depth().ready, queue.depth().leases) == (11_500, 500, 2)
        batch.ack()
        with pytest.raises(PySparkException, match=r"lease '\w+/b0' of queue 'orders' was acked; read before ack"):
            batch.df.count()

    assert (queue.depth().in_flight, queue.depth().ready, queue.stats().acked) == (0, 500, 11_500)


def test_a_retried_task_and_a_part_of_a_table_change_nothing(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers, tmp_path: Path
) -> None:
    numbers(300)
    mark = str(tmp_path / "failed")

    def fails_once(batches: Any) -> Any:
        import os
        import signal

        for batch in batches:
            if batch.num_rows and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    with lease_batch(spark, queue, 300, partitions=3) as batch:
        assert batch.df.columns[0] == "id"
        ids = {row.id for row in batch.df.select("id").mapInArrow(fails_once, "id string").collect()}
        assert len(ids) == 300
        assert Path(mark).exists()
        assert len(batch.df.limit(1).collect()) == 1
        assert queue.depth().in_flight == 300
        batch.ack()
    assert queue.stats().acked == 300


def test_ack_where_acks_its_rows_and_the_rest_goes_back(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(100)
    with lease_batch(spark, queue, 100, run_id="r", schema="n bigint") as batch:
        whole, txn, everything = batch.lease_key, batch.txn, batch.df
        assert batch.ack_where(everything.filter("n % 10 = 0").unionByName(everything.filter("n = 0"))) == 10
        assert (batch.count, queue.stats().acked) == (90, 10)
        assert numbers_in(batch.df) == [n for n in range(100) if n % 10]
        assert (batch.lease_key != whole, batch.txn != txn, batch.txn.version == txn.version) == (True, True, True)
        with pytest.raises(PySparkException, match="10 messages of lease 'r/b0' of queue 'orders' have their verdict"):
            everything.count()
        assert batch.ack_where(batch.df.filter("n < 5")) == 4
        assert batch.ack_where(batch.df.filter("n < 0")) == 0
        with pytest.raises(ConfigurationError, match="ack_where needs a DataFrame with the column message_id"):
            batch.ack_where(batch.df.select("n"))
    assert batch.counts == LeaseCounts(acked=14, returned=86)
    assert (queue.depth().ready, queue.depth().in_flight) == (86, 0)


def test_ack_takes_the_rest_that_ack_where_left(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    numbers(20)
    with lease_batch(spark, queue, 20) as batch:
        batch.ack_where(batch.df.orderBy("sequence").limit(5))
        batch.ack()
    assert (queue.depth().ready, queue.stats().acked) == (0, 20)


def test_a_second_with_takes_over_what_a_crashed_driver_left(
    spark: SparkSession,
    queue: RedisMessageQueue,
    numbers: Numbers,
    server: RedisServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "sluicegate")
    wanted = numbers(50)
    crash = (
        "import os, sys\nfrom sluicegate import QueueSpec, RedisMessageQueue\n"
        "from sluicegate.spark import lease_batch\n"
        "queue = RedisMessageQueue.from_spec(QueueSpec.from_json(sys.argv[1]))\n"
        "with lease_batch(None, queue, 30, run_id='r') as batch:\n"
        "    print(batch.count, batch.lease_key, *batch.txn, flush=True)\n    os._exit(1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", crash, queue.spec().to_json()], text=True, capture_output=True, check=False
    )
    assert done.stdout.split()[0] == "30", done.stderr

    with lease_batch(spark, queue, 50, run_id="r", schema="n bigint") as batch:
        assert ["30", batch.lease_key, batch.txn.application_id, str(batch.txn.version)] == done.stdout.split()
        assert numbers_in(batch.df) == wanted[:30]
        assert {row.message_delivery_count for row in batch.df.collect()} == {2}
        batch.ack()
    with lease_batch(spark, queue, 50, run_id="r", schema="n bigint") as batch:
        assert (bool(batch), batch.state, batch.counts.acked) == (False, LeaseState.ACKED, 30)
        assert (batch.count, batch.df.count(), batch.df.columns[0]) == (0, 0, "n")
        batch.ack()
    assert (queue.depth().ready, queue.stats().acked) == (20, 30)
    assert "leases nothing: an earlier call with this run_id has acked its messages. 20 others are ready" in caplog.text


# ---------------------------------------------------------------------- without a session: nothing here is read


def test_leaving_without_an_ack_releases(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(10)
    with lease_batch(NO_SESSION, queue, 10) as batch:
        assert queue.depth().in_flight == 10
    assert (queue.depth().ready, queue.depth().in_flight, queue.stats().released) == (10, 0, 10)
    with pytest.raises(AlreadySettledError, match="was released"):
        batch.ack()
    assert queue.stats().acked == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_releases_and_goes_through(
    queue: RedisMessageQueue, numbers: Numbers, error: type[BaseException]
) -> None:
    numbers(10)
    with pytest.raises(error), lease_batch(NO_SESSION, queue, 10):
        raise error
    assert (queue.depth().ready, queue.depth().in_flight) == (10, 0)


def test_an_error_may_keep_the_rows_for_a_retry(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(10)
    with pytest.raises(ValueError), lease_batch(NO_SESSION, queue, 10, run_id="r", on_error="keep") as batch:  # noqa: PT011
        raise ValueError
    assert queue.depth().in_flight == 10
    with lease_batch(NO_SESSION, queue, 10, run_id="r", on_error="keep") as retry:
        assert (retry.txn, retry.lease_key) == (batch.txn, batch.lease_key)
    assert queue.depth().in_flight == 0, "a block that ends without an ack gives back all the same"


def test_a_lost_batch_says_so(queue: RedisMessageQueue, numbers: Numbers, client: redis.Redis) -> None:
    numbers(10)
    with lease_batch(NO_SESSION, queue, 10, run_id="r") as batch:
        client.zadd(queue.session.keys.leases, {queue.session.keys.lease_name("r/b0"): 1})
        queue.claim(10).release()  # a claim reaps what has expired
        with pytest.raises(LeaseLostError, match="1 of 1 leases of batch 'r' were lost: 10 acks were too late"):
            batch.ack()
        assert batch.lost
    assert (queue.stats().acked, queue.depth().ready) == (0, 10)


def test_an_empty_batch_is_falsy_and_harmless(queue: RedisMessageQueue) -> None:
    with lease_batch(NO_SESSION, queue, 10) as batch:
        assert (bool(batch), batch.count, batch.state) == (False, 0, LeaseState.EMPTY)
        assert batch.txn.version == 0
        batch.ack()
    assert repr(batch) == f"LeasedBatch(run_id={batch.run_id!r}, state=empty, count=0)"


def test_batches_without_a_run_id_are_different_runs(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(2)

    def take() -> LeasedBatch:
        with lease_batch(NO_SESSION, queue, 1) as batch:
            batch.ack()
        return batch

    one, other = take(), take()
    assert (one.count, other.count, queue.stats().acked) == (1, 1, 2)
    assert one.run_id != other.run_id
    assert one.txn.application_id.startswith(f"orders:{one.run_id}:")
    assert other.txn.version > one.txn.version


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"limit": 0}, "limit must be an int from 1 to"),
        ({"limit": None}, "limit must be an int of 1 or more"),
        ({"lease_seconds": 0}, "lease_seconds must be"),
        ({"partitions": 0}, "partitions must be"),
        ({"run_id": " "}, "run_id must be a str with a visible character"),
        ({"on_error": "ack"}, "on_error must be 'release' or 'keep'"),
        ({"schema": 7}, "schema must be"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_claimed(
    queue: RedisMessageQueue, numbers: Numbers, options: dict[str, Any], reported: str
) -> None:
    numbers(1)
    with pytest.raises(ConfigurationError, match=reported):
        lease_batch(NO_SESSION, queue, **{"limit": 1, **options})
    assert queue.stats().claimed == 0


def test_without_a_with_it_says_how_and_claims_nothing(queue: RedisMessageQueue, numbers: Numbers) -> None:
    numbers(1)
    block = lease_batch(NO_SESSION, queue, 1)

    with pytest.raises(AttributeError, match=r"with lease_batch\(\.\.\.\) as batch: batch\.df"):
        block.df  # type: ignore[attr-defined]  # noqa: B018  (that it is not there is what is tested)
    with pytest.raises(TypeError, match="`with` block only"):
        bool(block)
    assert queue.stats().claimed == 0
    with block as batch:
        assert batch.count == 1


def test_an_at_most_once_queue_and_one_that_cannot_travel_are_refused(
    make_queue: MakeQueue, server: RedisServer
) -> None:
    once = make_queue(url=server.url, visibility_timeout_seconds=None, max_delivery_count=None)
    with pytest.raises(ConfigurationError, match="at-most-once"):
        lease_batch(NO_SESSION, once, 1)
    with pytest.raises(ConfigurationError, match="made from a client"):
        lease_batch(NO_SESSION, make_queue(), 1)
    with pytest.raises(TypeError, match="queue must be a RedisMessageQueue or the group of a stream, not a str"):
        lease_batch(NO_SESSION, cast("Any", "orders"), 1)
