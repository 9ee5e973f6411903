"""A cancel deletes waiting messages by id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sluicegate.core import scripts
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.entry import identify, key_of
from sluicegate.core.keys import QueueKeys, text_of
from sluicegate.core.transitions.scan import RECEIPT_MS, Cursor, Page, Step, Steps, Target, scan_call, target_args
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["Removed", "cancel_call", "cancel_operation"]

_PAGE_SIZE = 500
_MAX_IDS = 1000  # looked for at once
_KINDS = {"pending": b"newest", "returned": b"zset", "delayed": b"delayed"}


@dataclass(frozen=True, slots=True)
class Removed:
    """What a step deleted.

    Attributes:
        values: stored values that are gone: fewer than messages, where these left a block.
        positions: of the deleted messages among the targets.
    """

    values: int
    positions: list[int]


def cancel_call(
    keys: QueueKeys, state: str, step: Step, targets: Sequence[Target], place: int, page: Page
) -> Call[Removed]:
    """Prepare one step: delete targets that a page from `place` on showed.

    A step on the last page of a list searches to the end, where other calls may have moved what the page showed.
    """
    markers, args = target_args(keys, targets)
    return Call(
        scripts.load("cancel"),
        (
            getattr(keys, state),
            keys.leases,
            keys.counters,
            keys.published(step.nonce),
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            keys.pending,
            keys.marker_counters,
            *markers.buckets,
        ),
        (
            _KINDS[state],
            step.number,
            RECEIPT_MS,
            place,
            -1 if page.ended else place + page.read - 1,
            page.cancelled,
            keys.group.encode(),
            markers.chain,
            markers.plan,
            markers.fields,
            *args,
        ),
        or_chain(keys.markers, _decode),
        again=lambda: cancel_call(keys, state, step, targets, place, page),
    )


def cancel_operation(
    keys: QueueKeys, nonce: bytes, ids: Iterable[str], *, emits_events: bool = False
) -> Operation[list[str]]:
    """Delete waiting messages by id, and free their deduplication keys.

    For each 1,000 ids it reads what waits until all are found: one call per 500 stored values or 1 MiB of pending
    ones.
    Messages in flight, dead letters and unknown ids are left alone. A message that is in flight for a moment while the
    others are read may be missed; the result does not list it then.

    Args:
        keys: the keys of the queue.
        nonce: identifies this operation.
        ids: ids of messages.
        emits_events: whether to emit an event per step that deleted something.

    Returns:
        The ids of the messages that were cancelled, in the order of `ids`.

    Raises:
        TypeError: an id is not a str, or `ids` is one str.
        ConfigurationError: the keys are those of a group, which has not read one of these messages yet.
    """
    if isinstance(ids, str):
        raise TypeError("ids must be several message ids, such as a list; put the one id into a list")
    asked = list(dict.fromkeys(ids))
    for one in asked:
        if not isinstance(one, str):
            raise TypeError(f"a message id must be a str, not {type(one).__name__}")
    steps, gone = Steps(nonce), set[bytes]()
    if keys.group:
        yield from _refuse_unread(keys, asked)
    states = ("delayed", "returned") if keys.group else ("delayed", "pending", "returned")
    for first in range(0, len(asked), _MAX_IDS):
        wanted = {one.encode(errors="replace") for one in asked[first : first + _MAX_IDS]}
        # A message that is promoted meanwhile moves to a state that is read later.
        for state in states:
            if wanted:
                found = yield from _cancel_in(keys, state, steps, wanted, emits_events)
                wanted -= found
                gone |= found
    return [one for one in asked if one.encode(errors="replace") in gone]


def _cancel_in(
    keys: QueueKeys, state: str, steps: Steps, wanted: set[bytes], emits_events: bool
) -> Operation[set[bytes]]:
    """Cancel wanted messages of one state; returns the ids of those cancelled."""
    gone: set[bytes] = set()
    cursor, expected = Cursor(), None
    while len(gone) < len(wanted):
        page: Page = yield scan_call(
            keys, state, page_size=_PAGE_SIZE, cursor=cursor, whole=state != "pending", wanted=sorted(wanted - gone)
        )
        if expected is not None and page.cancelled > expected and cursor.place:
            # Another cancel has moved what follows to the left, past the place where this page began.
            cursor = Cursor(max(0, cursor.place - (page.cancelled - expected)))
            expected = page.cancelled
            continue
        found = [(identify(value)[0], value) for _, value in page.items]
        targets = [Target(name if state == "pending" else value, key_of(value)) for name, value in found]
        removed = Removed(0, [])
        if targets:
            removed = yield from with_markers(cancel_call(keys, state, steps.next(), targets, cursor.place, page))
            ids = [found[position][0] for position in removed.positions]
            if emits_events and ids:
                yield _event(keys, ids)
            gone.update(ids)
        if page.ended:
            break
        if state == "pending":
            expected = page.cancelled + removed.values
            cursor = Cursor(cursor.place + page.read - removed.values)
        elif page.kept.member:
            cursor = page.kept
    return gone


def _refuse_unread(keys: QueueKeys, ids: Sequence[str]) -> Operation[None]:
    for first in range(0, len(ids), _MAX_IDS):
        asked = [one.encode(errors="replace") for one in ids[first : first + _MAX_IDS]]
        unread: list[bytes] = yield Call(
            scripts.load("find_unread"), (keys.pending,), (keys.group.encode(), *asked), list[bytes]
        )
        if unread:
            raise ConfigurationError(
                f"group {keys.group!r} of stream {keys.name!r} has not read {len(unread)} of these messages, such as "
                f"{text_of(unread[0])}; nothing was cancelled. Delete them for all groups with stream.cancel(ids)"
            )


def _decode(reply: list[int]) -> Removed:
    return Removed(reply[0], [number - 1 for number in reply[1:]])


def _event(keys: QueueKeys, ids: Sequence[bytes]) -> QueueEvent:
    message_id = text_of(ids[0]) if len(ids) == 1 else None
    return QueueEvent(EventOperation.CANCEL, EventOutcome.SUCCESS, keys.name, len(ids), message_id=message_id)
