"""Dynamic partitions of what a drain writes: the run that claimed the messages adds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from dagster_sluicegate.drains.step import QueueDrainContext
from sluicegate import Message, checks
from sluicegate.errors import ConfigurationError

__all__ = ["write_by_partition"]

_FORBIDDEN = ("...", "\a", "\b", "\f", "\n", "\r", "\t", "\v", "\0")  # Dagster's own list, which has no public name


def write_by_partition(
    *,
    spec: dg.AssetSpec,
    partition_of: Callable[[Message], str],
    write: Callable[[str, list[Message], QueueDrainContext], object],
    max_partitions_per_batch: int = 100,
) -> Callable[[list[Message], QueueDrainContext], None]:
    """Return a `process` that writes a batch by partition, and records which dynamic partitions it wrote.

    The drain itself has no partitions, because only the messages know theirs. The partitions belong to a second asset,
    which stands for what was written: the run adds them when it has written their first messages, and records one
    materialization per batch and partition, before the batch is acked. A run that is killed in between records it again
    when it is retried.

    A message whose partition cannot be found is buried, and the others are written.

    Args:
        spec: the asset of what was written, with a `DynamicPartitionsDefinition` that has a name. Put it into the
            `Definitions` too, with the drain as its dependency.
        partition_of: returns the key of a message, such as its day.
        write: called once per batch and partition with the key, the messages and the `QueueDrainContext`; it must have
            written them durably when it returns, so use it with `settle="per_batch"`.
        max_partitions_per_batch: how many partitions one batch may have; default 100. A batch with more fails, because
            a partition per message, or per claim, makes Dagster's page of the asset useless.

    Raises:
        ConfigurationError: `spec` has no dynamic partitions with a name, or an option cannot work.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import RedisQueueResource, build_queue_drain_asset, write_by_partition

            days = dg.DynamicPartitionsDefinition(name="order_days")
            orders_by_day = dg.AssetSpec("orders_by_day", partitions_def=days, deps=["drained_orders"])


            def write(day, messages, ctx):
                lines = [message.text() for message in messages]
                ctx.output_file(f"build/orders/day={day}", ".jsonl").write_text("\\n".join(lines))


            drained_orders = build_queue_drain_asset(
                spec="drained_orders",
                process=write_by_partition(
                    spec=orders_by_day, partition_of=lambda message: message.json()["day"], write=write
                ),
                settle="per_batch",
            )

            defs = dg.Definitions(
                assets=[drained_orders, orders_by_day],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"), queue_name="orders")},
            )
    """
    name = spec.key.to_user_string()
    try:
        partitions = spec.partitions_def
        if not isinstance(partitions, dg.DynamicPartitionsDefinition) or partitions.name is None:
            raise ConfigurationError("spec needs partitions_def=dg.DynamicPartitionsDefinition(name=...)")
        for option, function in (("partition_of", partition_of), ("write", write)):
            if not callable(function):
                raise ConfigurationError(f"{option} must be a function, not {function!r}")
        checks.count("max_partitions_per_batch", max_partitions_per_batch)
    except ConfigurationError as error:
        raise ConfigurationError(f"write_by_partition for {name!r}: {error}") from None
    partitions_name = partitions.name

    def process(messages: list[Message], ctx: QueueDrainContext) -> None:
        groups: dict[str, list[Message]] = {}
        for message in messages:
            try:
                groups.setdefault(_checked(partition_of(message)), []).append(message)
            except Exception as error:  # noqa: BLE001  (it is of one message, which must not stop the others)
                ctx.bury(message, error=error, reason="no partition")
        if len(groups) > max_partitions_per_batch:
            raise ValueError(
                f"one batch has {len(groups)} partitions of {name!r}, more than max_partitions_per_batch="
                f"{max_partitions_per_batch}; let partition_of return coarser keys, such as days"
            )
        for key, found in groups.items():
            write(key, found, ctx)
        _record(ctx.asset, spec.key, partitions_name, {key: len(found) for key, found in groups.items()})

    return process


def _record(context: dg.AssetExecutionContext, asset: dg.AssetKey, name: str, counts: dict[str, int]) -> None:
    """Add the partitions, and store one event for each at once: not at the end of a step that may be killed."""
    if counts:
        context.instance.add_dynamic_partitions(name, list(counts))  # those that are there stay as they are
    for key, count in counts.items():
        context.log_event(
            dg.AssetMaterialization(asset_key=asset, partition=key, metadata={"dagster/row_count": count})
        )


def _checked(key: Any) -> str:
    """Return a partition key.

    Raises:
        ValueError: Dagster does not allow it; the value is not named, since it may come from a payload.
    """
    if not isinstance(key, str) or not key.strip():
        raise ValueError(f"partition_of must return a text with a visible character, not {type(key).__name__}")
    if any(part in key for part in _FORBIDDEN):
        raise ValueError("partition_of returned a text with '...' or a control character, which Dagster does not allow")
    return key
