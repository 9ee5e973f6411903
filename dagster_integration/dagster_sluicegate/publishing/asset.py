"""An asset that publishes messages, and whose retries publish only what is missing."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import dagster as dg

from dagster_sluicegate.batches import batch_id_of
from dagster_sluicegate.functions import UserFunction, upstream_assets, with_parameters
from dagster_sluicegate.identity import root_run_id, work_name
from dagster_sluicegate.names import Names
from dagster_sluicegate.publishing.step import RETRY_WINDOW_SECONDS, PublishOptions, publish
from dagster_sluicegate.resource_keys import check_resource, check_resource_key
from dagster_sluicegate.resources import RedisQueueResource
from dagster_sluicegate.tracing import traced_step
from sluicegate import checks
from sluicegate.core.deduplication import KeySource
from sluicegate.core.durability import DurabilityOption
from sluicegate.core.publishing import MAX_PER_CALL
from sluicegate.core.tracking import batch_name
from sluicegate.errors import ConfigurationError

__all__ = ["build_queue_publish_asset"]

BatchId = str | Callable[[dg.AssetExecutionContext], str]


def build_queue_publish_asset(
    *,
    spec: dg.AssetSpec | dg.AssetKey | str | Sequence[str],
    produce: Callable[..., Any],
    batch_size: int = MAX_PER_CALL,
    deduplication_key: KeySource | None = None,
    retry_window_seconds: float = RETRY_WINDOW_SECONDS,
    headers: Mapping[str, str] | None = None,
    delay_seconds: float = 0,
    due_at: datetime | None = None,
    durability: DurabilityOption = "memory",
    as_batch: bool = False,
    batch_id: BatchId | None = None,
    queue_name: str | None = None,
    stream_name: str | None = None,
    resource_key: str = "queue",
    partitions_def: dg.PartitionsDefinition[Any] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    check_specs: Sequence[dg.AssetCheckSpec] | None = None,
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> dg.AssetsDefinition:
    """Build an asset that publishes what a function returns or yields, in batches, and materializes with the counts.

    One batch is in memory at a time, however much a generator yields. Each batch takes effect whole or not at all.
    When the step fails midway, the batches before stay published, and the error says how many.

    A retry of the step (`RetryPolicy`) and a re-execution of the run (by hand or by Dagster's run retries) publish only
    what is missing, for `retry_window_seconds` after the publish: each message has a key made of the **root** run, the
    asset, its partitions and the position of the message, and the queue refuses a key that it has. So `produce` must
    yield the same messages in the same order for the same run. Where messages have a key of their own, name it by
    `deduplication_key` here or in the resource; then it is used instead, and it refuses duplicates of other runs too,
    for the queue's `deduplication_window_seconds`.

    A message that cannot be stored (a payload without JSON form, one that is too large, a missing key) fails the step
    without a retry. A full queue (`max_pending_length`) fails it after `pending_overload_policy`, and a retry continues
    where it stopped. A paused queue takes messages; the step logs a warning.

    The materialization carries `dagster/row_count` (messages that this run published, in all its tries),
    `sluicegate/accepted` (by this try), `/accepted_before` (by earlier tries), `/duplicates` (refused by a key of their
    own), `/batches`, `/bytes` (sent), `/first_message_id`, `/last_message_id`, `/ready` (in the queue afterwards; of a
    stream `/length`) and `/queue`.

    Args:
        spec: the asset: a full `AssetSpec`, or just its key.
        produce: a plain function or generator of payloads: dicts and lists (stored as JSON), str or bytes; also of
            pandas frames and Arrow tables, whose rows become dicts. Its parameters are filled as those of `@dg.asset`
            are: `context` first, config, resources by their annotations, and upstream assets by their names. It may
            yield `AssetCheckResult`s.
        batch_size: most messages per call, up to 1,000.
        deduplication_key: what makes two messages the same: a field, a list of fields, a template such as
            `{tenant}:{order_id}`, or a function of the payload. Default: the resource's, or else the position.
        retry_window_seconds: how long a position is remembered; default: a day. It costs memory in Redis for each
            message.
        headers: names and texts that every message carries.
        delay_seconds: how long a message cannot be claimed, counted from the publish of its batch.
        due_at: instead, when the messages become claimable: an aware datetime.
        durability: what each batch waits for: `memory`, `fsync`, or `sluicegate.replicated(n)`.
        as_batch: publish the messages of the run as one batch, whose completion `build_batch_sensor` awaits. Its id is
            the metadata `sluicegate/batch_id`, and by default that of the root run, the asset and its partitions, so
            that a retry of the step and a re-execution of the run rejoin their batch. A queue has batches, a stream
            has none.
        batch_id: the id of the batch, or a function of the context that returns it; it implies `as_batch`. A batch is
            published once: another run needs another id.
        queue_name: of another queue than the resource's.
        stream_name: of a stream, instead of a queue. Its groups consume the messages.
        resource_key: key of the `RedisQueueResource`.
        partitions_def: of the asset; the partition key becomes part of the position's key.
        backfill_policy: of the asset.
        check_specs: of the checks whose results `produce` yields.
        retry_policy: of the step.
        pool: concurrency pool of the step.
        op_tags: of the step.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            from collections.abc import Iterator

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_publish_asset


            def orders_of_the_day(context: dg.AssetExecutionContext) -> Iterator[dict]:
                for number in range(10_000):
                    yield {"order_id": number, "day": context.partition_key}


            defs = dg.Definitions(
                assets=[
                    build_queue_publish_asset(
                        spec="published_orders",
                        produce=orders_of_the_day,
                        partitions_def=dg.DailyPartitionsDefinition("2026-01-01"),
                        retry_policy=dg.RetryPolicy(max_retries=3, delay=10),
                    )
                ],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    asset = spec if isinstance(spec, dg.AssetSpec) else dg.AssetSpec(spec, kinds={"redis"})
    name = asset.key.to_user_string()
    try:
        check_resource_key(resource_key)
        checks.synchronous("produce", produce)
        function = UserFunction.of(produce, "produce")
        options = PublishOptions(
            batch_size=batch_size,
            deduplication_key=deduplication_key,
            retry_window_seconds=retry_window_seconds,
            headers=headers,
            delay_seconds=delay_seconds,
            due_at=due_at,
            durability=durability,
        )
        names = Names(queue_name, stream_name)
        checks.flag("as_batch", as_batch)
        if stream_name is not None and (as_batch or batch_id is not None):
            raise ConfigurationError("a stream has no batches; leave as_batch and batch_id out, or publish to a queue")
        if isinstance(batch_id, str):
            batch_name(batch_id)  # it checks the id
        if stream_name is not None and (delay_seconds or due_at):
            raise ConfigurationError("a stream delivers at once; leave delay_seconds and due_at out")
    except (ConfigurationError, TypeError, ValueError) as error:
        raise ConfigurationError(f"publish asset {name!r}: {error}") from None
    if asset.description is None:
        asset = asset.replace_attributes(description=_description(produce, names, resource_key))

    def run(context: dg.AssetExecutionContext, **arguments: Any) -> dg.MaterializeResult[Any]:
        results: list[dg.AssetCheckResult] = []
        work = work_name(root_run_id(context), asset.key.path, _partitions(context))
        batch = _batch_of(context, work, batch_id) if as_batch or batch_id is not None else None
        with traced_step(context):
            metadata = publish(
                check_resource(arguments[resource_key], resource_key),
                function.call(context, arguments),
                what="the result of produce",
                work=work,
                log=context.log,
                options=options,
                names=names,
                batch_id=batch,
                results=results,
            )
        return dg.MaterializeResult(asset_key=asset.key, metadata=metadata, check_results=results)

    step = with_parameters(run, _parameters(function, resource_key))
    declared = [dep.asset_key for dep in asset.deps]
    ins = upstream_assets(step, declared)
    declare = dg.multi_asset(
        specs=[asset.merge_attributes(deps=[key for key in ins.values() if key not in declared])],
        ins={parameter: dg.AssetIn(key) for parameter, key in ins.items()},
        name=asset.key.to_python_identifier(),
        partitions_def=partitions_def,
        backfill_policy=backfill_policy,
        check_specs=check_specs,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
    )
    return declare(step)


def _parameters(function: UserFunction, resource_key: str) -> list[inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = {parameter.name: parameter for parameter in function.parameters}
    named[resource_key] = inspect.Parameter(resource_key, kind, annotation=RedisQueueResource)
    return [inspect.Parameter("context", kind, annotation=dg.AssetExecutionContext), *named.values()]


def _batch_of(context: dg.AssetExecutionContext, work: str, batch_id: BatchId | None) -> str:
    """Return the id of the batch of a step: that of the user, or the name of its work, which its tries share."""
    if batch_id is None:
        return batch_id_of(work)
    found = batch_id(context) if callable(batch_id) else batch_id
    batch_name(found)  # it checks the id
    return found


def _partitions(context: dg.AssetExecutionContext) -> Sequence[str]:
    try:
        is_partitioned = context.has_partition_key or context.has_partition_key_range
    except dg.DagsterError:  # a direct call without partitions
        return ()
    return context.partition_keys if is_partitioned else ()


def _description(produce: Callable[..., Any], names: Names, resource_key: str) -> str:
    place = names.described or f"the queue of the resource `{resource_key}`"
    own = inspect.getdoc(produce) if inspect.isroutine(produce) else None
    published = f"Publishes messages to {place}."
    return f"{own}\n\n{published}" if own else published
