"""A sensor that opens the gate when enough messages are ready, or one has waited for long enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import dagster as dg

from dagster_sluicegate.resources import RedisQueueResource, takes_resource
from dagster_sluicegate.runs import (
    ATTEMPT_TAG,
    GENERATION_TAG,
    QUEUE_TAG,
    READY_TAG,
    SENSOR_TAG,
    Attempt,
    Failures,
    GateRuns,
    Unfinished,
)
from sluicegate import Depth, checks
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate, why_not_ready

__all__ = ["DEFAULT_SENSOR_INTERVAL_SECONDS", "build_queue_depth_sensor"]

DEFAULT_SENSOR_INTERVAL_SECONDS = 30
_MAX_DELAY_SECONDS = 3600.0

_MAX_RUNTIME_TAG = "dagster/max_runtime"

CountRunsOf = Literal["queue", "sensor"]
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
    failure_delay_seconds: float = 60,
    stale_run_seconds: float = 3600,
    max_runtime_seconds: int | None = 86_400,
    count_runs_of: CountRunsOf = "queue",
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
        name: of the sensor.
        target: what to run: assets, an asset selection, or one job; without partitions.
        min_ready: fire when so many messages are ready.
        max_age_seconds: fire when the oldest ready message has been ready for so long, above 0. Give this or
            `min_ready`, or both: either fires.
        resource_key: key of the `RedisQueueResource`.
        minimum_interval_seconds: between two looks; default 30. Dagster's daemon looks at most every 5 s.
        max_in_flight: how many runs may be unfinished at a time; default 1. A further one is requested
            only once the one before has claimed.
        attempt_delay_seconds: pause after a run that ended without claiming, doubled with each attempt, an hour at
            most; default 60.
        failure_delay_seconds: pause after a run that failed, also one that had claimed, doubled with each further
            failure in a row, an hour at most; default 60.
        stale_run_seconds: how old an unfinished run may be before it is no longer counted, provided that no lease of
            the queue is alive: the host of such a run has died unnoticed; default an hour. Dagster's `run_monitoring`
            also ends such runs.
        max_runtime_seconds: the runs' tag `dagster/max_runtime`, after which `run_monitoring` ends them; default a day,
            None for no tag.
        count_runs_of: whose runs count as in flight: of every sensor of this `queue` in this code location (the
            default, so that a renamed sensor counts the runs of its former name), or of this `sensor` only.
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
    try:
        gate = Gate(min_ready, max_age_seconds)
    except ConfigurationError as error:
        raise ConfigurationError(f"sensor {name!r}: {error}") from None
    sensor = _DepthSensor(
        sensor=name,
        gate=gate,
        max_in_flight=max_in_flight,
        attempt_delay_seconds=attempt_delay_seconds,
        failure_delay_seconds=failure_delay_seconds,
        stale_run_seconds=stale_run_seconds,
        max_runtime_seconds=max_runtime_seconds,
        count_runs_of=count_runs_of,
        run_tags=dict(run_tags or {}),
        run_config_fn=run_config_fn,
    )

    declare = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description or f"Opens when {gate.condition} in the queue; reads only.",
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, sensor.look, dg.SensorEvaluationContext))


@dataclass(frozen=True, kw_only=True, slots=True)
class _DepthSensor:
    """When to open, and under which run key."""

    sensor: str
    gate: Gate
    max_in_flight: int
    attempt_delay_seconds: float
    failure_delay_seconds: float
    stale_run_seconds: float
    max_runtime_seconds: int | None
    count_runs_of: CountRunsOf
    run_tags: dict[str, str]
    run_config_fn: RunConfigFn | None

    def __post_init__(self) -> None:
        try:
            checks.count("max_in_flight", self.max_in_flight)
            checks.not_negative("attempt_delay_seconds", self.attempt_delay_seconds)
            checks.not_negative("failure_delay_seconds", self.failure_delay_seconds)
            checks.positive("stale_run_seconds", self.stale_run_seconds)
            if self.max_runtime_seconds is not None:
                checks.count("max_runtime_seconds", self.max_runtime_seconds)
            checks.one_of("count_runs_of", self.count_runs_of, ("queue", "sensor"))
        except ConfigurationError as error:
            raise ConfigurationError(f"sensor {self.sensor!r}: {error}") from None
        ours = sorted(tag for tag in self.run_tags if tag.startswith("sluicegate/"))
        if ours:
            raise ConfigurationError(
                f"sensor {self.sensor!r}: the run tags {ours} are the sensor's own; use other names"
            )

    def look(self, context: dg.SensorEvaluationContext, resource: RedisQueueResource) -> dg.SkipReason | dg.RunRequest:
        """Evaluate one tick of the sensor."""
        queue = resource.resolve_name()
        runs = GateRuns(
            context.instance,
            queue,
            _location_of(context),
            self.sensor if self.count_runs_of == "sensor" else None,
        )
        # Runs first: one that was under way then and ends now has claimed by the time of the count.
        unfinished = runs.unfinished()
        depth = resource.get_depth()
        stale = self._stale(unfinished, depth)
        seen = _describe(depth, queue) + "".join(f"; {_described(run)}" for run in stale)
        if depth.paused:
            return dg.SkipReason(f"The queue is paused: {seen}.")
        if self.gate.fired_by(depth) is None:
            return dg.SkipReason(f"{seen}; the gate opens when {self.gate.condition}.")
        in_flight = len(unfinished) - len(stale)
        if in_flight >= self.max_in_flight:
            return dg.SkipReason(f"{seen}; {in_flight} of at most {self.max_in_flight} runs in flight.")
        newest = runs.newest_attempt(depth.claimed_total)
        waiting = self._waits_for(newest, stale) or self._waits_after(runs.failures())
        if waiting:
            return dg.SkipReason(f"{seen}; {waiting}.")
        for run in stale:
            context.log.warning(f"Queue {queue!r}: {_described(run)}")
        return self._request(context, queue, depth, newest.number + 1 if newest else 0)

    def _stale(self, unfinished: list[Unfinished], depth: Depth) -> list[Unfinished]:
        """Return the runs whose process has died unnoticed: they are old, and no lease of the queue is alive."""
        if depth.in_flight > depth.expired:
            return []
        return [run for run in unfinished if run.age_seconds > self.stale_run_seconds]

    def _waits_for(self, newest: Attempt | None, stale: list[Unfinished]) -> str:
        """Why not yet, although the gate is open; "" for now."""
        if newest is None or newest.run_id in {run.run_id for run in stale}:
            return ""
        if newest.ended_seconds_ago is None:
            return f"run {newest.run_id} ({newest.status}) has not claimed yet"
        remaining = _doubled(self.attempt_delay_seconds, newest.number) - newest.ended_seconds_ago
        if remaining <= 0:
            return ""
        return (
            f"run {newest.run_id} ended as {newest.status} without claiming, attempt {newest.number + 1} "
            f"follows in {remaining:.0f} s"
        )

    def _waits_after(self, failures: Failures) -> str:
        """Why not yet after runs that failed; "" for now."""
        if not failures.count:
            return ""
        remaining = _doubled(self.failure_delay_seconds, failures.count - 1) - failures.seconds_ago
        if remaining <= 0:
            return ""
        runs = "the last run" if failures.count == 1 else f"the last {failures.count} runs"
        return f"{runs} failed, the next follows in {remaining:.0f} s"

    def _request(self, context: dg.SensorEvaluationContext, queue: str, depth: Depth, attempt: int) -> dg.RunRequest:
        generation = depth.claimed_total
        return dg.RunRequest(
            run_key=f"{queue}:{generation}:{attempt}",
            run_config=self.run_config_fn(context, depth) if self.run_config_fn else None,
            tags={
                QUEUE_TAG: queue,
                SENSOR_TAG: self.sensor,
                GENERATION_TAG: str(generation),
                ATTEMPT_TAG: str(attempt),
                READY_TAG: str(depth.ready),
                **({} if self.max_runtime_seconds is None else {_MAX_RUNTIME_TAG: str(self.max_runtime_seconds)}),
                **self.run_tags,
            },
        )


def _describe(depth: Depth, queue: str) -> str:
    if not depth.ready:
        return f"0 messages ready in {queue!r} ({why_not_ready(depth, datetime.now(UTC))})"
    age = depth.oldest_ready_age_seconds
    oldest = "" if age is None else f", the oldest for {age:.1f} s"
    return f"{depth.ready} messages ready in {queue!r}{oldest} ({depth.in_flight} in flight, {depth.delayed} delayed)"


def _described(run: Unfinished) -> str:
    hours = run.age_seconds / 3600
    return (
        f"run {run.run_id} ({run.status}) has not ended for {hours:.1f} h and no lease is alive, so it is not counted; "
        "terminate it, and enable run_monitoring"
    )


def _doubled(seconds: float, times: int) -> float:
    """Return a delay that doubles, an hour at most."""
    return min(seconds * 2.0 ** min(times, 30), _MAX_DELAY_SECONDS)  # a float bounds the exponent


def _location_of(context: dg.SensorEvaluationContext) -> str | None:
    """Return the name of the sensor's code location; None in a test without one."""
    origin = context.code_location_origin
    return origin.location_name if origin is not None else None
