"""A depth counts the messages of a queue by state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys

__all__ = ["FIRST_PAGE", "Counted", "Depth", "ExpiredPage", "count_expired", "depth_call", "depth_operation"]


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
        next_due_seconds: time until the earliest delayed message falls due, 0 once it is due; None without one.
        next_expiry_seconds: time until the earliest lease expires unless it is extended, 0 once it has; None without
            a lease.
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
    next_due_seconds: float | None = None
    next_expiry_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ExpiredPage:
    """Expired leases whose messages the next call can count.

    Attributes:
        mark: the time by which a lease must have expired, the same for all pages; b"" for now.
        score: deadline of the page's last lease.
        after: its name; the next page begins behind it.
        names: of the leases; none when there are no more.
    """

    mark: bytes = b""
    score: bytes = b""
    after: bytes = b""
    names: Sequence[bytes] = ()


FIRST_PAGE = ExpiredPage()
"""The page that comes before every other; an answer has it when nothing follows."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to one call.

    Attributes:
        depth: the counts, whose `expired` covers the leases of the page that was asked for.
        page: the expired leases that follow.
        totals: names and totals in turn, if they were asked for.
    """

    depth: Depth
    page: ExpiredPage
    totals: Sequence[bytes] = ()


def depth_call(
    keys: QueueKeys, page: ExpiredPage = FIRST_PAGE, *, page_size: int = 500, totals: bool = False
) -> Call[Counted]:
    """Prepare the call that counts messages by state, those of expired leases only for the leases of `page`.

    Args:
        keys: of the queue.
        page: the expired leases to count.
        page_size: how many of them the answer names at most.
        totals: whether the answer has the totals of the queue, too.
    """
    place = (page.mark, page.score, page.after, *page.names) if page.names else ()
    return Call(
        scripts.load("depth"),
        (
            keys.pending,
            keys.returned,
            keys.delayed,
            keys.leases,
            keys.dead,
            keys.counters,
            *(keys.lease(name) for name in page.names),
        ),
        (page_size, keys.group.encode(), int(totals), *place),
        _decode,
    )


def depth_operation(keys: QueueKeys, *, page_size: int = 500) -> Operation[Depth]:
    """Count in one call, and where leases have expired, in one more call per page of them.

    All counts but those of expired leases are as the second call found them. The messages of a lease that is reaped
    before its page is read are not counted; the next count finds them among the returned.
    """
    counted: Counted = yield depth_call(keys, page_size=page_size)
    return (yield from count_expired(keys, counted, page_size=page_size))


def count_expired(keys: QueueKeys, counted: Counted, *, page_size: int = 500) -> Operation[Depth]:
    """Add the messages of expired leases to the answer of a first call."""
    page, whole = counted.page, None
    named: set[bytes] = set()
    while page.names:
        fresh = [name for name in page.names if name not in named]
        named.update(fresh)
        counted = yield depth_call(keys, replace(page, names=fresh), page_size=page_size)
        page, whole = counted.page, counted.depth if whole is None else _add_expired(whole, counted.depth)
    return whole or counted.depth


def _decode(reply: list[Any]) -> Counted:
    pending, returned, delayed, due, leases, dead, paused, in_flight, published, claimed, oldest_ms, expired = reply[
        :12
    ]
    depth = Depth(
        ready=pending + returned + due + expired,
        pending=pending,
        returned=returned,
        delayed=delayed,
        due=due,
        in_flight=in_flight,
        leases=leases,
        expired=expired,
        dead=dead,
        oldest_ready_age_seconds=_seconds(oldest_ms),
        paused=bool(paused),
        published_total=published,
        claimed_total=claimed,
        set_aside=reply[15],
        next_due_seconds=_seconds(reply[16]),
        next_expiry_seconds=_seconds(reply[17]),
    )
    names = reply[14]
    page = ExpiredPage(reply[12], reply[13], names[-1], names) if names else FIRST_PAGE
    return Counted(depth, page, reply[18])


def _seconds(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


def _add_expired(whole: Depth, more: Depth) -> Depth:
    """Add the expired leases of another page to a count."""
    ages = [depth.oldest_ready_age_seconds for depth in (whole, more)]
    return replace(
        whole,
        ready=whole.ready + more.expired,
        expired=whole.expired + more.expired,
        oldest_ready_age_seconds=max((age for age in ages if age is not None), default=None),
    )
