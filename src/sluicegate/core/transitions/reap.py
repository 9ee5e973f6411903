"""A reap makes the messages of an expired lease claimable again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.event_helpers import buried_events, set_aside_events
from sluicegate.core.keys import QueueKeys, lease_id_of
from sluicegate.core.rules import QueueRules
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["Reaped", "reap_call", "reap_operation"]


@dataclass(frozen=True, slots=True)
class Reaped:
    """The result of one step of a reap.

    Attributes:
        finished: whether nothing of the lease is left.
        moved: messages that are claimable again.
        buried: messages and foreign values that are now dead.
        dropped: dead letters that the cap dropped.
        set_aside: values that only a newer version can read.
        wanted: deduplication keys, as entries hold them, whose markers the next step must name.
    """

    finished: bool
    moved: int
    buried: int
    dropped: int = 0
    set_aside: int = 0
    wanted: tuple[bytes, ...] = ()


def reap_call(
    keys: QueueKeys, rules: QueueRules, name: bytes, *, step: int = 250, wanted: Sequence[bytes] = ()
) -> Call[Reaped]:
    """Prepare one step: take back at most `step` messages; `wanted` repeats what the step before asked for."""
    markers = keys.markers.locate(wanted)
    return Call(
        scripts.load("reap"),
        (
            keys.lease(name),
            keys.leases,
            keys.closed(name),
            keys.returned,
            keys.dead,
            keys.dead_records,
            keys.counters,
            keys.wakeup,
            keys.set_aside,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            keys.pending,
            keys.marker_counters,
            *markers.buckets,
        ),
        (
            name,
            step,
            rules.max_delivery_count,
            rules.max_dead_length,
            keys.group.encode(),
            markers.chain,
            markers.plan,
            markers.fields,
            *wanted,
        ),
        or_chain(keys.markers, _decode),
        again=lambda: reap_call(keys, rules, name, step=step, wanted=wanted),
    )


def reap_operation(
    keys: QueueKeys, rules: QueueRules, name: bytes, *, max_calls: int | None = None, emits_events: bool = False
) -> Operation[int]:
    """Reap one lease to its end, or for at most `max_calls` steps; returns the number of steps."""
    made = 0
    wanted: tuple[bytes, ...] = ()
    while max_calls is None or made < max_calls:
        reaped = yield from with_markers(reap_call(keys, rules, name, wanted=wanted))
        made += 1
        if emits_events:
            yield from _events(keys.name, name, reaped)
        if reaped.finished:
            break
        wanted = reaped.wanted
    return made


def _decode(reply: list[Any]) -> Reaped:
    return Reaped(bool(reply[0]), reply[1], reply[2], reply[3], reply[4], tuple(reply[5:]))


def _events(queue: str, name: bytes, reaped: Reaped) -> Iterator[QueueEvent]:
    lease_id = lease_id_of(name)
    if reaped.moved:
        yield QueueEvent(EventOperation.REAP, EventOutcome.SUCCESS, queue, reaped.moved, lease_id=lease_id)
    yield from buried_events(queue, buried=reaped.buried, dropped=reaped.dropped, lease_id=lease_id)
    yield from set_aside_events(queue, EventOperation.REAP, reaped.set_aside, lease_id)
