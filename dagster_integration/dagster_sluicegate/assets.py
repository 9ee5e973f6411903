"""An asset that drains a queue, and settles only after its result was stored."""

# Annotations are not postponed here: Dagster wants the one of `context` to be a class, not its name.
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any

import dagster as dg

from dagster_sluicegate.drain import QueueDrainOptions, SettleWhen, drain
from dagster_sluicegate.resources import RedisQueueResource, queue_resource, takes_resource
from sluicegate.core.bounds import MAX_CLAIM_LIMIT
from sluicegate.draining import arguments
from sluicegate.draining.handler import Handler
from sluicegate.errors import ConfigurationError

__all__ = ["build_queue_drain_asset"]

DEFAULT_MAX_MESSAGES = 100_000
MAX_MESSAGES = 2**53

_IO_MANAGER_METADATA = "dagster/io_manager_key"


def build_queue_drain_asset(
    *,
    spec: dg.AssetSpec | dg.AssetKey | str | Sequence[str],
    process: Callable[..., Any],
    batch_size: int = 1000,
    max_messages: int | None = DEFAULT_MAX_MESSAGES,
    settle: SettleWhen = "after_yield",
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

    With nothing to claim, or the queue paused, the step succeeds without materializing the asset, and assets that
    depend on it are skipped in the same run: an empty result would overwrite data and trigger downstream assets. In
    `per_batch` mode, a retry that finds everything acked by earlier tries does materialize the asset, because those
    tries failed before they could.

    The materialization carries `dagster/row_count` (acked messages), `sluicegate/batches`, `/claimed`, `/acked`,
    `/returned` and `/buried` (messages that `process` gave a verdict), `/acked_before` (by earlier tries),
    `/ready_left` and `/queue`.

    Args:
        spec: the asset: a full `AssetSpec` (without partitions), or just its key. It is made skippable.
        process: a plain function of a batch, called with a `QueueDrainContext` too if it takes a second, required
            parameter or one named `ctx` or `context`. A batch is a `list[Message]`; where the first parameter is
            annotated as a `pyarrow.Table` or a `pandas.DataFrame`, it is one of these. Through the context the function
            gives verdicts on single messages (`ctx.nack`, `ctx.release`, `ctx.bury`), which do not stand when it
            raises. What it returns goes to the IO manager; None means that it has written everything by itself.
        batch_size: most messages per batch, up to 10,000; default 1000. Messages that failed before come in smaller
            batches.
        max_messages: most messages of one run, its retries included; default 100,000. None, for `per_batch` only: as
            many as are ready when the step begins.
        settle: `after_yield` (the default): every batch is held, and kept in memory together with what `process`
            returned, until Dagster has stored the result; `max_messages` bounds that memory. `per_batch`: each batch is
            settled as soon as `process` returns, so `process` must have written it durably by then (`ctx.output_file`
            does), and must return None.
        lease_seconds: life of a lease without a heartbeat, which is sent every third of it; default: the queue's
            `visibility_timeout_seconds`. A worker that is killed gives its messages back after this time.
        combine: makes one value of the list of what `process` returned, one item per batch; default: that list, also
            for a single batch, so that the type of the value does not depend on how many messages there were. It is not
            called when no batch returned a value.
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
    asset = asset.replace_attributes(skippable=True)
    if _IO_MANAGER_METADATA not in asset.metadata:  # without it, Dagster would refuse any value
        asset = asset.with_io_manager_key(io_manager_key)
    _check(asset, batch_size, max_messages, settle, lease_seconds)
    options = QueueDrainOptions(
        key=asset.key,
        handler=Handler.of(process),
        batch_size=batch_size,
        max_messages=max_messages,
        lease_seconds=lease_seconds,
        settle=settle,
        combine=combine,
    )

    def run(context: dg.AssetExecutionContext, resource: RedisQueueResource) -> Iterator[dg.MaterializeResult[Any]]:
        with resource.get_queue() as queue:
            yield from drain(context, queue, options)

    def run_with_others(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Any]]:
        yield from run(context, queue_resource(context.resources, resource_key))

    declare = dg.multi_asset(
        specs=[asset],
        name=asset.key.to_python_identifier(),
        # Dagster takes resources either by these keys or by the parameters of the function.
        required_resource_keys={resource_key, *required_resource_keys} if required_resource_keys else None,
        retry_policy=retry_policy,
        pool=pool,
        op_tags=op_tags,
    )
    return declare(
        run_with_others if required_resource_keys else takes_resource(resource_key, run, dg.AssetExecutionContext)
    )


def _check(
    asset: dg.AssetSpec, batch_size: int, max_messages: int | None, settle: str, lease_seconds: float | None
) -> None:
    name = asset.key.to_user_string()
    if asset.partitions_def is not None:
        raise ConfigurationError(
            f"drain asset {name!r} has partitions, which a queue does not know; leave partitions_def out"
        )
    if settle not in ("after_yield", "per_batch"):
        raise ConfigurationError(f"drain asset {name!r}: settle must be 'after_yield' or 'per_batch', not {settle!r}")
    if not arguments.is_count(batch_size, MAX_CLAIM_LIMIT):
        raise ConfigurationError(
            f"drain asset {name!r}: batch_size must be an int from 1 to {MAX_CLAIM_LIMIT}, not {batch_size!r}"
        )
    if max_messages is None and settle == "after_yield":
        raise ConfigurationError(
            f"drain asset {name!r}: max_messages=None would hold a whole backlog in memory until the yield; give a "
            "number, or let process write each batch and settle='per_batch'"
        )
    if max_messages is not None and not arguments.is_count(max_messages, MAX_MESSAGES):
        raise ConfigurationError(
            f"drain asset {name!r}: max_messages must be an int from 1 on, or None, not {max_messages!r}"
        )
    if lease_seconds is not None and not lease_seconds > 0:
        raise ConfigurationError(f"drain asset {name!r}: lease_seconds must be above 0, not {lease_seconds!r}")
