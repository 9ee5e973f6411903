"""Administration: operations that move or delete what waits or is dead, in bounded steps, and small ones on the queue.

Each names the messages of a step first and acts on those that are still there, so that its calls can be repeated, and
tells one event per step that did something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from sluicegate.core import admin_calls
from sluicegate.core.admin_calls import Cursor, Named, Owned, Page, PauseState, Steps, head_of, marker_of
from sluicegate.core.call import Operation
from sluicegate.core.entry import encode_deduplication_key, is_entry, read_prefix
from sluicegate.core.event_builders import text_of
from sluicegate.core.keys import QueueKeys
from sluicegate.core.redriving import RedriveRequest, redrive
from sluicegate.core.reports import QueueStats
from sluicegate.errors import ConfigurationError
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = [
    "PURGEABLE",
    "RedriveRequest",
    "State",
    "cancel",
    "forget",
    "pause",
    "purge",
    "redrive",
    "resume",
    "stats",
]

State = Literal["pending", "returned", "delayed", "dead", "completed", "failed"]
PURGEABLE: tuple[str, ...] = get_args(State)
_PAGE = 500
_MAX_IDS = 1000  # looked for at once
_US = b"\x1f"


def purge(keys: QueueKeys, nonce: bytes, state: str, *, emits_events: bool = False) -> Operation[int]:
    """Delete what is in a state when the operation begins, and free the deduplication keys of what goes.

    What enters the state later stays. Messages in flight are in no state that can be purged.

    Args:
        keys: of the queue.
        nonce: of this operation.
        state: `pending`, `returned`, `delayed`, `dead`, or a history: `completed` or `failed`.
        tell: whether to tell events.

    Returns:
        How many messages, letters or records were deleted.

    Raises:
        ConfigurationError: there is no such state.
    """
    if state not in PURGEABLE:
        raise ConfigurationError(f"state must be one of {', '.join(PURGEABLE)}, not {state!r}")
    steps = Steps(nonce)
    if state in ("completed", "failed"):
        count: int = yield admin_calls.purge(keys, state, steps.next())
        yield from _emit(keys, emits_events, EventOperation.PURGE, count)
        return count
    purged, cursor = 0, Cursor()
    mark = published = None
    while True:
        page: Page = yield admin_calls.scan(
            keys,
            state,
            most=_PAGE,
            cursor=cursor,
            from_oldest=True,
            mark=mark,
            whole=state in ("returned", "delayed"),
        )
        if published is None:
            mark, published = page.mark, page.published
        named, over, kept = _purgeable(keys, state, page, published)
        if kept is not None:
            cursor = kept
        if named:
            count = yield admin_calls.purge(keys, state, steps.next(), named)
            yield from _emit(keys, emits_events, EventOperation.PURGE, count)
            purged += count
        if over or page.ended:
            return purged


def cancel(keys: QueueKeys, nonce: bytes, ids: Iterable[str], *, emits_events: bool = False) -> Operation[list[str]]:
    """Delete waiting messages by id, and free their deduplication keys.

    Reads what waits until all are found: a call per 500 waiting messages (per 4 MB of them), for each 1,000 ids.
    Messages in flight, dead letters and unknown ids are left alone, and a message that is in flight for a moment while
    the others are read may be missed: the result tells.

    Args:
        keys: of the queue.
        nonce: of this operation.
        ids: of the messages.
        tell: whether to tell events.

    Returns:
        The ids of the messages that were cancelled, in the order of `ids`.

    Raises:
        TypeError: an id that is not a str, or one str instead of several.
    """
    if isinstance(ids, str):
        raise TypeError("ids must be several message ids, such as a list; put the one id into a list")
    asked = list(dict.fromkeys(ids))
    for one in asked:
        if not isinstance(one, str):
            raise TypeError(f"a message id must be a str, not {type(one).__name__}")
    steps, gone = Steps(nonce), set[bytes]()
    for first in range(0, len(asked), _MAX_IDS):
        wanted = {one.encode(errors="replace") for one in asked[first : first + _MAX_IDS]}
        # What is promoted meanwhile joins where the next states are read later on.
        for state in ("delayed", "pending", "returned"):
            if wanted:
                found = yield from _cancel_in(keys, state, steps, wanted, emits_events)
                wanted -= found
                gone |= found
    return [one for one in asked if one.encode(errors="replace") in gone]


def forget(keys: QueueKeys, key: str, *, emits_events: bool = False) -> Operation[bool]:
    """Free a deduplication key, whatever message holds it: the next message under it is accepted.

    The message that held it is not touched. Do not forget a key while a publish under it is still being retried: its
    next attempt would find the key free.

    Args:
        keys: of the queue.
        key: the deduplication key.
        tell: whether to tell events.

    Returns:
        Whether the key was held.

    Raises:
        TypeError: the key is not a str.
        ConfigurationError: it is empty or holds a lone surrogate.
    """
    if not isinstance(key, str):
        raise TypeError(f"a deduplication key must be a str, not {type(key).__name__}")
    if not key:
        raise ConfigurationError("a deduplication key must not be empty")
    encoded = encode_deduplication_key(key)
    owned: Owned = yield admin_calls.forget(keys, encoded)
    if owned.owner:
        yield admin_calls.forget(keys, encoded, owned.owner)
        yield from _emit(keys, emits_events, EventOperation.FORGET, 1, owned.owner.decode(errors="replace"))
    return bool(owned.owner)


def pause(keys: QueueKeys, *, emits_events: bool = False) -> Operation[bool]:
    """Let claims take no new messages until `resume`; what is in flight goes on. Returns whether it was not so yet."""
    return _change(keys, True, EventOperation.PAUSE, emits_events)


def resume(keys: QueueKeys, *, emits_events: bool = False) -> Operation[bool]:
    """Let claims take messages again, and wake who waits for some. Returns whether it was not so yet."""
    return _change(keys, False, EventOperation.RESUME, emits_events)


def stats(keys: QueueKeys) -> Operation[QueueStats]:
    """The queue's totals."""
    totals: dict[str, int] = yield admin_calls.stats(keys)
    return QueueStats.from_totals(totals)


