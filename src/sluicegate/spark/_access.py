"""Looks at leases from where nobody holds them: the one place of this room that reaches below the queue's methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

from sluicegate.config import QueueConfig
from sluicegate.core import batch_calls
from sluicegate.core.call import Call
from sluicegate.core.entry import SEPARATOR
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue

__all__ = ["LeaseView", "config", "drop_payloads", "lease_name", "look", "note", "run"]

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


def config(queue: RedisMessageQueue) -> QueueConfig:
    """The options of a queue."""
    return queue._config


def lease_name(queue: RedisMessageQueue, lease_id: str) -> bytes:
    """What a lease is called in Redis."""
    return queue._keys.lease_name(lease_id)


def note(queue: RedisMessageQueue, run_id: str, members: Sequence[bytes], life_seconds: float = 0) -> tuple[bool, ...]:
    """Note what a run gave back, for so long; without a life only ask. Answers which was noted before."""
    keys = queue._keys
    return run(queue, batch_calls.note(keys, keys.run(run_id), members, life_seconds=life_seconds))


def drop_payloads(lease: Lease) -> None:
    """Keep what names the messages and their deduplication keys: a driver needs no payloads, executors read them."""
    for message in lease.messages:
        head = message.entry.split(SEPARATOR, 2)[:2]
        message.entry = SEPARATOR.join((*head, b"", b""))


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
