"""Stats are the totals of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = ["QueueStats", "decode_totals", "stats_call", "stats_operation"]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Totals of a queue since its creation, kept in Redis: they survive every process.

    Attributes:
        published: messages accepted.
        duplicates: messages refused because their deduplication key was held; repeated attempts count again.
        claimed: deliveries begun.
        taken_over: leases taken over.
        acked: messages acked.
        nacked: messages returned as failed.
        released: messages returned uncounted.
        buried: messages that became dead letters.
        reaped: messages recovered from expired leases.
        dropped: waiting messages dropped by `drop_oldest`.
        dead_dropped: dead letters dropped by `max_dead_length`.
        discarded: failed messages dropped by `on_error="discard"`.
        foreign: values that are no messages, found and buried.
        redriven: dead letters made pending again.
        purged: messages and records deleted by `purge`.
        cancelled: messages deleted by `cancel`.
        in_flight: messages in leases at the moment.
        paused: whether claims are paused.
        completed: messages handled to the end: all that were acked, except those of at-most-once queues whose handler
            failed.
        failed: attempts that failed: messages nacked, buried by their consumer or discarded, and those of at-most-once
            queues whose handler failed. Expired leases are counted in `reaped`.
    """

    published: int = 0
    duplicates: int = 0
    claimed: int = 0
    taken_over: int = 0
    acked: int = 0
    nacked: int = 0
    released: int = 0
    buried: int = 0
    reaped: int = 0
    dropped: int = 0
    dead_dropped: int = 0
    discarded: int = 0
    foreign: int = 0
    redriven: int = 0
    purged: int = 0
    cancelled: int = 0
    in_flight: int = 0
    paused: bool = False
    completed: int = 0
    failed: int = 0


def stats_call(keys: QueueKeys) -> Call[QueueStats]:
    """Prepare the call that reads the totals."""
    return Call(scripts.load("stats"), (keys.counters,), (), decode_totals)


def stats_operation(keys: QueueKeys) -> Operation[QueueStats]:
    """Read the totals."""
    stats: QueueStats = yield stats_call(keys)
    return stats


def decode_totals(reply: Sequence[bytes] | dict[bytes, bytes]) -> QueueStats:
    """Decode the totals: one that was never counted is 0, and one that this version does not know is ignored."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    totals = {name.decode(errors="replace"): _total(value) for name, value in pairs}
    known = {field.name: totals.get(field.name, 0) for field in fields(QueueStats) if field.name != "paused"}
    known["completed"] = max(0, known["acked"] - totals.get("acked_and_failed", 0))
    return QueueStats(**known, paused="paused" in totals)


def _total(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:  # written by another program
        return 0
