"""Sluicegate for Dagster: a queue resource, a sensor that opens the gate on depth or age, and an asset that drains.

Delivery is at-least-once: the sensor only looks, the run claims, and what it claimed is acked after the result was
stored.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dagster_sluicegate.compat import register_library
from dagster_sluicegate.version import __version__

if TYPE_CHECKING:
    from dagster_sluicegate.administration import PurgeConfig, RedriveConfig, build_purge_op, build_redrive_op
    from dagster_sluicegate.batch_wait import build_batch_wait_op
    from dagster_sluicegate.drains.asset import build_queue_drain_asset
    from dagster_sluicegate.drains.asset_forms import QueueDrain, build_queue_drain_assets, queue_drain_asset
    from dagster_sluicegate.drains.context import QueueDrainContext
    from dagster_sluicegate.drains.ops import build_queue_drain_job, build_queue_drain_op
    from dagster_sluicegate.drains.partitions import QueuePartitions
    from dagster_sluicegate.drains.pipes import queue_has_work, queue_pipes_extras
    from dagster_sluicegate.drains.reports import report_drain, run_id_of
    from dagster_sluicegate.drains.spark import build_spark_queue_drain_asset
    from dagster_sluicegate.drains.written import write_by_partition
    from dagster_sluicegate.publishing.asset import build_queue_publish_asset
    from dagster_sluicegate.publishing.io_manager import QueuePublishIOManager
    from dagster_sluicegate.queue_assets.check_sensor import build_queue_check_sensor
    from dagster_sluicegate.queue_assets.checks import (
        build_dead_letter_check,
        build_queue_age_check,
        build_queue_depth_check,
    )
    from dagster_sluicegate.queue_assets.observation import build_queue_observation_sensor
    from dagster_sluicegate.queue_assets.source_asset import build_queue_source_asset
    from dagster_sluicegate.resources import RedisQueueResource
    from dagster_sluicegate.sensors.batches import build_batch_sensor
    from dagster_sluicegate.sensors.dead_letters import build_dead_letter_sensor
    from dagster_sluicegate.sensors.depth import build_queue_depth_sensor
    from dagster_sluicegate.sensors.jobs import build_job_sensor
    from dagster_sluicegate.sensors.many_gates import QueueGate, build_queue_gates_sensor
    from dagster_sluicegate.sensors.snapshot import QueueSnapshot, queue_snapshot

__all__ = [
    "PurgeConfig",
    "QueueDrain",
    "QueueDrainContext",
    "QueueGate",
    "QueuePartitions",
    "QueuePublishIOManager",
    "QueueSnapshot",
    "RedisQueueResource",
    "RedriveConfig",
    "__version__",
    "build_batch_sensor",
    "build_batch_wait_op",
    "build_dead_letter_check",
    "build_dead_letter_sensor",
    "build_job_sensor",
    "build_purge_op",
    "build_queue_age_check",
    "build_queue_check_sensor",
    "build_queue_depth_check",
    "build_queue_depth_sensor",
    "build_queue_drain_asset",
    "build_queue_drain_assets",
    "build_queue_drain_job",
    "build_queue_drain_op",
    "build_queue_gates_sensor",
    "build_queue_observation_sensor",
    "build_queue_publish_asset",
    "build_queue_source_asset",
    "build_redrive_op",
    "build_spark_queue_drain_asset",
    "queue_drain_asset",
    "queue_has_work",
    "queue_pipes_extras",
    "queue_snapshot",
    "report_drain",
    "run_id_of",
    "write_by_partition",
]

# The module of each name, which is loaded when the name is first used: `dg` imports this package, by its entry point,
# in environments without Dagster too, and a name that is never used loads nothing.
_MODULE_OF = {
    "PurgeConfig": "administration",
    "QueueDrain": "drains.asset_forms",
    "QueueDrainContext": "drains.context",
    "QueueGate": "sensors.many_gates",
    "QueuePartitions": "drains.partitions",
    "QueuePublishIOManager": "publishing.io_manager",
    "QueueSnapshot": "sensors.snapshot",
    "RedisQueueResource": "resources",
    "RedriveConfig": "administration",
    "build_batch_sensor": "sensors.batches",
    "build_batch_wait_op": "batch_wait",
    "build_dead_letter_check": "queue_assets.checks",
    "build_dead_letter_sensor": "sensors.dead_letters",
    "build_job_sensor": "sensors.jobs",
    "build_purge_op": "administration",
    "build_queue_age_check": "queue_assets.checks",
    "build_queue_check_sensor": "queue_assets.check_sensor",
    "build_queue_depth_check": "queue_assets.checks",
    "build_queue_depth_sensor": "sensors.depth",
    "build_queue_drain_asset": "drains.asset",
    "build_queue_drain_assets": "drains.asset_forms",
    "build_queue_drain_job": "drains.ops",
    "build_queue_drain_op": "drains.ops",
    "build_queue_gates_sensor": "sensors.many_gates",
    "build_queue_observation_sensor": "queue_assets.observation",
    "build_queue_publish_asset": "publishing.asset",
    "build_queue_source_asset": "queue_assets.source_asset",
    "build_redrive_op": "administration",
    "build_spark_queue_drain_asset": "drains.spark",
    "queue_drain_asset": "drains.asset_forms",
    "queue_has_work": "drains.pipes",
    "queue_pipes_extras": "drains.pipes",
    "queue_snapshot": "sensors.snapshot",
    "report_drain": "drains.reports",
    "run_id_of": "drains.reports",
    "write_by_partition": "drains.written",
}

register_library("dagster-sluicegate", __version__)


if not TYPE_CHECKING:  # a checker of types would accept every name

    def __getattr__(name: str) -> object:
        """Load a public name."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
