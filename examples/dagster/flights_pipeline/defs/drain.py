"""Drain the queue with Spark into Parquet files, and aggregate them."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
import os
import time
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_sluicegate import RedisQueueResource
from flights_pipeline.settings import BATCH_SIZE, OUTPUT, PARTITIONS, TEXT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluicegate import Message
    from sluicegate.spark import DrainContext

GROUP = "drain"


def spark_session() -> "SparkSession":
    """Return the session of this run; Spark's own configuration says where it runs."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("flights").getOrCreate()


@dg.asset(group_name=GROUP, kinds={"spark", "parquet"}, deps=["flights_queue"])
def flights(context: dg.AssetExecutionContext, queue: RedisQueueResource) -> dg.MaterializeResult[Any]:
    """Write one Parquet file per lease; a retry takes over the leases of the first run."""
    from sluicegate.spark import drain

    # Defined here, so that it is serialized by value: executors need neither this project nor Dagster.
    def write_parquet(batch: "list[Message]", ctx: "DrainContext") -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        about = {
            "partition": ctx.partition, "chunk": ctx.chunk, "lease_id": ctx.lease_id,
            "deliveries": batch[0].delivery_count, "pid": os.getpid(), "started": time.time(),
        }  # fmt: skip
        rows = [{"message_id": message.id, **message.json()} for message in batch]
        schema = pa.schema([(name, pa.string() if name in TEXT else pa.int64()) for name in rows[0]])
        table = pa.Table.from_pylist(rows, schema.with_metadata({name: str(value) for name, value in about.items()}))
        # Named by the lease: whoever takes the lease over after a crash replaces this file and no other.
        pq.write_table(table, ctx.output_file(OUTPUT / "flights" / f"partition={ctx.partition}", ".parquet"))

    run = context.run
    with queue.get_queue() as flights_queue:
        summary = drain(
            spark_session(),
            flights_queue,
            write_parquet,
            partitions=PARTITIONS,
            batch_size=BATCH_SIZE,
            run_id=f"flights/{run.root_run_id or run.run_id}",
        )
    return dg.MaterializeResult(metadata={"dagster/row_count": summary.acked, "files": str(OUTPUT / "flights")})


@dg.asset(group_name=GROUP, kinds={"spark", "parquet"}, deps=[flights])
def average_delays() -> dg.MaterializeResult[Any]:
    """Compute the average arrival delay per carrier and month with Spark, from whole sums and counts."""
    from pyspark.sql import functions as f

    spark = spark_session()
    arrived = spark.read.parquet(str(OUTPUT / "flights")).where("arr_delay IS NOT NULL")
    totals = arrived.groupBy("carrier", "month").agg(
        f.sum("arr_delay").alias("delay_minutes"), f.count("*").alias("flights")
    )
    averages = totals.withColumn("average", totals.delay_minutes / totals.flights)
    averages.coalesce(1).write.mode("overwrite").parquet(str(OUTPUT / "delays"))
    return dg.MaterializeResult(metadata={"dagster/row_count": spark.read.parquet(str(OUTPUT / "delays")).count()})
