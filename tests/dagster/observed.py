"""The code location of the observation's daemon test: a queue as an asset, its observation sensor, and a check."""

import dagster as dg

from dagster_sluicegate import (
    RedisQueueResource,
    build_queue_depth_check,
    build_queue_observation_sensor,
    build_queue_source_asset,
)

orders_queue = build_queue_source_asset(spec="orders_queue")
check = build_queue_depth_check(asset=orders_queue, max_ready=2)

defs = dg.Definitions(
    assets=[orders_queue],
    asset_checks=[check],
    sensors=[
        build_queue_observation_sensor(
            name="observed",
            queue_asset=orders_queue,
            min_ready=3,
            checks=[check],
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
    ],
    resources={"queue": RedisQueueResource(url=dg.EnvVar("OBSERVED_REDIS_URL"), queue_name="observed")},
)
