"""The code location of the live tests: for each test a queue, its gate and its drain, all named alike."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from dagster_sluicegate import (
    RedisQueueResource,
    build_queue_depth_check,
    build_queue_depth_sensor,
    build_queue_drain_asset,
    build_queue_source_asset,
)
from sluicegate import Depth, Message
from tests.dagster.live.settings import LIMITED_QUEUE, RETRY_BUDGET_SECONDS
from tests.support import handlers

LEASE_SECONDS = 6.0
STALE_SECONDS = 45  # a busy machine takes half of it to start a run
MAX_RUNTIME_SECONDS = 15


def record(messages: list[Message]) -> None:
    """Record a batch, and hold if one of its messages says so."""
    handlers.record(messages)
    if any(message.json().get("holds") for message in messages):
        handlers.hold(messages[0].json()["folder"])


def group(
    name: str,
    *,
    executor: dg.ExecutorDefinition = dg.in_process_executor,
    lease_seconds: float = LEASE_SECONDS,
    url: str = "LIVE_REDIS_URL",
    deps: Sequence[str] = (),
    **gate: Any,
) -> dg.Definitions:
    """Return a queue with its drain, which takes ten messages at a time, and its gate, which a test switches on."""
    drained = build_queue_drain_asset(
        spec=dg.AssetSpec(name, deps=deps, kinds={"redis"}),
        process=record,
        batch_size=10,
        settle="per_batch",
        lease_seconds=lease_seconds,
        resource_key=f"{name}_queue",
    )
    job = dg.define_asset_job(f"{name}_job", selection=[drained], executor_def=executor)
    options = {"min_ready": 1, "minimum_interval_seconds": 1, "failure_delay_seconds": 1, "attempt_delay_seconds": 1}
    sensor = build_queue_depth_sensor(name=f"{name}_gate", target=job, resource_key=f"{name}_queue", **(options | gate))
    queue = RedisQueueResource(url=dg.EnvVar(url), queue_name=name, retry_budget_seconds=RETRY_BUDGET_SECONDS)
    return dg.Definitions(assets=[drained], jobs=[job], sensors=[sensor], resources={f"{name}_queue": queue})


def hold_tick(context: dg.SensorEvaluationContext, depth: Depth) -> dict[str, Any]:
    """Hold a tick that is about to request a run, if the test has made the folder for it."""
    folder = Path(os.environ["DAGSTER_HOME"]) / context.sensor_name
    if folder.exists():
        handlers.hold(folder)
    return {}


def shown() -> dg.Definitions:
    """Return what a person sees of a queue beside its drain: an asset that stands for it, and a check."""
    queue = build_queue_source_asset(spec="waiting_orders", resource_key="orders_queue")
    check = build_queue_depth_check(asset="orders", max_ready=100, resource_key="orders_queue")
    return dg.Definitions(assets=[queue], asset_checks=[check])


defs = dg.Definitions.merge(
    shown(),
    group("orders", min_ready=3, deps=["waiting_orders"]),
    group("unreachable", url="LIVE_DEAD_URL"),
    # The retry of a run follows; one that is old and holds no lease is not counted; one may be ended by run monitoring.
    group("retried", executor=dg.multiprocess_executor, lease_seconds=600, run_tags={"dagster/max_retries": "1"}),
    group("stale", stale_run_seconds=STALE_SECONDS),
    group("monitored", max_runtime_seconds=MAX_RUNTIME_SECONDS),
    group("killed"),
    group("steady"),
    group("away"),
    group("short_outage", lease_seconds=60),
    group("long_outage"),
    group("previewed"),
    *(group(name, run_config_fn=hold_tick) for name in ("slow_tick", "reloaded")),
    group(LIMITED_QUEUE, max_in_flight=3, messages_per_run=10),
)
