"""A publish makes messages pending or delayed, unless their deduplication key is held or the queue is full."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil
from typing import Any, Literal

from sluicegate import errors
from sluicegate.core import scripts
from sluicegate.core.bounds import SEPARATOR
from sluicegate.core.call import Call, Operation, Pause, or_chain, with_markers
from sluicegate.core.durability import MEMORY, Durability
from sluicegate.core.keys import QueueKeys
from sluicegate.core.packing import Unjoined, packed_parts
from sluicegate.core.tracking import batch_id_of
from sluicegate.core.transitions.eviction import EvictionCheck
from sluicegate.errors import (
    BatchChangedError,
    NotDurableError,
    PayloadTooLargeError,
    PublishUnknownError,
    QueueBackpressureError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["REFUSED", "SEALED", "TOO_OLD", "Batch", "Overload", "Published", "publish_call", "publish_operation"]

TOO_OLD, REFUSED, SEALED = -1, -2, -3
_MIN_PAUSE_SECONDS = 0.01
_MAX_PAUSE_SECONDS = 0.1

Overload = Literal["raise", "partial", "drop_oldest"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that one call publishes; message i has the id `<batch id>-<i>`.

    Attributes:
        id: identifies the batch.
        parts: the client's part of each entry, from the first separator on.
        deduplication_keys: the encoded key of each message, or nothing for a batch without deduplication.
        window_seconds: life of a marker.
        receipt_seconds: life of the receipt, 0 for none.
        oldest_seconds: the age up to which a repeat is known to be harmless.
        kind: first byte of the entries: `1`, or `2` when a marker is freed as its message ends; `5` or `6` for messages
            of a batch as a unit, `7` or `8` for jobs.
        delay_seconds: from the time at which the server stores the messages until they fall due.
        due_ms: when they fall due, in ms since the epoch; 0 to go by the delay.
        max_pending_length: messages that may wait in the queue, these included; 0 for any number.
        overload: what happens beyond that: the batch is refused whole, or in part, or the oldest messages are dropped.
        durability: what the publish waits for.
        tracked: the batch as a unit that they belong to, as `batch_name` makes it; empty for none. Then `id` is its
            name, a colon and the number of this call.
        job_kinds: of jobs, one for all or one of each, joined by the separator; empty for messages.
        first: position of the first message among all that its caller publishes.
        in_stream: whether the messages are for a stream, where Redis makes their ids.
        packs: whether messages may be stored together, in blocks.
    """

    id: bytes
    parts: Sequence[bytes] = field(repr=False)
    deduplication_keys: list[bytes] = field(default_factory=list, repr=False)
    window_seconds: float = 0
    receipt_seconds: float = 0
    oldest_seconds: float = 0
    kind: bytes = b"1"
    delay_seconds: float = 0
    due_ms: int = 0
    max_pending_length: int = 0
    overload: Overload = "raise"
    durability: Durability = MEMORY
    tracked: bytes = b""
    job_kinds: bytes = b""
    first: int = 0
    in_stream: bool = False
    packs: bool = False

    @property
    def size_bytes(self) -> int:
        """Return the size of the messages as they are sent, without their ids."""
        parts = self.parts
        return parts.size_bytes() if isinstance(parts, Unjoined) else sum(map(len, parts))

    def message_ids(self) -> list[str]:
        """List the ids of the messages by position; none for a stream."""
        if self.in_stream:
            return []
        prefix = self.id.decode() + "-"
        return [prefix + number for number in _number_texts(len(self.parts))]


@dataclass(frozen=True, slots=True)
class Published:
    """Outcomes of a batch.

    Attributes:
        accepted: messages published; `TOO_OLD` when the batch was too old to be published safely, `REFUSED` when the
            cap refused it whole.
        duplicates: by position, the id of the message that holds the deduplication key.
        refused: positions that the cap refused.
        dropped: messages that were dropped to make room.
        waiting: messages that wait in the queue, when the batch was refused whole.
        ids: of the messages of a stream by position; for a duplicate, that of the message that holds the key.
        length: messages of the stream after this publish, -1 for a queue.
        groups: names of the stream's groups, when the call named others.
    """

    accepted: int
    duplicates: dict[int, str]
    refused: tuple[int, ...] = ()
    dropped: int = 0
    waiting: int = 0
    ids: list[str] | None = None
    length: int = -1
    groups: list[bytes] | None = None


