"""A sensor that requests a run when a batch of messages or jobs is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from dagster_sluicegate.batches import BATCH_ID, read_batches
from dagster_sluicegate.queue_refs import QueueAsset, QueueRef, asset_key_of
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.sensors.depth import DEFAULT_SENSOR_INTERVAL_SECONDS
from dagster_sluicegate.sensors.run_requests import RunTemplate
from dagster_sluicegate.sensors.targets import Target
from dagster_sluicegate.sensors.watching import Ending, FromAsset, FromFunction, Source, WatchSensor
from sluicegate import BatchStatus, checks
from sluicegate.errors import ConfigurationError

__all__ = ["build_batch_sensor"]

BatchIds = Sequence[str] | Callable[[dg.SensorEvaluationContext], Iterable[str]]
BatchRunConfigFn = Callable[[dg.SensorEvaluationContext, BatchStatus], dg.RunConfig | Mapping[str, Any]]
_MAX_BATCHES = 5_000
_DEAD_TAG = "sluicegate/batch_dead"
_TOTAL_TAG = "sluicegate/batch_total"


def build_batch_sensor(
    *,
    name: str,
    target: Target,
    asset: QueueAsset | None = None,
    batch_ids: BatchIds | None = None,
    max_dead: int | None = None,
    same_partition: bool = False,
    max_batches: int = 1000,
    resource_key: str = "queue",
    queue_name: str | None = None,
    minimum_interval_seconds: int = DEFAULT_SENSOR_INTERVAL_SECONDS,
    max_runtime_seconds: int | None = 86_400,
    run_tags: Mapping[str, str] | None = None,
    run_config_fn: BatchRunConfigFn | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.SensorDefinition:
    """Build a sensor that requests a run when a batch is complete, whoever drained it and however often it was retried.

    A batch is complete when it is published as a whole and none of its messages waits, is delayed or in flight. Those
    that were cancelled or purged count as ended, and so do dead letters, unless `max_dead` says otherwise. No worker
    waits: the sensor reads the counts of the open batches, all of them in one write, and changes nothing in Redis.

    The run key is `batch:queue:batch id:completion`, with the time of the completion in ms. So a tick that is repeated
    starts no second run, whatever crashes in between. A redrive reopens a batch: its next completion has another time,
    and requests another run.

    The cursor holds the batches that are open, and the last materialization that was read. Without it the sensor begins
    with the newest `max_batches` materializations, and requests with the same run keys.

    The runs have the tags `sluicegate/batch_id`, `/batch_total` and `/batch_dead`, and those of the queue.

    Args:
        name: of the sensor. A sensor with another name knows nothing of the runs of the former one.
        target: what to run: assets, an asset selection, or one job.
        asset: that publishes the batches, such as `build_queue_publish_asset(as_batch=True)` makes it, or its key. Any
            other asset may record `sluicegate/batch_id` in its metadata. Give this or `batch_ids`.
        batch_ids: the ids of the batches, or a function of the context that returns them at each tick. A batch that is
            not there is awaited.
        max_dead: request a run only if at most so many messages of the batch are dead; the others are awaited until
            somebody redrives or purges them. Default: any number.
        same_partition: the run is about the partition of the materialization that published the batch.
        max_batches: how many batches a tick looks at; default 1000. Further ones wait in Dagster's event log.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own. It may be a queue of
            jobs.
        minimum_interval_seconds: between two looks; default 30.
        max_runtime_seconds: the runs' tag `dagster/max_runtime`; default a day, None for no tag.
        run_tags: further tags of the runs.
        run_config_fn: called with the context and the `BatchStatus` to make the run's config. No payloads, no secrets.
        default_status: whether it runs without being switched on in the UI; default `STOPPED`.
        description: for the UI, which shows it as plain text.
        tags: of the sensor itself, for the UI.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_batch_sensor, build_queue_publish_asset


            def orders():
                yield from ({"order_id": number} for number in range(1000))


            published = build_queue_publish_asset(spec="published_orders", produce=orders, as_batch=True)


            @dg.asset(deps=[published])
            def report() -> None: ...


            defs = dg.Definitions(
                assets=[published, report],
                sensors=[build_batch_sensor(name="orders_drained", target=report, asset=published)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    definition = f"sensor {name!r}"
    try:
        template = RunTemplate(sensor=name, max_runtime_seconds=max_runtime_seconds, run_tags=dict(run_tags or {}))
        checks.count("max_batches", max_batches, _MAX_BATCHES)
        if max_dead is not None:
            checks.count("max_dead", max_dead, least=0)
        checks.flag("same_partition", same_partition)
        if (asset is None) == (batch_ids is None):
            raise ConfigurationError("give either asset, which publishes the batches, or batch_ids, their ids")
        if same_partition and asset is None:
            raise ConfigurationError("same_partition needs asset, whose materializations have the partitions")
    except ConfigurationError as error:
        raise ConfigurationError(f"{definition}: {error}") from None
    key = None if asset is None else asset_key_of(asset, definition)
    ref = QueueRef.checked(definition, resource_key, queue_name)

    def source_of(label: str) -> Source:
        return FromFunction("batch_ids", batch_ids or ()) if key is None else FromAsset(key, BATCH_ID, label)

    sensor = WatchSensor(
        name=name,
        kind="batch",
        ref=ref,
        source_of=source_of,
        read=lambda context, where, source, ids: {
            batch_id: _ending(status, max_dead) for batch_id, status in read_batches(where, ids).items()
        },
        most=max_batches,
        same_partition=same_partition,
        run_config_fn=run_config_fn,
        run_tags=template.tags,
    )
    declare = dg.sensor(
        name=name,
        target=target,
        minimum_interval_seconds=minimum_interval_seconds,
        description=description or f"Requests a run when a batch of {ref.in_words} is complete. Only reads.",
        default_status=default_status,
        tags=tags,
    )
    return declare(takes_resource(resource_key, sensor.look, dg.SensorEvaluationContext))


def _ending(status: BatchStatus, max_dead: int | None) -> Ending:
    """Return how far a batch has come."""
    too_many = status.is_complete and max_dead is not None and status.dead > max_dead
    left = status.waiting + status.delayed + status.in_flight
    return Ending(
        exists=status.exists,
        end="" if status.completed_at is None else f"{status.completed_at.timestamp() * 1000:.0f}",
        held=f"is complete with {status.dead} dead letter{'' if status.dead == 1 else 's'}, more than {max_dead}"
        if too_many
        else "",
        may_reopen=status.dead > 0,
        words=f"has {left} of {status.total} messages left" + ("" if status.sealed else ", and is being published")
        if status.exists
        else "is not there yet",
        tags={BATCH_ID: status.batch_id, _TOTAL_TAG: str(status.total), _DEAD_TAG: str(status.dead)},
        status=status,
    )
