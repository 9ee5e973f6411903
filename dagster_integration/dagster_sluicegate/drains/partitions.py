"""Partitions of drains: static ones, each with a queue or stream of its own, and dynamic ones that a run adds."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import dagster as dg

from dagster_sluicegate.identity import StepContext
from dagster_sluicegate.names import Names
from dagster_sluicegate.sensors.many_gates import QueueGate
from dagster_sluicegate.sensors.targets import Target
from sluicegate import checks
from sluicegate.errors import ConfigurationError

__all__ = ["RUN_PER_PARTITION", "QueuePartitions", "partitioned"]

T = TypeVar("T")
RUN_PER_PARTITION = dg.BackfillPolicy.multi_run(1)
"""A run drains one queue, also in a backfill."""

_MAX_PARTITIONS = 1000


class QueuePartitions:
    """Static groups of messages, each with a partition of the drain asset and a queue of its own.

    The queue of the partition `eu` of the queue `orders` is `orders:eu`. Partitions are drained, retried and gated by
    themselves: a group that fails, or that is slow, holds no other group up.

    With `stream_name` and `group`, the partition `eu` of `orders` is the stream `orders:eu`, of which each run drains
    that group.

    Args:
        queue_name: what the names of all queues begin with.
        keys: of the partitions.
        stream_name: instead, what the names of all streams begin with.
        group: of each of these streams; default: the resource's own.

    Attributes:
        names: what the names of all queues or streams begin with, and the group.
        keys: of the partitions, in their order.
        partitions_def: Dagster's definition of the partitions, for assets that depend on the drain.

    Raises:
        ConfigurationError: no key, a key twice, one that Dagster does not allow, or too many.

    Example:
        .. code-block:: python

            import dagster as dg
            from dagster_sluicegate import (
                QueuePartitions,
                RedisQueueResource,
                build_queue_drain_asset,
                build_queue_gates_sensor,
            )

            regions = QueuePartitions("orders", ["eu", "us"])


            @dg.asset
            def published(queue: RedisQueueResource) -> None:
                orders = [{"order_id": 1, "region": "eu"}, {"order_id": 2, "region": "us"}]
                for region, found in regions.route(orders, lambda order: order["region"]).items():
                    with queue.get_queue(regions.queue_of(region)) as target:
                        target.publish_many(found)


            def count(messages) -> int:
                return len(messages)


            drained = build_queue_drain_asset(spec="drained", process=count, queue_partitions=regions)

            defs = dg.Definitions(
                assets=[published, drained],
                sensors=[
                    build_queue_gates_sensor(name="regions", queues=regions.gates(target=drained, min_ready=1000))
                ],
                resources={"queue": RedisQueueResource(url=dg.EnvVar("REDIS_URL"))},
            )
    """

    def __init__(
        self,
        queue_name: str | None = None,
        keys: Sequence[str] = (),
        *,
        stream_name: str | None = None,
        group: str | None = None,
    ) -> None:
        name = queue_name if stream_name is None else stream_name
        where = f"QueuePartitions({name!r})"
        if name is None:
            raise ConfigurationError("QueuePartitions: give queue_name, or stream_name and group")
        if isinstance(keys, str) or not keys:
            raise ConfigurationError(f"{where}: keys must be a list of partition keys, not {keys!r}")
        if len(keys) > _MAX_PARTITIONS:
            raise ConfigurationError(
                f"{where}: {len(keys)} keys are more than {_MAX_PARTITIONS}; each has a queue, a gate and a run of its "
                "own, so form fewer groups, such as QueuePartitions.hashed(name, 16)"
            )
        try:
            self.partitions_def = dg.StaticPartitionsDefinition(list(keys))
            self.names = Names(queue_name, stream_name, group)
            for key in keys:
                self._names_of(key)  # it checks the name
        except (dg.DagsterError, ConfigurationError) as error:
            raise ConfigurationError(f"{where}: {error}") from None
        self.keys = tuple(keys)

    @classmethod
    def hashed(
        cls,
        queue_name: str | None = None,
        count: int = 1,
        *,
        stream_name: str | None = None,
        group: str | None = None,
    ) -> QueuePartitions:
        """Return a number of groups for keys of which there are many, such as customers; see `key_of`.

        Args:
            queue_name: what the names of all queues begin with.
            stream_name: instead, what the names of all streams begin with.
            group: of each of these streams.
            count: how many groups. A key may belong to another group after a change, so drain the queues before one.

        Raises:
            ConfigurationError: the number cannot work.
        """
        checks.count("count", count, _MAX_PARTITIONS)
        width = len(str(count - 1))
        keys = [f"{number:0{width}}" for number in range(count)]
        return cls(queue_name, keys, stream_name=stream_name, group=group)

    def key_of(self, value: str) -> str:
        """Return the group of a key by its hash: always the same one, in every process and on every machine."""
        digest = hashlib.blake2b(value.encode(), digest_size=8).digest()
        return self.keys[int.from_bytes(digest) % len(self.keys)]

    def queue_of(self, key: str) -> str:
        """Return the name of a partition's queue or stream.

        Raises:
            ConfigurationError: there is no such partition.
        """
        if key not in self.keys:
            raise ConfigurationError(
                f"{self.names.in_words} has no partition {key!r}; it has {', '.join(map(repr, self.keys[:20]))}"
            )
        return f"{self.names.queue_name or self.names.stream_name}:{key}"

    def route(self, payloads: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
        """Return payloads by partition, in their order.

        Args:
            payloads: what is published.
            key: returns the partition of a payload.

        Raises:
            ConfigurationError: there is no such partition.
        """
        routed: defaultdict[str, list[T]] = defaultdict(list)
        for payload in payloads:
            found = key(payload)
            self.queue_of(found)
            routed[found].append(payload)
        return dict(routed)

    def gates(self, *, target: Target, resource_key: str = "queue", **options: Any) -> list[QueueGate]:
        """Return a gate per partition for `build_queue_gates_sensor`, which requests runs of that partition.

        Args:
            target: the drain asset, or a job of it.
            resource_key: of the `RedisQueueResource`.
            options: of every `QueueGate`, such as `min_ready`.
        """
        names = {key: self._names_of(key) for key in self.keys}
        return [
            QueueGate(
                target=target,
                resource_key=resource_key,
                queue_name=found.queue_name,
                stream_name=found.stream_name,
                group=found.group,
                partition_key=key,
                **options,
            )
            for key, found in names.items()
        ]

    def names_of_step(self, context: StepContext) -> Names:
        """Return the names of the queue, or the stream and group, that a step drains.

        Raises:
            ConfigurationError: the run is about no partition, or about several.
        """
        if not context.has_partition_key:
            raise ConfigurationError(
                f"a run drains one partition of {self.names.in_words}; launch it with a partition, and a backfill "
                "with a run per partition"
            )
        self.queue_of(context.partition_key)
        return self._names_of(context.partition_key)

    def _names_of(self, key: str) -> Names:
        queue, stream = self.names.queue_name, self.names.stream_name
        if queue is not None:
            return Names(f"{queue}:{key}")
        return Names(stream_name=f"{stream}:{key}", group=self.names.group)


def partitioned(asset: dg.AssetSpec, partitions: QueuePartitions | None, names: Names) -> dg.AssetSpec:
    """Return the asset of a drain with its partitions, if it has any.

    Raises:
        ConfigurationError: partitions without queues, others than those of the queues, or a further queue.
    """
    given = asset.partitions_def
    if partitions is None:
        if given is not None:
            raise ConfigurationError(
                "its spec has partitions, which a queue does not know; leave partitions_def out, or give "
                "queue_partitions=QueuePartitions(...) with a queue for each"
            )
        return asset
    if not isinstance(partitions, QueuePartitions):
        raise ConfigurationError(f"queue_partitions must be a QueuePartitions, not a {type(partitions).__name__}")
    if names:
        further = [f"{name}={value!r}" for name, value in asdict(names).items() if value is not None]
        raise ConfigurationError(f"queue_partitions names the queues; leave {' and '.join(further)} out")
    if given is not None and given != partitions.partitions_def:
        raise ConfigurationError("its spec has other partitions than queue_partitions; leave partitions_def out")
    return asset.replace_attributes(partitions_def=partitions.partitions_def)
