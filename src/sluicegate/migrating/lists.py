"""Moves lists of another library into a queue, page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sluicegate._session import new_id
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.keys import QueueKeys
from sluicegate.errors import PayloadTooLargeError
from sluicegate.gateway import RedisGateway
from sluicegate.migrating import calls
from sluicegate.migrating.calls import Entered, State, TakenPage
from sluicegate.migrating.plan import MovedPart
from sluicegate.migrating.sources import (
    JobQueueSource,
    MessageQueueSource,
    Moved,
    entry_tail,
    payload_of_envelope,
    read_job,
)

__all__ = ["JobReader", "ListMove", "MessageReader", "Reader", "count_live", "move_list"]

T = TypeVar("T")
_TOO_LARGE = "larger than the new server accepts"
_KNOWN = "its id is known in the new place"
_WINDOW = 500


@dataclass(slots=True)
class Converted:
    """A page as it enters its new place.

    Attributes:
        messages: of the page.
        values: the stored value of each of them.
        aside: values that cannot be moved, with the reason.
        gone: values that stand for nothing that is stored.
        records: keys to drop after the page has entered, with the expected value of their field.
    """

    messages: list[Moved] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    aside: list[tuple[bytes, str]] = field(default_factory=list)
    gone: int = 0
    records: list[tuple[bytes, bytes]] = field(default_factory=list)


class MessageReader:
    """Reads values of redis-message-queue.

    Args:
        source: the queue.
        gateway: of its server.
    """

    kind = b"1"
    dropped_field = b""

    def __init__(self, source: MessageQueueSource, gateway: RedisGateway) -> None:
        self._source = source
        self._gateway = gateway

    def convert(self, page: TakenPage, state: State, part: str) -> Converted:
        """Turn a page into messages."""
        made = Converted(values=list(page.values))
        deliveries = self._deliveries(page.values) if part == "in flight" else None
        prefix, note = b"%b.%x-" % (page.source, page.number), self._note(page.now_ms, state, part)
        for position, value in enumerate(page.values):
            payload, raw = payload_of_envelope(value)
            count = deliveries[position] if deliveries is not None else 0
            tail = entry_tail(page.now_ms, count, prefix + b"%d" % position, b"", payload)
            made.messages.append(Moved((tail, note), raw and state == "waiting"))
        return made

    def live(self, values: Sequence[bytes]) -> list[bool]:
        """Tell which claimed values a consumer may be working on: those without an expired deadline."""
        deadlines, counts, _ = self._source.notes()
        now, notes = self._gateway.execute(calls.read_notes_call(deadlines, counts, values))
        return [deadline is None or deadline > now for deadline, _ in notes]

    def _deliveries(self, values: Sequence[bytes]) -> list[int]:
        deadlines, counts, _ = self._source.notes()
        return [count for _, count in self._gateway.execute(calls.read_notes_call(deadlines, counts, values))[1]]

    @staticmethod
    def _note(now_ms: int, state: State, part: str) -> bytes:
        if state == "waiting":
            return b""
        if state == "completed":
            return b"%d" % now_ms
        reason, text = {
            "dead": (b"max_delivery_count", b"a dead letter of redis-message-queue"),
            "failed": (b"handler_error", b"its handler failed in redis-message-queue"),
        }[part]
        return SEPARATOR.join((b"%d" % now_ms, reason, b"", text))


class JobReader:
    """Reads job ids and the hashes of the jobs.

    Args:
        source: the queue.
        gateway: of its server.
        live_seconds: how long after its claim a worker may be working on a job.
        alone: whether each hash is in a slot of its own.
    """

    kind = b"7"
    dropped_field = b"id"

    def __init__(self, source: JobQueueSource, gateway: RedisGateway, live_seconds: float, *, alone: bool) -> None:
        self._source = source
        self._gateway = gateway
        self._live_ms = live_seconds * 1000
        self._alone = alone

    def convert(self, page: TakenPage, state: State, part: str) -> Converted:
        """Turn a page of ids into jobs."""
        made, seen = Converted(), set()
        for job_id, (left_ms, fields) in zip(page.values, self._records(page.values), strict=True):
            if job_id in seen:
                made.gone += 1
            elif fields:
                made.values.append(job_id)
                made.messages.append(read_job(job_id, fields, left_ms, page.now_ms, state))
                made.records.append((self._source.record(job_id), fields.get(b"id", b"")))
            elif state == "waiting":
                made.aside.append((job_id, "an id without a record"))
            else:
                made.gone += 1  # its record has expired, as there
            seen.add(job_id)
        return made

    def live(self, values: Sequence[bytes]) -> list[bool]:
        """Tell which claimed jobs a worker may be working on: those that were claimed a short time ago."""
        now, _ = self._gateway.execute(calls.describe_keys_call([self._source.key("processing")]))
        found = []
        for _, fields in self._records(values):
            claimed = fields.get(b"claimed_at_ms") or fields.get(b"enqueued_at_ms") or b"0"
            found.append(claimed.isdigit() and now - int(claimed) < self._live_ms)
        return found

    def drop(self, records: Sequence[tuple[bytes, bytes]]) -> None:
        """Drop the hashes of jobs that are in their new place."""
        for chunk in self._chunks(records):
            keys, expected = [key for key, _ in chunk], [value for _, value in chunk]
            self._gateway.execute(calls.drop_keys_call(keys, self.dropped_field, expected))

    def _records(self, ids: Sequence[bytes]) -> list[tuple[int, dict[bytes, bytes]]]:
        chunks = self._chunks([self._source.record(job_id) for job_id in ids])
        pages = self._gateway.execute_many([calls.read_hashes_call(keys) for keys in chunks])
        for page in pages:
            if isinstance(page, Exception):
                raise page
        return [record for page in pages for record in page]

    def _chunks(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        size = 1 if self._alone else calls.PAGE_SIZE
        return (items[first : first + size] for first in range(0, len(items), size))


Reader = MessageReader | JobReader


@dataclass(frozen=True, slots=True)
class ListMove:
    """The move of one list.

    Attributes:
        part: as the plan calls it.
        key: the list.
        state: what its messages become.
        notes: keys with notes about its values.
        leave_live: leave what a consumer may be working on.
    """

    part: str
    key: bytes
    state: State
    notes: tuple[bytes, ...] = ()
    leave_live: bool = False


def move_list(
    source: RedisGateway,
    target: RedisGateway,
    keys: QueueKeys,
    reader: Reader,
    move: ListMove,
    moved: MovedPart,
    progress: Callable[[str, int], None],
) -> None:
    """Move a list to its end.

    A page is taken out of the list, enters the queue, and is dropped with the call that takes the next one. Whoever
    runs it again after an interruption is given the same page, and the queue knows whether that has entered.

    Args:
        source: the server of the list.
        target: the server of the queue.
        keys: of the queue.
        reader: reads what the list holds.
        move: what to move.
        moved: where to count.
        progress: called with the part and the number of messages of each page.
    """
    done, nonce, skipped = 0, new_id(), 0
    while True:
        wanted: list[bytes] | None = None
        if move.leave_live:
            wanted, skipped = _idle(source, reader, move.key, skipped)
        page = source.execute(calls.take_call(move.key, done=done, nonce=nonce, notes=move.notes, wanted=wanted))
        if not page.values:
            if move.leave_live and wanted:
                continue  # what was idle has gone meanwhile
            return
        _move_page(source, target, keys, reader, move, page, moved)
        progress(move.part, len(page.values))
        done = page.number


def _move_page(
    source: RedisGateway,
    target: RedisGateway,
    keys: QueueKeys,
    reader: Reader,
    move: ListMove,
    page: TakenPage,
    moved: MovedPart,
) -> None:
    origin, name = page.source + b" " + move.key, b"%d-0" % page.number
    made = reader.convert(page, move.state, move.part)
    if made.aside or made.gone:
        last = target.execute(calls.moved_page_call(keys, origin))
        if last is not None and int(last.split(b"-")[0]) >= page.number:
            moved.known += len(page.values)
            return  # it has entered, and its records were dropped; the run ended before the page was
    moved.known += made.gone
    for reason in {reason for _, reason in made.aside}:
        values = [value for value, why in made.aside if why == reason]
        moved.leave(reason, source.execute(calls.set_aside_call(move.key, page.number, values)))
    entered = Entered(before=True)
    while made.messages:
        values = [value for message in made.messages for value in message.values]
        try:
            entered = target.execute(calls.move_in_call(keys, origin, name, values, state=move.state, kind=reader.kind))
        except PayloadTooLargeError as error:
            _set_aside(source, move.key, page.number, made, _large(made, error.limit), _TOO_LARGE, moved)
            continue
        if not entered.known:
            break
        _set_aside(source, move.key, page.number, made, entered.known, _KNOWN, moved)
    if entered.before:
        moved.known += len(made.messages)
    else:
        moved.moved += entered.count
        moved.raw += sum(message.raw for message in made.messages)
    if isinstance(reader, JobReader):
        reader.drop(made.records)


def _large(made: Converted, limit: int | None) -> list[int]:
    """Return the positions of the messages over the limit; of the largest, if the server did not say which limit."""
    sizes = [max(map(len, message.values)) for message in made.messages]
    most = min(limit or max(sizes) - 1, max(sizes) - 1)
    return [position for position, size in enumerate(sizes) if size > most]


def _set_aside(
    source: RedisGateway,
    key: bytes,
    number: int,
    made: Converted,
    positions: Sequence[int],
    reason: str,
    moved: MovedPart,
) -> None:
    """Set messages of the page aside, so that the others can enter."""
    values = [made.values[position] for position in positions]
    moved.leave(reason, source.execute(calls.set_aside_call(key, number, values)))
    for position in sorted(positions, reverse=True):
        del made.messages[position], made.values[position]
        if made.records:
            del made.records[position]


def _idle(source: RedisGateway, reader: Reader, key: bytes, skipped: int) -> tuple[list[bytes], int]:
    """Return claimed values that no consumer is working on, and how many others are before them."""
    while True:
        window = source.execute(calls.read_list_call(key, offset=skipped, count=_WINDOW))
        if not window:
            return [], skipped
        live = reader.live(window)
        idle = [value for value, is_live in zip(window, live, strict=True) if not is_live]
        skipped += sum(live)
        if idle:
            return idle, skipped


def count_live(source: RedisGateway, reader: Reader, key: bytes) -> int:
    """Count the values of a list that a consumer may be working on."""
    count = offset = 0
    while window := source.execute(calls.read_list_call(key, offset=offset, count=_WINDOW)):
        count += sum(reader.live(window))
        offset += len(window)
    return count
