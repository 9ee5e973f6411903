"""These helpers evaluate ticks of observation sensors, and Dagster's declarative automation, one step after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg

from dagster_sluicegate import RedisQueueResource
from sluicegate import RedisMessageQueue


def fill(queue: RedisMessageQueue, count: int) -> None:
    queue.publish_many({"n": number} for number in range(count))


def evaluate(
    sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance
) -> tuple[Sequence[Any], str]:
    """Evaluate one tick, store nothing, and return its events and the reason that the UI shows."""
    data = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, resources={"queue": resource}))
    assert not data.run_requests
    return data.asset_events, data.skip_message or ""


def tick(sensor: dg.SensorDefinition, resource: RedisQueueResource, instance: dg.DagsterInstance) -> Sequence[Any]:
    """Evaluate one tick, and store its events as the daemon does."""
    events, _ = evaluate(sensor, resource, instance)
    for event in events:
        instance.report_runless_asset_event(event)
    return events


def versions(events: Sequence[Any]) -> list[str]:
    """Return the data versions of the observations among some events."""
    return [event.tags["dagster/data_version"] for event in events if isinstance(event, dg.AssetObservation)]


def stored(instance: dg.DagsterInstance, key: str) -> list[dg.AssetObservation]:
    """Return the observations of an asset in the event log, the first first."""
    records = instance.fetch_observations(dg.AssetKey.from_user_string(key), limit=100, ascending=True).records
    return [record.asset_observation for record in records if record.asset_observation is not None]


class Automation:
    """Declarative automation that is evaluated by hand, one evaluation after the other."""

    def __init__(self, defs: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self._defs = defs
        self._instance = instance
        self._cursor: Any = None
        self._evaluate()  # the first evaluation requests nothing

    def requests(self, key: str) -> bool:
        """Evaluate once and return whether an asset is requested."""
        return bool(self._evaluate().get_num_requested(dg.AssetKey(key)) == 1)

    def _evaluate(self) -> Any:
        result = dg.evaluate_automation_conditions(defs=self._defs, instance=self._instance, cursor=self._cursor)
        self._cursor = result.cursor
        return result