def _change(keys: QueueKeys, paused: bool, operation: EventOperation, emits_events: bool) -> Operation[bool]:
    found: PauseState = yield admin_calls.pause(keys, paused)
    changed = False
    while found.paused != paused:
        found = yield admin_calls.pause(keys, paused, found.changes)
        changed = True
    if changed:
        yield from _emit(keys, emits_events, operation, None)
    return changed


def _purgeable(keys: QueueKeys, state: str, page: Page, published: int) -> tuple[list[Named], bool, Cursor | None]:
    """What of a page shall go, whether everything behind it is younger, and the last value that stays in a zset."""
    named: list[Named] = []
    kept = None
    for place, value in page.items:
        if state == "dead":
            named.append(Named(place, marker_of(keys, value.split(_US, 4)[-1])))
        elif not is_entry(value + _US if state == "pending" else value):
            named.append(Named(value))
        elif read_prefix(value).sequence <= published:
            name = value if state != "pending" else head_of(value)[0]
            named.append(Named(name, marker_of(keys, value)))
        elif state == "pending":
            return named, True, None  # it joined after the beginning, and so did all to the left of it
        else:
            kept = Cursor(score=place, member=value)
    return named, False, kept


def _cancel_in(
    keys: QueueKeys, state: str, steps: Steps, wanted: set[bytes], emits_events: bool
) -> Operation[set[bytes]]:
    gone: set[bytes] = set()
    cursor, expected = Cursor(), None
    while len(gone) < len(wanted):
        page: Page = yield admin_calls.scan(
            keys, state, most=_PAGE, cursor=cursor, whole=state != "pending", wanted=sorted(wanted - gone)
        )
        if expected is not None and page.cancelled > expected and cursor.place:
            # Another cancel has moved what follows to the left, past the place where this page began.
            cursor = Cursor(max(0, cursor.place - (page.cancelled - expected)))
            expected = page.cancelled
            continue
        found = [(head_of(value)[0], value) for _, value in page.items]
        named = [Named(name if state == "pending" else value, marker_of(keys, value)) for name, value in found]
        removed: list[int] = []
        if named:
            removed = yield admin_calls.cancel(keys, state, steps.next(), named, cursor.place, page)
            yield from _emit(keys, emits_events, EventOperation.CANCEL, len(removed), _only(removed, found))
            gone |= {found[position][0] for position in removed}
        if page.ended:
            break
        expected = page.cancelled + len(removed)
        if state == "pending":
            cursor = Cursor(cursor.place + page.read - len(removed))
        elif page.kept.member:
            cursor = page.kept
    return gone


def _only(positions: Sequence[int], found: Sequence[tuple[bytes, bytes]]) -> str | None:
    return text_of(found[positions[0]][0]) if len(positions) == 1 else None


def _emit(
    keys: QueueKeys, emits_events: bool, operation: EventOperation, count: int | None, message_id: str | None = None
) -> Operation[None]:
    """Tell that something happened to so many messages, None when it concerns none; nothing when there were 0."""
    if emits_events and count != 0:
        yield QueueEvent(operation, EventOutcome.SUCCESS, keys.name, count or 0, message_id=message_id)
