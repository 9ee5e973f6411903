"""The status of a batch: how many of its messages are in which state."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sluicegate.core.transitions.batches import BatchCounts

__all__ = ["BatchStatus"]


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """The status of a batch counts its messages by state; it costs the same for any number of them.

    Attributes:
        batch_id: the batch.
        total: messages that were published; `waiting`, `delayed`, `in_flight`, `done`, `dead` and `gone` add up to it.
        waiting: messages that wait to be claimed, for the first time or again.
        delayed: messages with a due time.
        in_flight: messages in leases.
        done: messages that were acked.
        dead: dead letters; a redrive makes them wait again.
        gone: messages that ended otherwise: cancelled, purged, dropped or discarded.
        sealed: whether all messages were published, so that the batch can complete.
        completed_at: when the last message ended; None while the batch is open. A redrive reopens it.
        exists: whether the batch is known: it was never published here, or its record was removed after its retention.
    """

    batch_id: str
    total: int = 0
    waiting: int = 0
    delayed: int = 0
    in_flight: int = 0
    done: int = 0
    dead: int = 0
    gone: int = 0
    sealed: bool = False
    completed_at: datetime | None = None
    exists: bool = True

    @property
    def is_complete(self) -> bool:
        """Return whether the batch is sealed and nothing of it waits, is delayed or in flight."""
        return self.completed_at is not None

    @property
    def ended(self) -> int:
        """Count the messages that are done, dead or gone."""
        return self.done + self.dead + self.gone

    @classmethod
    def of(cls, batch_id: str, counts: BatchCounts) -> BatchStatus:
        """Make the status from the counts in Redis."""
        if counts.total < 0:
            return cls(batch_id, exists=False)
        moved = counts.delayed + counts.in_flight + counts.done + counts.dead + counts.gone
        return cls(
            batch_id,
            counts.total,
            max(0, counts.total - moved),
            counts.delayed,
            counts.in_flight,
            counts.done,
            counts.dead,
            counts.gone,
            counts.sealed_ms > 0,
            datetime.fromtimestamp(counts.ended_ms / 1000, UTC) if counts.ended_ms else None,
        )
