"""What operations tell of the transitions that they made: events, one per call with a count."""

from __future__ import annotations

from collections.abc import Iterator

from sluicegate.core import replies
from sluicegate.core.entry import read_prefix, split_entry
from sluicegate.core.keys import decode_name
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["claimed", "dead", "given_back", "lease_id_of", "promoted", "reaped", "set_aside", "text_of"]


def text_of(raw: bytes) -> str:
    """Stored bytes as text, whatever something else has put in their place."""
    return raw.decode(errors="backslashreplace")


def lease_id_of(name: bytes) -> str:
    """A lease's id as far as its keys tell it: they hold a hash (`#...`) of one over 40 bytes."""
    text = text_of(name)
    return text if text.startswith("#") else decode_name(text)


def claimed(queue: str, lease_id: str, reply: replies.ClaimReply, *, taken_over: bool) -> Iterator[QueueEvent]:
    """How a claim ended."""
    operation, outcome, count = EventOperation.CLAIM, EventOutcome.EMPTY, 0
    message_id, deliveries = None, None
    match reply:
        case replies.Opened(takeovers=takeovers, entries=entries):
            operation = EventOperation.TAKE_OVER if taken_over else EventOperation.CLAIM
            outcome, count = EventOutcome.SUCCESS, len(entries)
            if count == 1:
                message_id = text_of(split_entry(entries[0])[0])
                deliveries = read_prefix(entries[0]).deliveries + 1 + takeovers
        case replies.Held():
            outcome = EventOutcome.HELD
        case replies.Paused():
            outcome = EventOutcome.PAUSED
        case replies.Acked(acked, returned, buried):
            outcome, count = EventOutcome.DUPLICATE, acked + returned + buried
        case replies.Foreign(count=count):
            outcome = EventOutcome.REFUSED
        case _:
            pass
    yield QueueEvent(
        operation, outcome, queue, count, lease_id=lease_id, message_id=message_id, delivery_count=deliveries
    )


def given_back(queue: str, lease_id: str, count: int) -> Iterator[QueueEvent]:
    """What an interrupted claim had taken."""
    yield QueueEvent(EventOperation.RELEASE, EventOutcome.SUCCESS, queue, count, lease_id=lease_id)


def dead(queue: str, *, buried: int, dropped: int, lease_id: str | None = None) -> Iterator[QueueEvent]:
    """Messages buried by the server's rules, and dead letters dropped for their cap."""
    if buried:
        yield QueueEvent(EventOperation.BURY, EventOutcome.SUCCESS, queue, buried, lease_id=lease_id)
    if dropped:
        yield QueueEvent(EventOperation.BURY, EventOutcome.DROPPED, queue, dropped)


def set_aside(queue: str, operation: EventOperation, count: int, lease_id: str | None = None) -> Iterator[QueueEvent]:
    """Values of kinds that only a newer version knows."""
    if count:
        yield QueueEvent(operation, EventOutcome.SET_ASIDE, queue, count, lease_id=lease_id)


def reaped(queue: str, name: bytes, step: replies.Reaped) -> Iterator[QueueEvent]:
    """What came back from an expired lease."""
    lease_id = lease_id_of(name)
    if step.moved:
        yield QueueEvent(EventOperation.REAP, EventOutcome.SUCCESS, queue, step.moved, lease_id=lease_id)
    yield from dead(queue, buried=step.buried, dropped=step.dropped, lease_id=lease_id)
    yield from set_aside(queue, EventOperation.REAP, step.aside, lease_id)


def promoted(queue: str, count: int) -> Iterator[QueueEvent]:
    """What fell due."""
    if count:
        yield QueueEvent(EventOperation.PROMOTE, EventOutcome.SUCCESS, queue, count)
