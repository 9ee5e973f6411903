"""Repair: what no longer agrees after something else has deleted or overwritten keys is put right, in bounded steps."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from sluicegate.core import operations
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.repair_calls import Mended, repair_part
from sluicegate.core.reports import RepairReport
from sluicegate.core.values import QueueRules
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["repair"]

_PER_CALL = 250


def repair(keys: QueueKeys, rules: QueueRules, nonce: bytes, *, emits_events: bool = False) -> Operation[RepairReport]:
    """Put right what no longer agrees, while others publish and work.

    Every part may be repeated, and two repairs may run beside each other: then one of them recounts.

    Args:
        keys: of the queue.
        terms: of the queue, for messages that come back from damaged leases.
        nonce: of this operation.
        tell: whether to tell events.
    """
    counters: Mended = yield repair_part(keys, "counters", nonce)
    returned = yield from _pages(keys, "aside", nonce)
    leases, reaped = yield from _leases(keys, rules, nonce, emits_events)
    letters = yield from _pages(keys, "letters", nonce)
    records = yield from _pages(keys, "records", nonce)
    in_flight, recounted = yield from _recount(keys, nonce)
    report = RepairReport(
        in_flight=in_flight,
        recounted=recounted,
        counters=counters.count,
        leases=leases,
        reaped=reaped,
        letters=letters,
        records=records,
        returned=returned,
    )
    if emits_events:
        yield QueueEvent(EventOperation.REPAIR, EventOutcome.SUCCESS, keys.name, report.mended)
    return report


def _pages(keys: QueueKeys, part: str, nonce: bytes) -> Operation[int]:
    count, place = 0, b"0"
    while place:
        page: Mended = yield repair_part(keys, part, nonce, place=place, most=_PER_CALL)
        count, place = count + page.count, page.next
    return count


def _leases(keys: QueueKeys, rules: QueueRules, nonce: bytes, emits_events: bool) -> Operation[tuple[int, int]]:
    """Leases that lack a part, and those that must come back because nobody can hold them."""
    names = yield from _named(keys, nonce)
    root, cursor = keys.lease(b""), b"0"
    pattern = re.sub(rb"([\[\]*?\\])", rb"\\\1", root) + b"*"
    while cursor:  # a lease without a deadline is found by its hash alone
        page: Mended = yield repair_part(keys, "find", nonce, place=cursor, most=1000, text=pattern)
        names += [key.removeprefix(root) for key in page.names]
        cursor = page.next
    mended = reaped = 0
    for some in _chunks(list(dict.fromkeys(names))):
        checked: Mended = yield repair_part(keys, "check", nonce, names=some)
        mended += checked.count
        for name in checked.names:
            yield from operations.reap(keys, rules, name, calls_left=None, emits_events=emits_events)
            reaped += 1
    return mended, reaped


def _named(keys: QueueKeys, nonce: bytes) -> Operation[list[bytes]]:
    names: list[bytes] = []
    score = after = b""
    while True:
        page: Mended = yield repair_part(keys, "names", nonce, place=score, most=1000, text=after)
        names += page.names
        if not page.names:
            return names
        score, after = page.next, page.names[-1]


def _recount(keys: QueueKeys, nonce: bytes) -> Operation[tuple[int, bool]]:
    """Count what is in flight; by how much the gauge was wrong, and whether no other repair has begun to recount."""
    yield repair_part(keys, "begin", nonce)
    names = yield from _named(keys, nonce)
    places = {hashlib.sha1(name).hexdigest().encode(): name for name in names}  # noqa: S324  (as the scripts do it)
    for some in _chunks(sorted(places)):
        step: Call[Mended] = repair_part(keys, "count", nonce, place=some[-1], names=[places[place] for place in some])
        counted: Mended = yield step
        if counted.over:
            return 0, False
    ended: Mended = yield repair_part(keys, "end", nonce)
    return ended.count, not ended.over


def _chunks(items: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [items[first : first + _PER_CALL] for first in range(0, len(items), _PER_CALL)]
