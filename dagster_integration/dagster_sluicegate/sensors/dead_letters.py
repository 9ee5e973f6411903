"""A sensor that requests a run when there are dead letters, once for each state of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import dagster as dg

from dagster_sluicegate.depths import read_dead
from dagster_sluicegate.places import label_of, shown
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.sensors.decision import Decision, GateRules, WatchedQueue
from dagster_sluicegate.sensors.depth import DEFAULT_SENSOR_INTERVAL_SECONDS, RunConfigFn
from dagster_sluicegate.sensors.pauses import waits_after_failures, waits_for_next_attempt
from dagster_sluicegate.sensors.run_requests import RunTemplate
from dagster_sluicegate.sensors.runs import PUBLISHED_TAG, GateRuns, History, Unfinished
from dagster_sluicegate.sensors.targets import Target
from sluicegate import Depth
from sluicegate.errors import ConfigurationError
from sluicegate.gates import Gate

__all__ = ["build_dead_letter_sensor"]


def build_dead_letter_sensor(
    *,
    name: str,
    target: Target,
    min_dead: int = 1,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    attempt_delay_seconds: float = 60,
    failure_delay_seconds: float = 60,
    stale_run_seconds: float = 3600,
    max_runtime_seconds: int | None = 86_400,
    run_tags: Mapping[str, str] | None = None,
    run_config_fn: RunConfigFn | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that requests a run when a queue has dead letters, such as one that alerts or redrives.

    The sensor only looks. It requests one run for the dead letters that it finds, and another one only when more
    messages have died since: the run key is `queue:dead:generation:attempt`, and the generation is the count of
    messages that ever became dead letters. Neither a redrive nor a purge moves it. When the run of a generation failed
    or was cancelled, the next attempt follows after `attempt_delay_seconds`. One run is in flight at a time; it is not
    counted by the gates of the queue.

    Args:
        name: of the sensor.
        target: what to run: assets, an asset selection, or one job; without partitions.
        min_dead: request a run when there are so many dead letters; default 1.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream whose dead letters are counted; default: the resource's own.
        minimum_interval_seconds: between two looks; default 30.
        attempt_delay_seconds: pause after a run that did not succeed, doubled with each attempt, an hour at most;
            default 60.
        failure_delay_seconds: pause after a run that failed, also when more messages have died since, doubled with each
            further failure in a row, an hour at most; default 60.
        stale_run_seconds: how old an unfinished run may be before it is no longer counted; default an hour.
        max_runtime_seconds: the runs' tag `dagster/max_runtime`; default a day, None for no tag.
        run_tags: further tags of the runs.
        run_config_fn: called with the context and the `Depth` to make the run's config. No payloads, no secrets.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text.
        tags: of the sensor itself, for the UI.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_dead_letter_sensor


            @dg.asset
            def dead_orders(context: dg.AssetExecutionContext, queue: RedisQueueResource) -> None:
                with queue.get_queue() as orders:
                    for letter in orders.peek(100, state="dead"):
                        context.log.warning(f"{letter.id}: {letter.reason}")


            defs = dg.Definitions(
                assets=[dead_orders],
                sensors=[build_dead_letter_sensor(name="dead_orders_sensor", target=dead_orders, min_dead=10)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    try:
        rules = GateRules(
            gate=Gate(min_dead=min_dead),
            attempt_delay_seconds=attempt_delay_seconds,
            failure_delay_seconds=failure_delay_seconds,
            stale_run_seconds=stale_run_seconds,
        )
        template = RunTemplate(sensor=name, max_runtime_seconds=max_runtime_seconds, run_tags=dict(run_tags or {}))
    except ConfigurationError as error:
        raise ConfigurationError(f"sensor {name!r}: {error}") from None
    ref = QueueRef.checked(f"sensor {name!r}", resource_key, queue_name, stream_name, group)

    def look(context: dg.SensorEvaluationContext, resource: RedisQueueResource) -> dg.SensorResult:
        where = ref.locate(resource)
        # Runs of gates have the plain id, so that neither kind counts the other's.
        queue = WatchedQueue(where.place, f"{where.queue_id}/dead", rules, label=f"{label_of(where.place)}:dead")
        runs = GateRuns.of(context)
        unfinished = runs.unfinished([queue.queue_id])[queue.queue_id]
        died, depth = read_dead(where)
        history = runs.histories({queue.queue_id: str(died)})[queue.queue_id]
        decision = _decide(queue, depth, died, unfinished, history)
        run_config = run_config_fn(context, depth) if run_config_fn and decision.attempts else None
        return dg.SensorResult(
            run_requests=template.requests(
                decision,
                tags={PUBLISHED_TAG: str(depth.published_total), **resource.page_tags(where.place)},
                run_config=run_config,
            ),
            skip_reason=None if decision.attempts else dg.SkipReason(decision.reason),
            cursor=decision.summary,
        )

    declare = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description
        or f"Requests a run when {rules.gate.condition} in {ref.in_words}, and again when more have died. Only reads.",
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, look, dg.SensorEvaluationContext))


def _decide(
    queue: WatchedQueue, depth: Depth, died: int, unfinished: Sequence[Unfinished], history: History
) -> Decision:
    """Decide whether the dead letters of a queue need a run, or another attempt at one."""
    rules = queue.rules
    stale = {run.run_id for run in unfinished if run.age_seconds > rules.stale_run_seconds}
    in_flight = {run.run_id for run in unfinished} | history.unfinished
    why = ""
    if rules.gate.fired_by(depth) is None:
        why = f"a run is requested when {rules.gate.condition}"
    elif in_flight - stale:
        why = f"run {', '.join(sorted(in_flight - stale))} is unfinished"
    # A queue that was deleted counts anew: its dead letters are others, although their number is the same.
    elif history.succeeded_run_id and history.published_then <= depth.published_total:
        why = f"run {history.succeeded_run_id} has seen them, and no further message has died since"
    else:
        why = waits_for_next_attempt(history, rules.attempt_delay_seconds, how="") or (
            waits_after_failures(history.failures, rules.failure_delay_seconds)
        )
    seen = f"{depth.dead} dead letter{'' if depth.dead == 1 else 's'} in {shown(queue.place)}"
    return Decision(
        queue,
        depth,
        str(died),
        attempts=() if why else (history.next_attempt,),
        reason=f"{seen}; {why}.",
        summary=f"{depth.dead} dead, {died} ever" + (f", {len(in_flight - stale)} run in flight" if in_flight else ""),
    )
