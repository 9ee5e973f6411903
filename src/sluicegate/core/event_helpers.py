"""Several transitions emit these events about side effects of their main work."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["buried_events", "set_aside_events"]


def buried_events(queue: str, *, buried: int, dropped: int, lease_id: str | None = None) -> Iterator[QueueEvent]:
    """Report messages that the rules of the queue buried, and dead letters that its cap dropped."""
    if buried:
        yield QueueEvent(EventOperation.BURY, EventOutcome.SUCCESS, queue, buried, lease_id=lease_id)
    if dropped:
        yield QueueEvent(EventOperation.BURY, EventOutcome.DROPPED, queue, dropped)


def set_aside_events(
    queue: str, operation: EventOperation, count: int, lease_id: str | None = None
) -> Iterator[QueueEvent]:
    """Report values that were set aside because only a newer version can read them."""
    if count:
        yield QueueEvent(operation, EventOutcome.SET_ASIDE, queue, count, lease_id=lease_id)
