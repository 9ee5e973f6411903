"""Looks at leases from where nobody holds them: the one place of this room that reaches below the queue's methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from sluicegate.config import QueueSpec
from sluicegate.core.call import Call, alone
from sluicegate.core.entry import SEPARATOR
from sluicegate.core.transitions.manifest import LeaseView, manifest_call
from sluicegate.errors import RedisUnavailableError
from sluicegate.lease import Lease
from sluicegate.message import Message
from sluicegate.queue import RedisMessageQueue
from sluicegate.report import Depth

__all__ = [
    "LeaseView",
    "briefly",
    "depth_of",
    "drop_payloads",
    "look",
    "messages_of",
    "run",
]

T = TypeVar("T")


def run(queue: RedisMessageQueue, call: Call[T]) -> T:
    """Execute a prepared call as the queue does its own: with its retries."""
    return queue.session.runner.run(alone(call))


def depth_of(spec: QueueSpec) -> Depth:
    """The depth of a queue, by a connection of its own, as tasks have one: where that fails, so would every task.

    Raises:
        RedisUnavailableError: Redis cannot be reached.
    """
    queue = RedisMessageQueue.from_spec(spec)
    try:
        return queue.depth()
    finally:
        queue.close()


@contextmanager
def briefly() -> Iterator[None]:
    """Let a Redis that cannot be reached be reported in its own words.

    Spark shows the traceback of whatever ends a planning process, with those of its causes: a page of them would hide
    the one line that says what to do.
    """
    try:
        yield
    except RedisUnavailableError as error:
        raise error.with_traceback(None) from None


def drop_payloads(lease: Lease) -> None:
    """Keep what names the messages and their deduplication keys: a driver needs no payloads, executors read them."""
    for message in lease.messages:
        head = message.entry.split(SEPARATOR, 2)[:2]
        message.entry = SEPARATOR.join((*head, b"", b""))


def look(queue: RedisMessageQueue, lease_id: str, first: int = 1, last: int = 0) -> LeaseView:
    """Look at a lease and, with a `last`, at its messages from slot `first` on: as many as 4 MiB hold, one at least.

    Changes nothing; needs no token. Raises as any call does when Redis is away.
    """
    keys = queue.session.keys
    return run(queue, manifest_call(keys, keys.lease_name(lease_id), first, last))


def messages_of(seen: LeaseView) -> list[Message]:
    """What a look at a lease showed, as its holder has it."""
    begun = 1 + seen.takeovers
    return [Message(entry, slot, begun) for slot, entry in zip(seen.slots, seen.entries, strict=True)]
