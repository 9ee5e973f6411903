"""The sensor of many queues as a component."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import dagster as dg
from pydantic import Field

from dagster_sluicegate.components.base import QueueComponent
from dagster_sluicegate.components.functions import Function
from dagster_sluicegate.components.options import option
from dagster_sluicegate.components.run_target import RunTarget
from dagster_sluicegate.components.scaffolders import GatesSensorScaffolder
from dagster_sluicegate.sensors.many_gates import QueueGate, build_queue_gates_sensor

__all__ = ["QueueGateSpec", "QueueGatesSensorComponent"]


class QueueGateSpec(RunTarget):
    """The gate of one queue."""

    resource_key: str = option(QueueGate, "resource_key", examples=["orders_queue"])
    queue_name: str | None = option(QueueGate, "queue_name", examples=["orders"])
    stream_name: str | None = option(QueueGate, "stream_name", examples=["orders"])
    group: str | None = option(QueueGate, "group", examples=["billing"])
    min_ready: int | None = option(QueueGate, "min_ready", examples=[1000])
    max_age_seconds: float | None = option(QueueGate, "max_age_seconds", examples=[300])
    max_in_flight: int = option(QueueGate, "max_in_flight", examples=[3])
    messages_per_run: int | None = option(QueueGate, "messages_per_run", examples=[1000])
    partition_key: str | None = option(
        QueueGate,
        "partition_key",
        description="Key of the partition of the target that a run drains; null: the target has no partitions.",
        examples=["eu"],
    )
    run_config_fn: Function | None = option(QueueGate, "run_config_fn", examples=["shop.jobs:run_config"])

    def gate(self, sensor: str) -> QueueGate:
        """Return the gate of a sensor."""
        options: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields if name != "job"}
        owner = f"sensor {sensor!r}, gate of {self.queue_name or self.stream_name or self.resource_key!r}"
        return QueueGate(**{**options, "target": self.resolve_target(owner)})


@dg.scaffold_with(GatesSensorScaffolder)
class QueueGatesSensorComponent(QueueComponent):
    """A sensor for many queues, each with a gate and a target of its own; one read per server.

    .. code-block:: yaml

        type: dagster_sluicegate.components.QueueGatesSensorComponent
        attributes:
          name: shop_gates
          queues:
            - target: key:orders
              queue_name: orders
              min_ready: 1000
              max_age_seconds: 300
            - target: key:orders
              queue_name: returns
              min_ready: 10
    """

    produces: ClassVar[tuple[str, ...]] = ("sensor",)

    name: str = Field(description="Name of the sensor.", examples=["shop_gates"])
    queues: list[QueueGateSpec] = option(
        build_queue_gates_sensor,
        "queues",
        examples=[[{"target": "key:orders", "resource_key": "orders_queue", "min_ready": 1000}]],
    )
    minimum_interval_seconds: int = option(
        build_queue_gates_sensor,
        "minimum_interval_seconds",
        description="Seconds between two evaluations. Dagster's daemon evaluates at most every 5 s.",
        examples=[30],
    )
    read_seconds: float = option(build_queue_gates_sensor, "read_seconds", examples=[20])
    attempt_delay_seconds: float = option(build_queue_gates_sensor, "attempt_delay_seconds", examples=[60])
    failure_delay_seconds: float = option(build_queue_gates_sensor, "failure_delay_seconds", examples=[60])
    stale_run_seconds: float = option(build_queue_gates_sensor, "stale_run_seconds", examples=[3600])
    max_runtime_seconds: int | None = option(build_queue_gates_sensor, "max_runtime_seconds", examples=[86_400])
    count_runs_of: Literal["queue", "sensor"] = option(build_queue_gates_sensor, "count_runs_of", examples=["sensor"])
    run_tags: dict[str, str] | None = option(build_queue_gates_sensor, "run_tags", examples=[{"team": "shop"}])
    default_status: dg.DefaultSensorStatus = option(build_queue_gates_sensor, "default_status", examples=["RUNNING"])
    description: str | None = option(
        build_queue_gates_sensor, "description", description="What the UI says of it.", examples=["Drains the shop."]
    )
    tags: dict[str, str] | None = option(build_queue_gates_sensor, "tags", examples=[{"team": "shop"}])

    def build_queue_defs(self) -> dg.Definitions:
        """Build definitions with the sensor only."""
        options: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        options["queues"] = [queue.gate(self.name) for queue in self.queues]
        return dg.Definitions(sensors=[build_queue_gates_sensor(**options)])
