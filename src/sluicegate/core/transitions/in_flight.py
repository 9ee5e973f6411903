"""This transition shows messages in open leases without changing the leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = ["HeldMessage", "HeldPage", "LeasePage", "in_flight_call", "in_flight_operation"]

_MAX_BYTES = 1024 * 1024
_MAX_LEASES = 500


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message in a lease, with what is known of the lease; times are in ms by the server's clock.

    Attributes:
        name: the lease, as its keys have it.
        entry: the stored message.
        slot: its slot in the lease.
        deadline: when the lease expires.
        opened: when the lease was opened; None when that cannot be read, or a reap is under way.
        takeovers: how often the lease was taken over.
        held_since: since when its present consumer holds it.
        extended: when it was last opened, taken over or extended.
        reaping: whether its messages are being taken back.
        consumer: the name of the consumer that holds it; empty for none.
        now: when this was read.
    """

    name: bytes
    entry: bytes = field(repr=False)
    slot: int
    deadline: int
    opened: int | None
    takeovers: int
    held_since: int
    extended: int
    reaping: bool
    consumer: bytes
    now: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class LeasePage:
    """Leases that the next call can read.

    Attributes:
        score: deadline of the last one.
        names: the leases; none when there are no more.
    """

    score: bytes = b""
    names: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class HeldPage:
    """The answer to one call.

    Attributes:
        messages: messages of the leases that were asked for.
        skipped: messages that were skipped.
        ended: whether these leases were read to their end.
        page: the leases that follow.
    """

    messages: list[HeldMessage]
    skipped: int
    ended: bool
    page: LeasePage


_FIRST_PAGE = LeasePage()


def in_flight_call(
    keys: QueueKeys,
    page: LeasePage = _FIRST_PAGE,
    *,
    count: int = 0,
    offset: int = 0,
    max_leases: int = _MAX_LEASES,
    max_bytes: int = _MAX_BYTES,
    whole: bool = True,
) -> Call[HeldPage]:
    """Prepare the call that reads messages of the leases on `page` and names the leases that follow.

    Without `whole`, it reads messages only as far as their deduplication keys.
    """
    place: tuple[bytes | int, ...] = ()
    if page.names:
        place = (page.score, page.names[-1], count, offset, max_bytes, int(whole), *page.names)
    return Call(
        scripts.load("in_flight"),
        (keys.leases, keys.counters, *(keys.lease(name) for name in page.names)),
        (max_leases, *place),
        _decode,
    )


def in_flight_operation(
    keys: QueueKeys,
    count: int,
    offset: int,
    *,
    max_leases: int = _MAX_LEASES,
    max_bytes: int = _MAX_BYTES,
    whole: bool = True,
) -> Operation[list[HeldMessage]]:
    """Show up to `count` messages in leases by deadline and slot, after skipping `offset` of them.

    It takes one call for the first names and one per page or 1 MB. A message that moves between two calls may be missed
    or shown twice.
    """
    leases = min(max_leases, count + offset)  # each holds a message at least
    found: list[HeldMessage] = []
    held: HeldPage = yield in_flight_call(keys, max_leases=leases)
    page = held.page
    while page.names and len(found) < count:
        held = yield in_flight_call(
            keys, page, count=count - len(found), offset=offset, max_leases=leases, max_bytes=max_bytes, whole=whole
        )
        found += held.messages
        if held.ended or not held.messages:
            offset -= held.skipped
            page = held.page
        else:
            offset = held.skipped + len(held.messages)
    return found


def _decode(reply: list[Any]) -> HeldPage:
    now, skipped, ended, score, names, *leases = reply
    messages = [
        HeldMessage(
            name,
            entry,
            int(slot),
            int(deadline),
            _opened(opening),
            takeovers,
            int(held_since),
            int(extended),
            bool(reaping),
            consumer,
            now,
        )
        for name, deadline, opening, takeovers, held_since, extended, reaping, consumer, slots, entries in leases
        for slot, entry in zip(slots, entries, strict=True)
    ]
    return HeldPage(messages, skipped, bool(ended), LeasePage(score, names))


def _opened(opening: bytes) -> int | None:
    """Read the time in an opening, which begins with the server's microseconds."""
    us = opening.split(b"-", 1)[0]
    return int(us) // 1000 if us.isdigit() else None
