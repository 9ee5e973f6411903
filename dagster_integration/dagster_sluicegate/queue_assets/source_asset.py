"""The queue as an asset that is observed: the joint between publishers, checks and whatever lies downstream."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence

import dagster as dg

from dagster_sluicegate.queue_assets.observation import DEFAULT_ATTEMPT_DELAY_SECONDS, VersionRule, observed_version
from dagster_sluicegate.queue_refs import QueueRef
from dagster_sluicegate.resource_keys import takes_resource
from dagster_sluicegate.resources import RedisQueueResource
from sluicegate.errors import ConfigurationError

__all__ = ["build_queue_source_asset"]


def build_queue_source_asset(
    *,
    spec: dg.AssetSpec | dg.AssetKey | str | Sequence[str],
    min_ready: int | None = None,
    max_age_seconds: float | None = None,
    attempt_delay_seconds: float = DEFAULT_ATTEMPT_DELAY_SECONDS,
    resource_key: str = "queue",
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
) -> dg.AssetsDefinition:
    """Build an asset that stands for a queue: it is observed, never materialized.

    Publishers are its `deps`; drains and reports name it in theirs; checks are put on it. So the graph shows the way of
    the messages, although no message passes through Dagster.

    An observation by `build_queue_observation_sensor`, by a person or by a job records how many messages are ready, in
    flight, delayed and dead, how long the oldest has waited, and the data version `generation:attempt`, which changes
    by the same rule wherever the observation comes from. Downstream assets with an automation condition such as
    `eager()` react to a changed version only. An observation that finds the gate closed keeps the version.

    Observing reads the queue and changes nothing in it. When Redis cannot be reached, the observation's step fails.

    Args:
        spec: the asset: a full `AssetSpec` (without partitions; group, kinds, deps, tags, metadata and owners are
            kept), or just its key.
        min_ready: the version changes when so many messages are ready; give the same as to the sensor. Default 1,
            unless `max_age_seconds` is given.
        max_age_seconds: the version changes when the oldest ready message has been ready for so long.
        attempt_delay_seconds: pause between two attempts while no consumer claims; default 60.
        resource_key: key of the `RedisQueueResource`.
        queue_name: of the queue, where the resource serves several; default: the resource's own.
        stream_name: of a stream, instead of a queue.
        group: of the stream, whose messages are counted; default: the resource's own.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_source_asset


            @dg.asset
            def published_orders(queue: RedisQueueResource) -> None:
                with queue.get_queue() as orders:
                    orders.publish_many({"order_id": n} for n in range(1000))


            orders_queue = build_queue_source_asset(
                spec=dg.AssetSpec("orders_queue", deps=[published_orders], group_name="orders", kinds={"redis"})
            )

            defs = dg.Definitions(
                assets=[published_orders, orders_queue],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    asset = spec if isinstance(spec, dg.AssetSpec) else dg.AssetSpec(spec, kinds={"redis"})
    name = f"queue asset {asset.key.to_user_string()!r}"
    if asset.partitions_def is not None:
        raise ConfigurationError(f"{name} has partitions, which a queue does not have; leave partitions_def out")
    if min_ready is None and max_age_seconds is None:
        min_ready = 1
    rule = VersionRule.checked(name, min_ready, max_age_seconds, attempt_delay_seconds)
    ref = QueueRef.checked(name, resource_key, queue_name, stream_name, group)
    if asset.description is None:
        asset = asset.replace_attributes(
            description=f"Stands for {ref.described}. Its data version changes when {rule.gate.condition}."
        )

    def observe(context: dg.AssetExecutionContext, resource: RedisQueueResource) -> dg.ObserveResult:
        key = context.asset_key  # which may have got a prefix
        last = observed_version(context.instance, key, ref.identify(resource))
        look = ref.look(resource)
        version = rule.next(last, look.depth, time.time())
        if version is None:  # never observed with an open gate: numbers only, which trigger nothing
            return dg.ObserveResult(asset_key=key, metadata=look.metadata)
        return dg.ObserveResult(
            asset_key=key, data_version=dg.DataVersion(version.text), metadata=version.metadata(look)
        )

    with warnings.catch_warnings():
        # The only form of an observable asset with dependencies and kinds is marked as beta, which users cannot avoid.
        warnings.simplefilter("ignore", dg.BetaWarning)
        declare = dg.multi_observable_source_asset(specs=[asset], name=f"observe_{asset.key.to_python_identifier()}")
        observable: dg.AssetsDefinition = declare(takes_resource(resource_key, observe, dg.AssetExecutionContext))
    return observable
