"""A purge of what a group of a stream has not read moves the group behind it, in bounded steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.scan import RECEIPT_MS, Step, Steps
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["PurgedUnread", "purge_unread_call", "purge_unread_operation"]

_MAX_VALUES = 5000


@dataclass(frozen=True, slots=True)
class PurgedUnread:
    """The result of one step.

    Attributes:
        mark: the id of the last message when the purge began.
        count: messages that the group passed.
        more: whether more are left.
        bound: id and deduplication key of messages whose markers the next step needs.
    """

    mark: bytes
    count: int
    more: bool
    bound: Sequence[tuple[bytes, bytes]] = field(default=(), repr=False)


def purge_unread_call(
    keys: QueueKeys, step: Step, mark: bytes = b"", bound: Sequence[tuple[bytes, bytes]] = ()
) -> Call[PurgedUnread]:
    """Prepare one step: pass messages up to `mark`; `bound` repeats what the step before asked for."""
    markers = keys.markers.locate([key for _, key in bound])
    return Call(
        scripts.load("purge_unread"),
        (keys.pending, keys.counters, keys.published(step.nonce), keys.marker_counters, *markers.buckets),
        (
            keys.group.encode(),
            step.number,
            RECEIPT_MS,
            mark,
            _MAX_VALUES,
            markers.chain,
            markers.plan,
            markers.fields,
            *(name for name, _ in bound),
        ),
        or_chain(keys.markers, _decode),
        again=lambda: purge_unread_call(keys, step, mark, bound),
    )


def purge_unread_operation(keys: QueueKeys, steps: Steps, *, emits_events: bool = False) -> Operation[int]:
    """Move the group behind all that is in the stream now; returns how many messages it passed."""
    count, done = 0, PurgedUnread(b"", 0, more=True)
    while done.more:
        done = yield from with_markers(purge_unread_call(keys, steps.next(), done.mark, done.bound))
        count += done.count
        if emits_events and done.count:
            yield QueueEvent(EventOperation.PURGE, EventOutcome.SUCCESS, keys.name, done.count)
    return count


def _decode(reply: list[Any]) -> PurgedUnread:
    bound = list(zip(reply[3::2], reply[4::2], strict=True))
    return PurgedUnread(reply[0], reply[1], bool(reply[2]), bound)
