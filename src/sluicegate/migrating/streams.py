"""Moves a stream of Redis into one of ours, under its ids, or into a queue."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sluicegate._session import new_id
from sluicegate.core.call import Call
from sluicegate.core.keys import QueueKeys, StreamKeys
from sluicegate.core.transitions.group_pending import ForeignPage, PendingMessage, foreign_pending_call
from sluicegate.core.transitions.groups import GroupFound, StreamFound, create_group_call, stream_info_call
from sluicegate.errors import ConfigurationError, PayloadTooLargeError
from sluicegate.gateway import RedisGateway
from sluicegate.migrating import calls
from sluicegate.migrating.calls import Entered, HeldEntry
from sluicegate.migrating.plan import MovedPart
from sluicegate.migrating.sources import StreamSource, entry_fields, entry_tail, read_stream_fields

__all__ = ["StreamView", "move_to_queue", "move_to_stream", "view_stream"]

_START = b"0-0"
_ANY_STREAM = StreamKeys("any")
_ANY_GROUP = _ANY_STREAM.of_group("any")


@dataclass(frozen=True, slots=True)
class StreamView:
    """A stream of another library, and who reads it.

    Attributes:
        found: the stream and its groups.
        live: consumers that called within the time that counts as live.
        held: entries that consumers hold.
    """

    found: StreamFound
    live: int
    held: int


def view_stream(gateway: RedisGateway, key: bytes, live_seconds: float) -> StreamView:
    """Look at a stream, its groups and their consumers."""
    beside = (key, calls.beside(key, b":sluicegate:none"), calls.beside(key, b":sluicegate:no groups"))
    found: StreamFound = gateway.execute(replace(stream_info_call(_ANY_STREAM), keys=beside))
    live = 0
    for group in found.groups:
        page = gateway.execute(_held_call(key, group.name, b"", 0))
        live += sum(consumer.idle_seconds < live_seconds for consumer in page.consumers)
    return StreamView(found, live, sum(group.held for group in found.groups))


class HeldEntries:
    """Reads what consumers of a group hold, in the order of the ids, as the entries of the stream are read.

    Args:
        gateway: of the stream's server.
        key: the stream.
        group: the name of the group.
        after: the id behind which to begin.
    """

    def __init__(self, gateway: RedisGateway, key: bytes, group: bytes, after: bytes) -> None:
        self._gateway, self._key, self._group, self._after = gateway, key, group, after
        self._read: deque[HeldEntry] = deque()
        self._ended = False

    def up_to(self, last: bytes) -> list[HeldEntry]:
        """Return what is held up to an id and was not returned before."""
        found: list[HeldEntry] = []
        while True:
            while self._read and _id_key(self._read[0].id) <= _id_key(last):
                found.append(self._read.popleft())
            if self._read or self._ended:
                return found
            page = self._gateway.execute(_held_call(self._key, self._group, self._after, calls.PAGE_SIZE))
            self._read.extend(map(self._entry, page.messages))
            self._ended = len(page.messages) < calls.PAGE_SIZE
            if page.messages:
                self._after = page.messages[-1].id.encode()

    def _entry(self, message: PendingMessage) -> HeldEntry:
        consumer = (message.consumer or "").encode(errors="surrogateescape")
        idle_ms = int(message.idle_seconds * 1000)
        return HeldEntry(self._group, consumer, message.id.encode(), idle_ms, message.delivery_count)


def move_to_stream(
    source: RedisGateway,
    target: RedisGateway,
    keys: StreamKeys,
    place: StreamSource,
    view: StreamView,
    moved: MovedPart,
    progress: Callable[[str, int], None],
) -> None:
    """Move all entries under their ids, with groups at their positions and what their consumers hold.

    Args:
        source: the server of the stream.
        target: the server of our stream.
        keys: of our stream.
        place: the stream.
        view: of it.
        moved: where to count.
        progress: called with the part and the number of entries of each page.

    Raises:
        ConfigurationError: our stream has ids that those of the stream do not follow.
    """
    key, origin = place.name.encode(), _origin(source, place)
    groups = [group.name for group in view.found.groups]
    for group in view.found.groups:
        _create_group(target, keys, origin, group)
    after = target.execute(calls.moved_page_call(keys, origin)) or _START
    _drop_moved(source, key, groups, after)
    held = [HeldEntries(source, key, group.name, after) for group in view.found.groups if group.held]
    field = _payload_field(place)
    while True:
        page = source.execute(calls.read_stream_call(key, after))
        if not page.entries:
            return
        last, ids = page.entries[-1][0], [entry_id for entry_id, _ in page.entries]
        present = set(ids)
        claims = [one for reader in held for one in reader.up_to(last) if one.id in present]
        entries = [(entry_id, entry_fields(fields, field)) for entry_id, fields in page.entries]
        entered = target.execute(
            calls.move_into_stream_call(keys, origin, after, last, entries, groups=groups, held=claims)
        )
        if entered.greatest is not None:
            raise ConfigurationError(
                f"stream {keys.name!r} has ids up to {entered.greatest.decode()}, and entries keep their ids, so "
                f"{ids[0].decode()} cannot follow; move into a stream of another name, or into a queue, and publish "
                "to the new stream only after the move"
            )
        after = _after_page(source, target, keys, key, origin, entered, ids, groups, moved)
        progress("entries", len(ids))


def move_to_queue(
    source: RedisGateway,
    target: RedisGateway,
    keys: QueueKeys,
    place: StreamSource,
    view: StreamView,
    moved: MovedPart,
    progress: Callable[[str, int], None],
) -> None:
    """Move entries into a queue: all, or with a group those that it has not finished.

    Entries that consumers of the group hold count as delivered. Where the stream has other groups, its entries stay
    for them, and the group is moved forward.

    Args:
        source: the server of the stream.
        target: the server of the queue.
        keys: of the queue.
        place: the stream and the group.
        view: of the stream.
        moved: where to count.
        progress: called with the part and the number of entries of each page.
    """
    key, origin = place.name.encode(), _origin(source, place)
    group = next((group for group in view.found.groups if group.name == _encoded(place.group)), None)
    names = [one.name for one in view.found.groups] if group is None else [group.name]
    keeps = group is not None and len(view.found.groups) > 1
    position = None if group is None else group.position.encode()
    after = target.execute(calls.moved_page_call(keys, origin)) or _START
    _drop_moved(source, key, names, after, group=group, keeps=keeps)
    held = None if group is None else HeldEntries(source, key, group.name, after)
    while True:
        page = source.execute(calls.read_stream_call(key, after))
        if not page.entries:
            return
        last = page.entries[-1][0]
        claimed = {one.id: one.deliveries for one in held.up_to(last)} if held else {}
        chosen = [
            (entry_id, fields)
            for entry_id, fields in page.entries
            if position is None or entry_id in claimed or _id_key(entry_id) > _id_key(position)
        ]
        entered = _enter(source, target, keys, place, origin, after, last, chosen, claimed, moved)
        ids = [entry_id for entry_id, _ in chosen]
        end = last if keeps else b""
        after = _after_page(source, target, keys, key, origin, entered, ids, names, moved, last=last, position=end)
        progress("entries", len(ids))


def _enter(
    source: RedisGateway,
    target: RedisGateway,
    keys: QueueKeys,
    place: StreamSource,
    origin: bytes,
    after: bytes,
    last: bytes,
    chosen: list[tuple[bytes, list[bytes]]],
    claimed: dict[bytes, int],
    moved: MovedPart,
) -> Entered:
    """Let a page enter the queue, without entries that are too large for it: those stay in the stream."""
    field, suffix = _payload_field(place), b"." + origin.partition(b" ")[0]
    tails = {}
    for entry_id, fields in chosen:
        headers, payload = read_stream_fields(fields, field)
        ms = int(entry_id.split(b"-")[0])
        tails[entry_id] = entry_tail(ms, claimed.get(entry_id, 0), entry_id + suffix, headers, payload)
    while True:
        values = [value for tail in tails.values() for value in (tail, b"")]
        try:
            return target.execute(calls.move_in_call(keys, origin, last, values, after=after))
        except PayloadTooLargeError as error:
            longest = max(map(len, tails.values()))
            most = min(error.limit or longest - 1, longest - 1)
            large = [entry_id for entry_id, tail in tails.items() if len(tail) > most]
            source.execute(calls.left_entries_call(place.name.encode(), large))
            moved.leave("larger than the new server accepts", len(large))
            for entry_id in large:
                del tails[entry_id]
            chosen[:] = [one for one in chosen if one[0] in tails]


def _after_page(
    source: RedisGateway,
    target: RedisGateway,
    keys: QueueKeys,
    key: bytes,
    origin: bytes,
    entered: Entered,
    ids: Sequence[bytes],
    groups: Sequence[bytes],
    moved: MovedPart,
    *,
    last: bytes = b"",
    position: bytes = b"",
) -> bytes:
    """Drop a page that has entered, and return where to read on."""
    if entered.last is not None:  # another run moves the same stream
        return target.execute(calls.moved_page_call(keys, origin)) or _START
    if entered.before:
        moved.known += len(ids)
    else:
        moved.moved += entered.count
    source.execute(calls.drop_entries_call(key, ids, groups, position=position))
    return last or ids[-1]


def _drop_moved(
    source: RedisGateway,
    key: bytes,
    groups: Sequence[bytes],
    last: bytes,
    *,
    group: GroupFound | None = None,
    keeps: bool = False,
) -> None:
    """Drop what an interrupted run has moved, up to the id `last`, and not dropped."""
    if last == _START:
        return
    claimed = [] if group is None else [one.id for one in HeldEntries(source, key, group.name, _START).up_to(last)]
    if keeps:
        source.execute(calls.drop_entries_call(key, claimed, groups, position=last))
        return
    left, held, after = source.execute(calls.left_entries_call(key)), set(claimed), _START
    position = None if group is None else _id_key(group.position.encode())
    while _id_key(after) < _id_key(last):
        page = source.execute(calls.read_stream_call(key, after))
        ids = [entry_id for entry_id, _ in page.entries if _id_key(entry_id) <= _id_key(last)]
        if not ids:
            return
        after = ids[-1]
        moved = [one for one in ids if one not in left and (position is None or one in held or _id_key(one) > position)]
        source.execute(calls.drop_entries_call(key, moved, groups))


def _create_group(target: RedisGateway, keys: StreamKeys, origin: bytes, group: GroupFound) -> None:
    """Create a group of ours at the position of another; one that exists stays where it is."""
    own = keys.of_group(group.name.decode(errors="backslashreplace"))
    nonce = hashlib.sha256(origin + b" " + group.name).hexdigest()[:32].encode()
    target.execute(create_group_call(own, nonce, "", group.position))


def _origin(source: RedisGateway, place: StreamSource) -> bytes:
    key = place.name.encode()
    return source.execute(calls.mark_source_call(key, new_id())) + b" " + key


def _held_call(key: bytes, group: bytes, after: bytes, count: int) -> Call[ForeignPage]:
    call = foreign_pending_call(_ANY_GROUP, after=b"" if after == _START else after, count=count)
    return replace(call, keys=(key,), args=(group, *call.args[1:]))


def _payload_field(place: StreamSource) -> bytes | None:
    return None if place.payload_field is None else place.payload_field.encode()


def _encoded(name: str | None) -> bytes | None:
    return None if name is None else name.encode()


def _id_key(entry_id: bytes) -> tuple[int, int]:
    ms, _, number = entry_id.partition(b"-")
    return int(ms), int(number or 0)
