"""Looking into open leases without touching them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = ["HeldMessage", "HeldPage", "LeasePage", "held_page", "in_flight"]

_MAX_BYTES = 4 * 1024 * 1024
_MAX_LEASES = 500


@dataclass(frozen=True, slots=True)
class HeldMessage:
    """A message in a lease, and what is known of the lease; times in ms, by the server's clock.

    Attributes:
        name: of the lease, as its keys have it.
        entry: as stored.
        slot: in the lease.
        deadline: of the lease.
        opened: when; None when that cannot be read, or a reap is under way.
        takeovers: of the lease.
        held_since: since when its present consumer holds it.
        extended: when it was last opened, taken over or extended.
        reaping: whether its messages are being taken back.
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
    now: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class LeasePage:
    """Leases that the next call can read.

    Attributes:
        score: deadline of the last one.
        names: of the leases; none when there are no more.
    """

    score: bytes = b""
    names: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class HeldPage:
    """What one look found.

    Attributes:
        messages: of the leases that were asked for.
        passed: messages that were passed over.
        ended: whether these leases were read to their end.
        page: the leases that follow.
    """

    messages: list[HeldMessage]
    passed: int
    ended: bool
    page: LeasePage


_FROM_THE_FIRST = LeasePage()


def held_page(
    keys: QueueKeys,
    page: LeasePage = _FROM_THE_FIRST,
    *,
    count: int = 0,
    offset: int = 0,
    max_leases: int = _MAX_LEASES,
    max_bytes: int = _MAX_BYTES,
) -> Call[HeldPage]:
    """Read messages of the leases that the answer before named, and name the next ones."""
    place: tuple[bytes | int, ...] = ()
    if page.names:
        place = (page.score, page.names[-1], count, offset, max_bytes, *page.names)
    return Call(
        scripts.load("in_flight"),
        (keys.leases, *(keys.lease(name) for name in page.names)),
        (max_leases, *place),
        _held_page,
    )


def in_flight(
    keys: QueueKeys, count: int, offset: int, *, max_leases: int = _MAX_LEASES, max_bytes: int = _MAX_BYTES
) -> Operation[list[HeldMessage]]:
    """Messages in leases, by deadline and slot, behind so many: a call for the names, then one per page or 4 MB.

    What moves between two calls may be missed or shown twice.
    """
    leases = min(max_leases, count + offset)  # each holds a message at least
    found: list[HeldMessage] = []
    look: HeldPage = yield held_page(keys, max_leases=leases)
    page = look.page
    while page.names and len(found) < count:
        look = yield held_page(
            keys, page, count=count - len(found), offset=offset, max_leases=leases, max_bytes=max_bytes
        )
        found += look.messages
        if look.ended or not look.messages:
            offset -= look.passed
            page = look.page
        else:
            offset = look.passed + len(look.messages)
    return found


def _held_page(reply: list[Any]) -> HeldPage:
    now, passed, ended, score, names, *leases = reply
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
            now,
        )
        for name, deadline, opening, takeovers, held_since, extended, reaping, slots, entries in leases
        for slot, entry in zip(slots, entries, strict=True)
    ]
    return HeldPage(messages, passed, bool(ended), LeasePage(score, names))


def _opened(opening: bytes) -> int | None:
    """The time in an opening, which begins with the server's microseconds."""
    us = opening.split(b"-", 1)[0]
    return int(us) // 1000 if us.isdigit() else None
