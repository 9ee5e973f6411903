"""What a queue tells: outcomes of a publish, and counts by state."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate.core.replies import Counted, Published
from sluicegate.core.reports import QueueStats, RedriveReport, RepairReport

__all__ = ["Depth", "PublishReport", "QueueStats", "RedriveReport", "RepairReport"]


@dataclass(slots=True)
class PublishReport:
    """Outcomes of a publish, by position.

    Attributes:
        accepted: messages that were published.
        duplicates: messages whose deduplication key was held.
        ids: the id of each message; a refused one never entered the queue under it.
        duplicate_of: per message, the id of the one that holds its key, or None when it was accepted or refused.
        refused: messages for which `max_pending_length` left no room; never any unless a part was allowed.
        refused_positions: where they stand.
        dropped: messages of the queue that were dropped to make room, by `pending_overload_policy="drop_oldest"`.
    """

    accepted: int = 0
    duplicates: int = 0
    ids: list[str] = field(default_factory=list)
    duplicate_of: list[str | None] = field(default_factory=list)
    refused: int = 0
    refused_positions: list[int] = field(default_factory=list)
    dropped: int = 0

    @classmethod
    def of(cls, published: Published, ids: list[str]) -> PublishReport:
        """From a decoded reply."""
        owners: list[str | None] = [None] * len(ids)
        for position, owner in published.duplicates.items():
            owners[position] = owner
        refused = list(published.refused)
        return cls(published.accepted, len(published.duplicates), ids, owners, len(refused), refused, published.dropped)

    def add(self, other: PublishReport) -> None:
        """Append the outcomes of the next chunk, whose positions follow on ours."""
        self.refused_positions += [len(self.ids) + position for position in other.refused_positions]
        self.refused += other.refused
        self.dropped += other.dropped
        self.accepted += other.accepted
        self.duplicates += other.duplicates
        self.ids += other.ids
        self.duplicate_of += other.duplicate_of

    def __repr__(self) -> str:
        more = "".join(f", {name}={getattr(self, name)}" for name in ("refused", "dropped") if getattr(self, name))
        return f"PublishReport(accepted={self.accepted}, duplicates={self.duplicates}{more})"


@dataclass(frozen=True, slots=True)
class Depth:
    """Messages of a queue by state, at the same cost for any number of messages; expired leases add to it.

    Attributes:
        ready: what a claim would get: pending, returned, due and expired.
        pending: waiting, never delivered.
        returned: come back from a lease.
        delayed: waiting for their time, the due ones included.
        due: delayed ones whose time has come.
        in_flight: in leases, the expired ones included.
        leases: open leases.
        expired: messages in expired leases.
        dead: dead letters.
        set_aside: values of kinds that only a newer version knows, kept out of the way until `repair` finds that it can
            read them.
        oldest_ready_age_seconds: age of the oldest ready message, since it was enqueued or fell due; None when
            nothing is ready.
        paused: whether claims are paused.
        published_total: messages ever published.
        claimed_total: messages ever claimed; moves whenever a claim takes something.
    """

    ready: int
    pending: int
    returned: int
    delayed: int
    due: int
    in_flight: int
    leases: int
    expired: int
    dead: int
    oldest_ready_age_seconds: float | None
    paused: bool
    published_total: int
    claimed_total: int
    set_aside: int = 0

    @classmethod
    def from_counts(cls, counted: Counted) -> Depth:
        """From a decoded reply."""
        return cls(
            ready=counted.pending + counted.returned + counted.due + counted.expired,
            pending=counted.pending,
            returned=counted.returned,
            delayed=counted.delayed,
            due=counted.due,
            in_flight=counted.in_flight,
            leases=counted.leases,
            expired=counted.expired,
            dead=counted.dead,
            oldest_ready_age_seconds=None if counted.oldest_ms < 0 else counted.oldest_ms / 1000,
            paused=counted.paused,
            published_total=counted.published,
            claimed_total=counted.claimed,
            set_aside=counted.set_aside,
        )
