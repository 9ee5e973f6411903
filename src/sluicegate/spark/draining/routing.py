"""Which part of a drain's work each of its partitions does."""

from __future__ import annotations

from sluicegate.config import QueueSpec

__all__ = ["queue_of", "quota_of"]


def queue_of(spec: str, partition: int) -> QueueSpec:
    """The queue that a partition drains: all of them the same one."""
    del partition
    return QueueSpec.from_json(spec)


def quota_of(limit: int | None, partition: int, partitions: int) -> int | None:
    """How many of at most `limit` messages a partition may claim: fixed, so that a retry has the same; None for all."""
    if limit is None:
        return None
    return limit // partitions + (partition < limit % partitions)