@lru_cache(maxsize=8)
def _number_texts(count: int) -> list[str]:
    """Return the positions of messages as text."""
    return [*map(str, range(count))]


@lru_cache(maxsize=8)
def _numbers(count: int) -> bytes:
    """Return the same as one text, which the script would take long to make."""
    return b"".join([b"%d\0" % number for number in range(count)])


def publish_call(keys: QueueKeys, batch: Batch, *, age_seconds: float) -> Call[Published]:
    """Prepare the call that publishes a batch which was first sent `age_seconds` ago."""
    markers = keys.markers.locate(batch.deduplication_keys)
    args: list[bytes | int] = [
        batch.id,
        ceil(age_seconds * 1000),
        ceil(batch.oldest_seconds * 1000),
        ceil(batch.window_seconds * 1000),
        ceil(batch.receipt_seconds * 1000),
        batch.kind,
        ceil(batch.delay_seconds * 1000),
        batch.due_ms,
        batch.max_pending_length,
        batch.overload.encode(),
        batch.tracked,
        batch.job_kinds,
        markers.chain,
        markers.plan,
        markers.fields,
        int(markers.distinct),
        _numbers(len(batch.parts)),
    ]
    args += (
        packed_parts(batch.id, batch.parts, batch.deduplication_keys) if _may_be_packed(batch) else (b"", *batch.parts)
    )
    return Call(
        scripts.load("publish"),
        (
            keys.pending,
            keys.counters,
            keys.wakeup,
            keys.published(batch.id),
            keys.returned,
            keys.delayed,
            keys.tracking,
            keys.tracking_ended,
            keys.tracking_news,
            *markers.buckets,
        ),
        args,
        or_chain(keys.markers, _decode),
        elapsed_arg=1,
        then=() if batch.durability is MEMORY else batch.durability.command(),
        again=lambda: publish_call(keys, batch, age_seconds=age_seconds),
    )


def _may_be_packed(batch: Batch) -> bool:
    """Return whether the messages may share stored values: they wait at once and together, and nothing tracks them."""
    return (
        batch.packs
        and not (batch.tracked or batch.job_kinds or batch.delay_seconds or batch.due_ms)
        and batch.overload != "partial"
    )


def publish_operation(
    keys: QueueKeys,
    batch: Batch,
    *,
    clock: Callable[[], float],
    block_seconds: float | None = None,
    emits_events: bool = False,
    born: float | None = None,
    eviction: EvictionCheck | None = None,
    call: Call[Published] | None = None,
) -> Operation[Published]:
    """Publish one batch, or ask again for the outcome of one; while the queue is full, repeat the call if asked to.

    Args:
        keys: the keys of the queue.
        batch: the messages.
        clock: the gateway's clock, in seconds.
        block_seconds: how long to wait for room when the queue is full, from the first call on; None: not at all.
        emits_events: whether to emit events.
        born: when the batch was first sent, if it was sent before.
        eviction: the check of the server's eviction policy, None when it is not wanted.
        call: publishes the batch at age 0; None for the call that publishes to a queue.

    Raises:
        EvictionPolicyError: the queue requires that nothing is evicted, and something may be; nothing was stored.
        QueueBackpressureError: there was no room, or the queue is stopping and does not wait; nothing was stored.
        NotDurableError: the messages were published, but their durability was not confirmed.
        BatchChangedError: the batch as a unit was published before with other messages, or its record is gone.
        PublishUnknownError: Redis could not be asked for so long that a repeat would no longer be safe.
    """
    operation = _publish(keys, batch, call or publish_call(keys, batch, age_seconds=0), clock, block_seconds, born)
    if eviction is not None:
        operation = _checked(operation, eviction)
    return _reported(keys, batch, operation) if emits_events else operation


