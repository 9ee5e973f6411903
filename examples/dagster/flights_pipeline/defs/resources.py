"""The queue on Redis, and where steps run."""

from __future__ import annotations

import dagster as dg
from dagster_pyspark import LazyPySparkResource

from dagster_sluicegate import RedisQueueResource
from flights_pipeline.settings import KEY, QUEUE


@dg.definitions
def resources() -> dg.Definitions:
    """Return the resources; the steps of a run share one process, and so one Spark session."""
    return dg.Definitions(
        resources={
            "queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name=QUEUE, deduplication_key=KEY),
            # Spark's own configuration says where it runs.
            "pyspark": LazyPySparkResource(spark_config={"spark.app.name": QUEUE}),
        },
        executor=dg.in_process_executor,
    )
