"""The code location of the batch sensor's daemon test: a publish, a drain, and a report once the batch is complete."""

import dagster as dg

from dagster_sluicegate import (
    RedisQueueResource,
    build_batch_sensor,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_publish_asset,
)

published = build_queue_publish_asset(
    spec="published", produce=lambda: [{"n": number} for number in range(5)], as_batch=True
)
drained = build_queue_drain_asset(spec="drained", process=lambda messages: None, batch_size=2)


@dg.asset
def report(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    return dg.MaterializeResult(metadata={"batch": context.run.tags["sluicegate/batch_id"]})


defs = dg.Definitions(
    assets=[published, drained, report],
    sensors=[
        build_queue_depth_sensor(
            name="gate",
            target=drained,
            min_ready=1,
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        ),
        build_batch_sensor(
            name="complete",
            target=report,
            asset=published,
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        ),
    ],
    resources={"queue": RedisQueueResource(url=dg.EnvVar("BATCHED_REDIS_URL"), queue_name="batched")},
    executor=dg.in_process_executor,
)
