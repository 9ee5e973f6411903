"""A snapshot is the depth and the totals of a queue, read in one call."""

from __future__ import annotations

from dataclasses import dataclass

from sluicegate.core.call import Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.depth import Counted, Depth, count_expired, depth_call
from sluicegate.core.transitions.stats import QueueStats, decode_totals

__all__ = ["Snapshot", "snapshot_operation"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a queue, or a group of a stream, holds now, and what has happened in it since its creation.

    Attributes:
        depth: messages by state.
        stats: the totals.
        holds_jobs: whether jobs were ever enqueued in it.
    """

    depth: Depth
    stats: QueueStats
    holds_jobs: bool = False


def snapshot_operation(keys: QueueKeys) -> Operation[Snapshot]:
    """Read the depth and the totals in one call; where leases have expired, a page of 500 of them costs one more."""
    counted: Counted = yield depth_call(keys, totals=True)
    depth = yield from count_expired(keys, counted)
    return Snapshot(depth, decode_totals(counted.totals), holds_jobs=b"jobs" in counted.totals[::2])
