"""What operations that look at a queue, or move its dead letters, report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

__all__ = ["QueueStats", "RedriveReport", "RepairReport"]


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """What a redrive did.

    Attributes:
        redriven: dead letters that are pending again.
        blocked: letters that stay dead, because another message holds their deduplication key or they are foreign
            values.
        scanned: dead letters that were looked at.
        after: where it stopped before the end, for the `after` of a next call; None when it came to the end.
    """

    redriven: int = 0
    blocked: int = 0
    scanned: int = 0
    after: str | None = None


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair mended.

    Attributes:
        in_flight: by how much the count of messages in flight was corrected; negative when it was too high.
        recounted: whether they were recounted; False when another repair began to do so meanwhile.
        counters: totals that were no numbers, and begin anew, or were behind what waits.
        leases: leases without a hash, slots, or a deadline that comes, and those that counted their messages wrong.
        reaped: damaged leases whose messages were taken back.
        letters: dead letters whose record was lost.
        records: records of dead letters that were in no order, and are dead letters again.
        returned: messages that had been set aside and that this version can read.
    """

    in_flight: int = 0
    recounted: bool = True
    counters: int = 0
    leases: int = 0
    reaped: int = 0
    letters: int = 0
    records: int = 0
    returned: int = 0

    @property
    def mended(self) -> int:
        """How many things were mended; 0 when all agreed."""
        found = (self.counters, self.leases, self.reaped, self.letters, self.records, self.returned)
        return sum(found) + (self.in_flight != 0)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Totals of a queue since it exists, kept in Redis: they survive every process.

    Attributes:
        published: messages accepted.
        duplicates: messages refused because their deduplication key was held; attempts that are repeated count again.
        claimed: deliveries begun.
        taken_over: leases taken over.
        acked: messages acked.
        nacked: messages given back as failed.
        released: messages given back uncounted.
        buried: messages that died.
        reaped: messages that came back from leases that ran out.
        dropped: waiting messages dropped by `drop_oldest`.
        dead_dropped: dead letters dropped by `max_dead_length`.
        discarded: failed messages dropped by `on_error="discard"`.
        foreign: values that are no messages, found and buried.
        redriven: dead letters made pending again.
        purged: messages and records deleted by `purge`.
        cancelled: messages deleted by `cancel`.
        in_flight: messages in leases at the moment.
        paused: whether claims are paused.
        completed: messages handled to the end: all that were acked, but for those of at-most-once queues whose handler
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

    @classmethod
    def from_totals(cls, totals: Mapping[str, int]) -> QueueStats:
        """From the stored totals; one that was never counted is 0, and what this version does not know is left out."""
        known = {field.name: totals.get(field.name, 0) for field in fields(cls) if field.name != "paused"}
        known["completed"] = max(0, known["acked"] - totals.get("acked_and_failed", 0))
        return cls(**known, paused="paused" in totals)
