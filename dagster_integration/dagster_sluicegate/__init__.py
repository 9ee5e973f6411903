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
    from dagster_sluicegate.asset_forms import QueueDrain, build_queue_drain_assets, queue_drain_asset
    from dagster_sluicegate.assets import build_queue_drain_asset
    from dagster_sluicegate.check_sensors import build_queue_check_sensor
    from dagster_sluicegate.checks import build_dead_letter_check, build_queue_age_check, build_queue_depth_check
    from dagster_sluicegate.dead_letters import build_dead_letter_sensor
    from dagster_sluicegate.drain_context import QueueDrainContext
    from dagster_sluicegate.gates_sensor import QueueGate, build_queue_gates_sensor
    from dagster_sluicegate.io_manager import QueuePublishIOManager
    from dagster_sluicegate.observation import build_queue_observation_sensor
    from dagster_sluicegate.ops import build_queue_drain_job, build_queue_drain_op
    from dagster_sluicegate.partitions import QueuePartitions
    from dagster_sluicegate.pipes import queue_has_work, queue_pipes_extras
    from dagster_sluicegate.publish import build_queue_publish_asset
    from dagster_sluicegate.reports import report_drain, run_id_of
    from dagster_sluicegate.resources import RedisQueueResource
    from dagster_sluicegate.sensors import build_queue_depth_sensor
    from dagster_sluicegate.snapshots import QueueSnapshot, queue_snapshot
    from dagster_sluicegate.source_assets import build_queue_source_asset
    from dagster_sluicegate.spark import build_spark_queue_drain_asset
    from dagster_sluicegate.written import write_by_partition

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
    "build_dead_letter_check",
    "build_dead_letter_sensor",
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
# in environments without Dagster too, and nobody loads what they do not use.
_MODULE_OF = {
    "PurgeConfig": "administration",
    "QueueDrain": "asset_forms",
    "QueueDrainContext": "drain_context",
    "QueueGate": "gates_sensor",
    "QueuePartitions": "partitions",
    "QueuePublishIOManager": "io_manager",
    "QueueSnapshot": "snapshots",
    "RedisQueueResource": "resources",
    "RedriveConfig": "administration",
    "build_dead_letter_check": "checks",
    "build_dead_letter_sensor": "dead_letters",
    "build_purge_op": "administration",
    "build_queue_age_check": "checks",
    "build_queue_check_sensor": "check_sensors",
    "build_queue_depth_check": "checks",
    "build_queue_depth_sensor": "sensors",
    "build_queue_drain_asset": "assets",
    "build_queue_drain_assets": "asset_forms",
    "build_queue_drain_job": "ops",
    "build_queue_drain_op": "ops",
    "build_queue_gates_sensor": "gates_sensor",
    "build_queue_observation_sensor": "observation",
    "build_queue_publish_asset": "publish",
    "build_queue_source_asset": "source_assets",
    "build_redrive_op": "administration",
    "build_spark_queue_drain_asset": "spark",
    "queue_drain_asset": "asset_forms",
    "queue_has_work": "pipes",
    "queue_pipes_extras": "pipes",
    "queue_snapshot": "snapshots",
    "report_drain": "reports",
    "run_id_of": "reports",
    "write_by_partition": "written",
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
