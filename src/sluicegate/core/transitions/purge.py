"""A purge deletes everything that is in a state, in bounded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from sluicegate import checks
from sluicegate.core import scripts
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.call import Call, Operation, or_chain, with_markers
from sluicegate.core.entry import identify, is_entry, key_of, read_prefix
from sluicegate.core.keys import QueueKeys
from sluicegate.core.transitions.purge_unread import purge_unread_operation
from sluicegate.core.transitions.scan import RECEIPT_MS, Cursor, Page, Step, Steps, Target, scan_call, target_args
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["PURGEABLE", "State", "purge_call", "purge_operation"]

State = Literal["pending", "returned", "delayed", "dead", "completed", "failed"]
PURGEABLE: tuple[str, ...] = get_args(State)
_KINDS = {"pending": b"oldest", "returned": b"zset", "delayed": b"delayed", "dead": b"dead"}
_PAGE_SIZE = 500


def purge_call(keys: QueueKeys, state: str, step: Step, targets: Sequence[Target] = ()) -> Call[int]:
    """Prepare one step: delete the targets of a state, or all of `completed` or `failed`; answers how many."""
    markers, args = target_args(keys, targets)
    return Call(
        scripts.load("purge"),
        (
            getattr(keys, state),
            keys.dead_records,
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
            _KINDS.get(state, b"history"),
            step.number,
            RECEIPT_MS,
            keys.group.encode(),
            markers.chain,
            markers.plan,
            markers.fields,
            *args,
        ),
        or_chain(keys.markers, _decode),
        again=lambda: purge_call(keys, state, step, targets),
    )


def purge_operation(
    keys: QueueKeys, nonce: bytes, state: str, *, older_than_seconds: float | None = None, emits_events: bool = False
) -> Operation[int]:
    """Delete what is in a state when the operation begins, and free the deduplication keys of these messages.

    Each step names the messages of a page first and deletes those that are still there, so that it can be repeated.
    What enters the state later stays. Messages in flight are in no state that can be purged.

    Args:
        keys: the keys of the queue.
        nonce: identifies this operation.
        state: `pending`, `returned`, `delayed`, `dead`, `completed` or `failed`.
        older_than_seconds: of dead letters, only those buried at least this long ago; None for all.
        emits_events: whether to emit an event per step that deleted something.

    Returns:
        How many messages, dead letters or records were deleted.

    Raises:
        ConfigurationError: there is no such state, or an age is given for another state than `dead`.
    """
    if state not in PURGEABLE:
        raise ConfigurationError(f"state must be one of {', '.join(PURGEABLE)}, not {state!r}")
    if older_than_seconds is not None:
        checks.not_negative("older_than_seconds", older_than_seconds)
        if state != "dead":
            raise ConfigurationError(f"older_than_seconds applies to dead letters; leave it out for {state!r}")
    steps = Steps(nonce)
    if state == "pending" and keys.group:
        return (yield from purge_unread_operation(keys, steps, emits_events=emits_events))
    if state in ("completed", "failed"):
        count: int = yield purge_call(keys, state, steps.next())
        if emits_events and count:
            yield _event(keys, count)
        return count
    purged, cursor = 0, Cursor()
    mark = published = None
    while True:
        page: Page = yield scan_call(
            keys,
            state,
            page_size=_PAGE_SIZE,
            cursor=cursor,
            from_oldest=True,
            mark=mark,
            older_seconds=older_than_seconds or 0,
            whole=state in ("returned", "delayed"),
        )
        if published is None:
            mark, published = page.mark, page.published
        targets, over, kept = _choose(keys, state, page, published)
        if kept is not None:
            cursor = kept
        if targets:
            count = yield from with_markers(purge_call(keys, state, steps.next(), targets))
            if emits_events and count:
                yield _event(keys, count)
            purged += count
        if over or page.ended:
            return purged


def _choose(keys: QueueKeys, state: str, page: Page, published: int) -> tuple[list[Target], bool, Cursor | None]:
    """Choose what to delete of a page.

    Returns the targets, whether all that follows is younger, and the last value of a sorted set that stays.
    """
    targets: list[Target] = []
    kept = None
    for place, value in page.items:
        if state == "dead":
            targets.append(Target(place, key_of(value.split(SEPARATOR, 4)[-1])))
        elif not is_entry(value + SEPARATOR if state == "pending" else value):
            targets.append(Target(value))
        elif read_prefix(value).sequence <= published:
            name = value if state != "pending" else identify(value)[0]
            targets.append(Target(name, key_of(value)))
        elif state == "pending":
            return targets, True, None  # published after the operation began, as all to the left of it
        else:
            kept = Cursor(score=place, member=value)
    return targets, False, kept


def _decode(reply: list[int]) -> int:
    return reply[0]


def _event(keys: QueueKeys, count: int) -> QueueEvent:
    return QueueEvent(EventOperation.PURGE, EventOutcome.SUCCESS, keys.name, count)
