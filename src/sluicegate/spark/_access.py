"""Looks at leases from where nobody holds them: the one place of this room that reaches below the queue's methods."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from sluicegate.core import batch_calls
from sluicegate.core.call import Call
from sluicegate.errors import LeaseLostError
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue

__all__ = ["LeaseView", "look", "read_slots", "run"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LeaseView:
    """What a read-only look at a lease says.

    Attributes:
        state: `open`; `ended`, when the record of its end is kept; `unknown` without either.
        opening: which opening is open, or was the last to end; "" for an unknown lease.
        takeovers: of an open lease.
        size: messages that were claimed.
        held: of an open lease: messages without a verdict.
        left_seconds: of an open lease: until it runs out unless extended; 0 or less when it has.
        how: how an ended lease ended, such as `acked` or `returned`.
        acked: of an ended lease.
        returned: of an ended lease.
        buried: of an ended lease.
        messages: of the slots that were asked for, those still held.
    """

    state: Literal["open", "ended", "unknown"]
    opening: str = ""
    takeovers: int = 0
    size: int = 0
    held: int = 0
    left_seconds: float = 0
    how: str = ""
    acked: int = 0
    returned: int = 0
    buried: int = 0
    messages: list[Message] = field(default_factory=list, repr=False)


def run(queue: RedisMessageQueue, call: Call[T]) -> T:
    """Execute a prepared call as the queue does its own: with its retries."""
    return cast("T", queue._gateway.execute(cast("Call[Any]", call)))


def look(queue: RedisMessageQueue, lease_id: str, first: int = 1, last: int = 0) -> LeaseView:
    """Look at a lease and, with a `last`, at its messages from slot `first` on: as many as 4 MiB hold, one at least.

    Changes nothing; needs no token. Raises as any call does when Redis is away.
    """
    keys = queue._keys
    seen = run(queue, batch_calls.manifest(keys, keys.lease_name(lease_id), first, last))
    begun = 1 + seen.takeovers
    return LeaseView(
        state=cast("Literal['open', 'ended', 'unknown']", seen.state),
        opening=seen.token.rpartition(b":")[2].decode(),
        takeovers=seen.takeovers,
        size=seen.size,
        held=seen.held,
        left_seconds=seen.left_seconds,
        how=seen.how,
        acked=seen.acked,
        returned=seen.returned,
        buried=seen.buried,
        messages=[Message(entry, slot, begun) for slot, entry in zip(seen.slots, seen.entries, strict=True)],
    )


def read_slots(queue: RedisMessageQueue, lease_id: str, opening: str, first: int, last: int) -> Iterator[list[Message]]:
    """The messages of some slots of one opening, in pages; the same ones at every call, or none.

    Raises:
        LeaseLostError: that opening does not hold all of them any more: it was settled, lost or opened anew.
    """
    while first <= last:
        seen = look(queue, lease_id, first, last)
        if seen.state != "open" or seen.opening != opening:
            raise LeaseLostError(
                f"lease {lease_id!r} of queue {queue.name!r} is not open any more ({_what(seen, opening)}); its "
                "messages cannot be read again",
                lease_id=lease_id,
                lost=range(first, last + 1),
            )
        slots = [message.slot for message in seen.messages]
        expected = list(range(first, first + len(slots)))
        if not slots or slots != expected:
            missing = next((at for at, slot in zip(expected, slots, strict=True) if at != slot), first + len(slots))
            raise LeaseLostError(
                f"message {missing} of lease {lease_id!r} of queue {queue.name!r} has its verdict already and cannot "
                "be read again; read before you ack, or keep what you read with cache() or a table",
                lease_id=lease_id,
                lost=(missing,),
            )
        yield seen.messages
        first = slots[-1] + 1


def _what(seen: LeaseView, opening: str) -> str:
    if seen.state == "unknown":
        return "nothing is known of it"
    if seen.state == "open":
        return "it was opened anew"
    return f"it ended: {seen.how}" if seen.opening == opening else "a later opening of it ended"
