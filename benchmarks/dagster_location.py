"""The code location of the latency: a queue, the asset that drains it, and a gate that opens for one message."""

import dagster as dg

from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor, build_queue_drain_asset

drained = build_queue_drain_asset(spec="prompt", process=lambda messages: None)

defs = dg.Definitions(
    assets=[drained],
    sensors=[build_queue_depth_sensor(name="prompt_gate", target=drained, min_ready=1, minimum_interval_seconds=1)],
    resources={"queue": RedisQueueResource(url=dg.EnvVar("LIVE_REDIS_URL"), queue_name="prompt")},
    executor=dg.in_process_executor,
)
