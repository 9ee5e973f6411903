"""A sensor that opens the gate when enough messages are ready, or one has waited for long enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from dagster_sluicegate.resources import queue_resource
from dagster_sluicegate.runs import (
    ATTEMPT_TAG,
    GENERATION_TAG,
    QUEUE_TAG,
    READY_TAG,
    SENSOR_TAG,
    Attempt,
    GateRuns,
)
from sluicegate import Depth
from sluicegate.errors import ConfigurationError
from sluicegate.gates import why_not_ready

__all__ = ["DEFAULT_SENSOR_INTERVAL_SECONDS", "build_queue_depth_sensor"]

DEFAULT_SENSOR_INTERVAL_SECONDS = 30
_MAX_ATTEMPT_DELAY_SECONDS = 3600.0

RunConfigFn = Callable[[dg.SensorEvaluationContext, Depth], dg.RunConfig | Mapping[str, Any]]


def build_queue_depth_sensor(
    *,
    name: str,
    target: Any,
    min_ready: int | None = None,
    max_age_seconds: float | None = None,
    resource_key: str = "queue",
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    max_in_flight: int = 1,
    attempt_delay_seconds: float = 60,
    run_tags: Mapping[str, str] | None = None,
    run_config_fn: RunConfigFn | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that requests a run when a queue is deep enough, or its oldest message has waited for too long.

    The sensor only looks: it changes nothing in Redis, so that a preview, a timeout or a crash between two of its steps
    costs no message. The run claims what it finds when it starts (see `build_queue_drain_asset`). Ready are pending,
    returned, due and expired messages.

    It asks for one run, however often it looks: the run key is `queue:generation:attempt`. The generation is the
    queue's count of messages ever claimed, which moves when a run claims; the attempt grows when the newest run of a
    generation ended without having claimed anything, after `attempt_delay_seconds`. Runs that are queued, under way, or
    about to be retried by Dagster hold further ones back.

    Redis that cannot be reached makes the tick fail within a few seconds, visibly, and requests nothing.

    Args:
        name: of the sensor. Renaming it forgets which runs it asked for.
        target: what to run: assets, an asset selection, or one job; without partitions.
        min_ready: fire when so many messages are ready.
        max_age_seconds: fire when the oldest ready message has been ready for so long. Give this or `min_ready`, or
            both: either fires.
        resource_key: key of the `RedisQueueResource`.
        minimum_interval_seconds: between two looks; default 30. Dagster's daemon looks at most every 5 s.
        max_in_flight: how many runs of this sensor may be unfinished at a time; default 1. A further one is requested
            only once the one before has claimed.
        attempt_delay_seconds: pause after a run that ended without claiming, doubled with each attempt, an hour at
            most; default 60.
        run_tags: further tags of the runs. The sensor's own (`sluicegate/queue`, `/sensor`, `/generation`, `/attempt`,
            `/ready`) hold small facts, never payloads.
        run_config_fn: called with the context and the `Depth` to make the run's config, for jobs that need one. It is
            stored with the run and shown in the UI: no payloads, no secrets.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI.
        tags: of the sensor itself, for the UI.

    Raises:
        ConfigurationError: a condition that is missing or cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_depth_sensor, build_queue_drain_asset


            def count(messages) -> int:
                return sum(message.json()["amount"] for message in messages)


            drained = build_queue_drain_asset(spec="amount", process=count, batch_size=1000)

            defs = dg.Definitions(
                assets=[drained],
                sensors=[
                    build_queue_depth_sensor(
                        name="orders_gate", target=drained, min_ready=1000, max_age_seconds=300
                    )
                ],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    gate = _Gate(
        sensor=name,
        resource_key=resource_key,
        min_ready=min_ready,
        max_age_seconds=max_age_seconds,
        max_in_flight=max_in_flight,
        attempt_delay_seconds=attempt_delay_seconds,
        run_tags=dict(run_tags or {}),
        run_config_fn=run_config_fn,
    )

    @dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description or f"Opens when {gate.condition} in the queue; reads only.",
        default_status=default_status,
        required_resource_keys={resource_key},
        tags=tags,
    )
    def queue_depth_sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason | dg.RunRequest:
        return gate.look(context)

    return queue_depth_sensor


@dataclass(frozen=True, kw_only=True, slots=True)
class _Gate:
    """When to open, and under which run key."""

    sensor: str
    resource_key: str
    min_ready: int | None
    max_age_seconds: float | None
    max_in_flight: int
    attempt_delay_seconds: float
    run_tags: dict[str, str]
    run_config_fn: RunConfigFn | None

    def __post_init__(self) -> None:
        if self.min_ready is None and self.max_age_seconds is None:
            raise ConfigurationError(
                f"sensor {self.sensor!r} needs min_ready or max_age_seconds, or it would never fire"
            )
        for option, value, least in (
            ("min_ready", self.min_ready, 1),
            ("max_age_seconds", self.max_age_seconds, 0),
            ("max_in_flight", self.max_in_flight, 1),
            ("attempt_delay_seconds", self.attempt_delay_seconds, 0),
        ):
            if value is not None and not value >= least:
                raise ConfigurationError(f"sensor {self.sensor!r}: {option} must be {least} or more, not {value!r}")
        ours = sorted(tag for tag in self.run_tags if tag.startswith("sluicegate/"))
        if ours:
            raise ConfigurationError(
                f"sensor {self.sensor!r}: the run tags {ours} are the sensor's own; use other names"
            )

    @property
    def condition(self) -> str:
        """Return what opens this gate, in words."""
        conditions = []
        if self.min_ready is not None:
            conditions.append(f"{self.min_ready} messages are ready")
        if self.max_age_seconds is not None:
            conditions.append(f"the oldest has been ready for {self.max_age_seconds:g} s")
        return " or ".join(conditions)

    def look(self, context: dg.SensorEvaluationContext) -> dg.SkipReason | dg.RunRequest:
        """Evaluate one tick of the sensor."""
        resource = queue_resource(context.resources, self.resource_key)
        runs = GateRuns(context.instance, resource.queue_name, self.sensor)
        # Runs first: one that was under way then and ends now has claimed by the time of the count.
        in_flight = runs.in_flight()
        depth = resource.get_depth()
        seen = _describe(depth, resource.queue_name)
        if depth.paused:
            return dg.SkipReason(f"The queue is paused: {seen}.")
        if not self._opens(depth):
            return dg.SkipReason(f"{seen}; the gate opens when {self.condition}.")
        if in_flight >= self.max_in_flight:
            return dg.SkipReason(f"{seen}; {in_flight} of at most {self.max_in_flight} runs in flight.")
        newest = runs.newest_attempt(depth.claimed_total)
        waiting = self._waits_for(newest)
        if waiting:
            return dg.SkipReason(f"{seen}; {waiting}.")
        return self._request(context, resource.queue_name, depth, newest.number + 1 if newest else 0)

    def _opens(self, depth: Depth) -> bool:
        if self.min_ready is not None and depth.ready >= self.min_ready:
            return True
        age = depth.oldest_ready_age_seconds
        return self.max_age_seconds is not None and age is not None and age >= self.max_age_seconds

    def _waits_for(self, newest: Attempt | None) -> str:
        """Why not yet, although the gate is open; "" for now."""
        if newest is None:
            return ""
        if newest.ended_seconds_ago is None:
            return f"run {newest.run_id} ({newest.status}) has not claimed yet"
        # The exponent is bounded because a float is not.
        delay = min(self.attempt_delay_seconds * 2 ** min(newest.number, 30), _MAX_ATTEMPT_DELAY_SECONDS)
        remaining = delay - newest.ended_seconds_ago
        if remaining <= 0:
            return ""
        return (
            f"run {newest.run_id} ended as {newest.status} without claiming, attempt {newest.number + 1} "
            f"follows in {remaining:.0f} s"
        )

    def _request(self, context: dg.SensorEvaluationContext, queue: str, depth: Depth, attempt: int) -> dg.RunRequest:
        generation = depth.claimed_total
        return dg.RunRequest(
            run_key=f"{queue}:{generation}:{attempt}",
            run_config=self.run_config_fn(context, depth) if self.run_config_fn else None,
            tags={
                **self.run_tags,
                QUEUE_TAG: queue,
                SENSOR_TAG: self.sensor,
                GENERATION_TAG: str(generation),
                ATTEMPT_TAG: str(attempt),
                READY_TAG: str(depth.ready),
            },
        )


def _describe(depth: Depth, queue: str) -> str:
    if not depth.ready:
        return f"0 messages ready in {queue!r} ({why_not_ready(depth, datetime.now(UTC))})"
    age = depth.oldest_ready_age_seconds
    oldest = "" if age is None else f", the oldest for {age:.1f} s"
    return f"{depth.ready} messages ready in {queue!r}{oldest} ({depth.in_flight} in flight, {depth.delayed} delayed)"
