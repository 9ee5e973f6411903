"""A repair makes a queue consistent again after another program deleted or overwrote keys, in bounded steps."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation
from sluicegate.core.keys import QueueKeys
from sluicegate.core.rules import QueueRules
from sluicegate.core.transitions.reap import reap_operation
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["RepairReport", "Repaired", "recount_call", "repair_call", "repair_leases_call", "repair_operation"]

_PAGE_SIZE = 250
_NAMES_PER_PAGE = 1000
_VALUES_PER_PAGE = 2000
_MAX_RECOUNTS = 5


@dataclass(frozen=True, slots=True)
class RepairReport:
    """A repair report counts what a repair mended.

    Attributes:
        in_flight: by how much the count of messages in flight was corrected; negative when it was too high.
        recounted: whether they were recounted; False when another repair began to do so meanwhile.
        counters: totals that were no numbers and start anew, that were lower than what waits, or that counted the
            messages in blocks wrong. A large queue that others use meanwhile keeps a wrong count of these.
        leases: leases without a hash, slots or an effective deadline, and those that counted their messages wrong.
        reaped: damaged leases whose messages were taken back.
        letters: dead letters whose record was lost.
        records: records of dead letters that were in no order, and are dead letters again.
        returned: messages that had been set aside and that this version can read.
    """

    in_flight: int = 0
    recounted: bool = True
    counters: int = 0
    leases: int = 0
    reaped: int = 0
    letters: int = 0
    records: int = 0
    returned: int = 0

    @property
    def mended(self) -> int:
        """Count the things that were mended; 0 when the queue was consistent."""
        found = (self.counters, self.leases, self.reaped, self.letters, self.records, self.returned)
        return sum(found) + (self.in_flight != 0)


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of one step.

    Attributes:
        next: where the next step of this part continues; empty at its end.
        count: things mended; at the end of a recount, by how much the count was wrong.
        names: names of leases, or keys of their hashes.
        over: whether another repair recounts, or this one has ended.
    """

    next: bytes
    count: int
    names: list[bytes]
    over: bool = False


def repair_call(keys: QueueKeys, part: str, *, place: bytes = b"", page_size: int = 0) -> Call[Repaired]:
    """Prepare one step of a repair: of counters, blocks, values set aside, dead messages or records; see the script."""
    return Call(
        scripts.load("repair"),
        (
            keys.leases,
            keys.counters,
            keys.wakeup,
            keys.pending,
            keys.returned,
            keys.set_aside,
            keys.dead,
            keys.dead_records,
        ),
        (part.encode(), place, page_size, keys.group.encode()),
        _decode,
    )


def repair_leases_call(
    keys: QueueKeys,
    part: str,
    *,
    place: bytes = b"",
    page_size: int = 0,
    text: bytes = b"",
    names: Sequence[bytes] = (),
) -> Call[Repaired]:
    """Prepare one step that finds or repairs leases; the script explains what the arguments mean to each part."""
    return Call(
        scripts.load("repair_leases"),
        (keys.leases, *(keys.lease(name) for name in names)),
        (part.encode(), place, page_size, text, *names),
        _decode,
    )


def recount_call(
    keys: QueueKeys, part: str, nonce: bytes, *, upto: bytes = b"", names: Sequence[bytes] = ()
) -> Call[Repaired]:
    """Prepare one step of a recount: its begin, its end, or the leases named, up to the hash of the last of them."""
    return Call(
        scripts.load("recount_in_flight"),
        (keys.leases, keys.counters, *(keys.lease(name) for name in names)),
        (part.encode(), nonce, upto, *names),
        _decode,
    )


