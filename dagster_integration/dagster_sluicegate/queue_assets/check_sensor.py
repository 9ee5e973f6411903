"""A sensor that evaluates the checks of a queue without a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from dagster_sluicegate.queue_assets.evaluation import new_evaluations, queue_checks
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.decision import describe
from dagster_sluicegate.sensors.depth import DEFAULT_SENSOR_INTERVAL_SECONDS
from sluicegate.errors import ConfigurationError

__all__ = ["build_queue_check_sensor"]


def build_queue_check_sensor(
    *,
    name: str,
    checks: Sequence[dg.AssetChecksDefinition],
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that evaluates the checks of one queue without a run, and reports them when they change.

    A check that passes where it failed before, or fails where it passed, gets one new evaluation; so does one without
    any. In between the sensor reports nothing, so that the check's history holds changes only. One round trip to Redis
    serves all checks. Redis that cannot be reached makes the tick fail, and changes no check.

    Such an evaluation blocks nothing, because no run is there to block. Put the checks on the queue's asset: on an
    asset that is materialized, an evaluation that is older than the newest materialization no longer counts for
    declarative automation.

    Args:
        name: of the sensor.
        checks: of this queue, as `build_queue_depth_check` and its like built them. List them in `asset_checks` of the
            `Definitions` too, where they can also be executed.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream, whose messages are counted; default: the resource's own.
        minimum_interval_seconds: between two looks; default 30.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text; default: what it evaluates.
        tags: of the sensor.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import (
                RedisQueueResource,
                build_dead_letter_check,
                build_queue_check_sensor,
                build_queue_depth_check,
                build_queue_source_asset,
            )

            orders_queue = build_queue_source_asset(spec="orders_queue")
            checks = [
                build_queue_depth_check(asset=orders_queue, max_ready=100_000),
                build_dead_letter_check(asset=orders_queue),
            ]

            defs = dg.Definitions(
                assets=[orders_queue],
                asset_checks=checks,
                sensors=[build_queue_check_sensor(name="orders_checks", checks=checks)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    ref = QueueRef.checked(f"sensor {name!r}", resource_key, queue_name, stream_name, group)
    evaluated = queue_checks(name, ref, checks)
    if not evaluated:
        raise ConfigurationError(f"sensor {name!r}: checks is empty; give the checks that it evaluates")

    def look(context: dg.SensorEvaluationContext, resource: RedisQueueResource) -> dg.SensorResult:
        looked = ref.look(resource)
        events = new_evaluations(context.instance, evaluated, looked)
        failing = [check.name for check in evaluated if not check.passes(looked.depth)]
        seen = f"{len(evaluated) - len(failing)} of {len(evaluated)} checks pass"
        seen += f", failing: {', '.join(failing)}" if failing else ""
        return dg.SensorResult(
            asset_events=events,
            skip_reason=f"{describe(looked.depth, looked.place)}; {seen}; {len(events)} changed.",
            cursor=seen,
        )

    declare = dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description
        or (
            f"Evaluates {', '.join(check.name for check in evaluated)} of {ref.in_words} without a run, and "
            "reports changes; reads only."
        ),
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, look, dg.SensorEvaluationContext))