def _checked(operation: Operation[Published], eviction: EvictionCheck) -> Operation[Published]:
    """Run the operation with the check of the eviction policy around it."""
    yield from eviction.before_publish()
    published = yield from operation
    yield from eviction.after_publish()
    return published


def _publish(
    keys: QueueKeys,
    batch: Batch,
    call: Call[Published],
    clock: Callable[[], float],
    block_seconds: float | None,
    born: float | None,
) -> Operation[Published]:
    now, asked_before = clock(), born is not None
    born = now if born is None else born
    deadline, pause = now + (block_seconds or 0), _MIN_PAUSE_SECONDS
    published = yield from _attempt(batch, call, born, now - born, None, asked_before, clock)
    while published.accepted == REFUSED:
        left = deadline - clock()
        if left <= 0 or (yield Pause(min(pause, left))):
            raise _backpressure(keys, batch, published.waiting, stopping=left > 0)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        now = clock()
        patience = max(deadline - now, _MIN_PAUSE_SECONDS)
        published = yield from _attempt(batch, call, born, now - born, patience, False, clock)
    return published


def _attempt(
    batch: Batch,
    call: Call[Published],
    born: float,
    age_seconds: float,
    patience_seconds: float | None,
    asked_before: bool,
    clock: Callable[[], float],
) -> Operation[Published]:
    """Make one call and check its answer; a call that was not executed leaves a batch that was sent before unknown."""
    attempt = call.later(age_seconds) if age_seconds else call
    if patience_seconds is not None:
        attempt = replace(attempt, patience_seconds=patience_seconds)
    try:
        reply: Any = yield from with_markers(attempt, clock, born)
    except errors.RedisUnavailableError as error:
        if not (asked_before or isinstance(error, errors.RetryBudgetExhaustedError)):
            raise
        raise PublishUnknownError(
            f"{error}; whether the {len(batch.parts)} messages were published is unknown. `publish_again` with this "
            f"error publishes none of them twice within {batch.oldest_seconds:.0f} s of the publish",
            ids=batch.message_ids(),
            calls=(call,),
            born=born,
            batch=batch,
        ) from error
    except PayloadTooLargeError as error:
        raise _located(batch, error) from error
    published, confirmation = reply if call.then else (reply, None)
    if batch.tracked:
        _refuse_other_batch(batch, published)
    if published.accepted == TOO_OLD:
        raise PublishUnknownError(
            f"a publish of {len(batch.parts)} messages was retried for longer than {batch.oldest_seconds:.0f} s, after "
            "which a repeat could publish them twice; look for them "
            f"{'in the stream' if batch.in_stream else 'by their ids'} before publishing again",
            ids=batch.message_ids(),
        )
    if call.then and published.accepted != REFUSED and not batch.durability.confirmed(confirmation):
        refused = batch.durability.forbidden(confirmation)
        raise (errors.DurabilityAccessError if refused else NotDurableError)(
            f"{published.accepted} of {len(batch.parts)} messages were published, but "
            f"{batch.durability.shortfall(confirmation)}",
            ids=published.ids or batch.message_ids(),
            published=published,
        )
    return published  # type: ignore[no-any-return]


def _refuse_other_batch(batch: Batch, published: Published) -> None:
    """Raise when an earlier attempt to publish the batch did not have these messages in this call."""
    name, call = batch_id_of(batch.tracked), batch.id.rpartition(b":")[2].decode()
    if published.accepted == TOO_OLD:
        raise BatchChangedError(
            f"the record of batch {name!r} is gone: it was removed after its retention, or by another program. What it "
            "published before is unknown; publish under another batch_id"
        )
    known = published.accepted + len(published.duplicates) + len(published.refused)
    if published.accepted == SEALED or (published.accepted != REFUSED and known != len(batch.parts)):
        raise BatchChangedError(
            f"batch {name!r} was published before with other messages than those of call {call}: a repeat publishes "
            "the same messages in the same order. Publish others under another batch_id"
        )


