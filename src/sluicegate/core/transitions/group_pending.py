"""What a group has delivered and not ended: messages in leases, and entries of other libraries' consumers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.entry import SEPARATOR, identify, is_entry, read_prefix
from sluicegate.core.keys import QueueKeys, lease_id_of, text_of
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.adopt import adopt_operation
from sluicegate.core.transitions.in_flight import HeldMessage, HeldPage, LeasePage, in_flight_call

__all__ = [
    "ForeignPage",
    "GroupConsumer",
    "PendingMessage",
    "PendingSummary",
    "consumers_operation",
    "expire_leases_call",
    "foreign_pending_call",
    "pending_operation",
    "remove_consumer_operation",
    "summary_operation",
]

_PAGE_SIZE = 1000
_MAX_STEPS = 100_000


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message that a consumer of a group holds.

    Attributes:
        id: of the message and its entry in the stream.
        consumer: the name of the consumer; None for one without a name.
        lease_id: the lease that holds it; None with a consumer of another library.
        delivery_count: deliveries, the current one included.
        idle_seconds: time since its lease was last extended, or since the last delivery to a consumer of another
            library.
        foreign: whether a consumer of another library holds it, by XREADGROUP.
    """

    id: str
    consumer: str | None
    lease_id: str | None
    delivery_count: int
    idle_seconds: float
    foreign: bool


@dataclass(frozen=True, slots=True)
class PendingSummary:
    """What the consumers of a group hold together.

    Attributes:
        count: messages.
        min_id: the smallest id; None when nothing is held.
        max_id: the greatest id.
        by_consumer: messages by the name of their consumer, "" for those without a name.
    """

    count: int
    min_id: str | None
    max_id: str | None
    by_consumer: dict[str, int]


@dataclass(frozen=True, slots=True)
class GroupConsumer:
    """A consumer of a group.

    Attributes:
        name: "" for all consumers without a name.
        pending: messages that it holds.
        idle_seconds: time since it last claimed, extended or was delivered something.
        foreign: whether it is a consumer of another library.
    """

    name: str
    pending: int
    idle_seconds: float
    foreign: bool


@dataclass(frozen=True, slots=True)
class ForeignPage:
    """What consumers of other libraries hold.

    Attributes:
        messages: a page of the entries.
        consumers: all such consumers of the group.
    """

    messages: list[PendingMessage]
    consumers: list[GroupConsumer]


def foreign_pending_call(
    keys: QueueKeys, *, after: bytes = b"", count: int = 0, consumer: bytes = b""
) -> Call[ForeignPage]:
    """Prepare the call that shows entries of other libraries' consumers behind the id `after`, and those consumers."""
    return Call(
        scripts.load("foreign_pending"), (keys.pending,), (keys.group.encode(), after, count, consumer), _decode_foreign
    )


def expire_leases_call(keys: QueueKeys, consumer: bytes, names: Sequence[bytes]) -> Call[int]:
    """Prepare the call that expires those of the named leases that a consumer has."""
    return Call(
        scripts.load("expire_leases"),
        (keys.leases, keys.wakeup, *(keys.lease(name) for name in names)),
        (consumer, *names),
        int,
    )


def pending_operation(keys: QueueKeys, limit: int, consumer: str | None = None) -> Operation[list[PendingMessage]]:
    """List up to `limit` messages that consumers hold: those in leases by their deadlines, then those of other clients.

    Args:
        keys: the keys of the group.
        limit: maximum number of messages.
        consumer: only those of this consumer.
    """
    found: list[PendingMessage] = []
    page = yield from _first_page(keys)
    while page.names and len(found) < limit:
        held: HeldPage
        held, page = yield from _next_page(keys, page)
        messages = [_pending(one) for one in held.messages]
        found += [one for one in messages if consumer is None or one.consumer == consumer]
    if len(found) < limit:
        found += yield from _foreign(keys, limit - len(found), consumer)
    return found[:limit]


def summary_operation(keys: QueueKeys) -> Operation[PendingSummary]:
    """Count what the consumers hold, by consumer; it reads all of it, in bounded steps."""
    counts: dict[str, int] = {}
    span: list[tuple[tuple[int, int], str]] = []
    page = yield from _first_page(keys)
    while page.names:
        held: HeldPage
        held, page = yield from _next_page(keys, page)
        messages = [_pending(one) for one in held.messages]
        _add(counts, span, messages)
    after: bytes | None = b""
    while after is not None:
        foreign: ForeignPage = yield foreign_pending_call(keys, after=after, count=_PAGE_SIZE)
        _add(counts, span, foreign.messages)
        after = foreign.messages[-1].id.encode() if len(foreign.messages) == _PAGE_SIZE else None
    least, greatest = (span[0][1], span[-1][1]) if span else (None, None)
    return PendingSummary(sum(counts.values()), least, greatest, counts)


