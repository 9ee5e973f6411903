"""Leased batches in Spark: any number of reads see the same rows, and only verdicts change the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from sluicegate import RedisMessageQueue
from sluicegate.shared.lease import LeaseState
from sluicegate.spark import lease_batch
from tests.spark.helpers import Numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]


def numbers_in(df: DataFrame) -> list[int]:
    return sorted(row.n for row in df.select("n").collect())


def test_actions_and_joins_read_the_same_rows_until_they_are_acked(
    spark: SparkSession, queue: RedisMessageQueue, numbers: Numbers
) -> None:
    wanted = numbers(12_000)
    with lease_batch(spark, queue, 12_000, schema="n bigint") as batch:
        assert (bool(batch), batch.count, batch.state) == (True, 12_000, LeaseState.OPEN)
        assert numbers_in(batch.df) == wanted
        other = batch.df.selectExpr("message_id as other")
        assert batch.df.join(other, batch.df.message_id == other.other).count() == 12_000
        assert batch.df.count() == 12_000
        assert batch.df.rdd.getNumPartitions() == 8
        assert (queue.depth().in_flight, queue.depth().ready) == (12_000, 0)
        batch.ack()
        with pytest.raises(PySparkException, match=r"lease '\w+/0' .* was acked; read before ack"):
            batch.df.count()

    assert (queue.depth().in_flight, queue.depth().ready, queue.stats().acked) == (0, 0, 12_000)