def _decode(reply: list[Any]) -> Published:
    head = reply[0]
    if head == REFUSED:
        return Published(REFUSED, {}, waiting=reply[1])
    duplicates = (
        {int(reply[i]): reply[i + 1].decode(errors="replace") for i in range(1, len(reply), 2)}
        if len(reply) > 1
        else {}
    )
    if isinstance(head, list):
        return Published(head[0], duplicates, refused=tuple(head[2:]), dropped=head[1])
    return Published(head, duplicates)


def _located(batch: Batch, error: PayloadTooLargeError) -> PayloadTooLargeError:
    """Turn a gateway's error about an argument into one about a message."""
    at = next((at for at, part in enumerate(batch.parts) if len(part) == error.size), 0)
    position = batch.first + at
    _, key, headers, payload = batch.parts[at].split(SEPARATOR, 3)
    return PayloadTooLargeError(
        f"the message at position {position} has {len(payload)} bytes of payload, {len(headers)} of headers and "
        f"{len(key)} of deduplication key: {error}. Nothing of its call of {len(batch.parts)} messages was stored; "
        "store the bulk elsewhere and publish where it is, or raise the limit",
        size=error.size,
        limit=error.limit,
        position=position,
    )


def _backpressure(keys: QueueKeys, batch: Batch, waiting: int, *, stopping: bool) -> QueueBackpressureError:
    count, limit = len(batch.parts), batch.max_pending_length
    why = ", and this queue object is stopping, so that nobody waits for room" if stopping else ""
    remediation = "claim some, raise max_pending_length, or wait for room with pending_overload_policy='block'"
    if count > limit:
        remediation = "a call of more messages than max_pending_length never fits; publish fewer, or with partial=True"
    return QueueBackpressureError(
        f"queue {keys.name!r} holds {waiting} waiting messages, {limit} at most{why}; {count} more were refused and "
        "nothing was stored",
        queue=keys.name,
        limit=limit,
        waiting=waiting,
        count=count,
        remediation=remediation,
    )


def _reported(keys: QueueKeys, batch: Batch, operation: Operation[Published]) -> Operation[Published]:
    """Run the operation and emit an event for each outcome."""
    count = len(batch.parts)
    try:
        published = yield from operation
    except QueueBackpressureError as error:
        yield _event(keys, batch, EventOutcome.REFUSED, count, error=error)
        raise
    except NotDurableError as error:
        if isinstance(error.published, Published):
            yield from _events(keys, batch, error.published)
        yield _event(keys, batch, EventOutcome.FAILURE, count, error=error)
        raise
    except Exception as error:
        yield _event(keys, batch, EventOutcome.FAILURE, count, error=error)
        raise
    yield from _events(keys, batch, published)
    return published


def _events(keys: QueueKeys, batch: Batch, published: Published) -> Iterator[QueueEvent]:
    ids = published.ids
    if published.accepted:
        delay = batch.delay_seconds or None
        yield _event(keys, batch, EventOutcome.SUCCESS, published.accepted, ids=ids, seconds=delay)
    if published.duplicates:
        yield _event(keys, batch, EventOutcome.DUPLICATE, len(published.duplicates), ids=ids)
    if published.refused:
        yield _event(keys, batch, EventOutcome.REFUSED, len(published.refused))
    if published.dropped:
        yield QueueEvent(EventOperation.PUBLISH, EventOutcome.DROPPED, keys.name, published.dropped)


def _event(
    keys: QueueKeys, batch: Batch, outcome: EventOutcome, count: int, *, ids: list[str] | None = None, **more: Any
) -> QueueEvent:
    ids = ids or batch.message_ids()
    message_id = ids[0] if len(batch.parts) == 1 and ids else None
    return QueueEvent(EventOperation.PUBLISH, outcome, keys.name, count, message_id=message_id, **more)