def repair_operation(
    keys: QueueKeys, rules: QueueRules, nonce: bytes, *, emits_events: bool = False
) -> Operation[RepairReport]:
    """Make the queue consistent, while others publish and consume.

    Every step may be repeated, and two repairs may run at the same time: then one of them recounts.

    Args:
        keys: the keys of the queue.
        rules: the rules of the queue, for messages recovered from damaged leases.
        nonce: identifies this operation.
        emits_events: whether to emit events.
    """
    counters: Repaired = yield repair_call(keys, "counters")
    packed = yield from _packed(keys)
    returned = yield from _pages(keys, "aside")
    leases, reaped = yield from _leases(keys, rules, emits_events)
    letters = yield from _pages(keys, "letters")
    records = yield from _pages(keys, "records")
    in_flight, recounted = yield from _recount(keys, nonce)
    report = RepairReport(
        in_flight=in_flight,
        recounted=recounted,
        counters=counters.count + packed,
        leases=leases,
        reaped=reaped,
        letters=letters,
        records=records,
        returned=returned,
    )
    if emits_events:
        yield QueueEvent(EventOperation.REPAIR, EventOutcome.SUCCESS, keys.name, report.mended)
    return report


def _pages(keys: QueueKeys, part: str) -> Operation[int]:
    """Do a part page by page; returns how many things it mended."""
    count, place = 0, b"0"
    while place:
        page: Repaired = yield repair_call(keys, part, place=place, page_size=_PAGE_SIZE)
        count, place = count + page.count, page.next
    return count


def _packed(keys: QueueKeys) -> Operation[int]:
    """Count the messages in blocks, again where others change the queue meanwhile; returns 1 if the count was wrong."""
    for _ in range(_MAX_RECOUNTS):
        place = b"0"
        while place and place != b"again":
            page: Repaired = yield repair_call(keys, "packed", place=place, page_size=_VALUES_PER_PAGE)
            place = page.next
            if not place:
                return page.count
    return 0


def _leases(keys: QueueKeys, rules: QueueRules, emits_events: bool) -> Operation[tuple[int, int]]:
    """Mend leases that lack a part, and reap those that no consumer can hold; returns how many of each."""
    names = yield from _lease_names(keys)
    root, cursor = keys.lease(b""), b"0"
    pattern = re.sub(rb"([\[\]*?\\])", rb"\\\1", root) + b"*"
    while cursor:  # only its hash shows a lease without a deadline
        page: Repaired = yield repair_leases_call(keys, "find", place=cursor, page_size=_NAMES_PER_PAGE, text=pattern)
        names += [key.removeprefix(root) for key in page.names]
        cursor = page.next
    mended = reaped = 0
    for some in _chunks(list(dict.fromkeys(names))):
        checked: Repaired = yield repair_leases_call(keys, "check", names=some)
        mended += checked.count
        for name in checked.names:
            yield from reap_operation(keys, rules, name, emits_events=emits_events)
            reaped += 1
    return mended, reaped


def _lease_names(keys: QueueKeys) -> Operation[list[bytes]]:
    """List the names of all leases that have a deadline."""
    names: list[bytes] = []
    score = after = b""
    while True:
        page: Repaired = yield repair_leases_call(keys, "names", place=score, page_size=_NAMES_PER_PAGE, text=after)
        names += page.names
        if not page.names:
            return names
        score, after = page.next, page.names[-1]


def _recount(keys: QueueKeys, nonce: bytes) -> Operation[tuple[int, bool]]:
    """Count the messages in flight; returns by how much the count was wrong, and whether the recount was finished.

    It is not finished when another repair began to recount meanwhile.
    """
    yield recount_call(keys, "begin", nonce)
    names = yield from _lease_names(keys)
    places = {hashlib.sha1(name).hexdigest().encode(): name for name in names}  # noqa: S324  (as the scripts do it)
    for some in _chunks(sorted(places)):
        step: Call[Repaired] = recount_call(
            keys, "count", nonce, upto=some[-1], names=[places[place] for place in some]
        )
        counted: Repaired = yield step
        if counted.over:
            return 0, False
    ended: Repaired = yield recount_call(keys, "end", nonce)
    return ended.count, not ended.over


def _chunks(items: Sequence[bytes]) -> list[Sequence[bytes]]:
    return [items[first : first + _PAGE_SIZE] for first in range(0, len(items), _PAGE_SIZE)]


def _decode(reply: list[Any]) -> Repaired:
    over = reply[0] == b"over"
    return Repaired(b"" if over else reply[0], reply[1], reply[2:], over)
