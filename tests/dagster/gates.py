"""The code location of the daemon's test: gates that work, and gates whose Redis is down."""

import dagster as dg

from dagster_sluicegate import (
    QueueGate,
    RedisQueueResource,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_gates_sensor,
)

drained = build_queue_drain_asset(spec="drained", process=lambda messages: None)
returned = build_queue_drain_asset(spec="returned", process=lambda messages: None, resource_key="returns")

defs = dg.Definitions(
    assets=[drained, returned],
    sensors=[
        *(
            build_queue_depth_sensor(
                name=name,
                target=drained,
                min_ready=3,
                resource_key=resource_key,
                minimum_interval_seconds=1,
                default_status=dg.DefaultSensorStatus.RUNNING,
            )
            for name, resource_key in (("orders_gate", "queue"), ("gate_without_redis", "down"))
        ),
        build_queue_gates_sensor(
            name="several_gates",
            queues=[
                QueueGate(target=drained, resource_key="down", min_ready=3),
                QueueGate(target=returned, resource_key="returns", min_ready=3),
            ],
            minimum_interval_seconds=1,
            default_status=dg.DefaultSensorStatus.RUNNING,
        ),
    ],
    resources={
        "queue": RedisQueueResource(url=dg.EnvVar("GATES_REDIS_URL"), queue_name="gates"),
        "returns": RedisQueueResource(url=dg.EnvVar("GATES_REDIS_URL"), queue_name="returns"),
        "down": RedisQueueResource(url=dg.EnvVar("GATES_DEAD_URL"), queue_name="gates"),
    },
    executor=dg.in_process_executor,
)
