"""An asset that drains a queue, and settles only after its result was stored."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any, TypedDict

import dagster as dg

from dagster_sluicegate.drains.options import DEFAULT_MAX_MESSAGES, checked_options
from dagster_sluicegate.drains.outcome import AssetEvents, OnEmpty
from dagster_sluicegate.drains.partitions import RUN_PER_PARTITION, QueuePartitions, partitioned
from dagster_sluicegate.drains.step import QueueDrainOptions, SettleWhen, drain
from dagster_sluicegate.names import Names
from dagster_sluicegate.queue_refs import QueueAsset, asset_key_of
from dagster_sluicegate.resource_keys import takes_resources
from dagster_sluicegate.tracing import traced_steps
from sluicegate import checks
from sluicegate.errors import ConfigurationError

__all__ = [
    "QueueDrainAssetOptions",
    "Spec",
    "build_queue_drain_asset",
    "define_drain_asset",
]

_IO_MANAGER_METADATA = "dagster/io_manager_key"
Spec = dg.AssetSpec | dg.AssetKey | str | Sequence[str]


class QueueDrainAssetOptions(TypedDict, total=False):
    """The options of `build_queue_drain_asset` besides `spec` and `process`; they mean the same there."""

    batch_size: int
    max_messages: int | None
    settle: SettleWhen
    on_empty: OnEmpty
    queue_asset: QueueAsset | None
    queue_name: str | None
    stream_name: str | None
    group: str | None
    queue_partitions: QueuePartitions | None
    check_specs: Sequence[dg.AssetCheckSpec]
    lease_seconds: float | None
    combine: Callable[[list[Any]], Any] | None
    resource_key: str
    io_manager_key: str
    required_resource_keys: Set[str]
    retry_policy: dg.RetryPolicy | None
    pool: str | None
    op_tags: Mapping[str, Any] | None


def build_queue_drain_asset(
    *,
    spec: Spec,
    process: Callable[..., Any],
    batch_size: int = 1000,
    max_messages: int | None = DEFAULT_MAX_MESSAGES,
    settle: SettleWhen = "after_yield",
    on_empty: OnEmpty = "skip",
    queue_asset: QueueAsset | None = None,
    queue_name: str | None = None,
    stream_name: str | None = None,
    group: str | None = None,
    queue_partitions: QueuePartitions | None = None,
    check_specs: Sequence[dg.AssetCheckSpec] = (),
    lease_seconds: float | None = None,
    combine: Callable[[list[Any]], Any] | None = None,
    resource_key: str = "queue",
    io_manager_key: str = "io_manager",
    required_resource_keys: Set[str] = frozenset(),
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
) -> dg.AssetsDefinition:
    """Build an asset that claims batches of messages, processes them, hands the result over and only then acks.

    A run drains what is ready when the step begins, `max_messages` at most. Messages that arrive meanwhile are left for
    the next run, except those that fill the last batch, so a fast producer cannot keep a run busy for ever.

    Delivery is at-least-once. When `process` raises, its batch returns to the queue with the error (counted as a
    delivery) and the step fails. Earlier batches that are not settled yet return uncounted. When the IO manager raises,
    all batches return. A worker that dies leaves leases that expire. A failing step never acks anything on its way out.
    A lease that was lost before the hand-over, or whose ack came too late, fails the step, because its messages are
    delivered to another consumer too.

    A retry of the step (`RetryPolicy`) and a re-execution of the run (by hand or by Dagster's run retries) continue
    with the batches of the first try: leases are named by the **root** run, the asset and the number of the batch.
    Batches that were acked are not processed again for a day. For new messages launch a new run instead of
    re-executing an old one. Two re-executions of one run at the same time take the batches from each other, and the
    loser fails.

    With nothing to claim, or the queue paused, the step succeeds, and `on_empty` decides what is recorded. By default
    nothing is: an empty result would overwrite data and trigger downstream assets. A run that was executed again and
    finds its work done logs a warning, because new messages need a new run. In `per_batch` mode, a retry that finds
    everything acked by earlier tries does materialize the asset, because those tries failed before they could.

    The materialization carries `dagster/row_count` (acked messages) and, under `sluicegate/`: `queue`, `batches`,
    `claimed`, `acked`, `returned` and `buried` (messages that `process` gave a verdict), `acked_before` (by earlier
    tries), `redelivered`, `bytes`, `oldest_message`, `newest_message`, `wait_p50_seconds` and `wait_p95_seconds` (from
    the enqueue to the claim), `waits` (a table with bars), `ready_left`, `dead` and `duplicates_total` (of the queue).
    `ctx.add_metadata` adds to it.

    Args:
        spec: the asset: a full `AssetSpec`, or just its key. It is made skippable. It gets its partitions from
            `queue_partitions`.
        process: a plain function of a batch, called with a `QueueDrainContext` too if it takes a second, required
            parameter or one named `ctx` or `context`. Behind these it may take a `config`, annotated with a subclass of
            `dagster.Config`, and resources, by their annotations as in `@dg.asset`. A batch is a `list[Message]`; where
            the first parameter is annotated as a `pyarrow.Table` or a `pandas.DataFrame`, it is one of these. Through
            the context the function gives verdicts on single messages (`ctx.nack`, `ctx.release`, `ctx.bury`), which do
            not stand when it raises, and adds metadata and check results. What it returns goes to the IO manager; None
            means that it has written everything by itself.
        batch_size: most messages per batch, up to 10,000; default 1000. Messages that failed before come in smaller
            batches.
        max_messages: most messages of one run, its retries included; default 100,000. None, for `per_batch` only: as
            many as are ready when the step begins.
        settle: `after_yield` (the default): every batch is held, and kept in memory together with what `process`
            returned, until Dagster has stored the result; `max_messages` bounds that memory. `per_batch`: each batch is
            settled as soon as `process` returns, so `process` must have written it durably by then (`ctx.output_file`
            does), and must return None.
        on_empty: what a run becomes that finds nothing to claim. `skip` (the default): nothing is recorded, and assets
            that depend on this one are skipped in the same run. `observe`: an observation, so that people see the look.
            `materialize`: a materialization with counts of 0 and without a value, so that freshness and checks stay
            current while no message arrives; no IO manager is called, and a paused queue is skipped.
        queue_asset: the asset that stands for the queue (see `build_queue_source_asset`), or its key; the drain then
            depends on it in the graph.
        queue_name: of another queue on the resource's server; default: the resource's own.
        stream_name: of a stream on that server, instead of a queue.
        group: of the stream, which consumes its messages; default: the resource's own.
        queue_partitions: the partitions of the asset, each with a queue of its own, which replaces these three.
        check_specs: checks whose results `process` adds with `ctx.add_check_result`. They judge what was stored, so
            messages are acked also when a blocking check fails; raise, or `ctx.nack`, to have messages back.
        lease_seconds: life of a lease without a heartbeat, which is sent every third of it; default: the queue's
            `visibility_timeout_seconds`. A worker that is killed gives its messages back after this time.
        combine: for `after_yield`, makes one value of the list of what `process` returned, one item per batch; default:
            that list, also for a single batch, so that the type of the value does not depend on how many messages there
            were. It is not called when no batch returned a value.
        resource_key: key of the `RedisQueueResource`.
        io_manager_key: where the value goes, unless `spec` says so; default `io_manager`, Dagster's own default.
        required_resource_keys: further resources that `process` reads from `ctx.asset.resources`.
        retry_policy: of the step. A retry waits up to 20 s for the batch that failed.
        pool: concurrency pool of the step. The lease is taken inside the step, so that none expires while waiting for
            a slot.
        op_tags: of the step.

    Raises:
        ConfigurationError: an option that cannot work.

    Example:
        .. code-block:: python

            import json
            from pathlib import Path

            import dagster as dg
            from dagster_sluicegate import QueueDrainContext, RedisQueueResource, build_queue_drain_asset

            folder = Path("build/orders")


            def write(messages, ctx: QueueDrainContext) -> None:
                rows = []
                for message in messages:
                    try:
                        rows.append(message.json())
                    except ValueError as error:
                        ctx.bury(message, error=error)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{ctx.lease_key}.json").write_text(json.dumps(rows))  # a retry overwrites its own file


            defs = dg.Definitions(
                assets=[build_queue_drain_asset(spec="orders", process=write)],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    asset = spec if isinstance(spec, dg.AssetSpec) else dg.AssetSpec(spec, kinds={"redis"})
    label = f"drain asset {asset.key.to_user_string()!r}"
    try:
        asset = partitioned(asset, queue_partitions, Names(queue_name, stream_name, group))
    except ConfigurationError as error:
        raise ConfigurationError(f"{label}: {error}") from None
    options = checked_options(
        label,
        asset.key.to_user_string(),
        process,
        batch_size=batch_size,
        max_messages=max_messages,
        settle=settle,
        lease_seconds=lease_seconds,
        combine=combine,
        names=None if queue_partitions is None else queue_partitions.names_of_step,
        queue_name=queue_name,
        stream_name=stream_name,
        group=group,
        required_resource_keys=required_resource_keys,
        check_names=[check.name for check in check_specs],
    )
    if queue_asset is not None:
        upstream = asset_key_of(queue_asset, f"drain asset {asset.key.to_user_string()!r}")
        asset = asset.replace_attributes(deps=[*asset.deps, upstream])
    return define_drain_asset(
        asset,
        options,
        on_empty=on_empty,
        check_specs=check_specs,
        resource_key=resource_key,
        io_manager_key=io_manager_key,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        backfill_policy=RUN_PER_PARTITION if queue_partitions is not None else None,
    )


def define_drain_asset(
    spec: dg.AssetSpec,
    options: QueueDrainOptions,
    *,
    on_empty: OnEmpty = "skip",
    check_specs: Sequence[dg.AssetCheckSpec] = (),
    resource_key: str = "queue",
    io_manager_key: str = "io_manager",
    retry_policy: dg.RetryPolicy | None = None,
    pool: str | None = None,
    op_tags: Mapping[str, Any] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
) -> dg.AssetsDefinition:
    """Define an asset from checked options; `spec` may have partitions, whose steps have leases of their own."""
    try:
        checks.one_of("on_empty", on_empty, ("skip", "observe", "materialize"))
    except ConfigurationError as error:
        raise ConfigurationError(f"{options.label}: {error}") from error
    if spec.description is None:
        spec = spec.replace_attributes(description=f"What was drained from {options.place(resource_key)}.")
    spec = spec.replace_attributes(skippable=True)
    if _IO_MANAGER_METADATA not in spec.metadata:  # without it, Dagster would refuse any value
        spec = spec.with_io_manager_key(io_manager_key)
    check_outputs: list[str] = []

    def run(context: dg.AssetExecutionContext, given: Mapping[str, Any]) -> Iterator[Any]:
        events = AssetEvents(context.asset_key, on_empty, check_outputs)  # the key may have got a prefix
        resource = given[resource_key]
        with options.ref(context, resource_key).open(resource) as queue:
            yield from traced_steps(context, drain(context, queue, options, events, given, resource))

    declare = dg.multi_asset(
        specs=[spec],
        name=spec.key.to_python_identifier(),
        description=options.describe(resource_key),
        check_specs=check_specs,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
        backfill_policy=backfill_policy,
    )
    asset = declare(takes_resources([resource_key], run, dg.AssetExecutionContext, more=options.step.parameters))
    check_outputs += [asset.get_output_name_for_asset_check_key(check.key) for check in check_specs]
    return asset
