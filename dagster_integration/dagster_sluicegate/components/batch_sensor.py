"""The sensor of batches as a component."""

from __future__ import annotations

from typing import Any, ClassVar

import dagster as dg
from pydantic import Field

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.functions import Function
from dagster_sluicegate.components.options import option
from dagster_sluicegate.components.run_target import RunTarget
from dagster_sluicegate.components.scaffolders import BatchSensorScaffolder
from dagster_sluicegate.sensors.batches import build_batch_sensor

__all__ = ["QueueBatchSensorComponent"]


@dg.scaffold_with(BatchSensorScaffolder)
class QueueBatchSensorComponent(QueueComponent, RunTarget):
    """A sensor that requests a run when a batch of messages is complete: everything that was published has ended.

    .. code-block:: yaml

        type: dagster_sluicegate.components.QueueBatchSensorComponent
        attributes:
          name: orders_drained
          target: key:report
          asset: published_orders
          default_status: RUNNING
    """

    produces: ClassVar[tuple[str, ...]] = ("sensor",)

    name: str = Field(description="Name of the sensor.", examples=["orders_drained"])
    asset: dg.ResolvedAssetKey | None = option(build_batch_sensor, "asset", examples=["published_orders"])
    batch_ids: Function | None = option(
        build_batch_sensor,
        "batch_ids",
        description="A function of the context that returns the ids of the batches at each tick. Give this or `asset`.",
        examples=["shop.batches:open_batches"],
    )
    max_dead: int | None = option(build_batch_sensor, "max_dead", examples=[0])
    same_partition: bool = option(build_batch_sensor, "same_partition", examples=[True])
    max_batches: int = option(build_batch_sensor, "max_batches", examples=[1000])
    resource_key: str = option(build_batch_sensor, "resource_key", examples=["queue"])
    queue_name: str | None = option(build_batch_sensor, "queue_name", examples=["orders"])
    minimum_interval_seconds: int = option(
        build_batch_sensor,
        "minimum_interval_seconds",
        description="Seconds between two evaluations. Dagster's daemon evaluates at most every 5 s.",
        examples=[30],
    )
    max_runtime_seconds: int | None = option(build_batch_sensor, "max_runtime_seconds", examples=[86_400])
    run_tags: dict[str, str] | None = option(build_batch_sensor, "run_tags", examples=[{"team": "shop"}])
    run_config_fn: Function | None = option(build_batch_sensor, "run_config_fn", examples=["shop.jobs:run_config"])
    default_status: dg.DefaultSensorStatus = option(build_batch_sensor, "default_status", examples=["RUNNING"])
    description: str | None = option(
        build_batch_sensor,
        "description",
        description="What the UI says of the sensor.",
        examples=["Reports once all orders are drained."],
    )
    tags: dict[str, str] | None = option(build_batch_sensor, "tags", examples=[{"team": "shop"}])

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the sensor only."""
        options: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields if name != "job"}
        options["target"] = self.resolve_target(f"sensor {self.name!r}")
        return dg.Definitions(sensors=[build_batch_sensor(**options)])
