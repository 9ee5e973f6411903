"""The code location of the daemon's test: one gate that works, and one whose Redis is down."""

import dagster as dg

from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor, build_queue_drain_asset

drained = build_queue_drain_asset(spec="drained", process=lambda messages: None)

defs = dg.Definitions(
    assets=[drained],
    sensors=[
        build_queue_depth_sensor(
            name=name,
            target=drained,
            min_ready=3,
            resource_key=resource_key,
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        )
        for name, resource_key in (("orders_gate", "queue"), ("gate_without_redis", "down"))
    ],
    resources={
        "queue": RedisQueueResource(url=dg.EnvVar("GATES_REDIS_URL"), queue_name="gates"),
        "down": RedisQueueResource(url=dg.EnvVar("GATES_DEAD_URL"), queue_name="gates"),
    },
    executor=dg.in_process_executor,
)