def consumers_operation(keys: QueueKeys) -> Operation[list[GroupConsumer]]:
    """List the consumers that hold leases, by name, then those of other libraries."""
    idle: dict[str, float] = {}
    counts: dict[str, int] = {}
    page = yield from _first_page(keys)
    while page.names:
        held: HeldPage
        held, page = yield from _next_page(keys, page)
        for one in map(_pending, held.messages):
            name = one.consumer or ""
            counts[name] = counts.get(name, 0) + 1
            idle[name] = min(one.idle_seconds, idle.get(name, one.idle_seconds))
    foreign: ForeignPage = yield foreign_pending_call(keys)
    ours = [GroupConsumer(name, counts[name], idle[name], foreign=False) for name in sorted(counts)]
    return ours + foreign.consumers


def remove_consumer_operation(
    keys: QueueKeys, rules: QueueRules, name: bytes, *, emits_events: bool = False
) -> Operation[int]:
    """Take from a consumer what it holds, so that the next claims get it, and remove it from the group.

    Its leases expire, which counts as a delivery. A consumer of another library loses its entries with their delivery
    counts.

    Returns:
        The number of messages that it held.
    """
    count = 0
    page = yield from _first_page(keys)
    while page.names:
        held: HeldPage
        held, page = yield from _next_page(keys, page)
        owned = sorted({one.name for one in held.messages if one.consumer == name})
        if owned:
            expired: int = yield expire_leases_call(keys, name, owned)
            count += expired
    count += yield from adopt_operation(keys, rules, consumer=name, max_steps=_MAX_STEPS, emits_events=emits_events)
    return count


def _first_page(keys: QueueKeys) -> Operation[LeasePage]:
    held: HeldPage = yield in_flight_call(keys)
    return held.page


def _next_page(keys: QueueKeys, page: LeasePage) -> Operation[tuple[HeldPage, LeasePage]]:
    """Read all messages of the leases of a page, without their payloads; returns them with the page that follows."""
    messages: list[HeldMessage] = []
    while True:
        held: HeldPage = yield in_flight_call(keys, page, count=_PAGE_SIZE, offset=len(messages), whole=False)
        messages += held.messages
        if held.ended or not held.messages:
            readable = [one for one in messages if is_entry(one.entry + SEPARATOR)]  # others were written from outside
            return HeldPage(readable, 0, True, held.page), held.page


def _foreign(keys: QueueKeys, limit: int, consumer: str | None) -> Operation[list[PendingMessage]]:
    found: list[PendingMessage] = []
    after = b""
    while len(found) < limit:
        count = min(limit - len(found), _PAGE_SIZE)
        page: ForeignPage = yield foreign_pending_call(
            keys, after=after, count=count, consumer=b"" if consumer is None else consumer.encode(errors="replace")
        )
        found += page.messages
        if len(page.messages) < count:
            break
        after = page.messages[-1].id.encode()
    return found


def _pending(held: HeldMessage) -> PendingMessage:
    return PendingMessage(
        id=text_of(identify(held.entry)[0]),
        consumer=text_of(held.consumer) or None,
        lease_id=lease_id_of(held.name),
        delivery_count=read_prefix(held.entry).deliveries + held.takeovers + 1,
        idle_seconds=max(0, held.now - held.extended) / 1000,
        foreign=False,
    )


def _add(counts: dict[str, int], span: list[tuple[tuple[int, int], str]], messages: Sequence[PendingMessage]) -> None:
    """Count messages by consumer, and keep the smallest and the greatest id in `span`."""
    for one in messages:
        counts[one.consumer or ""] = counts.get(one.consumer or "", 0) + 1
        ms, _, number = one.id.partition("-")
        if ms.isdigit() and number.isdigit():
            span.append(((int(ms), int(number)), one.id))
    span.sort()
    del span[1:-1]


def _decode_foreign(reply: list[Any]) -> ForeignPage:
    *entries, consumers = reply
    return ForeignPage(
        [
            PendingMessage(entry.decode(), text_of(consumer), None, deliveries, idle / 1000, foreign=True)
            for entry, consumer, idle, deliveries in entries
        ],
        [GroupConsumer(text_of(name), count, idle / 1000, foreign=True) for name, count, idle in consumers],
    )
