"""Sluicegate for Dagster: a queue resource, a sensor that opens the gate on depth or age, and an asset that drains.

Delivery is at-least-once: the sensor only looks, the run claims, and what it claimed is acked after the result was
stored.
"""

from __future__ import annotations

from dagster_shared.libraries import DagsterLibraryRegistry

from dagster_sluicegate.assets import build_queue_drain_asset
from dagster_sluicegate.drain import QueueDrainContext
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors import build_queue_depth_sensor
from dagster_sluicegate.version import __version__

__all__ = [
    "QueueDrainContext",
    "RedisQueueResource",
    "__version__",
    "build_queue_depth_sensor",
    "build_queue_drain_asset",
]

# Otherwise Dagster would expect its own version number here, and warn at every import.
DagsterLibraryRegistry.register("dagster-sluicegate", __version__, is_dagster_package=False)
