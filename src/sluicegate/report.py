"""A queue returns these reports: outcomes of a publish, and counts by state."""

from __future__ import annotations

from dataclasses import dataclass, field

from sluicegate.core.replies import Counted, Published
from sluicegate.core.reports import QueueStats, RedriveReport, RepairReport

__all__ = ["Depth", "PublishReport", "QueueStats", "RedriveReport", "RepairReport"]


@dataclass(slots=True)
class PublishReport:
    """A publish report lists the outcomes of a publish by position.

    Attributes:
        accepted: number of published messages.
        duplicates: number of messages whose deduplication key was held.
        ids: the id of each message; a refused message never entered the queue under its id.
        duplicate_of: per message, the id of the message that holds its key; None if it was accepted or refused.
        refused: number of messages for which `max_pending_length` left no room; always 0 without `partial=True`.
        refused_positions: positions of the refused messages.
        dropped: number of waiting messages that `pending_overload_policy="drop_oldest"` dropped to make room.
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
        """Build a report from a decoded reply."""
        owners: list[str | None] = [None] * len(ids)
        for position, owner in published.duplicates.items():
            owners[position] = owner
        refused = list(published.refused)
        return cls(published.accepted, len(published.duplicates), ids, owners, len(refused), refused, published.dropped)

    def add(self, other: PublishReport) -> None:
        """Append the outcomes of the next chunk, whose positions follow those of this report."""
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
    """A depth counts the messages of a queue by state.

    It costs the same for any number of messages; only expired leases add to the cost.

    Attributes:
        ready: messages that a claim would get: pending, returned, due and expired.
        pending: waiting messages that were never delivered.
        returned: messages that returned from a lease.
        delayed: messages with a due time, including those that are due.
        due: delayed messages whose time has come.
        in_flight: messages in leases, including expired ones.
        leases: open leases.
        expired: messages in expired leases.
        dead: dead letters.
        set_aside: messages of a kind that only a newer version knows, kept until a `repair` can read them.
        oldest_ready_age_seconds: age of the oldest ready message, since it was enqueued or became due; None if no
            message is ready.
        paused: whether claims are paused.
        published_total: messages ever published.
        claimed_total: messages ever claimed; it changes whenever a claim takes a message.
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
        """Build a depth from a decoded reply."""
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
