"""Drain the queue with Spark into Parquet files, and aggregate them."""

from __future__ import annotations

from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from dagster_sluicegate import build_spark_queue_drain_asset
from flights_pipeline.defs.publish import flights_queue
from flights_pipeline.parquet import write_parquet
from flights_pipeline.settings import BATCH_SIZE, GROUP, OUTPUT, PARTITIONS

flights = build_spark_queue_drain_asset(
    spec=dg.AssetSpec(
        "flights",
        deps=[flights_queue],
        group_name=GROUP,
        kinds={"redis", "spark", "parquet"},
        description="One Parquet file per lease; a retry takes over the leases of the run that failed.",
    ),
    process=write_parquet,
    partitions=PARTITIONS,
    batch_size=BATCH_SIZE,
)


@dg.asset(group_name=GROUP, kinds={"spark", "parquet"}, deps=[flights])
def average_delays(pyspark: LazyPySparkResource) -> dg.MaterializeResult[Any]:
    """Compute the average arrival delay per carrier and month with Spark, from whole sums and counts."""
    from pyspark.sql import functions as f

    spark = pyspark.spark_session
    arrived = spark.read.parquet(str(OUTPUT / "flights")).where("arr_delay IS NOT NULL")
    totals = arrived.groupBy("carrier", "month").agg(
        f.sum("arr_delay").alias("delay_minutes"), f.count("*").alias("flights")
    )
    averages = totals.withColumn("average", totals.delay_minutes / totals.flights)
    averages.coalesce(1).write.mode("overwrite").parquet(str(OUTPUT / "delays"))
    return dg.MaterializeResult(metadata={"dagster/row_count": spark.read.parquet(str(OUTPUT / "delays")).count()})
