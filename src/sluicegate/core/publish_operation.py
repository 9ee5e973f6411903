"""The operation behind every publish: one call, repeated while the queue is full and the caller would wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from sluicegate.core import calls, replies
from sluicegate.core.call import Call, Operation, Pause
from sluicegate.core.entry import SEPARATOR
from sluicegate.core.eviction import Eviction
from sluicegate.core.keys import QueueKeys
from sluicegate.core.values import Batch
from sluicegate.errors import (
    DurabilityAccessError,
    NotDurableError,
    PayloadTooLargeError,
    PublishUnknownError,
    QueueBackpressureError,
    RedisUnavailableError,
    RetryBudgetExhaustedError,
)
from sluicegate.events import EventOperation, EventOutcome, QueueEvent

__all__ = ["publish"]

_SHORTEST_PAUSE_SECONDS = 0.01
_MAX_PAUSE_SECONDS = 0.1


def publish(
    keys: QueueKeys,
    batch: Batch,
    *,
    clock: Callable[[], float],
    block_seconds: float | None = None,
    emits_events: bool = False,
    born: float | None = None,
    eviction: Eviction | None = None,
) -> Operation[replies.Published]:
    """Publish one batch, or ask again for the outcome of one.

    Args:
        keys: of the queue.
        batch: what to publish.
        clock: of the gateway, in seconds.
        block_seconds: how long to wait for room when the queue is full, from the first call on; None: not at all.
        tell: whether events are wanted.
        born: when the batch was first sent, when it was before.
        eviction: what is known of the server's eviction policy, None when nobody wants to know.

    Raises:
        EvictionPolicyError: the queue requires that nothing is evicted, and something may be; nothing was stored.
        QueueBackpressureError: there was no room, or the queue is stopping and waits for none; nothing was stored.
        NotDurableError: published, but not confirmed to be as durable as asked.
        PublishUnknownError: Redis could not be asked for so long that a repeat would no longer be safe.
    """
    operation = _publish(keys, batch, clock, block_seconds, born)
    if eviction is not None:
        operation = _watched(operation, eviction)
    return _told(keys, batch, operation) if emits_events else operation


def _watched(operation: Operation[replies.Published], eviction: Eviction) -> Operation[replies.Published]:
    yield from eviction.before()
    published = yield from operation
    yield from eviction.after()
    return published


def _publish(
    keys: QueueKeys, batch: Batch, clock: Callable[[], float], block_seconds: float | None, born: float | None
) -> Operation[replies.Published]:
    call, now, asked_before = calls.publish(keys, batch, age_seconds=0), clock(), born is not None
    born = now if born is None else born
    deadline, pause = now + (block_seconds or 0), _SHORTEST_PAUSE_SECONDS
    published = yield from _attempt(batch, call, born, now - born, None, asked_before)
    while published.accepted == replies.REFUSED:
        left = deadline - clock()
        if left <= 0 or (yield Pause(min(pause, left))):
            raise _backpressure(keys, batch, published.waiting, stopping=left > 0)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        now = clock()
        published = yield from _attempt(
            batch, call, born, now - born, max(deadline - now, _SHORTEST_PAUSE_SECONDS), False
        )
    return published


def _attempt(
    batch: Batch,
    call: Call[replies.Published],
    born: float,
    age_seconds: float,
    patience_seconds: float | None,
    asked_before: bool,
) -> Operation[replies.Published]:
    """One call, and what its answer means; one that was not executed leaves what is `asked_before` unknown."""
    attempt = call.later(age_seconds)
    if patience_seconds is not None:
        attempt = replace(attempt, patience_seconds=patience_seconds)
    try:
        reply = yield attempt
    except RedisUnavailableError as error:
        if not (asked_before or isinstance(error, RetryBudgetExhaustedError)):
            raise
        raise PublishUnknownError(
            f"{error}; whether the {len(batch.parts)} messages were published is unknown, and the prepared calls in "
            f"`calls` tell: "
            f"running them within {batch.oldest_seconds:.0f} s of the publish repeats nothing",
            ids=batch.message_ids(),
            calls=(call,),
            born=born,
            batch=batch,
        ) from error
    except PayloadTooLargeError as error:
        raise _located(batch, error) from error
    published, confirmation = reply if call.then else (reply, None)
    if published.accepted == replies.TOO_OLD:
        raise PublishUnknownError(
            f"a publish of {len(batch.parts)} messages was retried for longer than {batch.oldest_seconds:.0f} s, after "
            "which a repeat could publish them twice; look for them by their ids before publishing again",
            ids=batch.message_ids(),
        )
    if published.accepted != replies.REFUSED and not batch.durability.confirmed(confirmation):
        refused = batch.durability.forbidden(confirmation)
        raise (DurabilityAccessError if refused else NotDurableError)(
            f"{published.accepted} of {len(batch.parts)} messages were published, but "
            f"{batch.durability.shortfall(confirmation)}",
            ids=batch.message_ids(),
            published=published,
        )
    return published  # type: ignore[no-any-return]


def _located(batch: Batch, error: PayloadTooLargeError) -> PayloadTooLargeError:
    """The error of a gateway about an argument, as one about a message."""
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
    why = " and is being stopped here, so that nobody waits for room" if stopping else ""
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


# ---------------------------------------------------------------------- events


def _told(keys: QueueKeys, batch: Batch, operation: Operation[replies.Published]) -> Operation[replies.Published]:
    """The same operation, with an event for each outcome."""

    def event(outcome: EventOutcome, count: int, **more: Any) -> QueueEvent:
        known = batch.message_ids()[0] if len(batch.parts) == 1 else None
        return QueueEvent(EventOperation.PUBLISH, outcome, keys.name, count, message_id=known, **more)

    def outcomes(published: replies.Published) -> Iterator[QueueEvent]:
        if published.accepted:
            yield event(EventOutcome.SUCCESS, published.accepted, seconds=batch.delay_seconds or None)
        if published.duplicates:
            yield event(EventOutcome.DUPLICATE, len(published.duplicates))
        if published.refused:
            yield event(EventOutcome.REFUSED, len(published.refused))
        if published.dropped:
            yield QueueEvent(EventOperation.PUBLISH, EventOutcome.DROPPED, keys.name, published.dropped)

    try:
        published = yield from operation
    except QueueBackpressureError as error:
        yield event(EventOutcome.REFUSED, len(batch.parts), error=error)
        raise
    except NotDurableError as error:
        if error.published is not None:
            yield from outcomes(error.published)
        yield event(EventOutcome.FAILURE, len(batch.parts), error=error)
        raise
    except Exception as error:
        yield event(EventOutcome.FAILURE, len(batch.parts), error=error)
        raise
    yield from outcomes(published)
    return published
