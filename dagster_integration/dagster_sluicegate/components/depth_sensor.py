"""The sensor of one queue as a component."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.functions import Function
from dagster_sluicegate.components.options import option
from dagster_sluicegate.components.run_target import RunTarget
from dagster_sluicegate.components.scaffolders import DepthSensorScaffolder
from dagster_sluicegate.sensors.depth import build_queue_depth_sensor

__all__ = ["QueueDepthSensorComponent"]


@dg.scaffold_with(DepthSensorScaffolder)
class QueueDepthSensorComponent(QueueComponent, RunTarget):
    """A sensor that requests a run when a queue is deep enough, or its oldest message has waited for too long.

    .. code-block:: yaml

        type: dagster_sluicegate.components.QueueDepthSensorComponent
        attributes:
          name: orders_gate
          target: key:orders
          min_ready: 1000
          max_age_seconds: 300
          default_status: RUNNING
    """

    produces: ClassVar[tuple[str, ...]] = ("sensor",)

    name: str = Field(description="Name of the sensor.", examples=["orders_gate"])
    min_ready: int | None = option(build_queue_depth_sensor, "min_ready", examples=[1000])
    max_age_seconds: float | None = option(build_queue_depth_sensor, "max_age_seconds", examples=[300])
    resource_key: str = option(build_queue_depth_sensor, "resource_key", examples=["queue"])
    queue_name: str | None = option(build_queue_depth_sensor, "queue_name", examples=["orders"])
    stream_name: str | None = option(build_queue_depth_sensor, "stream_name", examples=["orders"])
    group: str | None = option(build_queue_depth_sensor, "group", examples=["billing"])
    minimum_interval_seconds: int = option(
        build_queue_depth_sensor,
        "minimum_interval_seconds",
        description="Seconds between two evaluations. Dagster's daemon evaluates at most every 5 s.",
        examples=[30],
    )
    max_in_flight: int = option(build_queue_depth_sensor, "max_in_flight", examples=[3])
    messages_per_run: int | None = option(build_queue_depth_sensor, "messages_per_run", examples=[1000])
    attempt_delay_seconds: float = option(build_queue_depth_sensor, "attempt_delay_seconds", examples=[60])
    failure_delay_seconds: float = option(build_queue_depth_sensor, "failure_delay_seconds", examples=[60])
    stale_run_seconds: float = option(build_queue_depth_sensor, "stale_run_seconds", examples=[3600])
    max_runtime_seconds: int | None = option(build_queue_depth_sensor, "max_runtime_seconds", examples=[86_400])
    count_runs_of: Literal["queue", "sensor"] = option(build_queue_depth_sensor, "count_runs_of", examples=["sensor"])
    run_tags: dict[str, str] | None = option(build_queue_depth_sensor, "run_tags", examples=[{"team": "shop"}])
    run_config_fn: Function | None = option(
        build_queue_depth_sensor, "run_config_fn", examples=["shop.jobs:run_config"]
    )
    default_status: dg.DefaultSensorStatus = option(build_queue_depth_sensor, "default_status", examples=["RUNNING"])
    description: str | None = option(
        build_queue_depth_sensor,
        "description",
        description="What the UI says of the sensor.",
        examples=["Drains the orders."],
    )
    tags: dict[str, str] | None = option(build_queue_depth_sensor, "tags", examples=[{"team": "shop"}])

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the sensor only."""
        options: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields if name != "job"}
        options["target"] = self.resolve_target(f"sensor {self.name!r}")
        return dg.Definitions(sensors=[build_queue_depth_sensor(**options)])
