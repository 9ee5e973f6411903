"""A sensor that opens the gate when enough messages are ready, or one has waited for long enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import dagster as dg

from dagster_sluicegate.places import label_of
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.decision import GateRules, WatchedQueue, decide
from dagster_sluicegate.sensors.run_requests import RunTemplate
from dagster_sluicegate.sensors.runs import GateRuns
from sluicegate import Depth, checks
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate

__all__ = ["DEFAULT_SENSOR_INTERVAL_SECONDS", "build_queue_depth_sensor"]

DEFAULT_SENSOR_INTERVAL_SECONDS = 30
CountRunsOf = Literal["queue", "sensor"]
RunConfigFn = Callable[[dg.SensorEvaluationContext, Depth], dg.RunConfig | Mapping[str, Any]]


def build_queue_depth_sensor(
    *,
    name: str,
    target: Any,
    min_ready: int | None = None,
    max_age_seconds: float | None = None,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    max_in_flight: int = 1,
    messages_per_run: int | None = None,
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
    generation ended without having claimed anything, after `attempt_delay_seconds`. Runs that are queued, in progress,
    or about to be retried by Dagster hold further ones back. Above `max_in_flight=1`, it requests as many runs at once
    as the ready messages warrant: one per `messages_per_run`, less those that have yet to claim.

    The cursor says what the last tick saw, such as "500 ready, 1 run in flight". It is for people: no decision depends
    on it.

    Redis that cannot be reached makes the tick fail within a few seconds, visibly, and requests nothing.

    Args:
        name: of the sensor.
        target: what to run: assets, an asset selection, or one job; without partitions.
        min_ready: fire when so many messages are ready.
        max_age_seconds: fire when the oldest ready message has been ready for so long, above 0. Give this or
            `min_ready`, or both: either fires.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the group of the stream, whose messages count; default: the resource's own.
        minimum_interval_seconds: between two looks; default 30. Dagster's daemon looks at most every 5 s.
        max_in_flight: how many runs may be unfinished at a time; default 1.
        messages_per_run: with `max_in_flight` above 1, how many ready messages warrant a run each; default `min_ready`.
            2,500 ready messages at 1,000 per run warrant three runs. A run may drain more than its share.
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
        run_tags: further tags of the runs. The sensor's own (`sluicegate/queue`, `/queue_id`, `/sensor`, `/generation`,
            `/attempt`, `/ready`) hold small facts, never payloads.
        run_config_fn: called with the context and the `Depth` to make the run's config, for jobs that need one. It is
            stored with the run and shown in the UI: no payloads, no secrets.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text.
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
        rules = GateRules(
            gate=Gate(min_ready, max_age_seconds),
            max_in_flight=max_in_flight,
            messages_per_run=messages_per_run,
            attempt_delay_seconds=attempt_delay_seconds,
            failure_delay_seconds=failure_delay_seconds,
            stale_run_seconds=stale_run_seconds,
        )
        template = RunTemplate(sensor=name, max_runtime_seconds=max_runtime_seconds, run_tags=dict(run_tags or {}))
        checks.one_of("count_runs_of", count_runs_of, ("queue", "sensor"))
    except ConfigurationError as error:
        raise ConfigurationError(f"sensor {name!r}: {error}") from None
    ref = QueueRef.checked(f"sensor {name!r}", resource_key, queue_name, stream_name, group)

    def look(context: dg.SensorEvaluationContext, resource: RedisQueueResource) -> dg.SensorResult:
        where = ref.locate(resource)
        queue = WatchedQueue(where.place, where.queue_id, rules, label=label_of(where.place))
        runs = GateRuns.of(context, name if count_runs_of == "sensor" else None)
        decision = decide(runs, [queue], lambda: {queue.queue_id: resource.read_depth(where.place)})[queue.queue_id]
        if isinstance(decision, Exception):
            raise decision
        for warning in decision.warnings:
            context.log.warning(warning)
        run_config = run_config_fn(context, decision.depth) if run_config_fn and decision.attempts else None
        return dg.SensorResult(
            run_requests=template.requests(decision, tags=resource.page_tags(where.place), run_config=run_config),
            skip_reason=None if decision.attempts else dg.SkipReason(decision.reason),
            cursor=decision.summary,
        )

    declare = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description or f"Requests a run when {rules.gate.condition} in {ref.in_words}. Only reads.",
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, look, dg.SensorEvaluationContext))
